"""The target's output matrix restricted to some tokens, for drafting (FR-Spec, Zhao et al. 2502.14856).

A one-layer head that uses the target's full output matrix spends most of its time on it. With only the rows
of frequent tokens, all other tokens have draft probability 0; only the target can generate them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...checkpoints.weights import ModelError
from ...core import CapableTarget
from ...models.linear import fastest_layout, without_timing
from .own_tables import with_own_tables

DRAFT_TOKENS = "draft_tokens.json"  # ids that the heads of a folder may draft, one file for all of them

_reduced_heads: WeakKeyDictionary[Any, dict[int, ReducedHead]] = WeakKeyDictionary()


class ReducedHead:
    """The target's output matrix (lm_head) restricted to the token ids ``tokens``: a function from final
    hidden states [n, hidden] to logits [n, vocab], -inf for all other tokens (FR-Spec, Zhao et al.
    2502.14856). int8: compute it in int8."""

    def __init__(self, target: CapableTarget, tokens: Tensor, int8: bool = False):
        rows = output_rows(target, tokens)
        self.vocab, self.tokens = target.vocab, tokens.to(rows.device)
        with without_timing():  # cut within a run, which must write the same in the next process
            self.linear = (
                int8_linear(rows)
                if int8
                else fastest_layout([rows], rows.numel() * rows.element_size())(rows)
            )
        self.near = 2e-2 if int8 else 1e-3  # largest difference from the target's own logits, relative

    def __call__(self, states: Tensor) -> Tensor:
        logits = self.narrow(states)
        wide = logits.new_full((*logits.shape[:-1], self.vocab), -torch.inf)
        return wide.scatter_(-1, self.tokens.expand_as(logits), logits)  # half the time of index_copy_

    def narrow(self, states: Tensor) -> Tensor:
        """Return the logits [n, tokens] of ``tokens`` alone."""
        return self.linear(states)

    def fits(self, target: CapableTarget, tokens: Tensor) -> bool:
        """Return whether this matrix was made from this target's output matrix, for these tokens."""
        if (
            len(tokens) != len(self.tokens)
            or target.vocab != self.vocab
            or not torch.equal(tokens.to(self.tokens.device), self.tokens)
        ):
            return False
        with torch.inference_mode():
            state = target.embed(self.tokens[:1].tolist())
            logits = target.head(state)[0, self.tokens]
            near = self.near * (1 + float(logits.abs().max()))
            return bool(torch.allclose(self(state)[0, self.tokens], logits, atol=near))


def int8_linear(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Return an int8 linear layer with inputs of 16 bits, for the output matrix of a draft head."""
    from ...models.compiled_linear import CompiledInt8Linear  # imports numba

    return CompiledInt8Linear(weight, bias, int16_input=True)


def output_rows(target: CapableTarget, tokens: Tensor | None = None) -> Tensor:
    """Return the rows [tokens, hidden] of the target's output matrix (lm_head) for some token ids; None:
    for all.

    A target exposes its output matrix only as a function, so the rows are computed by applying it to unit
    vectors.
    """
    states = target.embed([0])
    probe = torch.eye(states.shape[-1], dtype=states.dtype, device=states.device)
    wanted = slice(None) if tokens is None else tokens.to(states.device)
    with torch.inference_mode():
        return torch.cat([target.head(part)[:, wanted] for part in probe.split(64)]).T.contiguous()


class ReducedTarget:
    """A target with another output matrix (``head``); everything else is delegated to ``target``. restricted:
    the same matrix, if it is the target's own for some tokens alone."""

    def __init__(
        self, target: CapableTarget, head: Callable[[Tensor], Tensor], restricted: ReducedHead | None = None
    ):
        self._target, self.head = target, head
        self.restricted = restricted

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy is asked for these before it has a target
            raise AttributeError(name)
        return getattr(self._target, name)


def reduced_head(target: CapableTarget) -> ReducedHead | None:
    """Return the restricted output matrix of a target made by ``with_reduced_output``; None of any other."""
    return target.restricted if isinstance(target, ReducedTarget) else None


def with_reduced_output(target: CapableTarget, head: Any, tokens: Tensor) -> CapableTarget:
    """Return the target with its output matrix restricted to these token ids, for drafting. The restricted
    matrix is computed once for each trained draft head (``head``) and number of tokens."""
    made = _reduced_heads.setdefault(head, {})
    cut = made.get(len(tokens))
    if cut is None or not cut.fits(target, tokens):
        cut = made[len(tokens)] = ReducedHead(target, tokens, bool(getattr(head, "use_int8", False)))
    return cast(CapableTarget, ReducedTarget(target, cut, cut))


def target_for_drafting(target: CapableTarget, head: Any) -> CapableTarget:
    """Return the target as a trained draft head uses it: with the head's own embedding and output matrix if
    it has any, and with the output matrix restricted to the head's ``draft_tokens`` if it lists any."""
    target = with_own_tables(target, head)
    tokens = getattr(head, "draft_tokens", None)
    return (
        target
        if tokens is None or isinstance(target, ReducedTarget)
        else with_reduced_output(target, head, tokens)
    )


def read_draft_tokens(folder: Path, vocab: int) -> Tensor | None:
    """Return the token ids that the trained draft heads of a target may draft, int64 [count], ascending,
    from the file draft_tokens.json next to the head's folder; None if there is no such file. vocab: the
    target's vocabulary size. Raises ModelError for an invalid file."""
    path = folder.parent / DRAFT_TOKENS
    if not path.is_file():
        return None
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise ModelError(f"{DRAFT_TOKENS} beside {folder.name} cannot be read", "head.draft_tokens") from None
    if (
        not isinstance(ids, list)
        or not ids
        or not all(type(one) is int and 0 <= one < vocab for one in ids)
        or len(set(ids)) < len(ids)
    ):
        raise ModelError(
            f"{DRAFT_TOKENS} beside {folder.name} must list distinct token ids below {vocab}",
            "head.draft_tokens",
        )
    return torch.tensor(sorted(ids))
