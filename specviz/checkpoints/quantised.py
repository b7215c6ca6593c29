"""Quantised weights that transformers loads: requested by name, refused if a package is missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from .weights import ModelError

PACKAGES = {
    "bnb-8bit": "bitsandbytes",
    "bnb-4bit": "bitsandbytes",
    "ao-int8": "torchao",
    "ao-int4": "torchao",
}


def unsupported_reason(kind: str) -> str | None:
    """Return why this kind of quantised weights (a key of PACKAGES) is not available here, as a message;
    None if it is."""
    if kind not in PACKAGES:
        return f"there are no weights of kind {kind!r}; there are {', '.join(PACKAGES)}"
    package = PACKAGES[kind]
    return (
        None
        if find_spec(package)
        else f"weights of kind {kind} need the package {package}: pip install {package}"
    )


def quantised(name: str, kind: str) -> dict[str, Any]:
    """Return the options of transformers' from_pretrained for a kind of quantisation; empty for "". Raises
    ModelError."""
    if not kind:
        return {}
    problem = unsupported_reason(kind)
    if problem:
        raise ModelError(f"{name}: {problem}", "checkpoint.quantised")
    import transformers

    if PACKAGES[kind] == "bitsandbytes":
        return {
            "quantization_config": transformers.BitsAndBytesConfig(
                load_in_8bit=kind == "bnb-8bit", load_in_4bit=kind == "bnb-4bit"
            )
        }
    from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig

    how = Int8WeightOnlyConfig() if kind == "ao-int8" else Int4WeightOnlyConfig()
    return {"quantization_config": transformers.TorchAoConfig(how)}
