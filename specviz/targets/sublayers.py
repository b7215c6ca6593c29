"""Single sublayers of a target over the last tokens of its text, for many alternative hidden states at once
(KnapSpec, Cha et al., ICML 2026)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import token_tensor
from .llama import LlamaTarget


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
