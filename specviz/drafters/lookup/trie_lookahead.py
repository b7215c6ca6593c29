"""Draft from a trie of token sequences of the prompt and earlier answers: Lookahead of Ant Group (Zhao et
al. 2312.12728)."""

from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Scores, State, Target, TreeBuilder
from ...indexes.branch_trie import BranchTrie, frequent_continuations
from ...indexes.earlier_answers import Memory


class TrieLookahead(Drafter):
    """Drafter of a tree: the most frequent continuations of the context's last tokens in a trie of token
    sequences (Lookahead, Zhao et al. 2312.12728).

    memory: keeps the sequences of a session's answers; those of the prompt are kept for the run; length:
    tokens per stored sequence; longest: longest suffix that is looked up. If it yields fewer than
    ``length`` nodes, shorter suffixes are tried, too.
    """

    def __init__(self, memory: Memory, length: int = 12, longest: int = 4):
        self.length, self.longest = length, min(longest, length - 1)
        self.answers = memory.table(("branches", length), lambda: BranchTrie(length))

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.prompt = BranchTrie(self.length)
        self.prompt.insert(state.tokens[: state.start])
        self.put = state.start

    def propose(self, state: State, budget: Budget) -> DraftTree:
        # with the next proposal, not after the round: a stop string may still take the round's tokens back
        whole = len(state.tokens) - self.length + 1  # complete sequences
        if whole > self.put:
            self.answers.insert(state.tokens, self.put, whole)
            self.put = whole
        builder, at = TreeBuilder(), {-1: -1}
        if budget.gamma <= 0:
            return builder.tree()
        n, found = self.find_continuations(state.tokens, budget)
        for place, (token, parent, _) in enumerate(found):
            if parent in at:
                node = builder.add(token, at[parent])
                if token not in state.stop:  # nothing is written after an end token
                    at[place] = node
        if n:
            often = sum(int(count) for _, parent, count in found if parent < 0)
            state.note("retrieved", source="prompt and answers", n=n, places=often, nodes=len(builder))
        return builder.tree()

    def find_continuations(
        self, tokens: list[int], budget: Budget
    ) -> tuple[int, list[tuple[int, int, float]]]:
        """Return the length of the suffix of ``tokens`` with the most continuations, and these: (token,
        parent, count) per node."""
        fullest: tuple[int, list] = (0, [])
        for n in range(min(self.longest, len(tokens)), 0, -1):
            nodes = [
                node
                for node in (self.prompt.find(tokens[-n:]), self.answers.find(tokens[-n:]))
                if node is not None
            ]
            ways = frequent_continuations(
                nodes, min(budget.gamma, self.length - n), budget.nodes, budget.width
            )
            if len(ways) > len(fullest[1]):
                fullest = (n, ways)
            if len(ways) >= min(self.length, budget.nodes):
                break
        return fullest
