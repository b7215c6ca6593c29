"""PPD's trees: divide the positions of a pass between candidates and prompt tokens (Chen et al. 2405.18628,
section 4).

The state of a round is the number of steps that were predicted after its root; it bounds the depth of the
candidates. The next state is the length of the chain of prompt tokens after the token accepted last. So the
trees of all states are optimised together, by policy iteration over this Markov chain, for the most tokens
per round (Howard 1960). The paper builds larger trees first and prunes them."""

from __future__ import annotations

import heapq
from functools import lru_cache

from ....drafters.heads.shapes import calibrated_shape
from ....trees import Shape

SWEEPS = 24
USUAL = tuple(0.5 * 0.4**rank for rank in range(10))  # how often each rank is right where nothing was counted

Tree = tuple[
    Shape, tuple[int, ...]
]  # candidates, and the length of the chains after the root and each of them


@lru_cache(maxsize=32)
def prompt_trees(
    accuracy: tuple[tuple[float, ...], ...], steps: int, rows: int, chains: int = 1
) -> tuple[Tree, ...]:
    """Return the best tree for each state 0..steps, the number of steps predicted after the root.
    accuracy[i][r]: probability that the token of rank r of step i is correct; rows: maximum number of
    candidates and prompt tokens in a pass; chains: prompt tokens per step."""
    accuracy = (accuracy or (USUAL,) * steps)[:steps]
    options = [_sized(accuracy[:state], rows) for state in range(steps + 1)]
    worth, chosen = [0.5 * state for state in range(steps + 1)], []
    for _ in range(SWEEPS):
        found = [
            max(
                (_rowed(shape, last, gain, worth, rows, chains) for shape, last, gain in each),
                key=lambda one: one[0],
            )
            for each in options
        ]
        chosen = [tree for _, tree in found]
        worth = [0.5 * old + 0.5 * (value - found[0][0]) for old, (value, _) in zip(worth, found)]
    return tuple(chosen)


def _sized(accuracy, rows: int) -> list[tuple[Shape, list[float], float]]:
    """Return trees of several sizes, each with the probability that the root or each node is accepted last,
    and its expected tokens."""
    if not accuracy:
        return [(Shape(), [1.0], 0.0)]
    out = []
    for nodes in sorted({0, *range(1, rows, max(1, rows // 16))}):
        shape = calibrated_shape([list(row) for row in accuracy], nodes)
        passed = [1.0]
        for place, (parent, rank) in enumerate(zip(shape.parents, shape.ranks)):
            passed.append(passed[parent + 1] * accuracy[shape.depths[place] - 1][rank])
        last = list(passed)
        for place, parent in enumerate(shape.parents):
            last[parent + 1] -= passed[place + 1]
        out.append((shape, [max(0.0, prob) for prob in last], sum(passed[1:])))
    return out


def _rowed(
    shape: Shape, last: list[float], gain: float, worth: list[float], rows: int, chains: int
) -> tuple[float, Tree]:
    """Distribute the remaining rows where each is worth most; return the assignment and the total value."""
    steps, left = [0] * len(last), (rows - len(shape)) // chains
    gains = [worth[step + 1] - worth[step] for step in range(len(worth) - 1)]
    heap = [(-prob * gains[0], place) for place, prob in enumerate(last)] if gains else []
    heapq.heapify(heap)
    value = gain + worth[0]
    while heap and left > 0 and heap[0][0] < 0:
        gain, place = heapq.heappop(heap)
        value, left = value - gain, left - 1
        steps[place] += 1
        if steps[place] < len(gains):
            heapq.heappush(heap, (-last[place] * gains[steps[place]], place))
    return value, (shape, tuple(steps))
