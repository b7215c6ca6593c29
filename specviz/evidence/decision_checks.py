"""Check the numbers that a verifier reports of its decisions against the same numbers recomputed by plain
scoring.

A decision states the probability with which a drafted token is accepted and the uniform number that was
compared with it; a verdict states the distribution from which the last token was sampled. A rule that is a
little wrong shows here after a few rounds, where a test of the tokens alone needs thousands. A verifier
that reports other numbers than it uses is left to those tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from .token_bets import NodeTest, TestedDistribution, Token

TOLERANCE = 0.02  # difference of two probabilities that rounding and a token at the edge of top-p may make
LEAST_MASS = (
    0.01  # a residual distribution with less mass before normalisation multiplies rounding errors too much
)
DEPTHS = 4  # depths of a round that are counted apart; deeper tokens count to the last
FEW = 3  # wrong decisions at a depth that still pass
SHARE = 0.05  # share of wrong decisions at a depth that still passes


@dataclass
class DecisionChecks:
    """Counts of reported decisions, and of those that differ from the recomputed ones, by the depth in the
    round. tolerance: largest difference of two probabilities that passes; draws: the reported uniform
    numbers of rejection sampling."""

    tolerance: float = TOLERANCE
    decided: Counter[int] = field(default_factory=Counter)
    wrong: Counter[int] = field(default_factory=Counter)
    draws: list[float] = field(default_factory=list)

    def add(
        self,
        token: Token,
        rates: Sequence[TestedDistribution],
        residual: TestedDistribution | None,
        sampled: Tensor | None,
    ) -> None:
        """Check the decisions at a token's position. rates: the recomputed ones; residual: the distribution
        after the last rejection; sampled [vocab]: the distribution from which the token was sampled, as
        reported, or None."""
        for rate, tested in zip(rates, token.tests):
            if tested.draft is not None and tested.draw is not None:
                self.draws.append(tested.draw)
            if tested.accept is not None and rate.mass >= LEAST_MASS:
                self._count(
                    token.depth, abs(tested.accept - rate.value) > self.tolerance or _contradicts(tested)
                )
        expected = (
            token.probs
            if token.kind == "bonus"
            else residual.probs
            if residual and residual.mass >= LEAST_MASS
            else None
        )
        if sampled is not None and expected is not None and sampled.shape == expected.shape:
            self._count(
                token.depth, float((sampled.double().cpu() - expected).abs().sum()) / 2 > self.tolerance
            )

    def _count(self, depth: int, wrong: bool) -> None:
        self.decided[min(depth, DEPTHS - 1)] += 1
        self.wrong[min(depth, DEPTHS - 1)] += wrong

    def merge(self, other: DecisionChecks) -> None:
        """Add the counts of other checks."""
        self.decided.update(other.decided)
        self.wrong.update(other.wrong)
        self.draws += other.draws

    @property
    def failed(self) -> bool:
        """Whether too many decisions differ."""
        return any(count > max(FEW, SHARE * self.decided[depth]) for depth, count in self.wrong.items())


def _contradicts(tested: NodeTest) -> bool:
    """Return whether a token was accepted although its uniform number is not below the acceptance
    probability, or the reverse."""
    return (
        tested.draw is not None
        and tested.accept is not None
        and (tested.draw < tested.accept) != tested.accepted
    )
