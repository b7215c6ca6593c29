"""Embedding table and output matrix (lm_head) of a draft head's checkpoint, if they differ from the target's.

Published checkpoints often hold copies of the target's tables, which are not used. Some draft heads were
trained with tables of their own; if they differ from the target's, the head drafts with them, as in vLLM
(82720b1, llm_base_proposer.py: has_own_embed_tokens, has_own_lm_head, compared with the target's).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ...checkpoints.weights import ModelError
from ...core import CapableTarget, token_tensor
from ...models.heads import HeadWeights

EMBEDDING = r"(model\.|mtp\.|model\.layers\.\d+\.|layers\.\d+\.)?embed_tokens\.weight"  # names in the published layouts
OUTPUT = r"(lm_head|model\.layers\.\d+\.shared_head\.head)\.weight"
PROBES = 64  # number of table rows and of random hidden states that are compared
DIFFERENT = 0.1  # relative difference above which a table is no copy; a copy rounded to eight bits stays below a fiftieth


class OwnTables:
    """A target with another embedding (``embed``) or output matrix (``head``); everything else is delegated
    to ``target``."""

    def __init__(
        self,
        target: CapableTarget,
        embed: Callable[..., Tensor] | None,
        head: Callable[[Tensor], Tensor] | None,
    ):
        self._target = target
        self.embed = embed or target.embed
        self.head = head or target.head

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy is asked for these before it has a target
            raise AttributeError(name)
        return getattr(self._target, name)


def with_own_tables(target: CapableTarget, head: Any) -> CapableTarget:
    """Return the target with the embedding and the output matrix of a trained draft head (its
    ``own_embedding`` and ``own_output``) in place of its own, for drafting; the target itself if the head
    has neither."""
    embedding, output = getattr(head, "own_embedding", None), getattr(head, "own_output", None)
    if embedding is None and output is None:
        return target

    def embed(ids: Sequence[int] | Tensor) -> Tensor:
        table = cast(Tensor, embedding)  # used where there is one
        return F.embedding(ids if isinstance(ids, Tensor) else token_tensor(table.device, ids), table)

    return OwnTables(
        target,
        None if embedding is None else embed,  # pyright: ignore[reportReturnType] (it forwards everything else)
        None if output is None else lambda states: F.linear(states.to(output.dtype), output).to(states.dtype),
    )


def read_own_tables(
    weights: HeadWeights, head: Any, target: CapableTarget, vocab: int
) -> tuple[Tensor | None, Tensor | None]:
    """Return (embedding, output matrix), each [vocab, hidden], of a trained draft head's checkpoint; None
    for one that is missing or a copy of the target's. Raises ModelError for a table of the wrong size."""
    if not target.capabilities >= {"embed", "head"}:
        return None, None
    parts = {name.rpartition(".")[2] for name, _ in head.named_modules()}
    embedding = None if "embed_tokens" in parts else _read(weights, EMBEDDING, target, vocab)
    output = None if parts & {"lm_head", "lm_heads"} else _read(weights, OUTPUT, target, vocab)
    with torch.inference_mode():
        if embedding is not None:
            ids = list(range(0, vocab, max(1, vocab // PROBES)))
            embedding = embedding if _differs(embedding[ids], target.embed(ids)) else None
        if output is not None:
            states = torch.randn(PROBES, output.shape[1], generator=torch.Generator().manual_seed(0)).to(
                output
            )
            output = output if _differs(F.linear(states, output), target.head(states)) else None
    return embedding, output


def _read(weights: HeadWeights, pattern: str, target: CapableTarget, vocab: int) -> Tensor | None:
    found = weights.first(pattern)
    if found is None:
        return None
    shape, wide = weights.shape(found[0]), target.embed([0]).shape[-1]
    if shape != (vocab, wide):
        raise ModelError(
            f"{found[0]} of {weights.title} has shape {shape}, and the target's {(vocab, wide)}",
            "head.own_table",
        )
    return weights.get(found[0], *shape)


def _differs(own: Tensor, targets: Tensor) -> bool:
    own, targets = own.double(), targets.to(own.device).double()
    return float((own - targets).norm()) > DIFFERENT * float(targets.norm())
