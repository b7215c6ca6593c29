"""Read a config.json of the Llama family, or of a family whose layers carry states, as transformers does:
defaults of the model class for missing keys, the context from all keys that limit it, the biases and head
norms that the weights must contain, and the output matrix.

A test compares DEFAULTS with the classes of the installed transformers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .weights import ModelError, Weights

COMMON = {"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 10000.0}
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": COMMON
    | {
        "max_position_embeddings": 2048,
        "num_key_value_heads": None,
        "head_dim": None,
        "attention_bias": False,
        "mlp_bias": False,
    },
    "qwen2": COMMON
    | {
        "max_position_embeddings": 32768,
        "num_key_value_heads": 32,
        "sliding_window": 4096,
        "use_sliding_window": False,
    },
    "qwen3": COMMON
    | {
        "max_position_embeddings": 32768,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "attention_bias": False,
        "sliding_window": 4096,
        "use_sliding_window": False,
    },
    "mistral": COMMON
    | {"max_position_embeddings": 131072, "num_key_value_heads": 8, "head_dim": None, "sliding_window": 4096},
    "mamba2": {"tie_word_embeddings": False, "use_bias": False, "use_conv_bias": True},
    "bamba": {
        "max_position_embeddings": 262144,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "rope_theta": 10000.0,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
    },
    "falcon_h1": {
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "rope_theta": 10000.0,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
        "projectors_bias": False,
    },
    "lfm2": {
        "max_position_embeddings": 128000,
        "tie_word_embeddings": True,
        "conv_bias": False,
        "rope_theta": 1000000.0,
    },
    "linear_llama": COMMON | {"max_position_embeddings": 2048, "attention_bias": False},
}
CONTEXTS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_seq_length",
    "max_sequence_length",
    "seq_length",
    "seq_len",
    "model_max_length",
)
QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
OUT = ("self_attn.o_proj",)  # projections of a layer that may have biases
MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
HEAD_NORMS = ("self_attn.q_norm.weight", "self_attn.k_norm.weight")
BIASED = {  # of the families with states: key of config.json -> projections that have a bias where it is true
    "mamba2": {"use_bias": ("mixer.in_proj", "mixer.out_proj"), "use_conv_bias": ("mixer.conv1d",)},
    "bamba": {
        "attention_bias": (*QKV, *OUT),
        "mamba_proj_bias": ("mamba.in_proj", "mamba.out_proj"),
        "mamba_conv_bias": ("mamba.conv1d",),
    },
    "falcon_h1": {
        "attention_bias": (*QKV, *OUT),
        "mamba_proj_bias": ("mamba.in_proj",),
        "projectors_bias": ("mamba.out_proj",),
        "mamba_conv_bias": ("mamba.conv1d",),
    },
    "lfm2": {"conv_bias": ("conv.in_proj", "conv.conv", "conv.out_proj")},
    "linear_llama": {"attention_bias": (*QKV, *OUT)},
}
STATE_HEAD_NORMS = ("self_attn.q_layernorm.weight", "self_attn.k_layernorm.weight")  # LFM2's


def with_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Return config.json with the model class's defaults for missing keys; a key with the value null stays
    null."""
    return {**DEFAULTS.get(str(config.get("model_type")), {}), **config}


def uses_window(config: dict[str, Any]) -> bool:
    """Return whether the key ``sliding_window`` of config.json applies: classes of Qwen have a key that
    disables it, other classes have none."""
    return bool(config.get("use_sliding_window")) or "use_sliding_window" not in DEFAULTS.get(
        str(config.get("model_type")), {}
    )


def context_of(config: dict[str, Any]) -> int | None:
    """Return the maximum context in tokens: the smallest of all keys that state one; None if none does.
    Raises ModelError."""
    found = {key: config[key] for key in CONTEXTS if config.get(key) is not None}
    for key, value in found.items():
        if type(value) is not int or value < 1:
            raise ModelError(
                f"its config.json has {key} = {str(value)[:40]}, which is not a number of tokens",
                "config.context",
            )
    return min(found.values(), default=None)


def check_parts(config: dict[str, Any], weights: Weights, name: str) -> None:
    """Check biases and the norms of queries and keys ("head norms") in the weight files. Raises ModelError
    if the files have one that the model class lacks, or lack one that it has."""
    config, kind = with_defaults(config), config.get("model_type")
    biased = (
        QKV
        if kind == "qwen2"
        else (*QKV, *OUT)
        if config.get("attention_bias") and kind in ("llama", "qwen3")
        else ()
    )
    biased += MLP if config.get("mlp_bias") and kind == "llama" else ()
    parts = {f"{part}.bias" for part in biased} | (set(HEAD_NORMS) if kind == "qwen3" else set())
    wanted = {
        f"model.layers.{layer}.{part}" for layer in range(config["num_hidden_layers"]) for part in parts
    }
    encoder = (
        "vision." if "vision_config" in config else ""
    )  # a patch encoder's parts are checked where they are read
    found = {
        key
        for key in weights.names
        if key.endswith((".bias", *HEAD_NORMS)) and not (encoder and key.startswith(encoder))
    }
    _compare(found, wanted, name)


def check_state_parts(config: dict[str, Any], weights: Weights, name: str) -> None:
    """Check biases and head norms as ``check_parts`` does, for the families whose layers carry states.
    Their layers differ, so a projection needs its bias wherever the files have its matrix."""
    config, kind = with_defaults(config), str(config.get("model_type"))
    biased = tuple(
        f".{part}.weight" for key, parts in BIASED[kind].items() if config.get(key) for part in parts
    )
    wanted = {key.removesuffix("weight") + "bias" for key in weights.names if biased and key.endswith(biased)}
    if kind == "lfm2":
        wanted |= {
            key.removesuffix(QKV[0] + ".weight") + norm
            for key in weights.names
            if key.endswith(f".{QKV[0]}.weight")
            for norm in STATE_HEAD_NORMS
        }
    _compare({key for key in weights.names if key.endswith((".bias", *STATE_HEAD_NORMS))}, wanted, name)


def _compare(found: set[str], wanted: set[str], name: str) -> None:
    odd, lacking = sorted(found - wanted), sorted(wanted - found)
    if odd:
        raise ModelError(
            f"{name} holds {odd[0]}, which its config.json gives no place", "checkpoint.unexpected_weight"
        )
    if lacking:
        raise ModelError(f"{name} lacks the weight {lacking[0]}", "checkpoint.lacks_weight")


def output_matrix(config: dict[str, Any], weights: Weights, embedding: Tensor, rows: int) -> Tensor:
    """Return the matrix [rows, hidden] of the output layer: a matrix in the file even where config.json
    ties it, as in transformers, else the embedding; an equal one is the embedding itself. Raises ModelError
    if it is neither tied nor there."""
    config = with_defaults(config)
    tied = config.get("tie_word_embeddings")
    if config.get("model_type") == "lfm2":
        tied = config.get("tie_embedding", tied)  # the older key, which its class takes first
    if tied and "lm_head.weight" not in weights:
        return embedding
    head = weights.get("lm_head.weight", rows, embedding.shape[1])
    return embedding if torch.equal(head, embedding) else head
