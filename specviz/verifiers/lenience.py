"""Lossy relatives of token rejection: a drafted token is accepted more often than min(1, p/q), and what a
rejection leaves is the exact rule's residual.

Lenience (Leviathan et al. 2211.17192, appendix), the static mixture of DIVERSED (2604.07622) and EARS
(2512.13194). The deviation from the target's distribution is measured and noted as drift.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import Decision, DraftTree, Scores, State, Verdict, token_tensor
from .drift import kl_divergence
from .token_rejection import TokenRejection, verify_greedy, verify_lossy_greedy


class RelaxedRejection(TokenRejection):
    """Base class of lossy verifiers that differ from token rejection in the acceptance probability only.

    rule: name of the rule in decisions. The note "drift": nats of KL(target distribution, output
    distribution) at each position where a token was tested; at temperature 0 the log-probability of the
    argmax minus that of the accepted token. The note "exchange", above temperature 0: what the rule gains and
    what it costs at each of these positions.
    """

    rule = ""
    _drift: list[float] = []
    _exchange: list[list[float]] = []  # [accepted, strays, apart] of each tested position

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        self._drift = []
        self._exchange = []
        verdict = (
            self._greedy(tree, scores, state)
            if state.sampling.greedy
            else super().verify(tree, scores, state)
        )
        if self._drift:
            state.note("drift", nats=self._drift)
        if self._exchange:
            accepted, strays, apart = (list(each) for each in zip(*self._exchange))
            state.note("exchange", accepted=accepted, strays=strays, apart=apart)
        return verdict

    def acceptance(self, p: Tensor, q: Tensor) -> Tensor:
        """Return the acceptance probability [vocab] of each token, drafted from q [vocab] and tested
        against p [vocab]. A token with q = 0 is never drafted; its value does not matter."""
        raise NotImplementedError

    def accepts_greedy(self, prob: float, most: float) -> bool:
        """Return whether a token is accepted at temperature 0 that is not the argmax. prob, most: its
        probability at temperature 1, and the argmax's."""
        return False

    def test(self, tree: DraftTree, child: int, p: Tensor, state: State) -> Decision:
        x, q = tree.tokens[child], tree.draft_probs(child)
        q = torch.zeros_like(p).index_fill_(0, torch.tensor([x], device=p.device), 1.0) if q is None else q
        accept = self.acceptance(p, q).nan_to_num_(nan=0.0, posinf=1.0).clamp_(max=1.0)
        rest = (p - q).clamp_(min=0)
        mass = float(rest.sum())
        rest = rest / mass if mass > 0 else p
        with state.clock.paused():  # only shown
            self._record(p, q, q * accept, rest)
        ok, u = state.rng.flip("verify", float(accept[x]))
        verdict = "accepted" if ok else "rejected"
        return Decision(
            child, self.rule, float(p[x]), float(q[x]), float(accept[x]), u, verdict, p, None if ok else rest
        )

    def _record(self, p: Tensor, q: Tensor, passed: Tensor, rest: Tensor) -> None:
        """Keep the drift and the exchange of a tested position. passed: probability that each token is
        drafted and accepted; rest: distribution after a rejection; all [vocab]."""
        output = passed + (1 - passed.sum()).clamp_(min=0) * rest
        self._drift.append(kl_divergence(p, output))
        figures = (passed.sum(), (output - p).abs().sum() / 2, (p - q).abs().sum() / 2)
        self._exchange.append(torch.stack(figures).tolist())

    def _greedy(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        def decide(child: int, belief: Tensor, best: int) -> Decision:
            prob, most = belief.index_select(
                0, token_tensor(belief.device, [tree.tokens[child], best])
            ).tolist()
            passes = tree.tokens[child] == best or self.accepts_greedy(prob, most)
            ok, u = state.rng.flip("verify", float(passes))
            if ok:
                self._drift.append(math.log(most / prob) if prob > 0 else math.inf)
            return Decision(
                child, self.rule, prob, None, float(ok), u, "accepted" if ok else "rejected", belief, belief
            )

        return verify_lossy_greedy(tree, scores, decide)


class Lenient(RelaxedRejection):
    """Lossy verifier: token rejection with acceptance probability min(1, p / (l q)), l = ``lenience`` in
    (0, 1]; 1 is exact (Leviathan et al. 2211.17192, appendix). At temperature 0 a token is accepted if its
    probability is at least l times the largest one."""

    title = "lenience (lossy)"
    rule = "lenient"

    def __init__(self, lenience: float = 0.5):
        self.lenience = lenience

    def acceptance(self, p: Tensor, q: Tensor) -> Tensor:
        return p / (self.lenience * q)

    def accepts_greedy(self, prob: float, most: float) -> bool:
        return prob >= self.lenience * most


class Mixture(RelaxedRejection):
    """Lossy verifier: token rejection against v = w p + (1 - w) q in place of p; w = ``weight``, 1 is exact
    (the static ensemble of DIVERSED, Wang et al. 2604.07622).

    A draft token is accepted with probability 1 - w TV(p, q), and the output distribution is v, at distance
    (1 - w) TV(p, q) from p: no rule is faster at this distance. (v - q)+ is w (p - q)+, so the residual is
    the exact rule's. At temperature 0 a token is accepted if it is the argmax of v, where the draft puts
    all of q on it."""

    title = "mixture (lossy)"
    rule = "mixture"

    def __init__(self, weight: float = 0.7):
        self.weight = weight

    def acceptance(self, p: Tensor, q: Tensor) -> Tensor:
        return (self.weight * p + (1 - self.weight) * q) / q

    def accepts_greedy(self, prob: float, most: float) -> bool:
        return self.weight * prob + 1 - self.weight >= self.weight * most


class UncertaintyTolerant(RelaxedRejection):
    """Lossy verifier: the uniform draw is lowered by ``tolerance`` (1 - max p) before the ordinary test, so
    that more is accepted where the target is unsure (EARS, Sun et al. 2512.13194). A token that the target
    finds impossible is rejected. tolerance 0 is exact, and so is temperature 0."""

    title = "EARS (lossy)"
    rule = "tolerant"

    def __init__(self, tolerance: float = 0.3):
        self.tolerance = tolerance

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        return (
            verify_greedy(tree, scores, state)
            if state.sampling.greedy
            else super().verify(tree, scores, state)
        )

    def acceptance(self, p: Tensor, q: Tensor) -> Tensor:
        return torch.where(p > 0, p / q + self.tolerance * (1 - p.max()), 0.0)
