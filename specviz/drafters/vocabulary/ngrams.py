"""Merge several draft tokens into one target token by an n-gram cache (OmniDraft, Ramakrishnan et al.
2507.02659)."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import IID, Budget, DraftTree, Scores, State, Step, Target, TreeBuilder, never_stop
from ...trees import Scorer
from .bridge import Bridge
from .chains import StringMatch, note_alignment, pick_draft_token

FLOOR = 0.02  # continuations of less probable prefixes are not scored


class NgramCache:
    """Cache of target tokens that the draft vocabulary lacks. known: {n-gram of draft tokens: target
    token}; after: {proper prefix of such an n-gram: possible next draft tokens}; tokens: the cached target
    tokens."""

    def __init__(self, bridge: Bridge):
        self.bridge = bridge
        self.known: dict[tuple[int, ...], int] = {}
        self.after: dict[tuple[int, ...], list[int]] = {}
        self.tokens: set[int] = set()

    def is_missing_in_draft(self, token: int) -> bool:
        """Return whether a target token is ordinary text of at least two bytes that the draft vocabulary
        lacks."""
        ours = self.bridge.ours
        return (
            token < ours.size
            and self.bridge.to_theirs[token] < 0
            and token not in ours.special
            and len(ours(token)) > 1
        )

    def add(self, token: int) -> bool:
        """Add the n-gram of draft tokens that encodes a target token. Return whether it was added: not if
        it is known already, if it is no n-gram of at least two tokens, or if it begins with a token outside
        the intersection of both vocabularies."""
        if token in self.tokens or not self.is_missing_in_draft(token):
            return False
        theirs, text = self.bridge.theirs, self.bridge.ours(token)
        spelled = tuple(theirs.encode(text))
        if (
            len(spelled) < 2
            or b"".join(map(theirs, spelled)) != text
            or spelled[0] not in self.bridge.to_ours
        ):
            return False
        self.known[spelled] = token
        self.tokens.add(token)
        for i in range(1, len(spelled)):
            after = self.after.setdefault(spelled[:i], [])
            after += [] if spelled[i] in after else [spelled[i]]
        return True

    @property
    def longest(self) -> int:
        """Length of the longest cached n-gram, 1 for an empty cache."""
        return max(map(len, self.known), default=1)


class PositionProposal:
    """The proposal of OmniDraft (Ramakrishnan et al. 2507.02659) at one position: one target token, encoded
    by one or several draft tokens. probs [vocab]: the distribution of the target token.

    A draft token of the intersection of both vocabularies is sampled. If cached n-grams start with it, and
    it is among the most probable of these prefixes, the next token is sampled, too, and so on while the
    prefix continues. The longest completed n-gram is proposed, and tokens after it are dropped. Its
    probability is subtracted from the proposal that it replaces: q'(t) = prod q(d_j) and q'(d_1) = q(d_1) -
    prod q(d_j). The set of extended prefixes is fixed before anything is sampled, so the distribution is
    valid.
    """

    def __init__(
        self,
        drafter: MergingChain,
        theirs: TreeBuilder,
        scorer: Scorer,
        tip: int,
        scores: Scores,
        state: State,
    ):
        self.cache = drafter.cache
        self.theirs = theirs
        self.scorer = scorer
        self.tip = tip
        self.logits, self.hidden = last_rows(scores, 1)[0]
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

    def _score_continuations(
        self, begun: dict[tuple[int, ...], float], state: State
    ) -> dict[tuple[int, ...], float]:
        """Score the continuations of prefixes of one length and move the mass of completed n-grams; return
        longer prefixes with their mass."""
        for path in begun:
            self.nodes[path] = self.theirs.add(path[-1], self.nodes.get(path[:-1], self.tip))
        found = last_rows(self.scorer.scores(self.theirs, [self.nodes[path] for path in begun]), len(begun))
        longer: dict[tuple[int, ...], float] = {}
        for (path, prob), row in zip(begun.items(), found):
            self.rows[path], self.distributions[path] = row, state.sampling.probs(row[0])
            for token in self.cache.after[path]:
                whole, mass = (*path, token), prob * self.distributions[path][token]
                if whole in self.cache.known:
                    self.move_probability(self.target_token(path), self.cache.known[whole], mass)
                if whole in self.cache.after:
                    longer[whole] = float(mass)
        return longer

    def move_probability(self, source: int, destination: int, mass: Tensor) -> None:
        """Move the probability ``mass``, a scalar, from one target token to another in ``probs``."""
        self.probs[source] -= mass
        self.probs[destination] += mass

    def longest_ngram(self, path: tuple[int, ...]) -> tuple[int, ...]:
        """Return the longest cached n-gram at the start of ``path`` (draft tokens); its first token if
        there is none."""
        return next((path[:n] for n in range(len(path), 1, -1) if path[:n] in self.cache.known), path[:1])

    def target_token(self, path: tuple[int, ...]) -> int:
        """Return the target token that is proposed for these sampled draft tokens."""
        whole = self.longest_ngram(path)
        return self.cache.known[whole] if len(whole) > 1 else self.cache.bridge.to_ours[next(iter(whole))]

    def draw(self, state: State) -> tuple[tuple[int, ...], int]:
        """Sample draft tokens; return those that form the proposed target token, and that token."""
        path = (pick_draft_token(self.first, state),)
        while path in self.distributions:
            others = self.cache.after[path]
            token_probs = self.distributions[path][others]
            at = (
                pick_draft_token(torch.cat([(1 - token_probs.sum()).clamp(min=0)[None], token_probs]), state)
                - 1
            )
            if at < 0:
                break
            path = (*path, others[at])
        return self.longest_ngram(path), self.target_token(path)

    def follow(self, drawn: tuple[int, ...]) -> tuple[int, Scores]:
        """Return the node of the last sampled draft token in the tree of draft tokens, and the Scores after
        it, from which the next position is drafted."""
        tip = self.tip
        for n, token in enumerate(drawn, 1):
            tip = self.nodes[drawn[:n]] if drawn[:n] in self.nodes else self.theirs.add(token, tip)
        if drawn in self.rows:
            row, hidden = self.rows[drawn]
            return tip, Scores(row[None], {} if hidden is None else {"final": hidden[None]})
        return tip, self.scorer.scores(self.theirs, (tip,))


class MergingChain(StringMatch):
    """Drafter of a chain of target tokens, each proposed by a ``PositionProposal`` (OmniDraft, without
    training). ahead: maximum number of n-gram prefixes extended per draft token; cache: filled by
    subclasses."""

    proposal_class = PositionProposal

    def __init__(self, model: Target, bridge: Bridge, ahead: int = 4):
        super().__init__(model, bridge)
        self.cache = NgramCache(bridge)
        self.ahead = ahead if "tree" in model.capabilities else 0
        self.hidden: list[Tensor | None] = []  # draft hidden state at each position of the round

    def propose(self, state: State, budget: Budget) -> DraftTree:
        context = self.follower.follow(state.tokens) if budget.gamma > 0 else []
        builder = TreeBuilder()
        theirs = TreeBuilder()
        drawn_tokens = []
        scorer = Scorer(self.model)
        tip = -1
        self.hidden = []
        if not context or len(context) + self.cache.longest * budget.gamma > self.model.context:
            return builder.tree()
        self.model.sync(context)
        scores = scorer.scores(theirs, (tip,))
        while True:
            found = self.proposal_class(self, theirs, scorer, tip, scores, state)
            drawn, token = found.draw(state)
            self.hidden.append(found.hidden)
            builder.add(token, len(builder) - 1, builder.begin(found.probs, IID))
            drawn_tokens += drawn
            if len(builder) >= budget.gamma or drawn[-1] in self.bridge.theirs.special:
                break
            if budget.stop is not never_stop and budget.stop(
                Step(token, found.probs, len(builder) - 1, found.hidden)
            ):
                break
            tip, scores = found.follow(drawn)
        note_alignment(state, self.bridge, drawn_tokens, builder.tokens)
        return builder.tree()


def last_rows(scores: Scores, count: int) -> list[tuple[Tensor, Tensor | None]]:
    """Return (logits [vocab], final hidden state [hidden]) of each of the last ``count`` rows; None instead
    of the hidden state if it is not captured."""
    states = scores.hidden_states.get("final")
    return list(zip(scores.logits[-count:], [None] * count if states is None else states[-count:]))
