"""Draft with heads on the target's last hidden state, without a model or KV cache of their own.

A round begins with the root and the hidden state that predicted it. Medusa's heads read only that state
(Cai et al. 2401.10774); a tree of a fixed shape is filled with each head's most probable tokens. Hydra's
heads (Ankner et al. 2402.05109) also read the drafted tokens on the path. All nodes are chosen, not
sampled, and each is accepted with its target probability, so the output is exact at any temperature.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core import Budget, CapableTarget, Drafter, DraftTree, Outcome, Scores, State, select_rows
from ...models.hydra import PrefixRows
from ...trees import Shape, chosen_children, fill_shape, grow_shape
from .reduced_output import target_for_drafting


class LastStateDrafter(Drafter):
    """Base class of drafters whose trained draft heads read the target's final hidden state that predicted
    the root: ``last`` [hidden], None before the first target pass."""

    hidden_states = frozenset({"final"})
    restartable = False  # there are no hidden states of unverified text
    heads: Any = None

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target = target_for_drafting(target, self.heads)
        rows = prefill.hidden_states.get("final")
        self.last: Tensor | None = rows[-1] if rows is not None and len(rows) else None

    def observe(self, state: State, outcome: Outcome) -> None:
        self.last = outcome.scores.hidden_states["final"][outcome.kept[-1]]


class MedusaTree(LastStateDrafter):
    """Drafter of a tree of a fixed shape with Medusa's heads (Cai et al. 2401.10774): the node of rank r at
    depth i + 1 is the r-th most probable token of head i (all from 0)."""

    needs = frozenset({"tap:final", "head"})

    def __init__(self, heads: Any, shape: Shape):
        self.heads, self.shape = heads, shape.within(len(heads), 10**6)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        shape = self.shape.within(min(budget.gamma, len(self.heads)), budget.width)
        if self.last is None or not len(shape):
            return DraftTree()
        depth = max(shape.depths)
        with torch.inference_mode():
            logits = self.heads(self.last, depth, self.target.head)  # [depth, vocab]
        return fill_shape(logits, shape, budget.width, state)[0].tree()


class HydraTree(LastStateDrafter):
    """Drafter of a tree of a fixed shape with Hydra's heads, level by level (Ankner et al. 2402.05109):
    each head also reads the drafted tokens on the path to the node whose children it predicts."""

    needs = frozenset({"tap:final", "head", "embed"})

    def __init__(self, heads: Any, shape: Shape):
        self.heads, self.shape = heads, shape.within(len(heads), 10**6)

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        super().start(state, target, prefill)
        self.rows = self.prefix_layer()
        self.unread = [] if self.last is None else [(prefill.hidden_states["final"], prefill.first_position)]
        self._read()

    def observe(self, state: State, outcome: Outcome) -> None:
        super().observe(state, outcome)
        self.unread.append(
            (select_rows(outcome.scores.hidden_states["final"], outcome.kept), outcome.scores.first_position)
        )

    def propose(self, state: State, budget: Budget) -> DraftTree:
        shape = self.shape.within(min(budget.gamma, len(self.heads)), budget.width)
        if self.last is None or not len(shape):
            return DraftTree()
        self._read()
        return grow_shape(self.draft_model(state), shape, state, chosen_children)

    def _read(self) -> None:
        if self.rows:
            for states, at in self.unread:
                self.last = self.rows.read(states, at)
        self.unread = []

    def prefix_layer(self) -> Any:
        """Return the heads' prefix layer, with a KV cache of its own, which transforms the hidden states of
        the text before the heads read them; None if the heads have none."""
        return self.heads.prefix and PrefixRows(self.heads.prefix)

    def draft_model(self, state: State) -> Any:
        """Return the draft model that scores the tree of this round."""
        assert self.last is not None  # a draft begins at a known state
        return HydraModel(self.heads, self.target, self.last, state.tokens[-1])


class HydraModel:
    """Hydra's heads during one round, with the interface of a draft model: ``score``. last [hidden]: the
    hidden state that predicted the root; root: the last committed token."""

    def __init__(self, heads: Any, target: CapableTarget, last: Tensor, root: int):
        self.heads, self.target = heads, target
        self._inputs = {-1: torch.cat([last, target.embed([root])[0]])}  # what the head below a node reads

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return the Scores with logits [len(tree) - start, vocab] after the nodes from ``start`` on, which
        must have one depth; for an empty tree [1, vocab] after the root."""
        nodes = range(start, len(tree)) or (-1,)
        if len(tree):
            embedded = self.target.embed(tree.tokens[start:])
            for node, row in zip(nodes, embedded):
                self._inputs[node] = torch.cat([self._inputs[tree.parents[node]], row])
        level = tree.depths[start] if len(tree) else 0
        with torch.inference_mode():
            return Scores(
                self.heads(level, torch.stack([self._inputs[node] for node in nodes]), self.target.head)
            )
