"""Merge several draft tokens into one target token by an n-gram cache (OmniDraft, Ramakrishnan et al. 2507.02659)."""
from __future__ import annotations

import torch
from torch import Tensor

from ...core import IID, Budget, DraftTree, Scores, State, Step, Target, TreeBuilder, never_stop
from ...trees import Scorer
from .bridge import Bridge
from .chains import StringMatch, note, pick

FLOOR = 0.02  # continuations of less probable prefixes are not scored


class NgramCache:
    """Cache of target tokens that the draft's vocabulary lacks. known: {draft n-gram: target token}; after: {prefix:
    possible next draft tokens}."""

    def __init__(self, bridge: Bridge):
        self.bridge = bridge
        self.known: dict[tuple[int, ...], int] = {}
        self.after: dict[tuple[int, ...], list[int]] = {}
        self.tokens: set[int] = set()

    def has_no_equal(self, token: int) -> bool:
        """Return whether a target token is ordinary text that the draft's vocabulary lacks."""
        ours = self.bridge.ours
        return token < ours.size and self.bridge.to_theirs[token] < 0 and token not in ours.special and len(ours(token)) > 1

    def add(self, token: int) -> bool:
        """Add a target token's spelling in draft tokens. Return False if it is already known, has only one token, or
        begins with a token outside the intersection."""
        if token in self.tokens or not self.has_no_equal(token):
            return False
        theirs, text = self.bridge.theirs, self.bridge.ours(token)
        spelled = tuple(theirs.encode(text))
        if len(spelled) < 2 or b"".join(map(theirs, spelled)) != text or spelled[0] not in self.bridge.to_ours:
            return False
        self.known[spelled] = token
        self.tokens.add(token)
        for i in range(1, len(spelled)):
            after = self.after.setdefault(spelled[:i], [])
            after += [] if spelled[i] in after else [spelled[i]]
        return True

    @property
    def longest(self) -> int:
        return max(map(len, self.known), default=1)


class PositionProposal:
    """The proposal of OmniDraft at one position: one target token, spelled by one or several draft tokens. probs
    [vocab]: its distribution.

    A draft token of the intersection is sampled. If cached n-grams start with it, and it is among the most probable of
    these prefixes, the next token is sampled, too, and so on while the prefix continues. The longest completed n-gram
    is proposed, and tokens after it are dropped. Its probability is subtracted from the proposal that it replaces:
    q'(t) = prod q(d_j) and q'(d_1) = q(d_1) - prod q(d_j). The set of extended prefixes is fixed before anything is
    sampled, so the distribution is valid.
    """

    def __init__(self, drafter: MergingChain, theirs: TreeBuilder, scorer: Scorer, tip: int, scores: Scores, state: State):
        self.cache, self.theirs, self.scorer, self.tip = drafter.cache, theirs, scorer, tip
        self.logits, self.hidden = last(scores, 1)[0]
        ours, mapped = drafter.bridge.shared
        row = torch.full_like(self.logits, -torch.inf)
        row[mapped] = self.logits[mapped]
        self.first = state.sampling.probs(row)
        self.probs = self.first.new_zeros(drafter.bridge.vocab)
        self.probs[ours] = self.first[mapped]
        self.nodes: dict[tuple[int, ...], int] = {}
        self.rows: dict[tuple[int, ...], tuple[Tensor, Tensor | None]] = {}
        self.distributions: dict[tuple[int, ...], Tensor] = {}
        begun = {path: float(self.first[path[0]]) for path in self.cache.after if len(path) == 1}
        while begun := self._argmax_tokens(begun, drafter.ahead):
            begun = self._score_continuations(begun, state)
        self.probs.clamp_(min=0)

    @staticmethod
    def _argmax_tokens(begun: dict[tuple[int, ...], float], count: int) -> dict[tuple[int, ...], float]:
        worth = sorted((path for path, prob in begun.items() if prob > FLOOR), key=lambda path: -begun[path])
        return {path: begun[path] for path in worth[:count]}

    def _score_continuations(self, begun: dict[tuple[int, ...], float], state: State) -> dict[tuple[int, ...], float]:
        """Score the continuations of prefixes of one length and move the mass of completed n-grams; return longer prefixes with
        their mass."""
        for path in begun:
            self.nodes[path] = self.theirs.add(path[-1], self.nodes.get(path[:-1], self.tip))
        found = last(self.scorer.scores(self.theirs, [self.nodes[path] for path in begun]), len(begun))
        longer: dict[tuple[int, ...], float] = {}
        for (path, prob), row in zip(begun.items(), found):
            self.rows[path], self.distributions[path] = row, state.sampling.probs(row[0])
            for token in self.cache.after[path]:
                whole, mass = (*path, token), prob * self.distributions[path][token]
                if whole in self.cache.known:
                    self.move(self.target_token(path), self.cache.known[whole], mass)
                if whole in self.cache.after:
                    longer[whole] = float(mass)
        return longer

    def move(self, less: int, more: int, mass: Tensor) -> None:
        self.probs[less] -= mass
        self.probs[more] += mass

    def merged(self, path: tuple[int, ...]) -> tuple[int, ...]:
        """Return the longest cached n-gram at the start of the path, or its first token."""
        return next((path[:n] for n in range(len(path), 1, -1) if path[:n] in self.cache.known), path[:1])

    def target_token(self, path: tuple[int, ...]) -> int:
        """Return the target token proposed for this path."""
        whole = self.merged(path)
        return self.cache.known[whole] if len(whole) > 1 else self.cache.bridge.to_ours[next(iter(whole))]

    def draw(self, state: State) -> tuple[tuple[int, ...], int]:
        """Sample draft tokens; return them and the target token they form."""
        path = (pick(self.first, state),)
        while path in self.distributions:
            others = self.cache.after[path]
            token_probs = self.distributions[path][others]
            at = pick(torch.cat([(1 - token_probs.sum()).clamp(min=0)[None], token_probs]), state) - 1
            if at < 0:
                break
            path = (*path, others[at])
        return self.merged(path), self.target_token(path)

    def follow(self, drawn: tuple[int, ...]) -> tuple[int, Scores]:
        """Return the tree node of the last sampled draft token, and the scores after it, from which the next position
        is drafted."""
        tip = self.tip
        for n, token in enumerate(drawn, 1):
            tip = self.nodes[drawn[:n]] if drawn[:n] in self.nodes else self.theirs.add(token, tip)
        if drawn in self.rows:
            row, hidden = self.rows[drawn]
            return tip, Scores(row[None], {} if hidden is None else {"final": hidden[None]})
        return tip, self.scorer.scores(self.theirs, (tip,))


class MergingChain(StringMatch):
    """Draft a chain of ``PositionProposal``. ahead: number of n-gram prefixes extended per step; ``cache``: filled by subclasses."""

    place = PositionProposal

    def __init__(self, model: Target, bridge: Bridge, ahead: int = 4):
        super().__init__(model, bridge)
        self.cache = NgramCache(bridge)
        self.ahead = ahead if "tree" in model.capabilities else 0
        self.hidden: list[Tensor | None] = []  # draft hidden state at each position of the round

    def propose(self, state: State, budget: Budget) -> DraftTree:
        context = self.follower.follow(state.tokens) if budget.gamma > 0 else []
        build, theirs, drawn_tokens, scorer, tip = TreeBuilder(), TreeBuilder(), [], Scorer(self.model), -1
        self.hidden = []
        if not context or len(context) + self.cache.longest * budget.gamma > self.model.context:
            return build.tree()
        self.model.sync(context)
        scores = scorer.scores(theirs, (tip,))
        while True:
            found = self.place(self, theirs, scorer, tip, scores, state)
            drawn, token = found.draw(state)
            self.hidden.append(found.hidden)
            build.add(token, len(build) - 1, build.begin(found.probs, IID))
            drawn_tokens += drawn
            if len(build) >= budget.gamma or drawn[-1] in self.bridge.theirs.special:
                break
            if budget.stop is not never_stop and budget.stop(Step(token, found.probs, len(build) - 1, found.hidden)):
                break
            tip, scores = found.follow(drawn)
        note(state, self.bridge, drawn_tokens, build.tokens)
        return build.tree()


def last(scores: Scores, count: int) -> list[tuple[Tensor, Tensor | None]]:
    """Return (logits, last hidden state) of each of the newest ``count`` rows; None where hidden states are not captured."""
    states = scores.hidden_states.get("final")
    return list(zip(scores.logits[-count:], [None] * count if states is None else states[-count:]))
