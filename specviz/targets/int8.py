"""This project's Llama-family forward pass with int8 weights and activations (W8A8), compiled (kernels/),
on a CPU.

Sums of products are integers and everything else is summed in a fixed order, so a row's logits are
bit-identical alone, after a draft, in any tree and in any batch.

Three measures keep the quantisation error small at no cost per pass: norm weights are folded into the
matrices that follow, the residual stream is rotated (models/rotation.py), and the input of the down
projection is rounded to 16 bits, as two int8 rows that share one read of the weights. Hidden states,
embedding and output matrix are exposed in the checkpoint's basis, for drafters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..checkpoints.weights import Weights
from ..kernels.network import CompiledLayer, CompiledNetwork
from ..kernels.sequence_rows import SequenceRows
from ..models.compiled_linear import CompiledInt8Layout, PaddedSizes
from ..models.linear import Layout
from ..models.llama import unsupported_reason as llama_unsupported_reason
from ..models.reduced_vocabulary import ReducedOutput, expand_to_vocab
from ..models.rms_norm import UnitNorm
from ..models.rotation import Basis, FinalStates, Rotate
from .fast import FastModel

SLOTS = 2048  # largest number of slots a row may attend to


def unsupported_reason(config: dict[str, Any]) -> str | None:
    """Return why the int8 forward pass cannot run a checkpoint with that config.json, as the end of a message;
    None if it can."""
    return llama_unsupported_reason(config)


class Int8Model(FastModel):
    """Weights of a Hugging Face folder, quantised to W8A8 int8 when loaded; ``open()`` returns targets that
    share them. numbers: data type of the matrix products, for display."""

    numbers = "int8"

    def _measure(self, config: dict[str, Any]) -> None:
        super()._measure(config)
        self.context = min(self.context, SLOTS)
        self._basis = Basis(self.hidden)
        # Of each layer: norm weights that were folded into the matrices of these names.
        self._folded: list[dict[str, Tensor]] = []
        self._padded = PaddedSizes(self.hidden, self.heads, self.kv_heads, self.head_dim, self.inner)

    def _load(self, weights: Weights) -> None:
        super()._load(weights)
        self._table = F.pad(self._basis.rotate(self.embedding).half(), (0, self._padded.wide - self.hidden))
        self._output_norm, self._output = UnitNorm(self.hidden, self.eps), self.head
        self._final = FinalStates(self._basis, self.norm_final.weight * self.hidden**0.5)
        self.head = lambda states: self._output(self._rotate_final(states))
        self._to_basis = Rotate(self._basis)

    def _layout(self, weights: list[Tensor], total: int) -> Layout:
        return CompiledInt8Layout()

    def _output_layer(self, linear: Layout, weight: Tensor) -> Any:
        return linear(self._basis.rotate(weight * self.norm_final.weight * self.hidden**0.5))

    def _rotate_final(self, states: Tensor) -> Tensor:
        """Convert final hidden states from the checkpoint's basis to the output layer's input: without the
        norm's weight, rotated."""
        weight = self.norm_final.weight * self.hidden**0.5
        return self._to_basis(torch.where(weight == 0, 0.0, states.to(self.dtype) / weight))

    def _read(self, weights: Weights, at: str) -> dict[str, Any]:
        """Return the tensors of one block, with norm weights folded, matrices rotated and padded."""
        parts = super()._read(weights, at)
        folded: dict[str, Tensor] = {}
        for norm, name in (("norm_in", "qkv"), ("norm_mlp", "gate_up")):
            matrix, bias = parts[name]
            folded[name] = parts[norm].weight * self.hidden**0.5
            matrix = self._basis.rotate(matrix * parts[norm].weight * self.hidden**0.5)
            parts[name] = getattr(self._padded, name)(matrix, bias)
            parts[norm] = UnitNorm(self.hidden, self.eps)
        self._folded.append(folded)  # layers are read in order
        for name in ("out", "down"):
            matrix, bias = parts[name]
            bias = bias if bias is None else self._basis.rotate(bias[None])[0]
            matrix = self._basis.rotate(matrix.t()).t().contiguous()
            parts[name] = getattr(self._padded, name)(matrix, bias)
        return parts

    def _tables(self, rope: dict[str, Any]) -> None:
        layers = [
            CompiledLayer(
                block.qkv.matrix,
                block.out.matrix,
                block.gate_up.matrix,
                block.down.matrix,
                self._padded.head_norm(block.norm_q),
                self._padded.head_norm(block.norm_k),
            )
            for block in self.blocks
        ]
        sizes = self._padded.network(self.layers, self.eps)
        output: Any = self._output
        reduced = output if isinstance(output, ReducedOutput) else None
        output = output if reduced is None else reduced.layer
        self._ids = None if reduced is None else reduced.tokens.long().contiguous().numpy()
        self._outputs = output.matrix.rows
        self.compiled = CompiledNetwork(sizes, layers, self._table.numpy(), output.matrix)
        super()._tables(rope)
        self.compiled.warm_up()

    def _make_rotations(self, count: int) -> Tensor:
        rotation = super()._make_rotations(count)
        assert self.compiled is not None  # made before its tables
        self.compiled.set_rotations(*self._padded.rotations(rotation))
        return rotation

    def compiled_logits(self, logits: Tensor) -> Tensor:
        """Return the logits [rows, vocab] of the compiled pass's outputs."""
        reduced = self._output
        if isinstance(reduced, ReducedOutput):
            return expand_to_vocab(logits[:, : self._outputs], reduced.tokens, self.vocab)
        return super().compiled_logits(logits)

    def generate(
        self,
        rows: SequenceRows,
        count: int,
        temperature: float,
        uniforms: Sequence[float] | None,
        min_prob: float | None,
    ) -> tuple[list[int], Tensor | None, list[float], Callable[[], Tensor], Callable[[], Tensor], int]:
        """Generate tokens in one compiled call, as described in Llama."""
        assert self.compiled is not None
        numbers = None if uniforms is None else np.array(uniforms, np.float64)
        made = self.compiled.draft(rows, count, temperature, numbers, min_prob, self._ids, self._outputs)
        probs = None
        if made.distributions is not None:
            probs = torch.from_numpy(made.distributions)
            if self._ids is not None:
                wide = probs.new_zeros(len(probs), self.vocab)
                wide[:, torch.from_numpy(self._ids)] = probs
                probs = wide
        states = torch.from_numpy(made.states)[:, : self.hidden]
        finite = np.isfinite(made.logits.sum(1))
        return (
            made.tokens.tolist(),
            probs,
            made.token_probs.tolist(),
            lambda: self.compiled_logits(torch.from_numpy(made.logits)),
            lambda: self.final_states(self.norm_output(states)),
            len(finite) if finite.all() else int(finite.argmin()),
        )

    def new_slots(self, slots: int) -> Tensor:
        """Allocate a KV cache with this number of slots, [layers, 2, kv_heads, slots, head_dim]. Heads are
        padded in memory."""
        return self._padded.new_slots(self.layers, slots)

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
        return F.embedding(ids, self._table)[:, : self.hidden].to(self.dtype)

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
