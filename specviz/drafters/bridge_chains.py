"""Chains from a draft model of another vocabulary (Timor et al. 2502.05202): by exact match of strings, by the tokens both
vocabularies have, and by rejection of strings."""
from __future__ import annotations

import torch
from torch import Tensor

from ..core import IID, Budget, Drafter, DraftTree, State, Target, TreeBuilder
from ..trees import Scorer
from .bridge import Bridge, Follower, Translated
from .model import DraftChain


class StringMatch(Drafter):
    """SLEM: the draft writes its most likely text in its own tokens; the text, in the target's tokens, is a chosen chain, which
    is kept as far as the target writes the same."""

    def __init__(self, model: Target, bridge: Bridge):
        self.model, self.bridge = model, bridge
        self.follower = Follower(bridge)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        drafted = self.written(state, budget.gamma)
        tokens = self.bridge.decode(state.tokens, drafted)[:budget.gamma]
        if drafted:
            note(state, self.bridge, drafted, tokens)
        return DraftTree.chain(tokens)

    def written(self, state: State, count: int) -> list[int]:
        """The next ``count`` tokens of theirs, fewer where a control token ends the text or the draft can read no more."""
        context = self.follower.follow(state.tokens) if count > 0 else []
        build, scorer = TreeBuilder(), Scorer(self.model)
        if not context or len(context) + count > self.model.context:
            return []
        self.model.sync(context)
        while len(build) < count:
            node = len(build) - 1
            build.add(int(scorer.rows(build, (node,))[0].argmax()), node)
            if build.tokens[-1] in self.bridge.theirs.special:
                break
        return build.tokens


class Intersection(DraftChain):
    """TLI: an ordinary chain over the tokens that both vocabularies have, drawn from the draft's law over those."""

    def __init__(self, model: Target, bridge: Bridge):
        super().__init__(Translated(model, bridge))
        self.bridge = bridge

    def propose(self, state: State, budget: Budget) -> DraftTree:
        context = self.model.follower.follow(state.tokens) if budget.gamma > 0 else []
        if not context or len(context) + budget.gamma > self.model.context:
            return DraftTree()
        tree = super().propose(state, budget)
        if len(tree):
            note(state, self.bridge, [self.bridge.to_theirs[t] for t in tree.tokens], list(tree.tokens))
        return tree


class StringRejection(StringMatch):
    """SLRS with one draft token of outlook: a token of theirs is drawn; the first token of ours that spells it is proposed under
    the law of all their tokens that begin so, which is a sum over the draft's row; the rest of its spelling is a chosen chain.

    Given the token drawn, its spelling is certain, so both labels are honest. The paper's sum also runs over several tokens of
    theirs that spell one of ours; it grows exponentially and is left out: such a token of ours is never proposed whole.
    """

    def propose(self, state: State, budget: Budget) -> DraftTree:
        context = self.follower.follow(state.tokens) if budget.gamma > 0 else []
        build, theirs, scorer = TreeBuilder(), TreeBuilder(), Scorer(self.model)
        if not context or len(context) + budget.gamma > self.model.context:
            return build.tree()
        self.model.sync(context)
        while len(build) < budget.gamma:
            row = scorer.rows(theirs, (len(theirs) - 1,))[0].masked_fill(self.bridge.first < 0, -torch.inf)
            law = state.sampling.probs(row)
            drawn = int(row.argmax()) if state.sampling.greedy else state.dice.pick("draft", law)
            theirs.add(drawn, len(theirs) - 1)
            first, *rest = self.bridge.spelled[drawn]
            build.add(first, len(build) - 1, build.begin(spread(law, self.bridge), IID))
            for token in rest[:budget.gamma - len(build)]:
                build.add(token, len(build) - 1)
            if drawn in self.bridge.theirs.special:
                break
        note(state, self.bridge, theirs.tokens, build.tokens)
        return build.tree()


def spread(law: Tensor, bridge: Bridge) -> Tensor:
    """The law of the first token of ours, from the law of theirs [their_vocab]."""
    return law.new_zeros(bridge.vocab).index_add_(0, bridge.first.clamp(min=0), law)


def note(state: State, bridge: Bridge, drafted: list[int], tokens: list[int]) -> None:
    """Both tokenizations of the draft, by bytes from its beginning."""
    state.note("alignment", theirs=_spans(bridge.theirs, drafted, text=True), tokens=list(tokens), overlap=round(bridge.overlap, 4),
               ours=_spans(bridge.ours, tokens), shared=[bridge.to_theirs[t] >= 0 for t in tokens])


def _spans(words, tokens, text: bool = False) -> list:
    out, at = [], 0
    for token in tokens:
        said = words(token)
        span = [at, at + len(said)]
        out.append([said.decode("utf-8", "replace"), *span] if text else span)
        at += len(said)
    return out
