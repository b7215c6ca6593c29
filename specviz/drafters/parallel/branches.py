"""Decode the sections of an outline in parallel inside one sequence (Yu 2025, 2503.20533).

The model first generates a numbered list of titles. Each section is then a branch of a tree: branches do
not attend to each other and share positions, so one forward pass generates one token of each. Finally the
sections are concatenated. The paper asks for the outline in its prompt and removes it afterwards; here the
beginning of the list is inserted into the answer, and the list stays in it.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target
from ...trees import sample_token


class Branches(Drafter):
    """Drafter that generates all sections of an outline in parallel, as branches of one tree (Yu 2025,
    2503.20533), and drafts them one after the other as a chain.

    count: number of sections; title, length: maximum number of tokens of a title and of a section; encode:
    text -> token ids; breaks(token): whether a token ends a line. passes: (begin, end, tokens) of each
    target pass spent on drafting."""

    restartable = False  # appends uncommitted tokens to the target's KV cache

    def __init__(
        self,
        count: int,
        title: int,
        length: int,
        encode: Callable[[str], list[int]],
        breaks: Callable[[int], bool],
    ):
        self.count = count
        self.title = title
        self.length = length
        self.encode = encode
        self.breaks = breaks
        self.passes: list[tuple[float, float, int]] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.target = target
        self.titles: list[list[int]] = []  # of the outline; the last one may be incomplete
        self.open = self.written = False

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if self.written or budget.gamma <= 0:
            return DraftTree()
        if not self.open and len(self.titles) < self.count:
            self.titles.append([])
            self.open, self.fresh = True, True
            number = len(self.titles)
            return self._forced(f"{number}." if number == 1 else f"\n{number}.", budget)
        if self.open:
            self.fresh = False
            return DraftTree()  # plain decoding of the title
        self.written = True
        parts = self._write(state, budget)
        state.note(
            "branches",
            titles=[{"tokens": t} for t in self.titles],
            parts=[{"tokens": p} for p in parts],
            passes=len(self.passes),
        )
        return DraftTree.chain([token for part in parts for token in part][: budget.gamma])

    def _forced(self, text: str, budget: Budget) -> DraftTree:
        return DraftTree.chain(self.encode(text)[: budget.gamma])

    def observe(self, state: State, outcome: Outcome) -> None:
        if not self.open:
            return
        token = outcome.committed[-1]
        title = self.titles[-1]
        if self.breaks(token) or token in state.stop or len(title) + 1 >= self.title:
            self.open = False
        if not self.breaks(token):
            title.append(token)

    def _write(self, state: State, budget: Budget) -> list[list[int]]:
        """Generate all sections, each started with its number and title, one token of each per pass."""
        heads = [
            self.encode(f"\n\n{i}.") + title + self.encode(":") for i, title in enumerate(self.titles, 1)
        ]
        room = (budget.gamma - sum(map(len, heads))) // len(heads)
        tokens = []
        parents = []
        tips = []
        parts = heads
        for head in heads:
            for i, token in enumerate(head):
                parents.append(len(tokens) - 1 if i else -1)
                tokens.append(token)
            tips.append(len(tokens) - 1)
        parts = [list(head) for head in heads]
        live = list(range(len(heads)))
        start = 0
        for _ in range(max(0, min(self.length, room))):
            began = state.clock.now()
            logits = self.target.score(
                DraftTree(tuple(tokens), tuple(parents), (-1,) * len(tokens)), start
            ).logits
            self.passes.append((began, state.clock.now(), len(tokens) - start + (not start)))
            start = len(tokens)
            for b in list(live):
                token, _ = sample_token(logits[tips[b] + 1], state)
                if token in state.stop or (self.breaks(token) and len(parts[b]) > len(heads[b])):
                    live.remove(b)
                    continue
                parts[b].append(token)
                parents.append(tips[b])
                tips[b] = len(tokens)
                tokens.append(token)
            if not live:
                break
        return parts
