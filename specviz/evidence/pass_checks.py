"""Compare single rows of a method's forward passes over draft trees with plain scoring of the same text.

A fault of the attention mask, of positions or of the KV cache changes some rows of the pass. The verifier
then states probabilities that are right for its logits, and tokens differ too seldom to be noticed. So
the logits of rows on the accepted paths, and of a few other nodes, are computed again from the text
alone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from torch import Tensor

ROOT = "root"
CHAIN = "first children"
SIBLINGS = "later siblings"  # rows of nodes with an earlier sibling at themselves or above
TOLERANCE = 1e-4  # total variation of two distributions that rounding may make
NOISE = 16  # the same, as a multiple of the noise of the logits
FEW = 3  # differing rows of a kind that still pass
SHARE = 0.05  # share of differing rows of a kind that still passes


@dataclass
class PassChecks:
    """Counts of compared rows, and of those that differ, by the kind of node. tolerance: largest total
    variation that passes; shifted: whether a node that sees its preceding sibling would be noticed, for
    each node that was tried."""

    tolerance: float = TOLERANCE
    checked: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    shifted: list[bool] = field(default_factory=list)

    def add(self, kind: str, logits: Tensor, plain: Tensor) -> None:
        """Compare a row's logits [vocab] with those of plain scoring."""
        self.checked[kind] += 1
        self.wrong[kind] += distance(logits, plain) > self.tolerance

    def add_fault(self, plain: Tensor, faulty: Tensor) -> None:
        """Note whether these logits [vocab], of a text with the preceding sibling in it, would differ."""
        self.shifted.append(distance(plain, faulty) > self.tolerance)

    def merge(self, other: PassChecks) -> None:
        """Add the counts of other checks."""
        self.checked.update(other.checked)
        self.wrong.update(other.wrong)
        self.shifted += other.shifted

    @property
    def failed(self) -> bool:
        """Whether too many rows differ."""
        return any(count > max(FEW, SHARE * self.checked[kind]) for kind, count in self.wrong.items())

    @property
    def power(self) -> float | None:
        """The probability that a node that sees its preceding sibling would be found; None if no tree had
        siblings."""
        count = self.checked[SIBLINGS]
        if not self.shifted or not count:
            return None
        share = min(sum(self.shifted) / len(self.shifted), 1.0)
        most = max(FEW, int(SHARE * count))
        return 1 - sum(
            math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(min(most, count) + 1)
        )


def distance(one: Tensor, other: Tensor) -> float:
    """Return the total variation distance of the distributions of two rows of logits [vocab]."""
    p, q = (row.double().cpu().softmax(-1) for row in (one, other))
    return float((p - q).abs().sum()) / 2
