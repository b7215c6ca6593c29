"""Draft blocks with independent heads (Stern et al., arXiv 1811.03115) and rescore them (Kim et al.,
2404.09221).

Each head predicts one position of the block, independently of the others. The top tokens of each position
form a lattice. Without rescoring the draft is the top-1 token of each position; with it, the path with the
highest log p(head) + weight * log p(language model). Nodes are chosen, so each is accepted with its target
probability, which is exact.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Any

import torch
from torch import Tensor

from ...core import Budget, CapableTarget, DraftTree, Scores, State, TreeBuilder, select_rows
from ...indexes.suffix_array import SuffixArray
from ...trees import Scorer, top_log_probs
from .last_state import LastStateDrafter
from .recurrent import merged_paths

Places = list[
    list[tuple[int, float]]
]  # for each position: its top tokens with their log-probabilities under the head
Path = tuple[int, ...]

FLOOR = math.log(1e-6)  # log-probability of a token that was never seen
BACK = math.log(0.4)  # added for each token less of context (stupid backoff, Brants et al. 2007)
HELD = 64  # partial paths per position that the beam search keeps


class LatticeRescorer:
    """Base class of rules that choose paths through a lattice: the heads' top tokens of each position of
    the block."""

    def start(self, state: State) -> None:
        """Begin a run; called once with the prompt."""

    def __call__(self, places: Places, state: State) -> list[tuple[Path, list[float]]]:
        """Return the chosen paths (tokens), best first, each with the scores of its steps. places: the
        lattice."""
        raise NotImplementedError


class BlockLattice(LastStateDrafter):
    """Drafter of a block with independent heads, one per position (Stern et al. 1811.03115).

    heads: the trained draft heads; top: tokens per position of the lattice; refine: rule that chooses the
    paths to draft (Kim et al. 2404.09221); None: draft the chain of the top-1 token of each position."""

    needs = frozenset({"tap:final", "head"})

    def __init__(self, heads: Any, top: int = 1, refine: LatticeRescorer | None = None):
        self.heads = heads
        self.top = top
        self.refine = refine

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        super().start(state, target, prefill)
        if self.refine is not None:
            self.refine.start(state)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        depth = min(budget.gamma, len(self.heads))
        if self.last is None or depth < 1:
            return DraftTree()
        with torch.inference_mode():
            logits = self.heads(self.last, depth, self.target.head)
            if state.processors and self.refine is None:
                logits = self._processed(logits, state)
            found = top_log_probs(logits, self.top)
        values, tokens = torch.stack([part.double() for part in found]).tolist()  # in one go
        tokens = [[int(token) for token in row] for row in tokens]
        plain = tuple(row[0] for row in tokens)
        if self.refine is None:
            state.note(
                "block",
                block=len(self.heads),
                drafted=depth,
                confidence=[round(math.exp(row[0]), 4) for row in values],
            )
            return merged_paths([plain]).tree()
        places = [list(zip(*row)) for row in zip(tokens, values)]
        found = self.refine(places, state)
        chosen, steps = found[0]
        rows = [
            {"tokens": row, "chances": [round(math.exp(x), 4) for x in log_prob]}
            for row, log_prob in zip(tokens, values)
        ]
        state.note(
            "lattice",
            rows=rows,
            plain=[0] * depth,
            path=[row.index(token) for row, token in zip(tokens, chosen)],
            scores=[round(x, 3) for x in steps],
            paths=len(found),
        )
        return merged_paths([path for path, _ in (found if budget.width > 1 else found[:1])]).tree()

    @staticmethod
    def _processed(logits: Tensor, state: State) -> Tensor:
        """Apply the run's logits processors along the chain of top-1 tokens."""
        rows: list[Tensor] = []
        for row in logits:
            rows.append(state.process_draft_row(row, [int(one.argmax()) for one in rows]))
        return torch.stack(rows)


class NgramRescorer(LatticeRescorer):
    """Choose the paths with the highest sum of log p(head) + weight * log p(n-gram model of a datastore).

    array: suffix array of the datastore; order: n of the longest n-gram; paths: number of paths returned.
    """

    def __init__(self, array: SuffixArray, order: int, weight: float, paths: int = 1):
        self.array = array
        self.order = min(order, array.depth)
        self.weight = weight
        self.paths = paths
        self._places: dict[Path, tuple[int, int]] = {(): (0, len(array))}  # of a string in the array's order

    def __call__(self, places: Places, state: State) -> list[tuple[Path, list[float]]]:
        """Run a beam search over the lattice. Of partial paths that end in the same order - 1 tokens only
        the best ones are kept, because their continuations have equal scores."""
        known = tuple(state.tokens[-self.order :])
        alive: list[tuple[float, Path, list[float]]] = [(0.0, (), [])]
        for position in places:
            grown: dict[Path, list[tuple[float, Path, list[float]]]] = {}
            for value, path, steps in alive:
                for token, log_prob in position:
                    step = log_prob + self.weight * self.log_prob((*known, *path), token)
                    end = (*known, *path, token)[1 - self.order :] if self.order > 1 else ()
                    grown.setdefault(end, []).append((value + step, (*path, token), [*steps, step]))
            alive = [
                one for same in grown.values() for one in sorted(same, key=lambda one: -one[0])[: self.paths]
            ]
            alive = sorted(alive, key=lambda one: -one[0])[: max(HELD, self.paths)]
        return [(path, steps) for _, path, steps in alive[: self.paths]]

    def log_prob(self, before: Path, token: int) -> float:
        """Return the log-probability of ``token`` after the tokens ``before``, from the longest known
        n-gram, with stupid backoff."""
        for n in range(min(self.order - 1, len(before)), -1, -1):
            context = before[len(before) - n :]
            if self._count(context) and (seen := self._count((*context, token))):
                return max(FLOOR, math.log(seen / self._count(context)) + BACK * (self.order - 1 - n))
        return FLOOR

    def _count(self, string: Path) -> int:
        low, high = self._found(string)
        return high - low

    def _found(self, string: Path) -> tuple[int, int]:
        """Return the range of an n-gram in the suffix array, searched within the range of the n-gram
        without its last token."""
        if string not in self._places:
            low, high = self._found(string[:-1])
            tokens = self.array.tokens
            order = self.array.order
            n = len(string) - 1
            size = len(self.array)

            def follows(position: int) -> int:
                at = int(order[position]) + n
                return int(tokens[at]) if at < size else -1  # past the end, before every token

            inside = range(low, high)
            first = low + bisect_left(inside, string[-1], key=follows)
            self._places[string] = first, low + bisect_right(inside, string[-1], key=follows)
        return self._places[string]


class ModelRescorer(LatticeRescorer):
    """Choose a path token by token, each with the highest log p(head) + weight * log p(model), with
    ``model`` a small language model."""

    def __init__(self, model: CapableTarget, weight: float):
        self.model, self.weight = model, weight

    def start(self, state: State) -> None:
        self.model.sync(state.tokens)

    def __call__(self, places: Places, state: State) -> list[tuple[Path, list[float]]]:
        self.model.sync(state.tokens)
        builder = TreeBuilder()
        scorer = Scorer(self.model, state)
        node = -1
        steps = []
        for position in places:
            probs: Tensor = scorer.logits(builder, (node,))[0].log_softmax(-1)
            ids = [token for token, _ in position]
            mixed = [
                log_prob + self.weight * max(FLOOR, value)
                for (_, log_prob), value in zip(position, select_rows(probs, ids).tolist())
            ]
            steps.append(max(mixed))
            node = builder.add(ids[mixed.index(max(mixed))], node)
        return [(tuple(builder.tokens), steps)]
