"""Token Recycling: the candidates earlier rounds threw away grow the next tree (Luo et al. 2408.08696).

Every row the target scores names a few likely successors of its token, accepted or not. They are kept in a table, newest
first written over, and a fixed tree is filled from it.
"""
from __future__ import annotations

from ..core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder
from ..trees import Shape, best


class Recycling(Drafter):
    """shape: the tree to fill; keep: successors kept a token; warm: begin with the successors seen in the prompt."""

    def __init__(self, shape: Shape, keep: int = 8, warm: bool = True):
        self.shape, self.keep, self.warm = shape, keep, warm
        self.successors: dict[int, list[int]] = {}

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.successors = {}
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
        return build.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        root = state.tokens[-1 - len(outcome.committed)]
        likely = best(outcome.scores.logits, self.keep)[1].tolist()
        self.successors.update(zip((root, *outcome.tree.tokens), likely))  # the last row of a token wins
