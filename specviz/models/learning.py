"""A Llama with trainable weights in the inference layout, for a draft model that is updated while serving."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .linear import Layout
from .llama import Block, Llama
from .reduced_vocabulary import ReducedOutput
from .rms_norm import Norm


class PlainNorm(Norm):
    """RMSNorm by torch's own operation, because the faster in-place one overwrites values that gradients
    need."""

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self._width, self.weight, self._eps)


class LearningLlama(Llama):
    """A trainable copy of a Llama, loaded from its folder in float32 or better. weights: all of its
    tensors, to be updated in place."""

    def __init__(self, model: Llama):
        super().__init__(model.folder, model.device, torch.promote_types(model.dtype, torch.float32))
        self.weights: list[Tensor] = []
        head = self.head.layer if isinstance(self.head, ReducedOutput) else self.head
        places: list[tuple[Any, str]] = [
            (self, "embedding"),
            (head, "weight"),
            (head, "bias"),
            (self.norm_final, "weight"),
        ]
        for block in self.blocks:
            places += [
                (norm, "weight")
                for norm in (block.norm_in, block.norm_q, block.norm_k, block.norm_mlp)
                if norm is not None
            ]
            places += [
                (layer, name)
                for layer in (block.qkv, block.out, block.gate_up, block.down)
                for name in ("weight", "bias")
            ]
        fresh: dict[int, Tensor] = {}
        with torch.inference_mode(False):
            if head is not self.head:
                self.head.tokens = (
                    self.head.tokens.clone()
                )  # an inference tensor cannot be saved for a gradient
            for holder, name in places:
                old = getattr(holder, name)
                if old is not None and id(old) not in fresh:  # a tied head is the embedding
                    fresh[id(old)] = old.clone().requires_grad_()
                    self.weights.append(fresh[id(old)])
                setattr(holder, name, None if old is None else fresh[id(old)])

    def _layout(self, weights: list[Tensor], total: int) -> Layout:
        return Layout()

    def _compile(self) -> None:
        """Do not compile, because the weights change."""

    def _norm(self, weight: Tensor | None) -> Norm | None:
        return weight if weight is None else PlainNorm(weight, self.eps)

    def project(
        self, block: Block, x: Tensor, rotation: Tensor, reads: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return queries, keys and values as ``Llama.project`` does, without in-place operations."""
        n = x.shape[0]
        heads = self.heads
        kv = self.kv_heads
        width = self.head_dim
        q, k, v = (
            block.qkv(block.norm_in(x) if reads is None else reads)
            .view(n, heads + 2 * kv, width)
            .split([heads, kv, kv], 1)
        )
        q, k = (part if norm is None else norm(part) for part, norm in ((q, block.norm_q), (k, block.norm_k)))
        pairs = torch.view_as_complex(torch.cat([q, k], 1).unflatten(-1, (-1, 2))) * rotation
        q, k = torch.view_as_real(pairs).flatten(-2).split([heads, kv], 1)
        q = q.view(n, kv, self.group, width).permute(1, 2, 0, 3).reshape(1, kv, self.group * n, width)
        return q, torch.stack([k, v]).transpose(1, 2)

    def logits(self, ids: Tensor) -> Tensor:
        """Return the logits [n, vocab] of a text [n] from its beginning, with causal attention, gradients
        and no KV cache."""
        n = len(ids)
        mask = (
            torch.full((n, n), -torch.inf, dtype=self.dtype, device=self.device)
            .triu_(1)
            .repeat(self.group, 1)
        )
        x, rotation = (
            self.embed(ids),
            self.rotations(n)[:n].clone(),
        )  # tables made while nothing learned cannot be walked back through
        for block in self.blocks:
            q, new = self.project(block, x, rotation)
            keys, values = new.unsqueeze(1).unbind(0)
            x = self.transform(
                block, self.join(block, x, F.scaled_dot_product_attention(q, keys, values, mask))
            )
        return self.head(self.norm_final(x))
