"""Token Recycling: the candidates earlier rounds threw away grow the next tree (Luo et al. 2408.08696).

Every row the target scores names a few likely successors of its token, accepted or not. They are kept in a table, newest
first written over, and a fixed tree is filled from it.
"""
from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder
from ...trees import Shape, best
from ...indexes.earlier_answers import Memory

SHOWN = 12  # rows of the table that a view is told of, a round


class Recycling(Drafter):
    """shape: the tree to fill; keep: successors kept a token; warm: take in the word pairs of the prompt when a run begins;
    memory: the table outlives the run there (a hot start), else every run begins with an empty one.

    successors: token -> its latest successors, best first. It has at most as many rows as the vocabulary has tokens.
    """

    def __init__(self, shape: Shape, keep: int = 8, warm: bool = True, memory: Memory | None = None):
        self.shape, self.keep, self.warm, self.memory = shape, keep, warm, memory
        self.successors: dict[int, list[int]] = {}
        self.fresh: set[int] = set()

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.successors = {} if self.memory is None else self.memory.table(("successors", self.keep), dict)
        self.fresh = set()
        for token, after in zip(state.tokens, state.tokens[1:]) if self.warm else ():
            known = self.successors.get(token, [])
            self.successors[token] = [after, *(x for x in known if x != after)][:self.keep]

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build, at = TreeBuilder(), {-1: -1}
        shape = self.shape.within(budget.gamma, budget.width)
        for place, (parent, rank) in enumerate(zip(shape.parents, shape.ranks)):
            if parent not in at:
                continue
            node = at[parent]
            known = self.successors.get(build.tokens[node] if node >= 0 else state.tokens[-1], ())
            if rank < len(known):
                at[place] = build.add(known[rank], node)
        state.note("pool", keys=len(self.successors), nodes=len(build))
        self.tell(build, state)
        return build.tree()

    def tell(self, build: TreeBuilder, state: State) -> None:
        """The rows that this tree was read from, the root's first."""
        used = list(dict.fromkeys([state.tokens[-1], *(build.tokens[p] for p in build.parents if p >= 0)]))[:SHOWN]
        rows = [{"tok": t, "tokens": list(self.successors.get(t, ())), "fresh": t in self.fresh} for t in used]
        state.note("successors", rows=rows, keep=self.keep)

    def observe(self, state: State, outcome: Outcome) -> None:
        root = state.tokens[-1 - len(outcome.committed)]
        likely = best(outcome.scores.logits, self.keep)[1].tolist()
        self.successors.update(zip((root, *outcome.tree.tokens), likely))  # the last row of a token wins
        self.fresh = {root, *outcome.tree.tokens}
