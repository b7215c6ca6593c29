"""Linear cost model fitted to recent measurements by non-negative least squares; cheap enough to query every round."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

PLACES = 24  # most recent measurement points used by the fit
EAGER = 16  # first measurements, each followed by a refit
EVERY = 8  # measurements between later refits
WEIGHT = 0.2  # of a new measurement at a known point
WILD = 3.0  # cap of a measurement, as a multiple of the point's mean
RIDGE = 1e-6
SLIGHT = 1e-3  # faster points are treated as this share of the slowest point's time


class LinearCost:
    """A linear cost model fitted to measured passes: seconds = sum of coefficient * size.

    Measurements with the same sizes (``at``) are averaged, so that a frequent point does not outweigh the others and a
    single slow pass has little effect."""

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
    """Divide each point by its time: slow passes vary more, so the fit minimises relative errors."""
    least = max((y for _, y in found), default=0.0) * SLIGHT or 1.0
    return [[value / max(y, least) for value in x] for x, y in found], [y / max(y, least) for _, y in found]


def least_squares(xs: Sequence[Sequence[float]], ys: Sequence[float]) -> list[float]:
    """Return non-negative least-squares coefficients. A small ridge assigns collinear columns to the first of them."""
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
    """Solve by Gaussian elimination; the matrix is symmetric positive definite."""
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
