"""Single sublayers of a target over the last tokens of its text, for many alternative hidden states at once
(KnapSpec, Cha et al., ICML 2026)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..core import token_tensor
from ..kernels.sequence_rows import SequenceRows
from .llama import STEP, LlamaTarget


class Sublayers:
    """Runs the last ``count`` committed tokens of a target through any of its sublayers (2i: attention of
    layer i, 2i + 1: its feed-forward). Attention reads the cached keys and values of earlier tokens, and
    those of the same alternative.

    costs: multiply-adds of an attention sublayer and of a feed-forward sublayer per token, at this length
    of the text.
    """

    def __init__(self, target: LlamaTarget, count: int):
        target.flush()
        self.model = target.model
        self.target = target
        tokens = target.cached_tokens
        self.past = len(tokens) - count
        self._buffer: Tensor | None = None  # KV cache of the compiled sublayers
        with torch.inference_mode():
            self.slots = target.slots_in_order()[..., : self.past, :]
            self._ids = token_tensor(self.model.device, tokens[self.past :])
            self._rotation = self.model.rotations(len(tokens))[self.past : len(tokens)]
        model = self.model
        heads, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
        self.costs = (
            2 * model.hidden * (heads + kv) + 2 * heads * len(tokens),
            3 * model.hidden * model.inner,
        )

    def enter(self) -> Tensor:
        """Return the states [count, hidden] that enter the first sublayer."""
        with self.target.timed():
            return self.model.enter(self._ids)

    def run(self, index: int, states: Tensor) -> Tensor:
        """Run sublayer ``index`` over states [alternatives, count, hidden]; return its output, of the same
        shape."""
        model = self.model
        block = self.model.blocks[index // 2]
        x = states.flatten(0, 1)
        alternatives, count, _ = states.shape
        with self.target.timed():
            if index % 2:
                return model.transform(block, x).view(states.shape)
            q, new = model.project(block, x, self._rotation.repeat(alternatives, 1, 1))
            seen = torch.cat([self.slots[index // 2], new], 2)
            y = model.attention(block, q, seen, self._mask(alternatives, count, x).repeat(model.group, 1))
            return model.join(block, x, y.to(x.dtype)).view(states.shape)

    def _run_compiled(self, index: int, x: Tensor, alternatives: int) -> Tensor:
        """Run a sublayer over all alternatives [alternatives * count, hidden] in one compiled call, in a
        cache of their own after a copy of the text's."""
        model = self.model
        layer, n = index // 2, len(x)
        model.rotations(self.past + n)
        if self._buffer is None or self._buffer.shape[3] < self.past + n:
            self._buffer = model.new_slots(-(-(self.past + n) // STEP) * STEP)
        buffer = self._buffer
        buffer[layer, :, :, : self.past] = self.slots[layer]
        slots = np.arange(self.past, self.past + n)
        places = np.tile(np.arange(n // alternatives), alternatives)
        lists = (slots - places)[:, None] + np.arange(n // alternatives)
        rows = SequenceRows(
            buffer.data_ptr(),
            buffer.shape[3],
            np.zeros(n, np.int64),
            self.past + places,
            slots,
            np.full(n, self.past),
            places + 1,
            lists.astype(np.int32),
        )
        return model.run_compiled([rows], x, layer, layer + 1, (index ^ 1,))

    def logits(self, states: Tensor) -> Tensor:
        """Return logits [..., vocab] of states [..., hidden] after the last sublayer; the final norm is
        applied here."""
        with self.target.timed():
            return self.model.output(self.model.norm_output(states.flatten(0, -2))).view(
                *states.shape[:-1], -1
            )

    def _mask(self, alternatives: int, count: int, like: Tensor) -> Tensor:
        """Return the bias [alternatives * count, past + alternatives * count]: each row sees the text and
        its own alternative up to itself."""
        causal = torch.ones(count, count, dtype=torch.bool, device=like.device).tril_()
        sees = torch.block_diag(*[causal] * alternatives).bool()
        mask = torch.zeros(sees.shape, dtype=like.dtype, device=like.device).masked_fill_(~sees, -torch.inf)
        return torch.cat([mask.new_zeros(len(mask), self.past), mask], 1)
