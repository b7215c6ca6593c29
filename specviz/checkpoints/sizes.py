"""Check, from config.json and the headers of the weight files only, that a checkpoint's sizes are plausible
and fit into memory.

A config.json of a hundred bytes can ask for terabytes, and 8-bit or 4-bit weights are useless without their
scales. Both are refused before anything is allocated.
"""

from __future__ import annotations

import os
import re
from math import prod
from pathlib import Path
from typing import Any

import torch

from .weights import ModelError, Weights

MOST_LAYERS = 4096  # limits of the sizes in config.json
MOST_SIZE = 2**31
WORDS = (
    "hidden_size",
    "num_hidden_layers",
    "vocab_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "head_dim",
    "max_position_embeddings",
    "n_embd",
    "n_layer",
    "n_head",
    "n_positions",
    "n_ctx",
    "n_inner",
)
SWITCHES = ("tie_word_embeddings", "attention_bias", "mlp_bias")
SCALES = re.compile(
    r"(_scale_inv|\.SCB|\.weight_scale|\.input_scale|\.qweight|\.qzeros|\.g_idx|\.scales|\.absmax|\.quant_map|"
    r"\.weight_packed|\.quant_state\.\w+|_blocks|_scales)$"
)
NUMBER = re.compile(
    r"rope_theta|eps(ilon)?$"
)  # of a position's angle, of a norm: NaN and Infinity are JSON to Python
MOST_NUMBER = 1e30
PLAIN = {"F64", "F32", "F16", "BF16"}


def check_config(config: dict[str, Any], name: str) -> None:
    """Raise ModelError if config.json has invalid sizes or attention that is not causal; missing keys are
    not checked here."""
    inner = config.get("text_config") or {}
    if not isinstance(inner, dict):
        raise ModelError(f"text_config in config.json of {name} is not a JSON object", "config.text_config")
    for part in (config, inner):
        for word in WORDS:
            value = part.get(word)
            if value is not None and not all(
                type(one) is int and 0 < one < MOST_SIZE for one in as_list(value)
            ):
                raise ModelError(
                    f"config.json of {name} has {word} = {str(value)[:40]}, which is not a size",
                    "config.size",
                )
        for word, value in part.items():
            if NUMBER.search(str(word)) and type(value) in (int, float) and not 0 <= value < MOST_NUMBER:
                raise ModelError(
                    f"config.json of {name} has {str(word)[:40]} = {str(value)[:40]}, which is not a usable number",
                    "config.number",
                )
        layers = max(as_list(part.get("num_hidden_layers") or part.get("n_layer") or 1))
        if layers > MOST_LAYERS:
            raise ModelError(
                f"config.json of {name} gives {layers} layers; {MOST_LAYERS} are the most that are read",
                "config.layers",
            )
        keys = (("is_causal", False), ("use_bidirectional_attention", True))
        two_sided = next((key for key, value in keys if part.get(key) is value), None)
        if two_sided:
            raise ModelError(
                f"{two_sided} in config.json of {name} makes its tokens attend to later ones: it is not a causal "
                "language model",
                "config.not_causal",
            )
        kinds = part.get("layer_types")
        if kinds is not None and not (
            isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)
        ):
            raise ModelError(
                f"layer_types in config.json of {name} is not a list of names", "config.layer_types"
            )
        if kinds is not None and type(part.get("num_hidden_layers")) is int and len(kinds) != layers:
            raise ModelError(
                f"layer_types in config.json of {name} names {len(kinds)} layers, and num_hidden_layers is {layers}",
                "config.layer_types",
            )
        odd = next((key for key in SWITCHES if key in part and not isinstance(part[key], bool)), None)
        if odd:
            raise ModelError(f"{odd} in config.json of {name} is neither true nor false", "config.switch")


def check_weights(
    config: dict[str, Any], weights: Weights, name: str, width: int, *devices: torch.device
) -> None:
    """Check the weight files of a checkpoint by their headers. Raises ModelError if the weights are
    quantised but config.json does not say how, if sizes in config.json do not match the files, or if the
    weights do not fit into the free memory of all devices together at ``width`` bytes per value."""
    heads = weights.headers()
    if not config.get("quantization_config"):
        odd = quantised_tensor(heads)
        if odd:
            raise ModelError(
                f"{name} is quantised ({odd}), and its config.json does not say how", "checkpoint.quantised"
            )
    stored = sum(end - start for start, end in (head["data_offsets"] for head in heads.values()))
    inner = config.get("text_config") or config
    hidden = inner.get("hidden_size") or inner.get("n_embd") or 1
    rows = (
        "draft_vocab_size" if "draft_vocab_size" in inner else "vocab_size"
    )  # the embedding of such a draft is its target's
    for word in (rows, "intermediate_size"):
        if (
            hidden * max(as_list(inner.get(word) or 1)) > 2 * stored
        ):  # two numbers per byte, as in 4-bit weights
            raise ModelError(
                f"config.json of {name} gives a {word} of {inner[word]} and a width of {hidden}; its weights have "
                f"{stored} bytes",
                "config.size_differs",
            )
    check_memory(name, sum(width * prod(head["shape"]) for head in heads.values()), *devices)


def quantised_tensor(heads: dict[str, Any]) -> str | None:
    """Return the name of a tensor that only a quantised checkpoint has; None if there is none. heads:
    safetensors headers by tensor name."""
    for key, head in heads.items():
        if SCALES.search(key) or key.endswith(".weight") and head["dtype"] not in PLAIN:
            return key
    return None


def as_list(value: Any) -> list[Any]:
    """Return a size from config.json as a list: unchanged if it is a list (one size per layer), else with
    this one element."""
    return value if isinstance(value, list) and value else [value]


def check_memory(name: str, need: int, *devices: torch.device) -> None:
    """Raise ModelError if ``need`` bytes are not free on all devices together."""
    known = [have for have in map(free_bytes, devices) if have is not None]
    have = sum(known) if len(known) == len(devices) else need
    if need > have:
        raise ModelError(
            f"{name} needs {need / 2**30:.1f} GB of memory; {have / 2**30:.1f} GB are free",
            "checkpoint.memory",
        )


def weight_devices(spread: bool) -> list[torch.device]:
    """Return the devices that may hold weights: the CPU, and every GPU if the model is spread over
    devices."""
    cards = torch.cuda.device_count() if spread and torch.cuda.is_available() else 0
    return [torch.device("cpu"), *(torch.device("cuda", card) for card in range(cards))]


def free_bytes(device: torch.device) -> int | None:
    """Return the number of bytes that may still be allocated on a device; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if most.isdigit():
            used = int(Path("/sys/fs/cgroup/memory.current").read_text())
            cache = dict(line.split() for line in Path("/sys/fs/cgroup/memory.stat").read_text().splitlines())
            found.append(int(most) - used + int(cache.get("inactive_file", 0)))
    except (OSError, ValueError, IndexError):
        pass
    if not found and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)
