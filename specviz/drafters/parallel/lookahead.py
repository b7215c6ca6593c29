"""Lookahead decoding: refine a window of guesses by parallel Jacobi steps and verify the collected n-grams
in the same forward pass (Fu et al. 2402.02057).

The window is part of the draft tree, as nodes that are scored but are no candidates (``DraftTree.probes``):
level 0 is a chain under the root, and level l of a column is a child of level l-1 of the same column.
Positions and attention mask then equal the published ones.
"""

from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder


class Lookahead(Drafter):
    """Drafter by lookahead decoding (Fu et al. 2402.02057): it drafts n-grams from a pool, and a window of
    guesses, refined by Jacobi steps in the same target pass, fills the pool.

    window: number of columns of the window; ngram: length of an n-gram, of which the first token is the
    key; guesses: n-grams kept per key. ``levels[l][j]`` is the guess for the token l + j positions after
    the root (level 0 starts at j = 1, because the root is its column 0). The window starts with level 0,
    filled from the prompt; each of the first rounds adds a level.
    """

    def __init__(self, window: int = 7, ngram: int = 5, guesses: int = 7):
        self.window = window
        self.ngram = ngram
        self.guesses = guesses
        self.pool: dict[int, list[tuple[int, ...]]] = {}
        self.levels: list[list[int]] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.pool = {}
        # the paper samples these from the prompt; a stride is deterministic and spreads them as well
        self.levels = [[state.tokens[7 * i % len(state.tokens)] for i in range(self.window + self.ngram - 3)]]

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        if budget.gamma > 0:
            self._add_guesses(builder, state.tokens[-1], budget.gamma)
            self._add_window(builder)
            state.note(
                "pool", keys=len(self.pool), guesses=self.pool.get(state.tokens[-1], []), window=self.levels
            )
        return builder.tree()

    def _add_guesses(self, builder: TreeBuilder, root: int, deepest: int) -> None:
        """Add the n-grams that start with the root as a trie, newest first."""
        children: dict[tuple[int, int], int] = {}
        for gram in self.pool.get(root, ()):
            node = -1
            for token in gram[:deepest]:
                if (node, token) not in children:
                    children[node, token] = builder.add(token, node)
                node = children[node, token]

    def _add_window(self, builder: TreeBuilder) -> None:
        above: list[int] = [-1]
        for token in self.levels[0]:
            above.append(builder.add(token, above[-1], probe=True))
        for level in self.levels[1:]:
            above = [builder.add(token, above[j], probe=True) for j, token in enumerate(level)]

    def observe(self, state: State, outcome: Outcome) -> None:
        if not outcome.tree.probes:  # the last round has no window
            return
        rows = [node + 1 for node in sorted(outcome.tree.probes)][-len(self.levels[-1]) :]
        if len(self.levels) == 1:
            rows = [0, *rows]  # the root is column 0 of level 0
        new = outcome.scores.tops(rows)
        if len(self.levels) < self.ngram - 1:
            self.levels = [level[1:] for level in (*self.levels, new)]
            return
        root = state.tokens[-1 - len(outcome.committed)]
        self._harvest([root, *self.levels[0]], new)
        self.levels = [*self.levels[1:], new]
        self.levels[0] = self.levels[0][1:]

    def _harvest(self, keys: list[int], new: list[int]) -> None:
        """Store every column as an n-gram."""
        for j, last in enumerate(new):
            gram = tuple(level[j] for level in self.levels[1:]) + (last,)
            known = [other for other in self.pool.get(keys[j], ()) if other != gram]
            self.pool[keys[j]] = [gram, *known][: self.guesses]
