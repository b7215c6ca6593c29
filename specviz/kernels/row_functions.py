"""Compiled functions of single rows of floats, which drafting runs between passes: the largest entries of a
row of logits, and the rotation of hidden states.

Everything is computed in a fixed order over one row, so a result does not depend on other rows.
"""

from __future__ import annotations

import math

import numpy as np

from .llama_pass import compiled
from .memory import address, aligned
from .vector import add, lanes_above, larger, largest, load, load_float, mul, pow2, splat, sub, total

LOG2_E = math.log2(math.e)
NEGLIGIBLE = 44.0  # powers of two below the largest: 2^16 of them change no bit of a float32 sum


@compiled
def top_of_row(x, width, scale, values, places):
    """Fill ``values`` (float32, from -inf) and ``places`` (int64) with the largest of ``width`` floats, a
    multiple of 16, the earlier of equal ones first; return log(sum(exp(scale x)))."""
    count = len(values)
    least = values[count - 1]
    most = splat(-np.inf)
    for i in range(0, width, 16):
        v = load(x + 4 * i)
        most = larger(most, v)
        hits = lanes_above(v, least)
        lane = 0
        while hits:
            if hits & 1:
                value = load_float(x + 4 * (i + lane))
                at = count - 1
                if value > values[at]:
                    while at > 0 and value > values[at - 1]:
                        values[at] = values[at - 1]
                        places[at] = places[at - 1]
                        at -= 1
                    values[at] = value
                    places[at] = i + lane
                    least = values[count - 1]
            hits >>= 1
            lane += 1
    top = largest(most)
    factor = splat(scale * LOG2_E)
    above = splat(top)
    powers = splat(0.0)
    least = top - NEGLIGIBLE / (scale * LOG2_E)
    for i in range(0, width, 16):
        v = load(x + 4 * i)
        if lanes_above(v, least):
            powers = add(powers, pow2(mul(sub(v, above), factor)))
    return top * scale + math.log(total(powers))


@compiled
def tops_of_rows(x, rows, width, scale, values, places, sums):
    """Run ``top_of_row`` over rows."""
    for r in range(rows):
        sums[r] = top_of_row(x + 4 * r * width, width, scale, values[r], places[r])


@compiled
def rotate_rows(x, before, hartley, after, out):
    """Multiply each row of x [rows, width] by kron(hartley, the Hadamard matrix of size width / len(hartley), a
    power of two); before, after: factors [width] of inputs and outputs."""
    rows, width = x.shape
    odd = len(hartley)
    size = width // odd
    work = np.empty(width, np.float32)
    for r in range(rows):
        for i in range(width):
            work[i] = x[r, i] * before[i]
        step = 1
        while step < size:
            for first in range(0, width, 2 * step):
                for i in range(first, first + step):
                    low = work[i]
                    high = work[i + step]
                    work[i] = low + high
                    work[i + step] = low - high
            step *= 2
        for part in range(odd):
            at = part * size
            for i in range(size):
                out[r, at + i] = hartley[part, 0] * work[i]
            for k in range(1, odd):
                factor = hartley[part, k]
                for i in range(size):
                    out[r, at + i] += factor * work[k * size + i]
        for i in range(width):
            out[r, i] *= after[i]


def top_entries(
    rows: np.ndarray, count: int, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (the ``count`` largest entries of each row, largest first; their places; log(sum(exp(scale
    row)))) of C-contiguous float32 rows [n, width], width a multiple of 16. An entry that a row lacks is -inf
    at place 0."""
    n, width = rows.shape
    values = np.full((n, count), -np.inf, np.float32)
    places = np.zeros((n, count), np.int64)
    sums = np.empty(n, np.float32)
    tops_of_rows(address(rows), n, width, scale, values, places, sums)
    return values, places, sums


def warm_up() -> None:
    """Run each function once, so that no later call waits for compilation."""
    row = aligned((1, 16), np.float32)
    row[:] = 0
    top_entries(row, 1)
    rotate_rows(row, row[0], np.ones((1, 1), np.float32), row[0], np.empty_like(row))
