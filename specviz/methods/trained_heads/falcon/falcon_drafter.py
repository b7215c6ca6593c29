"""Draft several tokens per pass, each pass conditioned on the predictions of the one before (Falcon, Gao et
al. 2412.12639)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ....core import (
    Budget,
    CapableTarget,
    Drafter,
    DraftTree,
    Outcome,
    Scores,
    State,
    TreeBuilder,
    select_rows,
)
from ....drafters.heads.features import FeatureModel
from ....trees import top_log_probs
from ....trees.draws import path_tokens


class BlockModel(FeatureModel):
    """Falcon's head on the target's hidden states during one run, with the interface of FeatureModel."""

    def root_output(self, out: Tensor) -> Tensor:
        return out

    def first(self) -> Tensor:
        """Return the predicted hidden states [k, hidden] of the first k positions after the text."""
        self.rows.crop(self.rows.count)
        assert self._tip is not None  # sync() comes first
        return self._tip


class BlockwiseTree(Drafter):
    """Drafter of a tree with Falcon's head (Gao et al. 2412.12639), which predicts k positions per pass.
    The most probable paths over the top tokens of each position are drafted; positions of one pass are
    independent, so a path's probability is the product of its tokens'. The ``beam`` most probable full
    paths enter the next pass, k tokens each.

    Nodes are chosen: each is accepted with its target probability."""

    restartable = False  # of a text that was not verified it has no features

    def __init__(self, head: Any, beam: int):
        self.hidden_states, self.needs = (
            frozenset(head.hidden_states),
            frozenset({"tap:final", "embed", "head"}),
        )
        self.net = head
        self.beam = beam
        self.model = BlockModel(head)

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.model.start(target, state.tokens, prefill)
        self.model.sync(state.tokens)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.model.append_features(
            select_rows(self.model.read_features(outcome.scores), outcome.kept), list(outcome.committed)
        )

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if budget.gamma < 1 or not self.model.sync(state.tokens):
            return DraftTree()
        builder = TreeBuilder()
        values = []
        passes = []
        with torch.inference_mode():
            paths, guesses = (
                [(-1, 0.0)],
                self.model.first()[None],
            )  # leaf and log probability of each path; [paths, k, hidden]
            above, run, depth = (
                [-1],
                0,
                0,
            )  # last scratch row above each path; scratch rows in all; levels drafted
            while paths:
                passes.append(len(paths))
                ends = self._places(builder, values, paths, guesses, budget, budget.gamma - depth, state)
                depth += guesses.shape[1]
                if depth >= budget.gamma or not ends:
                    break
                ends = sorted(ends, key=lambda end: -values[end[0]])[: 1 if budget.width == 1 else self.beam]
                tokens, k = (
                    [token for leaf, _ in ends for token in self._tail(builder, leaf, guesses.shape[1])],
                    guesses.shape[1],
                )
                parents = [above[path] for _, path in ends for _ in range(k)]
                depths = [depth - k + i + 1 for _ in ends for i in range(k)]
                stood = select_rows(guesses, [path for _, path in ends]).flatten(0, 1)
                out = self.model.rows.below(self.model.target.embed(tokens), stood, parents, depths)
                above, run = [run + k * (i + 1) - 1 for i in range(len(ends))], run + k * len(ends)
                paths, guesses = [(leaf, values[leaf]) for leaf, _ in ends], out.unflatten(0, (len(ends), k))
        tree = builder.tree()
        if len(tree) > budget.nodes:
            order = sorted(range(len(tree)), key=lambda node: (-values[node], node))
            tree = tree.keep(order[: budget.nodes], by_token=True)
        state.note("rounds", size=self.net.size, paths=passes, nodes=len(tree))
        return tree

    def _places(
        self,
        builder: TreeBuilder,
        values: list[float],
        paths,
        guesses: Tensor,
        budget: Budget,
        left: int,
        state: State,
    ) -> list[tuple[int, int]]:
        """Add the top tokens of each position below each path, at most budget.nodes per level; return the
        full paths as (leaf, index of the path it extends)."""
        k, kind = guesses.shape[1], self.model._kind
        logits = self.model.target.head(guesses.flatten(0, 1).to(kind))  # [paths * k, vocab]
        found, ids = _best(logits, budget.width)
        level = [(value, leaf, path) for path, (leaf, value) in enumerate(paths)]
        for place in range(min(k, left)):
            if state.processors:  # what may follow depends on the drafted tokens
                rows = logits[[path * k + place for *_, path in level]]
                rows = state.process_draft_logits(rows, [path_tokens(builder, node) for _, node, _ in level])
                own, tokens = _best(rows, budget.width)
            else:
                own, tokens = ([part[path * k + place] for *_, path in level] for part in (found, ids))
            wider = [
                (value + prob, node, path, token)
                for i, (value, node, path) in enumerate(level)
                for prob, token in zip(own[i], tokens[i])
                if math.isfinite(prob)
            ]
            level = []
            for value, node, path, token in sorted(wider, key=lambda one: -one[0])[: budget.nodes]:
                values.append(value)
                level.append((value, builder.add(int(token), node), path))
            level = [one for one in level if builder.tokens[one[1]] not in state.stop]
        return [(node, path) for _, node, path in level]

    @staticmethod
    def _tail(builder: TreeBuilder, leaf: int, count: int) -> list[int]:
        tokens = []
        for _ in range(count):
            tokens.append(builder.tokens[leaf])
            leaf = builder.parents[leaf]
        return tokens[::-1]


def _best(logits: Tensor, width: int) -> tuple[list[Any], list[Any]]:
    """Return the log-probabilities and the tokens of the best ``width`` of each row, read from a device in
    one go."""
    found, ids = top_log_probs(logits, width)
    values, tokens = torch.stack([found.double(), ids.double()]).tolist()
    return values, tokens
