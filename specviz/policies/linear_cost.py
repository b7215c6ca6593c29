"""Linear cost model fitted to recent measurements by non-negative least squares; cheap enough to query
every round."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

MAX_POINTS = 24  # number of points, the most recent ones, used by the fit
EAGER = 16  # number of first measurements that are each followed by a refit
EVERY = 8  # measurements between later refits
WEIGHT = 0.2  # weight of a new measurement in the mean of its point
WILD = 3.0  # cap of a measurement, as a multiple of the point's mean
RIDGE = 1e-6
SLIGHT = 1e-3  # faster points are treated as this share of the slowest point's time


class LinearCost:
    """A linear cost model fitted to measured forward passes: seconds = sum of coefficients[i] *
    features[i], coefficients >= 0.

    Measurements at the same point are averaged, so that a frequent point does not outweigh the others and a
    single slow pass has little effect."""

    def __init__(self, num_features: int):
        self.coefficients = [0.0] * num_features
        self._points: OrderedDict[Hashable, tuple[int, list[float], float]] = OrderedDict()
        self._count = 0

    def learn(self, point: Hashable, features: Sequence[float], seconds: float) -> None:
        """Add a measurement. point: key under which measurements are averaged, such as the number of tokens
        in the pass."""
        seen, mean_features, mean = self._points.pop(point, (0, list(features), seconds))
        weight = max(WEIGHT, 1 / (seen + 1))
        seconds = min(seconds, WILD * mean) if seen > 1 else seconds
        features = [a + weight * (b - a) for a, b in zip(mean_features, features)]
        self._points[point] = (seen + 1, features, mean + weight * (seconds - mean))
        while len(self._points) > MAX_POINTS:
            self._points.popitem(last=False)
        self._count += 1
        if self._count <= EAGER or self._count % EVERY == 0:
            self.coefficients = least_squares(*divide_by_time([(x, y) for _, x, y in self._points.values()]))

    def seconds(self, *features: float) -> float:
        """Return the predicted seconds of a pass with these features."""
        return sum(coefficient * feature for coefficient, feature in zip(self.coefficients, features))


def divide_by_time(points: Sequence[tuple[list[float], float]]) -> tuple[list[list[float]], list[float]]:
    """Return the features and the seconds of all points, each divided by the point's seconds, so that a fit
    minimises relative errors: slow passes vary more. points: (features, seconds)."""
    least = max((y for _, y in points), default=0.0) * SLIGHT or 1.0
    return [[value / max(y, least) for value in x] for x, y in points], [y / max(y, least) for _, y in points]


def least_squares(xs: Sequence[Sequence[float]], ys: Sequence[float]) -> list[float]:
    """Return the non-negative coefficients c that minimise the sum over i of (xs[i] . c - ys[i])^2. Of
    collinear features the first gets the coefficient, because of a small ridge term."""
    count = len(xs[0])
    scale = [max(abs(x[i]) for x in xs) or 1.0 for i in range(count)]
    square = [
        [sum(x[i] * x[j] for x in xs) / scale[i] / scale[j] for j in range(count)] for i in range(count)
    ]
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
