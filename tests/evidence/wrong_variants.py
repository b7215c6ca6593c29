"""Speculative decoding with one mistake each: seldom, small or late ones, which the certificate must catch
nevertheless.

A variant reports what it did, except where ``silent``: then its decisions state the right numbers and only
the tokens are wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from specviz.core import Decision, DraftTree, Method, State, Verdict
from specviz.drafters.model.chain import DraftChain
from specviz.verifiers import TokenRejection

from ..exactness.test_broken_methods import chain

DEEP = 3  # depth from which the late mistakes are made; the first draft token has depth 0


class Wrong(TokenRejection):
    """The right rule; every step of it can be replaced. rate: the acceptance probability; left: the
    residual distribution."""

    silent = False

    def verify(self, tree, scores, state):
        path = []
        node = -1
        decisions = []
        while True:
            p = self.target(scores.logits[node + 1], state, len(path))
            children = tree.children(node)
            for child in children:
                decisions.append(self.decide(tree, child, p, state, len(path)))
                if decisions[-1].verdict == "accepted":
                    path.append(child)
                    node = child
                    break
                p = decisions[-1].remaining
            else:
                kind = "correction" if children else "bonus" if len(tree) else "plain"
                return self.end(
                    Verdict(tuple(path), state.rng.pick("verify", p), kind, tuple(decisions), p),
                    tree,
                    scores,
                    state,
                )

    def decide(self, tree: DraftTree, child: int, p: Tensor, state: State, depth: int) -> Decision:
        x, q = tree.tokens[child], tree.draft_probs(child)
        right = float(p[x]) if q is None else min(1.0, float(p[x]) / float(q[x]))
        rate = self.rate(right, tree, child, p, state, depth)
        ok, u = self.flip(state, rate)
        rest = None if ok else self.left(p, q, x, depth)
        drawn = None if q is None else float(q[x])
        reported = right if self.silent else rate
        return Decision(
            child,
            "match" if q is None else "ratio",
            float(p[x]),
            drawn,
            reported,
            None if self.silent else u,
            "accepted" if ok else "rejected",
            p,
            rest,
        )

    def target(self, logits: Tensor, state: State, depth: int) -> Tensor:
        return state.sampling.probs(logits)

    def flip(self, state: State, rate: float) -> tuple[bool, float | None]:
        return state.rng.flip("verify", rate)

    def rate(self, right: float, tree: DraftTree, child: int, p: Tensor, state: State, depth: int) -> float:
        return right

    def left(self, p: Tensor, q: Tensor | None, x: int, depth: int) -> Tensor:
        if q is None:
            q = torch.nn.functional.one_hot(torch.tensor(x), len(p)).to(p.dtype)
        return norm((p - q).clamp(min=0))

    def end(self, verdict: Verdict, tree: DraftTree, scores, state: State) -> Verdict:
        return verdict


def norm(p: Tensor) -> Tensor:
    return p / p.sum()


class Often(Wrong):
    factor = 1.15

    def rate(self, right, tree, child, p, state, depth):
        return min(1.0, self.factor * right)


class OftenSilent(Often):
    silent = True


class Seldom(Often):
    factor, silent = 0.85, True


class DeepAccept(Wrong):
    silent, least = True, DEEP

    def rate(self, right, tree, child, p, state, depth):
        return 1.0 if depth >= self.least else right


class DeeperAccept(DeepAccept):
    least = DEEP + 1


class DeepOften(Wrong):
    silent = True

    def rate(self, right, tree, child, p, state, depth):
        return right + 0.5 * (1 - right) if depth >= DEEP else right


class DeepNoResidual(Wrong):
    silent = True

    def left(self, p, q, x, depth):
        return p if depth >= DEEP else super().left(p, q, x, depth)


class DeepBonus(Wrong):
    def end(self, verdict, tree, scores, state):
        deep = verdict.kind == "bonus" and len(verdict.path) >= DEEP
        return replace(verdict, token=int(verdict.probs.argmax())) if deep else verdict


class DeepWarm(Wrong):
    silent = True

    def target(self, logits, state, depth):
        return logits.softmax(-1) if depth >= DEEP else super().target(logits, state, depth)


class EveryEighth(Wrong):
    silent = True

    def rate(self, right, tree, child, p, state, depth):
        return 1.0 if state.round % 8 == 7 else right


class Late(Wrong):
    """From the 24th token of an answer on."""

    silent = True

    def verify(self, tree, scores, state):
        self.start = min(getattr(self, "start", len(state.tokens)), len(state.tokens))
        self.now = len(state.tokens) - self.start
        return super().verify(tree, scores, state)

    def rate(self, right, tree, child, p, state, depth):
        return 1.0 if self.now >= 24 else right


class Sharper(Wrong):
    """The target at nine tenths of its temperature."""

    silent = True

    def target(self, logits, state, depth):
        return replace(state.sampling, temperature=0.9 * state.sampling.temperature).probs(logits)


class SharperBonus(Wrong):
    def end(self, verdict, tree, scores, state):
        if verdict.kind != "bonus":
            return verdict
        p = replace(state.sampling, temperature=0.6 * state.sampling.temperature).probs(
            scores.logits[(verdict.path or (-1,))[-1] + 1]
        )
        return replace(verdict, token=state.rng.pick("verify", p))


class BestResidual(Wrong):
    def left(self, p, q, x, depth):
        rest = super().left(p, q, x, depth)
        return torch.nn.functional.one_hot(rest.argmax(), len(p)).to(p.dtype)


class UnsignedResidual(Wrong):
    silent = True

    def left(self, p, q, x, depth):
        return norm((p - q).abs()) if q is not None else super().left(p, q, x, depth)


class OthersResidual(Wrong):
    """What was refused is left out, all others keep their share."""

    silent = True

    def left(self, p, q, x, depth):
        p = p.clone()
        p[x] = 0
        return norm(p) if float(p.sum()) > 0 else p + 1 / len(p)


class DraftCorrection(Wrong):
    silent = True

    def left(self, p, q, x, depth):
        return q if q is not None else super().left(p, q, x, depth)


class OneUniform(Wrong):
    """One uniform number for all tests of a round."""

    def verify(self, tree, scores, state):
        self.u = state.rng.flip("verify", 0.5)[1]
        return super().verify(tree, scores, state)

    def flip(self, state, rate):
        return self.u < rate, self.u


class NoCoin(Wrong):
    silent = True

    def flip(self, state, rate):
        return rate >= 0.5, None


class NeighbourDraft(Wrong):
    """The draft probability of the place before."""

    silent = True

    def rate(self, right, tree, child, p, state, depth):
        q = tree.draft_probs(tree.parents[child] if tree.parents[child] >= 0 else child)
        x = tree.tokens[child]
        return right if q is None else min(1.0, float(p[x]) / max(float(q[x]), 1e-9))


class RareDropped(Wrong):
    """Tokens below a hundredth are never written."""

    silent = True

    def target(self, logits, state, depth):
        p = super().target(logits, state, depth)
        return norm(p.masked_fill(p < 0.01, 0.0))


class FirstGreedy(Wrong):
    """The first token of each answer is the most probable one, if it is a correction or a bonus."""

    silent = True

    def target(self, logits, state, depth):
        p = super().target(logits, state, depth)
        return (
            torch.nn.functional.one_hot(p.argmax(), len(p)).to(p.dtype)
            if state.round == 0 and depth == 0
            else p
        )


class NucleusLate(Wrong):
    """Filters apply before the temperature."""

    silent = True

    def target(self, logits, state, depth):
        keep = replace(state.sampling, temperature=1.0).probs(logits) > 0
        return norm(replace(state.sampling, top_p=1.0, top_k=0).probs(logits) * keep)


class SharedNumbers(DraftChain):
    """The draft is sampled with the uniform numbers that verification uses next."""

    def propose(self, state, budget):
        rng = state.rng
        state.rng = Shared(rng)
        try:
            return super().propose(state, budget)
        finally:
            state.rng = rng


class Shared:
    def __init__(self, rng):
        self.rng, self.used = rng, 0

    def pick(self, stream, probs):
        self.used += 1
        u = self.rng.ahead("verify", self.used)[-1]
        return min(
            int(torch.searchsorted(probs.cumsum(-1), torch.tensor(u, dtype=probs.dtype))), len(probs) - 1
        )

    def __getattr__(self, name):
        return getattr(self.rng, name)


def method(drafter: Callable, verifier=TokenRejection, gamma: int | None = None) -> Method:
    """A method of the wrong parts whose draft length is a knob, as speculative decoding's is."""
    from specviz.methods import catalogue

    right = catalogue()["speculative"]
    return replace(
        right,
        key="it",
        title="It",
        build=lambda kit, **knobs: replace(
            right.build(kit, **knobs), drafter=drafter(kit), verifier=verifier()
        ),
    )


CHAIN = {
    "often": Often,
    "often, silent": OftenSilent,
    "seldom": Seldom,
    "deep: accepted": DeepAccept,
    "deeper: accepted": DeeperAccept,
    "deep: often": DeepOften,
    "deep: no residual": DeepNoResidual,
    "deep: bonus": DeepBonus,
    "deep: warm": DeepWarm,
    "every eighth round": EveryEighth,
    "late": Late,
    "sharper": Sharper,
    "sharper bonus": SharperBonus,
    "best residual": BestResidual,
    "unsigned residual": UnsignedResidual,
    "others' residual": OthersResidual,
    "correction from the draft": DraftCorrection,
    "one uniform a round": OneUniform,
    "no coin": NoCoin,
    "neighbour's draft": NeighbourDraft,
    "rare tokens dropped": RareDropped,
    "first greedy": FirstGreedy,
    "filters before temperature": NucleusLate,
}
VARIANTS = {name: method(chain, verifier) for name, verifier in CHAIN.items()} | {
    "shared numbers": method(lambda kit: SharedNumbers(kit.open("draft"))),
}
