"""Draft with heads on the target's last hidden state, without a model or KV cache of their own.

A round begins with the root and the hidden state that predicted it. Medusa's heads read only that state (Cai et al.
2401.10774); a tree of a fixed shape is filled with each head's most probable tokens. Hydra's heads (Ankner et al.
2402.05109) also read the drafted tokens on the path. All nodes are chosen, not sampled, and each is accepted with its
target probability, so the output is exact at any temperature.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core import Budget, CapableTarget, Drafter, DraftTree, Outcome, Scores, State, select_rows
from ...models.hydra import PrefixRows
from ...trees import Shape, chosen_children, fill_shape, grow_shape
from .reduced_output import for_drafting


class LastState(Drafter):
    """Base class: keep the hidden state that predicted the root, ``last`` [hidden]; None before the first target pass."""

    hidden_states = frozenset({"final"})
    restartable = False  # it knows the states of the run it saw, not those of a hypothetical one
    heads: Any = None

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target = for_drafting(target, self.heads)
        rows = prefill.hidden_states.get("final")
        self.last: Tensor | None = rows[-1] if rows is not None and len(rows) else None

    def observe(self, state: State, outcome: Outcome) -> None:
        self.last = outcome.scores.hidden_states["final"][outcome.kept[-1]]


class MedusaTree(LastState):
    """Draft a tree of a fixed shape. The node with depth i and rank r is the r-th most probable token of head i."""

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


class HydraTree(LastState):
    """Draft a tree of a fixed shape level by level. Each head reads the path to the node whose child it predicts."""

    needs = frozenset({"tap:final", "head", "embed"})

    def __init__(self, heads: Any, shape: Shape):
        self.heads, self.shape = heads, shape.within(len(heads), 10**6)

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        super().start(state, target, prefill)
        self.rows = self.prefix_layer()
        self.unread = [] if self.last is None else [(prefill.hidden_states["final"], prefill.at)]
        self._read()

    def observe(self, state: State, outcome: Outcome) -> None:
        super().observe(state, outcome)
        self.unread.append((select_rows(outcome.scores.hidden_states["final"], outcome.kept), outcome.scores.at))

    def propose(self, state: State, budget: Budget) -> DraftTree:
        shape = self.shape.within(min(budget.gamma, len(self.heads)), budget.width)
        if self.last is None or not len(shape):
            return DraftTree()
        self._read()
        return grow_shape(self.model_of(state), shape, state, chosen_children)

    def _read(self) -> None:
        if self.rows:
            for states, at in self.unread:
                self.last = self.rows.read(states, at)
        self.unread = []

    def prefix_layer(self) -> Any:
        """Return the layer applied to every hidden state of the text before the heads, or None."""
        return self.heads.prefix and PrefixRows(self.heads.prefix)

    def model_of(self, state: State) -> Any:
        """Return the model that scores the tree of a round."""
        assert self.last is not None  # a draft begins at a known state
        return HydraModel(self.heads, self.target, self.last, state.tokens[-1])


class HydraModel:
    """The heads in one round, with the interface of a draft model: logits after the root and after every node."""

    def __init__(self, heads: Any, target: CapableTarget, last: Tensor, root: int):
        self.heads, self.target = heads, target
        self._inputs = {-1: torch.cat([last, target.embed([root])[0]])}  # what the head below a node reads

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return logits of the nodes from ``start`` on, all of one level, or of the root of an empty tree."""
        nodes = range(start, len(tree)) or (-1,)
        if len(tree):
            embedded = self.target.embed(tree.tokens[start:])
            for node, row in zip(nodes, embedded):
                self._inputs[node] = torch.cat([self._inputs[tree.parents[node]], row])
        level = tree.depths[start] if len(tree) else 0
        with torch.inference_mode():
            return Scores(self.heads(level, torch.stack([self._inputs[node] for node in nodes]), self.target.head))
