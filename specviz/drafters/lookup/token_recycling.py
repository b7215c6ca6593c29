"""Token Recycling: reuse the candidate tokens of earlier rounds (Luo et al. 2408.08696).

Every scored position, accepted or not, yields the top-k successors of its token. They are stored in an
adjacency table, which fills a fixed tree.
"""

from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder
from ...indexes.earlier_answers import Memory
from ...trees import Shape, top_k

SHOWN = 12  # table rows recorded per round


class TokenRecycling(Drafter):
    """Drafter that fills a tree of fixed shape from a table of each token's latest top successors (Luo et
    al. 2408.08696).

    shape: of the tree; keep: successors per token; warm: add the bigrams of the prompt at the start;
    memory: keeps the table between runs; without it every run starts with an empty table. successors: token
    -> its successors, most probable first.
    """

    def __init__(self, shape: Shape, keep: int = 8, warm: bool = True, memory: Memory | None = None):
        self.shape = shape
        self.keep = keep
        self.warm = warm
        self.memory = memory
        self.successors: dict[int, list[int]] = {}
        self.updated_tokens: set[int] = set()

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.successors = {} if self.memory is None else self.memory.table(("successors", self.keep), dict)
        self.updated_tokens = set()
        for token, after in zip(state.tokens, state.tokens[1:]) if self.warm else ():
            known = self.successors.get(token, [])
            self.successors[token] = [after, *(x for x in known if x != after)][: self.keep]

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder, at = TreeBuilder(), {-1: -1}
        shape = self.shape.within(budget.gamma, budget.width)
        for place, (parent, rank) in enumerate(zip(shape.parents, shape.ranks)):
            if parent not in at:
                continue
            node = at[parent]
            known = self.successors.get(builder.tokens[node] if node >= 0 else state.tokens[-1], ())
            if rank < len(known):
                at[place] = builder.add(known[rank], node)
        state.note("pool", keys=len(self.successors), nodes=len(builder))
        self.note_rows(builder, state)
        return builder.tree()

    def note_rows(self, builder: TreeBuilder, state: State) -> None:
        """Attach the note "successors": the table's rows of the first SHOWN tokens with children in this
        tree, the root's first."""
        used = list(
            dict.fromkeys([state.tokens[-1], *(builder.tokens[p] for p in builder.parents if p >= 0)])
        )[:SHOWN]
        rows = [
            {"tok": t, "tokens": list(self.successors.get(t, ())), "fresh": t in self.updated_tokens}
            for t in used
        ]
        state.note("successors", rows=rows, keep=self.keep)

    def observe(self, state: State, outcome: Outcome) -> None:
        root = state.tokens[-1 - len(outcome.committed)]
        likely = top_k(outcome.scores.logits, self.keep)[1].tolist()
        self.successors.update(zip((root, *outcome.tree.tokens), likely))  # later rows of the same token win
        self.updated_tokens = {root, *outcome.tree.tokens}
