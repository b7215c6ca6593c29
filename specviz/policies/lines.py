"""A cost as a line over a few sizes, laid through what was measured lately: no coefficient below 0, and cheap enough to ask each round."""
from __future__ import annotations

from collections import OrderedDict
from typing import Hashable, Sequence

PLACES = 24  # places measured last that the line is laid through
EAGER, EVERY = 16, 8  # measurements after each of which the line is laid anew, and later after every so many
WEIGHT, WILD = 0.2, 3.0  # of a new measurement at a known place, and times its mean that it may count at most
RIDGE = 1e-6
SLIGHT = 1e-3  # of the slowest place's seconds: quicker ones count as if they took that


class Line:
    """seconds = sum of coefficient * size. ``at`` of a measurement names its place: what is measured there again is averaged, so that
    a place visited often does not outweigh the others, and one slow pass of a busy machine does little."""

    def __init__(self, sizes: int):
        self.line = [0.0] * sizes
        self._places: OrderedDict[Hashable, tuple[int, list[float], float]] = OrderedDict()
        self._count = 0

    def learn(self, at: Hashable, sizes: Sequence[float], seconds: float) -> None:
        seen, mean_sizes, mean = self._places.pop(at, (0, list(sizes), seconds))
        weight = max(WEIGHT, 1 / (seen + 1))
        seconds = min(seconds, WILD * mean) if seen > 1 else seconds
        sizes = [a + weight * (b - a) for a, b in zip(mean_sizes, sizes)]
        self._places[at] = (seen + 1, sizes, mean + weight * (seconds - mean))
        while len(self._places) > PLACES:
            self._places.popitem(last=False)
        self._count += 1
        if self._count <= EAGER or self._count % EVERY == 0:
            self.line = least_squares(*relative([(x, y) for _, x, y in self._places.values()]))

    def seconds(self, *sizes: float) -> float:
        return sum(coefficient * size for coefficient, size in zip(self.line, sizes))


def relative(found: Sequence[tuple[list[float], float]]) -> tuple[list[list[float]], list[float]]:
    """Places over their seconds: what is slow also wavers more, and a line through errors in parts serves the quick places, too."""
    least = max((y for _, y in found), default=0.0) * SLIGHT or 1.0
    return [[value / max(y, least) for value in x] for x, y in found], [y / max(y, least) for _, y in found]


def least_squares(xs: Sequence[Sequence[float]], ys: Sequence[float]) -> list[float]:
    """Coefficients of the columns, none below 0. Where columns say the same a little ridge gives it to the first of them."""
    count = len(xs[0])
    scale = [max(abs(x[i]) for x in xs) or 1.0 for i in range(count)]
    square = [[sum(x[i] * x[j] for x in xs) / scale[i] / scale[j] for j in range(count)] for i in range(count)]
    for i in range(count):
        square[i][i] += RIDGE * 4**i * len(xs)
    right = [sum(x[i] * y for x, y in zip(xs, ys)) / scale[i] for i in range(count)]
    kept = list(range(count))
    while True:
        found = _solve([[square[i][j] for j in kept] for i in kept], [right[i] for i in kept])
        if min(found) >= 0 or len(kept) == 1:
            break
        kept.pop(min(range(len(kept)), key=found.__getitem__))
    out = [0.0] * count
    for i, value in zip(kept, found):
        out[i] = max(0.0, value) / scale[i]
    return out


def _solve(square: list[list[float]], right: list[float]) -> list[float]:
    """By elimination; the matrix is symmetric and positive."""
    n = len(right)
    for i in range(n):
        for j in range(i + 1, n):
            share = square[j][i] / square[i][i]
            right[j] -= share * right[i]
            square[j] = [b - share * a for a, b in zip(square[i], square[j])]
    out = [0.0] * n
    for i in reversed(range(n)):
        out[i] = (right[i] - sum(square[i][j] * out[j] for j in range(i + 1, n))) / square[i][i]
    return out
