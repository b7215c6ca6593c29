"""Translate the metadata of a GGUF file to a config.json of transformers, per architecture.

Every metadata key of the architecture must have a translation, and every value must be one that the
translation can express. An unknown key is an error, because ignoring it could run another model than the
file describes.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import torch

from ..checkpoints.gguf_names import LAYOUTS, architecture, positive_integer
from ..checkpoints.gguf_reader import GGUFFile
from ..checkpoints.weights import ModelError

CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "qwen3moe": ("qwen3_moe", "Qwen3MoeForCausalLM"),
    "lfm2": ("lfm2", "Lfm2ForCausalLM"),
    "smollm3": ("smollm3", "SmolLM3ForCausalLM"),
    "granite": ("granite", "GraniteForCausalLM"),
    "olmo2": ("olmo2", "Olmo2ForCausalLM"),
    "gemma": ("gemma", "GemmaForCausalLM"),
    "gemma2": ("gemma2", "Gemma2ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
    "phi3": ("phi3", "Phi3ForCausalLM"),
}
SHAPE = {
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.attn_factor",
}
WINDOW = {"attention.sliding_window"}
MULTIPLIERS = {  # Granite's: the name of transformers -> the file's
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}
WITHOUT_ROTATION = 4  # one of so many layers of SmolLM3; files do not say it
EXPERTS = {  # of a mixture: the name of transformers -> the file's
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
MORE = {
    "qwen3moe": set(EXPERTS.values()),
    "lfm2": {"shortconv.l_cache"},
    "granite": set(MULTIPLIERS.values()),
    "gemma2": WINDOW | {"attn_logit_softcapping", "final_logit_softcapping"},
    "gemma3": WINDOW | {"rope.freq_base_swa", "attention.sliding_window_pattern"},
    "phi3": WINDOW,
}
PATTERN = {
    "gemma2": 2,
    "gemma3": 6,
}  # one of so many layers attends to the whole text, the others to a window
LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # of every published Llama 3
LLAMA3_FACTORS = (8.0, 32.0, 16.0)


def config_of(file: GGUFFile) -> dict[str, Any]:
    """Return a GGUF model's configuration in the format of transformers' config.json. Raises ModelError
    that names a metadata key it cannot translate."""
    kind = architecture(file)
    _check_keys(file, kind)
    whole = lambda key, default=None: positive_integer(file, f"{kind}.{key}", default)  # noqa: E731
    hidden = whole("embedding_length")
    layers = whole("block_count")
    heads = whole("attention.head_count")
    key_heads = _key_heads(file, kind, layers, heads)
    size = whole("attention.key_length", 256 if kind.startswith("gemma") else hidden // heads or 1)
    for key in ("attention.value_length", "rope.dimension_count"):
        if whole(key, size) != size:
            raise ModelError(
                f"{file.name} says {kind}.{key} is {whole(key)} where its heads have {size} numbers, which is not read here",
                "gguf.heads",
            )
    vocabulary = file.tensors.get("token_embd.weight")
    if vocabulary is None or len(vocabulary.shape) != 2:
        raise ModelError(
            f"{file.name} lacks the tensor token_embd.weight, or gives it another shape than a matrix",
            "gguf.embedding",
        )
    model_type, name = CLASSES[kind]
    config = {
        "architectures": [name],
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": max(key_heads),
        "head_dim": size,
        "intermediate_size": whole("feed_forward_length"),
        "max_position_embeddings": whole("context_length"),
        "rms_norm_eps": _number(file, f"{kind}.attention.layer_norm_rms_epsilon"),
        "vocab_size": vocabulary.shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "dtype": "float32",
        "rope_parameters": _rope(file, kind, size),
    }
    for key in ("bos", "eos", "padding"):
        token = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
        config["pad_token_id" if key == "padding" else f"{key}_token_id"] = (
            token if type(token) is int else None
        )
    return config | _extras(file, kind, config)


def _key_heads(file: GGUFFile, kind: str, layers: int, heads: int) -> list[int]:
    """Return the number of key heads of each layer; 0 for a layer without attention, which only LFM2 has."""
    found = file.metadata.get(f"{kind}.attention.head_count_kv")
    if kind != "lfm2" or not isinstance(found, list):
        return [positive_integer(file, f"{kind}.attention.head_count_kv", heads)] * layers
    if (
        len(found) != layers
        or not all(type(one) is int for one in found)
        or len({0, *found}) != 2
        or min(found) < 0
    ):
        raise ModelError(
            f"{file.name} says {kind}.attention.head_count_kv is {str(found)[:40]}, where {layers} numbers must stand, "
            "0 or one other",
            "gguf.key_heads",
        )
    return found


def _check_keys(file: GGUFFile, kind: str) -> None:
    known = SHAPE | MORE.get(kind, set())
    for key, value in file.metadata.items():
        prefix, _, rest = key.partition(".")
        if (
            prefix == kind and rest not in known and value not in (0, None, False)
        ):  # expert_count 0: no experts
            raise ModelError(
                f"{file.name} says {key} is {str(value)[:40]}, which is not read here", "gguf.unsupported"
            )
        if key in (f"{kind}.attention.causal", f"{kind}.rope.scaling.attn_factor") and value not in (
            None,
            1,
        ):  # False is not causal
            raise ModelError(
                f"{file.name} says {key} is {str(value)[:40]}, which is not read here", "gguf.unsupported"
            )
        if prefix in LAYOUTS and prefix != kind:
            raise ModelError(
                f"{file.name} is of the architecture {kind} and holds the key {key[:60]}", "gguf.unknown_key"
            )


def _number(file: GGUFFile, key: str, default: float | None = None) -> float:
    """Return a positive number of the metadata in the shortest form of its float32 (1e-05, not
    9.999999747378752e-06)."""
    found = file.metadata.get(key, default)
    if type(found) not in (int, float) or not isfinite(found) or not 0 < found < 1e18:
        raise ModelError(
            f"{file.name} says {key} is {str(found)[:40]}, where a number above 0 must stand", "gguf.value"
        )
    return float(f"{found:.7g}")


def _rope(file: GGUFFile, kind: str, size: int) -> dict[str, Any]:
    """Return the rotary parameters, one set or, for Gemma 3, one per layer type."""
    base = {"rope_theta": _number(file, f"{kind}.rope.freq_base", 10_000.0)}
    scaling = file.metadata.get(f"{kind}.rope.scaling.type", "none")
    if scaling == "linear":
        rope = {"rope_type": "linear", "factor": _number(file, f"{kind}.rope.scaling.factor")} | base
    elif scaling == "none":
        rope = {"rope_type": "default"} | base
    else:
        raise ModelError(
            f"{file.name} says {kind}.rope.scaling.type is {str(scaling)[:40]!r}; none and linear are read",
            "gguf.rope_scaling",
        )
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if name in file.tensors:
            raise ModelError(
                f"{file.name} holds {name}: rotary angles that change with the length of the text are not read here",
                "gguf.rope_length",
            )
    if "rope_freqs.weight" in file.tensors:
        if kind != "llama" or scaling != "none":
            raise ModelError(
                f"{file.name} holds rope_freqs.weight, which a model of the architecture {kind} does not have here",
                "gguf.rope_freqs",
            )
        rope = _llama3(file, base, size)
    if kind != "gemma3":
        return rope
    local = {"rope_type": "default", "rope_theta": _number(file, f"{kind}.rope.freq_base_swa", 10_000.0)}
    return {"full_attention": rope, "sliding_attention": local}


def _llama3(file: GGUFFile, base: dict[str, float], size: int) -> dict[str, Any]:
    """Return Llama 3's rope scaling. Its parameters are not in the file: the published ones that reproduce
    its table of factors."""
    from ..models.llama import inverse_frequencies

    factors = file.tensor("rope_freqs.weight").flatten()
    plain = inverse_frequencies({"rope_type": "default"} | base, size)
    for factor in LLAMA3_FACTORS:
        rope = {"rope_type": "llama3", "factor": factor} | LLAMA3 | base
        if factors.shape == plain.shape and torch.allclose(
            plain / inverse_frequencies(rope, size), factors, rtol=1e-3
        ):
            return rope
    raise ModelError(
        f"rope_freqs.weight of {file.name} is not the table of a published Llama 3", "gguf.rope_table"
    )


def _extras(file: GGUFFile, kind: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return keys that only some families have, or name differently."""
    found: dict[str, Any] = {}
    if kind in ("llama", "qwen2", "qwen3", "qwen3moe", "smollm3", "granite", "olmo2"):
        found |= {"hidden_act": "silu", "attention_bias": kind == "qwen2"}
    if kind == "qwen2":
        found |= {"use_sliding_window": False}
        found.pop("attention_bias")  # its class has them always
    if kind.startswith("gemma"):
        found |= {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
    if kind == "smollm3":
        found |= {"no_rope_layer_interval": WITHOUT_ROTATION, "use_sliding_window": False}
    if kind in ("qwen3moe", "lfm2"):
        found |= _experts(file) if kind == "qwen3moe" else _lfm2(file, config)
    if kind == "granite":
        found |= {name: _number(file, f"granite.{key}") for name, key in MULTIPLIERS.items()}
    if WINDOW <= MORE.get(kind, set()):
        window = file.metadata.get(f"{kind}.attention.sliding_window")
        found["sliding_window"] = (
            positive_integer(file, f"{kind}.attention.sliding_window") if window else None
        )
    if kind in PATTERN:
        every = positive_integer(file, f"{kind}.attention.sliding_window_pattern", PATTERN[kind])
        found["layer_types"] = [
            "sliding_attention" if (layer + 1) % every else "full_attention"
            for layer in range(config["num_hidden_layers"])
        ]
        if found["sliding_window"] is None:
            raise ModelError(
                f"{file.name} does not say {kind}.attention.sliding_window", "gguf.sliding_window"
            )
        # the largest of either family scales queries by the width of a head that hidden size and heads
        # would give
        largest = config["num_hidden_layers"] == {"gemma2": 46, "gemma3": 62}[kind]
        found["query_pre_attn_scalar"] = (
            config["hidden_size"] // config["num_attention_heads"] if largest else config["head_dim"]
        )
    if kind == "gemma2":
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            found[key] = _number(file, f"gemma2.{key}")
    return found


def _experts(file: GGUFFile) -> dict[str, Any]:
    """Return the keys of Qwen 3's mixture of experts, which llama.cpp runs with normalised weights."""
    sizes = {name: positive_integer(file, f"qwen3moe.{key}") for name, key in EXPERTS.items()}
    return sizes | {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}


def _lfm2(file: GGUFFile, config: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of LFM2: which layers attend, and the width of the others' convolution."""
    counts = _key_heads(file, "lfm2", config["num_hidden_layers"], config["num_attention_heads"])
    return {
        "norm_eps": config["rms_norm_eps"],
        "conv_L_cache": positive_integer(file, "lfm2.shortconv.l_cache"),
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["full_attention" if count else "conv" for count in counts],
    }
