"""Tiny GGUF files, written with the package gguf as llama.cpp's converter writes them, from networks of
transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

from ..run.fakes import byte_level

VOCAB = 300
HIDDEN = 64
HEADS = 4
LAYERS = 3
SIZE = 32
INNER = 96
EXPERTS = 4
ARCHITECTURES = {
    "llama": "Llama",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "qwen3moe": "Qwen3Moe",
    "lfm2": "Lfm2",
    "smollm3": "SmolLM3",
    "granite": "Granite",
    "olmo2": "Olmo2",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "gemma3": "Gemma3Text",
    "phi3": "Phi3",
}


def network(kind: str, seed: int = 0, **more: Any) -> torch.nn.Module:
    """A random network of an architecture, as transformers makes it."""
    name = ARCHITECTURES[kind]
    size = {} if kind == "phi3" else {"head_dim": SIZE}
    if kind in ("llama", "qwen2", "phi3", "smollm3", "granite", "olmo2", "lfm2"):
        size = {}
    if kind == "qwen3moe":
        size |= {
            "num_experts": EXPERTS,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "norm_topk_prob": True,
        }
    if kind == "lfm2":
        size = {
            "full_attn_idxs": [1],
            "conv_L_cache": 3,
            "block_auto_adjust_ff_dim": False,
            "norm_eps": 1e-5,
        }
    if kind == "granite":
        size = {
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "logits_scaling": 2.0,
        }
    if kind == "smollm3":
        size = {"no_rope_layer_interval": 4, "use_sliding_window": False}
    if kind in ("gemma2", "gemma3"):
        size |= {"query_pre_attn_scalar": SIZE, "sliding_window": 8}
    if kind == "gemma3":
        size["rope_parameters"] = {
            "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
        }
    else:
        size["rope_parameters"] = {"rope_type": "default", "rope_theta": 5000.0}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        num_hidden_layers=5 if kind == "smollm3" else LAYERS,  # its fourth layer does not rotate
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        intermediate_size=INNER,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        tie_word_embeddings=kind.startswith("gemma") or kind == "lfm2",
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        initializer_range=0.2,
        **size | more,
    )
    torch.manual_seed(seed)
    with torch.no_grad():
        net = getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config).eval()
        for weight in net.parameters():  # biases and norms start as constants
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.2)
    return net


def neighbours(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows i and i + size / 2 of each head, which rotate as a pair, next to each other."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).transpose(1, 2).reshape(weight.shape)


def write(
    path: Path,
    kind: str = "llama",
    net: torch.nn.Module | None = None,
    blocks: str = "F32",
    keys: dict[str, Any] | None = None,
    drop: tuple[str, ...] = (),
    tensors: dict[str, np.ndarray] | None = None,
    pre: str = "gpt-2",
) -> torch.nn.Module:
    """Write the network (a random one by default); blocks: the type of its matrices. keys: metadata that is
    added, None to leave one out. drop: tensors left out; tensors: added ones. Returns the network that
    transformers would run."""
    net = network(kind) if net is None else net
    config, names = net.config, gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, kind.upper()), 5)
    writer = gguf.GGUFWriter(str(path), kind)
    theta = config.rope_parameters.get("full_attention", config.rope_parameters)["rope_theta"]
    size = getattr(config, "head_dim", None) or HIDDEN // HEADS
    described = {
        "context_length": config.max_position_embeddings,
        "embedding_length": HIDDEN,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": theta,
        "rope.dimension_count": size,
        "attention.key_length": size,
        "attention.value_length": size,
    }
    if kind in ("gemma2", "gemma3"):
        described["attention.sliding_window"] = config.sliding_window
    if kind == "granite":
        described |= {
            "attention.scale": config.attention_multiplier,
            "embedding_scale": config.embedding_multiplier,
            "residual_scale": config.residual_multiplier,
            "logit_scale": config.logits_scaling,
        }
    if kind == "gemma2":
        described |= {
            "attn_logit_softcapping": config.attn_logit_softcapping,
            "final_logit_softcapping": config.final_logit_softcapping,
        }
    if kind == "qwen3moe":
        described |= {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": 32}
    if kind == "lfm2":
        described |= {"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3, "vocab_size": VOCAB}
    if kind == "gemma3":
        described["rope.freq_base_swa"] = 1000.0
    metadata = {f"{kind}.{key}": value for key, value in described.items()} | vocabulary(pre) | (keys or {})
    for key, value in metadata.items():
        add(writer, key, value)
    done: dict[str, np.ndarray] = {}
    for name, weight in net.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        weight = weight.float()
        if name.endswith("experts.gate_up_proj"):  # transformers keeps both in one
            at = f"blk.{name.split('.')[2]}"
            gate, up = weight.chunk(2, 1)
            done |= {f"{at}.ffn_gate_exps.weight": gate.numpy(), f"{at}.ffn_up_exps.weight": up.numpy()}
            continue
        there = names.get_name(name, (".weight", ".bias"))
        if name.endswith("experts.down_proj"):
            there = f"{there}.weight"
        if there.endswith("shortconv.conv.weight"):
            weight = weight[:, 0]
        if kind in ("llama", "smollm3", "granite") and (".attn_q." in there or ".attn_k." in there):
            weight = neighbours(weight, HEADS if ".attn_q." in there else 2)
        if kind.startswith("gemma") and there.endswith("norm.weight"):
            weight = weight + 1
        done[there] = weight.numpy()
    for name, weight in (done | (tensors or {})).items():
        if name in drop:
            continue
        if blocks == "F32" or weight.ndim < 2:
            writer.add_tensor(name, np.ascontiguousarray(weight, np.float32))
        else:
            type_ = getattr(gguf.GGMLQuantizationType, blocks)
            writer.add_tensor(
                name, gguf.quants.quantize(np.ascontiguousarray(weight, np.float32), type_), raw_dtype=type_
            )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return net


def vocabulary(pre: str) -> dict[str, Any]:
    """The metadata of the byte-level tokenizer of 300 tokens."""
    import json

    tokenizer = byte_level(VOCAB)
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    names = {i: token for token, i in tokenizer.get_vocab().items()}
    tokens = [names.get(i, f"[PAD{i}]") for i in range(VOCAB)]
    special = set(tokenizer.all_special_ids)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            3 if i in special or tokens[i].startswith("[PAD") else 1 for i in range(VOCAB)
        ],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": tokenizer.chat_template,
    }


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """A metadata key with the value type that its Python type stands for."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        (writer.add_uint32 if value >= 0 else writer.add_int32)(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value is not None:
        writer.add_array(key, value)
