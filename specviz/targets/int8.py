"""Our own Llama-family forward with matrices and states in eight bits (models/int8.py), on a processor.

Sums are exact (models/int8.py, models/exact_attention.py), so a row's logits are the same bits alone, behind a draft, and in any tree.
"""
from __future__ import annotations

from typing import Any

from torch import Tensor

from ..models.exact_attention import HEAD_DIM, SLOTS, ExactAttention
from ..models.int8 import Int8Layout
from ..models.linear import Layout
from ..models.llama import why_not as why_not_fast
from ..models.weights import Weights
from .fast import FastModel


def why_not(config: dict[str, Any]) -> str | None:
    """A sentence when this forward cannot run a checkpoint with that config.json, None when it can."""
    if (config.get("head_dim") or 0) > HEAD_DIM:
        return f"the forward in eight bits sums exactly over heads of at most {HEAD_DIM} numbers"
    return why_not_fast(config)


class Int8Model(FastModel):
    """Weights of a Hugging Face folder, rounded to eight bits when they are read. numbers: what it multiplies."""

    numbers = "int8"

    def _measure(self, config: dict[str, Any]) -> None:
        super()._measure(config)
        self.context = min(self.context, SLOTS)  # attention sums exactly over so many tokens

    def _layout(self, weights: list[Tensor], total: int) -> Layout:
        return Int8Layout()

    def _read(self, weights: Weights, at: str) -> dict[str, Any]:
        """As Llama's, with its attention: no value is longer than its row of weights times the length of what it multiplies."""
        parts = super()._read(weights, at)
        matrix, bias = (part if part is None else part[-self.kv_heads * self.head_dim:] for part in parts["qkv"])
        longest = (matrix * parts["norm_in"].weight).norm(dim=1) * self.hidden ** 0.5 + (0 if bias is None else bias.abs())
        return parts | {"exact": ExactAttention(float(longest.max()), self.heads, self.head_dim)}
