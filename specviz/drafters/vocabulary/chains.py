"""Draft chains with heterogeneous vocabularies (Timor et al. 2502.05202): string-level exact match (SLEM),
token-level intersection (TLI) and string-level rejection sampling (SLRS)."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import IID, Budget, Drafter, DraftSteps, DraftTree, Scores, State, Target, TreeBuilder
from ...trees import Scorer
from ..model.chain import DraftChain
from .bridge import Bridge, DraftTokenization, IntersectionModel


class StringMatch(Drafter):
    """Drafter of a chain by string-level exact match (SLEM, Timor et al. 2502.05202): the draft model
    decodes greedily in its own tokens, and the text is re-encoded in target tokens, as chosen nodes."""

    def __init__(self, model: Target, bridge: Bridge):
        self.model, self.bridge = model, bridge
        self.follower = DraftTokenization(bridge)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        context = self.follower.follow(state.tokens)
        if context and len(context) <= self.model.context:
            self.model.sync(context)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        drafted = self.draft_greedily(state, budget.gamma)
        tokens = self.bridge.decode(state.tokens, drafted)[: budget.gamma]
        if drafted:
            note_alignment(state, self.bridge, drafted, tokens)
        return DraftTree.chain(tokens)

    def draft_greedily(self, state: State, count: int) -> list[int]:
        """Return up to ``count`` draft tokens, decoded greedily; fewer after a control token, none if they
        do not fit into the draft model's context."""
        context = self.follower.follow(state.tokens) if count > 0 else []
        builder, scorer = TreeBuilder(), Scorer(self.model)
        if not context or len(context) + count > self.model.context:
            return []
        self.model.sync(context)
        while len(builder) < count:
            node = len(builder) - 1
            builder.add(int(scorer.logits(builder, (node,))[0].argmax()), node)
            if builder.tokens[-1] in self.bridge.theirs.special:
                break
        return builder.tokens


class Intersection(DraftChain):
    """Drafter of a chain by token-level intersection (TLI, Timor et al. 2502.05202): each token is sampled
    from the draft distribution restricted to the tokens in both vocabularies."""

    def __init__(self, model: Target, bridge: Bridge):
        self.intersection = IntersectionModel(model, bridge)
        super().__init__(self.intersection)
        self.bridge = bridge

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        context = self.intersection.follower.follow(state.tokens)
        if context and len(context) <= self.intersection.context:
            super().start(state, target, prefill)

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        context = self.intersection.follower.follow(state.tokens) if budget.gamma > 0 else []
        if not context or len(context) + budget.gamma > self.intersection.context:
            return DraftTree()
        tree = yield from super().steps(state, budget)
        if len(tree):
            note_alignment(
                state, self.bridge, [self.bridge.to_theirs[t] for t in tree.tokens], list(tree.tokens)
            )
        return tree


class StringRejection(StringMatch):
    """Drafter of a chain by string-level rejection sampling (SLRS, Timor et al. 2502.05202): target tokens
    are proposed with the distribution of the first target token of the draft model's text, computed over
    one or two draft tokens.

    A sampled draft token proposes the first of the target tokens that encode it; the others follow as
    chosen nodes. If the sampled token is one of the draft model's ``ahead`` most probable, a second one is
    sampled, and if both together are one target token, that one is proposed. The proposal distribution sums
    over both cases: the probability of such pairs is subtracted from the first token. The possible pairs
    are fixed before anything is sampled, so the distribution is valid. The paper sums over any number of
    draft tokens, which grows exponentially. A second token that forms no pair is dropped.
    """

    def __init__(self, model: Target, bridge: Bridge, ahead: int = 4):
        super().__init__(model, bridge)
        self.ahead = ahead if "tree" in model.capabilities else 0

    def propose(self, state: State, budget: Budget) -> DraftTree:
        context = self.follower.follow(state.tokens) if budget.gamma > 0 else []
        builder = TreeBuilder()
        theirs = TreeBuilder()
        drawn_tokens = []
        scorer = Scorer(self.model)
        tip = -1
        if not context or len(context) + 2 * budget.gamma > self.model.context:
            return builder.tree()
        self.model.sync(context)
        row = scorer.logits(theirs, (tip,))[0]
        while True:
            found = TwoTokenProposal(self, theirs, scorer, row, tip, state)
            drawn, tokens = found.draw(state)
            builder.add(tokens[0], len(builder) - 1, builder.begin(found.probs, IID))
            for token in tokens[1 : 1 + budget.gamma - len(builder)]:
                builder.add(token, len(builder) - 1)
            drawn_tokens += drawn
            if len(builder) >= budget.gamma or drawn[-1] in self.bridge.theirs.special:
                break
            tip, row = found.follow(drawn)
        note_alignment(state, self.bridge, drawn_tokens, builder.tokens)
        return builder.tree()


class TwoTokenProposal:
    """The proposal of StringRejection at one position: one target token, encoded by one or two draft
    tokens. probs [vocab]: the distribution of the target token; first [their_vocab]: that of the first
    draft token."""

    def __init__(
        self,
        drafter: StringRejection,
        theirs: TreeBuilder,
        scorer: Scorer,
        row: Tensor,
        tip: int,
        state: State,
    ):
        self.bridge = drafter.bridge
        self.theirs = theirs
        self.scorer = scorer
        self.tip = tip
        self.first = self._probs(row, state)
        self.probs, self.joined = to_target_probs(self.first, self.bridge), {}
        likely = (
            self.first.topk(min(drafter.ahead, len(self.first))).indices.tolist() if drafter.ahead else []
        )
        likely = [token for token in likely if token in self.bridge.joins and self.first[token] > 0]
        self.nodes = {token: theirs.add(token, tip) for token in likely}
        self.rows = dict(zip(likely, scorer.logits(theirs, list(self.nodes.values())))) if likely else {}
        for token, after in self.rows.items():
            others, ours = self.bridge.joins[token]
            token_probs = self._probs(after, state)[others]
            self.joined[token] = token_probs
            self.probs.index_add_(0, ours, self.first[token] * token_probs)
            self.probs[self.bridge.first[token]] -= self.first[token] * token_probs.sum()
        self.probs.clamp_(min=0)

    def _probs(self, row: Tensor, state: State) -> Tensor:
        """Return the draft distribution over the tokens that the target can spell."""
        return state.sampling.probs(row.masked_fill(self.bridge.first < 0, -torch.inf))

    def draw(self, state: State) -> tuple[list[int], tuple[int, ...]]:
        """Sample one or two draft tokens; return them and the target tokens that encode them."""
        token = pick_draft_token(self.first, state)
        if token in self.joined:
            others, ours = self.bridge.joins[token]
            token_probs = self.joined[token]
            at = (
                pick_draft_token(torch.cat([(1 - token_probs.sum()).clamp(min=0)[None], token_probs]), state)
                - 1
            )
            if at >= 0:
                return [token, int(others[at])], (int(ours[at]),)
        return [token], self.bridge.spelled[token]

    def follow(self, drawn: list[int]) -> tuple[int, Tensor]:
        """Return the node of the last sampled draft token in the tree of draft tokens, and the logits
        [their_vocab] after it, from which the next position is drafted."""
        tip = self.tip
        for token in drawn:
            known = tip == self.tip and token in self.nodes
            tip = self.nodes[token] if known else self.theirs.add(token, tip)
        return tip, self.rows[drawn[0]] if len(drawn) == 1 and drawn[0] in self.rows else self.scorer.logits(
            self.theirs, (tip,)
        )[0]


def pick_draft_token(probs: Tensor, state: State) -> int:
    """Sample a token from probs [vocab] with the random stream "draft"; at temperature 0 return the
    argmax."""
    return int(probs.argmax()) if state.sampling.greedy else state.rng.pick("draft", probs)


def to_target_probs(probs: Tensor, bridge: Bridge) -> Tensor:
    """Return the distribution [vocab] of the first target token that encodes a draft token sampled from
    probs [their_vocab]."""
    return probs.new_zeros(bridge.vocab).index_add_(0, bridge.first.clamp(min=0), probs)


def note_alignment(state: State, bridge: Bridge, drafted: list[int], tokens: list[int]) -> None:
    """Attach the note "alignment": the drafted draft tokens and the proposed target ``tokens``, both with
    their byte ranges in the text."""
    state.note(
        "alignment",
        theirs=_spans(bridge.theirs, drafted, text=True),
        tokens=list(tokens),
        overlap=round(bridge.overlap, 4),
        ours=_spans(bridge.ours, tokens),
        shared=[bridge.to_theirs[t] >= 0 for t in tokens],
    )


def _spans(words, tokens, text: bool = False) -> list:
    out, at = [], 0
    for token in tokens:
        piece = words(token)
        span = [at, at + len(piece)]
        out.append([piece.decode("utf-8", "replace"), *span] if text else span)
        at += len(piece)
    return out
