"""This project's Llama-family forward pass with int8 weights and activations (W8A8, models/int8.py), on a
CPU.

Sums are exact (models/int8.py, models/exact_attention.py), so a row's logits are bit-identical alone, after
a draft, and in any tree.

Three measures keep the quantisation error small at no cost per pass: norm weights are folded into the
matrices that follow, the residual stream is rotated (models/rotation.py), and the input of the down
projection is rounded to 16 bits, as two int8 rows that share one read of the weights. Hidden states,
embedding and output matrix are exposed in the checkpoint's basis, for drafters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..models.exact_attention import HEAD_DIM, SLOTS, ExactAttention
from ..models.int8 import Int8Layout
from ..models.linear import Layout
from ..models.llama import unsupported_reason as llama_unsupported_reason
from ..models.rms_norm import UnitNorm
from ..models.rotation import Basis, FinalStates, Rotate
from ..models.weights import Weights
from .fast import FastModel

WHY_NOT = "the int8 forward sums exactly over heads of at most {most} numbers"


def unsupported_reason(config: dict[str, Any]) -> str | None:
    """Return why the int8 forward pass cannot run a checkpoint with that config.json, as the end of a
    message; None if it can."""
    if (config.get("head_dim") or 0) > HEAD_DIM:
        return WHY_NOT.format(most=HEAD_DIM)
    return llama_unsupported_reason(config)


class Int8Model(FastModel):
    """Weights of a Hugging Face folder, quantised to W8A8 int8 when loaded; ``open()`` returns targets that
    share them. numbers: data type of the matrix products, for display."""

    numbers = "int8"

    def _measure(self, config: dict[str, Any]) -> None:
        super()._measure(config)
        self.context = min(self.context, SLOTS)  # attention sums exactly over so many tokens
        self._basis = Basis(self.hidden)
        self._folded: list[
            dict[str, Tensor]
        ] = []  # of each layer: norm weights that were folded into the matrices of these names

    def _load(self, weights: Weights) -> None:
        super()._load(weights)
        self._table = self._basis.rotate(self.embedding).half()
        self._output_norm, self._output = UnitNorm(self.hidden, self.eps), self.head
        self._final = FinalStates(self._basis, self.norm_final.weight * self.hidden**0.5)
        self.head = lambda states: self._output(self._rotate_final(states))
        self._to_basis = Rotate(self._basis.matrix)

    def _layout(self, weights: list[Tensor], total: int) -> Layout:
        return Int8Layout()

    def _output_layer(self, linear: Layout, weight: Tensor) -> Any:
        return linear(self._basis.rotate(weight * self.norm_final.weight * self.hidden**0.5))

    def _rotate_final(self, states: Tensor) -> Tensor:
        """Convert final hidden states from the checkpoint's basis to the output layer's input: without the
        norm's weight, rotated."""
        weight = self.norm_final.weight * self.hidden**0.5
        return self._to_basis(torch.where(weight == 0, 0.0, states.to(self.dtype) / weight))

    def _read(self, weights: Weights, at: str) -> dict[str, Any]:
        """Return the tensors of one block, with norm weights folded and matrices rotated. ``exact`` gets an
        upper bound of a value vector's length: the norm of its weight row times that of a normed state,
        1."""
        parts = super()._read(weights, at)
        folded: dict[str, Tensor] = {}
        for norm, name in (("norm_in", "qkv"), ("norm_mlp", "gate_up")):
            matrix, bias = parts[name]
            folded[name] = parts[norm].weight * self.hidden**0.5
            parts[name] = self._basis.rotate(matrix * parts[norm].weight * self.hidden**0.5), bias
            parts[norm] = UnitNorm(self.hidden, self.eps)
        self._folded.append(folded)  # layers are read in order
        for name, int16_input in (("out", False), ("down", True)):
            matrix, bias = parts[name]
            bias = bias if bias is None else self._basis.rotate(bias[None])[0]
            parts[name] = self._basis.rotate(matrix.t()).t().contiguous(), bias, int16_input
        matrix, bias = parts["qkv"]
        values = -self.kv_heads * self.head_dim
        matrix, bias = matrix[values:], bias if bias is None else bias[values:]
        longest = matrix.norm(dim=1) + (0 if bias is None else bias.abs())
        return parts | {"exact": ExactAttention(float(longest.max()), self.heads, self.head_dim)}

    def as_input(self, layer: int, name: str, matrix: Tensor) -> Tensor:
        """Convert as Llama.as_input: fold the norm's weight into the matrix and rotate its columns."""
        folded = self._folded[layer].get(name)
        return matrix if folded is None else self._basis.rotate(matrix * folded)

    def as_output(self, part: str, matrix: Tensor) -> Tensor:
        """Convert as Llama.as_output: rotate the rows of matrices that write to the residual stream."""
        matrix = super().as_output(part, matrix)
        return self._basis.rotate(matrix.t()).t() if part.endswith(("o_proj", "down_proj")) else matrix

    # --- bases -----------------------------------------------------------------------------------------------------
    def enter(self, ids: Tensor) -> Tensor:
        """Return the rotated residual stream [n, hidden] that enters the first block, for token ids [n]."""
        return F.embedding(ids, self._table).to(self.dtype)

    def to_checkpoint(self, x: Tensor) -> Tensor:
        """Rotate states [n, hidden] back to the checkpoint's basis, which drafters read."""
        return self._final.unrotate(x)

    def from_checkpoint(self, x: Tensor) -> Tensor:
        """Rotate states [n, hidden] from the checkpoint's basis to that of the blocks."""
        return self._to_basis(x)

    def norm_output(self, x: Tensor) -> Tensor:
        """Apply the final norm, without its weight (folded into the output matrix), to the rotated residual
        stream."""
        return self._output_norm(x)

    def output(self, normed: Tensor) -> Tensor:
        """Return logits [n, vocab] of the normalised, rotated residual stream."""
        return self._output(normed)

    def final_states(self, normed: Tensor) -> Tensor:
        """Convert the normalised, rotated residual stream to the checkpoint's final hidden states, which
        drafters and ``head`` read."""
        return self._final(normed)

    def input_output_modules(self) -> tuple[Tensor, Any, Any, nn.Module]:
        """Return the parts around the blocks for the compiled draft loop: the rotated embedding table, the
        final norm without weight, the int8 output layer, and the module that computes final hidden states
        in the checkpoint's basis."""
        return self._table, self._output_norm, self._output, self._final
