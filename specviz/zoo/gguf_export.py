"""Export a checkpoint of Llama's architecture as one GGUF file for llama.cpp, with its byte-level BPE
tokenizer and its chat template.

llama.cpp rotates pairs of adjacent numbers, Hugging Face's layout rotates halves, so the rows of the query
and key projections are reordered. Matrices are written in 16 bits, norms in 32. Needs the package ``gguf``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoints.config_defaults import with_defaults
from ..checkpoints.sizes import check_config
from ..checkpoints.weights import ModelError, Weights, read_json
from ..models.llama import rope_of
from .registry import Entry, ZooError

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
PLAIN = 1  # kinds of tokens in a GGUF file
CONTROL = 3
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
BLOCK = 32  # numbers of a row that share a scale in Q8_0; rows of another length stay in 32 bits
# llama.cpp knows how text is split before the merges by name: single digits and then GPT-2's pattern is
# what it calls smollm.
SPLITS = {("ByteLevel",): "gpt-2", ("Digits", "ByteLevel"): "smollm"}


def export(entry: Entry, out: Path, weights: str = "half") -> dict[str, Any]:
    """Write a model of models.yaml to one GGUF file; return {path, bytes, tensors, tokens}. weights:
    "half": matrices in 16 bits, of the kind that they are stored in if they are; "full": in 32 bits, so
    that llama.cpp rounds nothing, for comparisons; "q8_0": matrices in llama.cpp's eight bits. Raises
    ZooError for a model that cannot be written."""
    try:
        import gguf
    except ImportError:
        raise ZooError(
            "Writing a GGUF file needs the package gguf: pip install gguf.", "gguf_export.package"
        ) from None
    folder = entry.folder()
    try:
        config = _checked(read_json(folder, "config.json"), entry.name)
        tensors = _tensors(folder, config, weights != "half")
    except ModelError as error:
        raise ZooError(f"{entry.name} cannot be written as GGUF: {error}.", "gguf_export.unfit") from None
    if not out.parent.is_dir():
        raise ZooError(f"{out} cannot be written: there is no such folder.", "gguf_export.folder")
    kind = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(str(out), "llama")
    _describe(writer, config, entry.name)
    count = _tokenizer(writer, folder, entry.name, config)
    kinds = {torch.float32: kind.F32, torch.float16: kind.F16, torch.bfloat16: kind.BF16}
    for name, tensor in tensors.items():
        if weights == "q8_0" and tensor.ndim == 2 and tensor.shape[1] % BLOCK == 0:
            writer.add_tensor(name, gguf.quants.quantize(tensor.numpy(), kind.Q8_0), raw_dtype=kind.Q8_0)
            continue
        raw = tensor.contiguous().view(torch.uint8) if tensor.dtype == torch.bfloat16 else tensor.contiguous()
        writer.add_tensor(name, raw.numpy(), raw_dtype=kinds[tensor.dtype])
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    except OSError as error:
        raise ZooError(f"{out} cannot be written: {error.strerror}.", "gguf_export.write") from None
    finally:
        writer.close()
    return {"path": str(out), "bytes": out.stat().st_size, "tensors": len(tensors), "tokens": count}


def _checked(config: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the configuration with its class's defaults for missing keys. Raises ModelError for one that
    this layout cannot express."""
    if config.get("model_type") != "llama":
        raise ModelError(
            f"it is a {config.get('model_type')}, and only Llama's architecture is written",
            "gguf_export.architecture",
        )
    check_config(config, name)
    lacking = [size for size in SIZES if not config.get(size)]
    if lacking:
        raise ModelError(f"its config.json has no {', '.join(lacking)}", "gguf_export.sizes")
    config = with_defaults(config)
    if config["attention_bias"] or config["mlp_bias"] or config["hidden_act"] != "silu":
        raise ModelError("its layers are not those of a plain Llama", "gguf_export.layers")
    rope = rope_of(config)
    if rope["rope_type"] != "default":
        raise ModelError("its rotary positions are scaled", "gguf_export.rotary")
    return config | {"rope_theta": rope["rope_theta"]}


def _tensors(folder: Path, config: dict[str, Any], full: bool) -> dict[str, Tensor]:
    """Return the tensors by their names in the file: matrices in 16 bits, or in 32 (``full``); vectors in
    32."""
    stored = config.get("dtype") or config.get("torch_dtype")
    store = torch.bfloat16 if stored == "bfloat16" else torch.float16
    weights = Weights(folder, torch.device("cpu"), torch.float32 if full else store)
    heads, keys = (
        config["num_attention_heads"],
        config.get("num_key_value_heads") or config["num_attention_heads"],
    )
    names = {
        there: here
        for there, here in TOP.items()
        if there != "lm_head.weight" or not config.get("tie_word_embeddings")
    }
    for layer in range(config["num_hidden_layers"]):
        names |= {
            f"model.layers.{layer}.{there}.weight": f"blk.{layer}.{here}.weight"
            for there, here in LAYER.items()
        }
    wide, inner = config["hidden_size"], config["intermediate_size"]
    size = config.get("head_dim") or wide // heads
    shapes = {
        "token_embd": (config["vocab_size"], wide),
        "output": (config["vocab_size"], wide),
        "attn_q": (heads * size, wide),
        "attn_k": (keys * size, wide),
        "attn_v": (keys * size, wide),
        "attn_output": (wide, heads * size),
        "ffn_gate": (inner, wide),
        "ffn_up": (inner, wide),
        "ffn_down": (wide, inner),
    }
    out = {}
    for there, here in names.items():
        tensor = weights.get(there, *shapes.get(here.split(".")[-2], (wide,)))
        if here.endswith(("attn_q.weight", "attn_k.weight")):
            tensor = adjacent_pairs(tensor, heads if here.endswith("attn_q.weight") else keys)
        out[here] = tensor.float() if tensor.ndim == 1 else tensor
    return out


def adjacent_pairs(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of a projection [heads * size, in] for llama.cpp's rotary embedding: rows i and i +
    size / 2 of a head, which rotate as a pair, become adjacent."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).transpose(1, 2).reshape(weight.shape)


def _describe(writer: Any, config: dict[str, Any], name: str) -> None:
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_name(name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(float(config["rope_theta"]))
    writer.add_rope_dimension_count(size)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_vocab_size(config["vocab_size"])


def _tokenizer(writer: Any, folder: Path, name: str, config: dict[str, Any]) -> int:
    """Write tokens, merges, special ids and the template; return the number of tokens. Raises ZooError."""
    from .tokenizer import open_tokenizer, read_json

    stored = read_json(folder, "tokenizer.json")
    split = stored.get("pre_tokenizer") or {}
    steps = tuple(step.get("type") for step in split.get("pretokenizers", [split] if split else []))
    model = stored.get("model") or {}
    if model.get("type") != "BPE" or steps not in SPLITS:
        raise ZooError(
            f"The tokenizer of {name} splits text in a way that llama.cpp has no name for here.",
            "gguf_export.tokenizer",
        )
    tokenizer = open_tokenizer(folder)
    added = {int(i): str(t) for i, t in tokenizer.added_tokens_decoder.items()}
    names = {i: token for token, i in tokenizer.get_vocab().items()}
    tokens = [names.get(i, f"[PAD{i}]") for i in range(config["vocab_size"])]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges", ())]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(SPLITS[steps])
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if i in added or i not in names else PLAIN for i in range(len(tokens))])
    writer.add_token_merges(merges)
    for add, token in (
        (writer.add_bos_token_id, tokenizer.bos_token_id),
        (writer.add_eos_token_id, tokenizer.eos_token_id),
        (writer.add_pad_token_id, tokenizer.pad_token_id),
    ):
        if token is not None:
            add(token)
    writer.add_add_bos_token(False)
    if getattr(tokenizer, "chat_template", None):
        writer.add_chat_template(tokenizer.chat_template)
    return len(tokens)
