"""A forward pass of the Llama family with int8 weights and activations (W8A8) in one compiled call for each
thread.

Arguments are addresses (int64) of C-contiguous buffers, whose fields the constants below number. A row's
bits depend on nothing but its own tokens and their positions: products are summed as integers, everything
else in a fixed order over the row's own path, whatever other rows, slots, chunks or threads there are.

All compiled functions are in this file, because numba's cache on disk looks at the file of a function only
(kernels/cache.py adds vector.py to the key).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cfunc, njit

from .cache import in_cache_folder
from .vector import (
    AMX,
    INPUT_BYTES,
    NARROW_ROWS,
    TILE_OUTPUTS,
    TILE_ROWS,
    WEIGHT_OFFSET,
    WIDE,
    add,
    call_product,
    div,
    fma,
    give_way,
    larger,
    largest,
    load,
    load_acquire,
    load_double,
    load_float,
    load_half,
    load_int,
    load_long,
    load_sums,
    load_sums_16,
    magnitude,
    make_amx,
    make_tile,
    make_weighted,
    mul,
    pause,
    pow2,
    rounded,
    score_16,
    softmax_power,
    splat,
    store,
    store_bytes,
    store_float,
    store_int,
    store_long,
    store_release,
    sub,
    swap_pairs,
    total,
)

SHARED_ROWS = 6  # rows from which threads share the rounding of rows, which costs one more barrier
TILE_AHEAD = 8192  # the same for tile registers
AMX_ROWS = 3  # rows from which tile registers multiply faster than vectors
SPINS = 30  # looks at a barrier without a pause
PAUSES = 500  # looks before a waiting thread lets others run
AHEAD = 6144  # bytes by which weights are prefetched
NO_FLOOR = np.float32(-1.0)  # the floor of a row without a norm
MASKED = -1e30  # score of a place after the last one, whose weight is set to 0

# Fields of the model (int64 each; floats are bit patterns in the low half).
HIDDEN = 0
LAYERS = 1
HEADS = 2
KV_HEADS = 3
HEAD_DIM = 4
INNER = 5
VOCAB = 6
TABLE = 7
COS = 8
SIN = 9
NORM_FLOOR = 10
QUERY_SCALE = 11
OUTPUT = 12
HEAD_NORM_FLOOR = 13
FINE = 14  # 1: the inputs of all layers have 16 bits
OUTPUT_NORM = 15  # weights of the norm before the output matrix (0: all 1)
MATRICES = 16
# Fields of a matrix.
WEIGHTS = 0
SCALES = 1
BIAS = 2
COLUMNS = 3
BLOCKS = 4
PRODUCT = 5
MATRIX = 6
# The matrices of a layer, the weights of its norms of queries and keys (0: none), and those of the norms before
# its sublayers (0: all 1, NO_NORM: no norm).
QKV = 0
OUT = 1
GATE_UP = 2
DOWN = 3
NORM_Q = 4 * MATRIX
NORM_K = NORM_Q + 1
NORM_IN = NORM_K + 1
NORM_MLP = NORM_IN + 1
LAYER = NORM_MLP + 1
NO_NORM = -1
# Fields of a row.
TOKEN = 0
POSITION = 1
CACHE = 2
CAPACITY = 3
PAST = 4
COUNT = 5
LIST = 6
SLOT = 7
ROW = 8
# Fields of a job.
FIRST = 0
END = 1
EMBEDS = 2
HEAD_FROM = 3
CAPTURES = 4
SKIPPED = 5
X = 6
LOGITS = 7
READS = 8  # inputs of the first layer's projection to queries, keys and values (0: the normalised states)
READ_WIDTH = 9
JOB = 10
# Fields of a draft loop: addresses of its outputs (0: not wanted) and settings, floats as bit patterns.
TOKENS = 0
STATES = 1
PROBS = 2
TOKEN_PROBS = 3
UNIFORMS = 4
IDS = 5
LOG2_SCALE = 6
MIN_PROB = 7
NUM_IDS = 8
RECORD = 9
MADE = 10
# Buffers that threads share, and those of one thread.
Y = 0
ACT = 1
Q = 2
SYNC = 3
BYTES0 = 4
STEPS0 = 5
SUMS0 = 6
BEST = 7
BYTES = 0
STEPS = 1
SUMS = 2
PRODUCTS = 3
SCORES = 4
HEADS_OUT = 5
NEXT_ROW = 6

OPTIONS: Any = dict(nogil=True, error_model="numpy", boundscheck=False)


def compiled(function: Any) -> Any:
    """Compile a function with numba when it is first called, or read it from the cache on disk."""
    return in_cache_folder(lambda cache: njit(cache=cache, **OPTIONS)(function))


def apart(function: Any) -> Any:
    """Compile as ``compiled``, never inlined into its callers."""
    return in_cache_folder(lambda cache: njit(cache=cache, inline="never", **OPTIONS)(function))


def callback(function: Any) -> Any:
    """Compile a product function of six int64 with an address of its own."""
    signature = "void(int64, int64, int64, int64, int64, int64)"
    options: Any = dict(nopython=True, error_model="numpy", boundscheck=False)
    return in_cache_folder(lambda cache: cfunc(signature, cache=cache, **options)(function))


t12, t22, t32, t42, t52, t62, t72, t82 = (make_tile(rows, 2) for rows in range(1, 9))
t13, t23, t33, t43, t53, t63, t73, t83 = (make_tile(rows, 3) for rows in range(1, 9))
t14, t24, t34, t44, t54, t64 = (make_tile(rows, 4) for rows in range(1, 7))
n1, n2, n3, n4, n5, n6 = (make_tile(min(rows, NARROW_ROWS), 1, INPUT_BYTES == 2) for rows in range(1, 7))
amx_2, amx_3, amx_4 = (make_amx(columns) for columns in (2, 3, 4))
weighted_1_1, weighted_3_1 = (make_weighted(heads, 1) for heads in (1, 3))
weighted_1_4, weighted_2_4, weighted_3_4 = (make_weighted(heads, 4) for heads in (1, 2, 3))


@compiled
def wide_2(w, x, stride, steps, rows, out):
    """Multiply rows of bytes with one block of 32 outputs, in even parts of up to 8 rows."""
    parts = (rows + 7) // 8
    base = rows // parts
    extra = rows % parts
    for p in range(parts):
        r = base + 1 if p < extra else base
        if r == 1:
            t12(w, x, stride, steps, out, 128, w + AHEAD)
        elif r == 2:
            t22(w, x, stride, steps, out, 128, w + AHEAD)
        elif r == 3:
            t32(w, x, stride, steps, out, 128, w + AHEAD)
        elif r == 4:
            t42(w, x, stride, steps, out, 128, w + AHEAD)
        elif r == 5:
            t52(w, x, stride, steps, out, 128, w + AHEAD)
        elif r == 6:
            t62(w, x, stride, steps, out, 128, w + AHEAD)
        elif r == 7:
            t72(w, x, stride, steps, out, 128, w + AHEAD)
        else:
            t82(w, x, stride, steps, out, 128, w + AHEAD)
        x += r * stride
        out += r * 128


@compiled
def wide_3(w, x, stride, steps, rows, out):
    """Multiply rows of bytes with one block of 48 outputs, in even parts of up to 8 rows."""
    parts = (rows + 7) // 8
    base = rows // parts
    extra = rows % parts
    for p in range(parts):
        r = base + 1 if p < extra else base
        if r == 1:
            t13(w, x, stride, steps, out, 192, w + AHEAD)
        elif r == 2:
            t23(w, x, stride, steps, out, 192, w + AHEAD)
        elif r == 3:
            t33(w, x, stride, steps, out, 192, w + AHEAD)
        elif r == 4:
            t43(w, x, stride, steps, out, 192, w + AHEAD)
        elif r == 5:
            t53(w, x, stride, steps, out, 192, w + AHEAD)
        elif r == 6:
            t63(w, x, stride, steps, out, 192, w + AHEAD)
        elif r == 7:
            t73(w, x, stride, steps, out, 192, w + AHEAD)
        else:
            t83(w, x, stride, steps, out, 192, w + AHEAD)
        x += r * stride
        out += r * 192


@compiled
def wide_4(w, x, stride, steps, rows, out):
    """Multiply rows of bytes with one block of 64 outputs, in even parts of up to 6 rows."""
    parts = (rows + 5) // 6
    base = rows // parts
    extra = rows % parts
    for p in range(parts):
        r = base + 1 if p < extra else base
        if r == 1:
            t14(w, x, stride, steps, out, 256, w + AHEAD)
        elif r == 2:
            t24(w, x, stride, steps, out, 256, w + AHEAD)
        elif r == 3:
            t34(w, x, stride, steps, out, 256, w + AHEAD)
        elif r == 4:
            t44(w, x, stride, steps, out, 256, w + AHEAD)
        elif r == 5:
            t54(w, x, stride, steps, out, 256, w + AHEAD)
        else:
            t64(w, x, stride, steps, out, 256, w + AHEAD)
        x += r * stride
        out += r * 256


@compiled
def narrow(w, columns, x, stride, steps, rows, out):
    """Multiply rows of bytes with one block of 16 columns outputs, TILE_OUTPUTS at a time, in even parts of
    up to NARROW_ROWS rows."""
    pitch = columns * 64
    size = steps * TILE_OUTPUTS * 4
    parts = (rows + NARROW_ROWS - 1) // NARROW_ROWS
    base = rows // parts
    extra = rows % parts
    # Each tile of one row fetches weights just before they are read, of more rows a part of the next block.
    soon = w + (AHEAD if rows == 1 else size * columns * (16 // TILE_OUTPUTS))
    for c in range(columns * (16 // TILE_OUTPUTS)):
        at = x
        to = out + 4 * TILE_OUTPUTS * c
        for p in range(parts):
            r = base + 1 if p < extra else base
            if r == 1:
                n1(w, at, stride, steps, to, pitch, soon)
            elif r == 2:
                n2(w, at, stride, steps, to, pitch, soon)
            elif r == 3:
                n3(w, at, stride, steps, to, pitch, soon)
            elif r == 4:
                n4(w, at, stride, steps, to, pitch, soon)
            elif r == 5:
                n5(w, at, stride, steps, to, pitch, soon)
            else:
                n6(w, at, stride, steps, to, pitch, soon)
            at += r * stride
            to += r * pitch
        w += size
        soon += size


@compiled
def tiled(w, columns, x, stride, steps, rows, out):
    """Multiply rows of bytes with one block of 16 columns outputs by tile registers, in even parts of up to
    TILE_ROWS rows."""
    pitch = 64 * columns
    parts = (rows + TILE_ROWS - 1) // TILE_ROWS
    base = rows // parts
    extra = rows % parts
    soon = w + TILE_AHEAD
    for p in range(parts):
        r = base + 1 if p < extra else base
        if columns == 2:
            amx_2(w, x, stride, steps, r, out, soon)
        elif columns == 3:
            amx_3(w, x, stride, steps, r, out, soon)
        else:
            amx_4(w, x, stride, steps, r, out, soon)
        x += r * stride
        out += r * pitch


@callback
def product_2(w, x, stride, steps, rows, out):
    """Multiply rows of bytes with one block of 32 outputs."""
    if AMX and rows >= AMX_ROWS and steps >= TILE_ROWS:
        tiled(w, 2, x, stride, steps, rows, out)
    elif WIDE:
        wide_2(w, x, stride, steps, rows, out)
    else:
        narrow(w, 2, x, stride, steps, rows, out)


@callback
def product_3(w, x, stride, steps, rows, out):
    """Multiply rows of bytes with one block of 48 outputs."""
    if AMX and rows >= AMX_ROWS and steps >= TILE_ROWS:
        tiled(w, 3, x, stride, steps, rows, out)
    elif WIDE:
        wide_3(w, x, stride, steps, rows, out)
    else:
        narrow(w, 3, x, stride, steps, rows, out)


@callback
def product_4(w, x, stride, steps, rows, out):
    """Multiply rows of bytes with one block of 64 outputs."""
    if AMX and rows >= AMX_ROWS and steps >= TILE_ROWS:
        tiled(w, 4, x, stride, steps, rows, out)
    elif WIDE:
        wide_4(w, x, stride, steps, rows, out)
    else:
        narrow(w, 4, x, stride, steps, rows, out)


# --- rounding ---------------------------------------------------------------------------------------------------
@compiled
def row_maximum(x, width, weight):
    """Return the largest magnitude of a row, times ``weight`` if that is not 0, and the sum of the squares of
    the row in a fixed order of 16 lanes."""
    m = splat(0.0)
    s0 = m
    s1 = m
    for i in range(0, width - 16, 32):
        a = load(x + 4 * i)
        b = load(x + 4 * i + 64)
        s0 = fma(a, a, s0)
        s1 = fma(b, b, s1)
        if weight:
            a = mul(a, load(weight + 4 * i))
            b = mul(b, load(weight + 4 * i + 64))
        m = larger(m, larger(magnitude(a), magnitude(b)))
    if width % 32:
        a = load(x + 4 * (width - 16))
        s0 = fma(a, a, s0)
        if weight:
            a = mul(a, load(weight + 4 * (width - 16)))
        m = larger(m, magnitude(a))
    return max(largest(m), 1e-30), total(add(s0, s1))


@compiled
def quantise(x, width, out, floor):
    """Quantise a row to int8 in ``out``; return (its step times 127, the sum of the integers). floor >= 0:
    the row is first divided by sqrt(|x|^2 + floor), which changes the step alone (RMSNorm)."""
    most, squares = row_maximum(x, width, 0)
    factor = splat(127.0 / most)
    whole = splat(0.0)
    for i in range(0, width, 16):
        v = mul(load(x + 4 * i), factor)
        store_bytes(out + INPUT_BYTES * i, v)
        whole = add(whole, rounded(v))
    if floor >= 0.0:
        most = most / (squares + floor) ** 0.5
    return most, total(whole)


@compiled
def fine_steps(length, width):
    """Return into how many parts a step of int8 is divided by a row of 16 bits: at most 128, and so few that
    its products with any int8 weights fit an int32 sum. length: sum of the row's magnitudes, in steps of
    int8."""
    return min(128, int((16909320.0 - width) / (1.001 * length + 1.0)))


@compiled
def quantise_16(x, width, out, floor, weight):
    """Quantise a row to 16 bits, in steps of int8 divided by ``fine_steps``: to int16 where products take
    them, otherwise to two rows of int8, the second for the parts of a step. Return (the step times 127, the
    sum of the row, the parts). floor: as in ``quantise``; weight: address of numbers that multiply the row,
    0 for none."""
    most, squares = row_maximum(x, width, weight)
    factor = splat(127.0 / most)
    length = splat(0.0)
    for i in range(0, width, 16):
        v = load(x + 4 * i)
        if weight:
            v = mul(v, load(weight + 4 * i))
        length = add(length, magnitude(mul(v, factor)))
    parts = fine_steps(total(length), width)
    fine = splat(float(parts))
    whole = splat(0.0)
    rest = splat(0.0)
    for i in range(0, width, 16):
        v = load(x + 4 * i)
        if weight:
            v = mul(v, load(weight + 4 * i))
        v = mul(v, factor)
        r = rounded(v)
        f = rounded(mul(sub(v, r), fine))
        if INPUT_BYTES == 2:
            store_bytes(out + 2 * i, fma(r, fine, f))
        else:
            store_bytes(out + i, r)
            store_bytes(out + width + i, f)
        whole = add(whole, r)
        rest = add(rest, f)
    if floor >= 0.0:
        most = most / (squares + floor) ** 0.5
    return most, int(total(whole)) * parts + int(total(rest)), parts


@apart
def quantise_rows(x, width, first, end, out, steps, sums, floor, weight, fine):
    """Quantise rows first..end of x [rows, width] to ``out``. fine: to 16 bits, 2 width bytes each
    (``quantise_16``); only then ``weight`` is used."""
    for r in range(first, end):
        at = x + 4 * r * width
        if fine:
            step, whole, parts = quantise_16(at, width, out + 2 * r * width, floor, weight)
            store_float(steps + 4 * r, step / parts)
            store_int(sums + 8 * r, whole * WEIGHT_OFFSET)
            store_int(sums + 8 * r + 4, parts)
        else:
            step, whole = quantise(at, width, out + INPUT_BYTES * r * width, floor)
            store_float(steps + 4 * r, step)
            store_int(sums + 4 * r, int(whole) * WEIGHT_OFFSET)


# --- threads ----------------------------------------------------------------------------------------------------
@compiled
def barrier(t, nt, sync, phase):
    """Wait until every thread has reached this phase. A thread that waits long lets others run."""
    store_release(sync + 128 * t, phase)
    for other in range(nt):
        if other != t:
            looks = 0
            while load_acquire(sync + 128 * other) < phase:
                looks += 1
                if looks > PAUSES:
                    give_way()
                elif looks > SPINS:
                    pause()


# --- attention --------------------------------------------------------------------------------------------------
@compiled
def add_values(heads, p, stride, v, head_dim, count, sums):
    """Add the weighted values of ``count`` consecutive slots to the sums of up to three heads."""
    row = 4 * head_dim
    d = 0
    while d + 64 <= head_dim:
        if not WIDE:
            for h in range(heads):
                weighted_1_4(p + h * stride, stride, v + 4 * d, row, count, sums + 4 * d + h * row, row)
        elif heads == 3:
            weighted_3_4(p, stride, v + 4 * d, row, count, sums + 4 * d, row)
        elif heads == 2:
            weighted_2_4(p, stride, v + 4 * d, row, count, sums + 4 * d, row)
        else:
            weighted_1_4(p, stride, v + 4 * d, row, count, sums + 4 * d, row)
        d += 64
    while d < head_dim:
        if heads == 3:
            weighted_3_1(p, stride, v + 4 * d, row, count, sums + 4 * d, row)
        else:
            for h in range(heads):
                weighted_1_1(p + h * stride, stride, v + 4 * d, row, count, sums + 4 * d + h * row, row)
        d += 16


@compiled
def path_weights(s, past, count, slots):
    """Turn scores by slot into unnormalised attention weights along the path, and store their sum after
    them: committed slots first, then the listed ones."""
    length = past + count
    padded = (length + 15) // 16 * 16
    for i in range(count):
        store_float(s + 4 * (past + i), load_float(s + 4 * int(load_int(slots + 4 * i))))
    for i in range(length, padded):
        store_float(s + 4 * i, MASKED)
    m = load(s)
    for i in range(64, 4 * padded, 64):
        m = larger(m, load(s + i))
    top = splat(largest(m))
    m = splat(0.0)
    for i in range(0, 4 * padded, 64):
        x = sub(load(s + i), top)
        e = mul(pow2(x), softmax_power(x))
        store(s + i, e)
        m = add(m, e)
    store_float(s + 4 * padded, total(m))


@apart
def attend(row, head, heads, layer, kv_heads, group, head_dim, q, y, scores, sums):
    """Compute the attention of one row for up to three heads that share keys. Weights are ordered along the
    row's path: committed slots, then the listed draft slots."""
    past = load_long(row + 8 * PAST)
    count = load_long(row + 8 * COUNT)
    slots = load_long(row + 8 * LIST)
    size = load_long(row + 8 * CAPACITY) * head_dim * 4
    keys = load_long(row + 8 * CACHE) + (layer * 2 * kv_heads + head // group) * size
    values = keys + kv_heads * size
    end = max(past, int(load_int(slots + 4 * (count - 1))) + 1)
    stride = (max(end, past + count) + 79) // 64 * 256
    wide = 4 * head_dim
    for b in range(0, end, 16):
        for h in range(heads):
            score_16(q + h * wide, keys + b * wide, head_dim // 16, scores + h * stride + 4 * b)
    padded = (past + count + 15) // 16 * 16
    for h in range(heads):
        path_weights(scores + h * stride, past, count, slots)
        for i in range(0, wide, 64):
            store(sums + h * wide + i, splat(0.0))
    if past > 0:
        add_values(heads, scores, stride, values, head_dim, past, sums)
    for j in range(count):
        at = values + int(load_int(slots + 4 * j)) * wide
        add_values(heads, scores + 4 * (past + j), stride, at, head_dim, 1, sums)
    for h in range(heads):
        scale = splat(1.0 / load_float(scores + h * stride + 4 * padded))
        for i in range(0, wide, 64):
            store(y + h * wide + i, mul(load(sums + h * wide + i), scale))


@compiled
def attend_units(t, nt, rows, n, layer, heads, kv_heads, head_dim, q, y, scores, sums):
    """Compute this thread's share of the attention of all rows and heads."""
    group = heads // kv_heads
    units = n * heads
    u = units * t // nt
    last = units * (t + 1) // nt
    while u < last:
        g = u % group
        r = u // group % n
        head = u // group // n * group + g
        take = min(3, group - g, last - u)
        at = (r * heads + head) * head_dim * 4
        attend(
            rows + 8 * ROW * r,
            head,
            take,
            layer,
            kv_heads,
            group,
            head_dim,
            q + at,
            y + at,
            scores,
            sums,
        )
        u += take


# --- products ---------------------------------------------------------------------------------------------------
@compiled
def product_rows(n, fine):
    """Return how many rows of bytes a product of n rows multiplies. fine: the inputs have 16 bits."""
    return n if INPUT_BYTES == 2 else n * (1 + fine)


@compiled
def product_value(products, r, c, columns, steps, sums, scales, bias, place, fine):
    """Return 16 outputs of row r and column c of a block: sums of integers, times the scales of the outputs
    and the step of the row. fine: the inputs have 16 bits."""
    if not fine:
        v = load_sums(products + (r * columns + c) * 64, load_int(sums + 4 * r))
    elif INPUT_BYTES == 2:
        v = load_sums(products + (r * columns + c) * 64, load_int(sums + 8 * r))
    else:
        at = products + (2 * r * columns + c) * 64
        less = load_int(sums + 8 * r)
        v = load_sums_16(at, at + columns * 64, load_int(sums + 8 * r + 4), less)
    v = mul(mul(v, load(scales + place)), splat(load_float(steps + 4 * r)))
    if bias:
        v = add(v, load(bias + place))
    return v


@apart
def product(m, t, nt, x, width, n, steps, sums, products, out, stride, fine, adds):
    """out [n, stride] = x W^T + b, this thread's blocks of outputs. m: address of the matrix's fields; fine:
    the inputs have 16 bits; adds: add to out."""
    columns = load_long(m + 8 * COLUMNS)
    blocks = load_long(m + 8 * BLOCKS)
    w = load_long(m + 8 * WEIGHTS)
    scales = load_long(m + 8 * SCALES)
    bias = load_long(m + 8 * BIAS)
    function = load_long(m + 8 * PRODUCT)
    rows = product_rows(n, fine)
    for b in range(blocks * t // nt, blocks * (t + 1) // nt):
        at = w + b * width * columns * 16
        call_product(function, at, x, INPUT_BYTES * width, width // 4, rows, products)
        for r in range(n):
            for c in range(columns):
                place = (b * columns + c) * 64
                v = product_value(products, r, c, columns, steps, sums, scales, bias, place, fine)
                to = out + r * stride * 4 + place
                if adds:
                    v = add(v, load(to))
                store(to, v)


@compiled
def store_head(M, row, layer, head, d, v, at_q):
    """Store 16 numbers of a head of queries, keys or values: queries rotated and scaled at ``at_q``, keys
    rotated and values in the row's slot. Heads with a norm are rotated after it (``norm_heads``)."""
    heads = load_long(M + 8 * HEADS)
    kv_heads = load_long(M + 8 * KV_HEADS)
    head_dim = load_long(M + 8 * HEAD_DIM)
    normed = load_long(M + 8 * (MATRICES + NORM_Q))
    if head < heads + kv_heads and not normed:
        at = (load_long(row + 8 * POSITION) * head_dim + d) * 4
        cos = load(load_long(M + 8 * COS) + at)
        sin = load(load_long(M + 8 * SIN) + at)
        v = fma(swap_pairs(v), sin, mul(v, cos))
    if head < heads:
        if not normed:
            v = mul(v, splat(load_float(M + 8 * QUERY_SCALE)))
        store(at_q + (head * head_dim + d) * 4, v)
    elif head < heads + 2 * kv_heads:
        capacity = load_long(row + 8 * CAPACITY)
        base = load_long(row + 8 * CACHE) + (layer * 2 * kv_heads + head - heads) * capacity * head_dim * 4
        store(base + (load_long(row + 8 * SLOT) * head_dim + d) * 4, v)


@apart
def qkv_product(M, m, t, nt, x, width, n, steps, sums, products, rows, layer, q, fine):
    """Queries to q, keys and values to the rows' slots, this thread's blocks of outputs."""
    columns = load_long(m + 8 * COLUMNS)
    blocks = load_long(m + 8 * BLOCKS)
    w = load_long(m + 8 * WEIGHTS)
    scales = load_long(m + 8 * SCALES)
    bias = load_long(m + 8 * BIAS)
    function = load_long(m + 8 * PRODUCT)
    heads = load_long(M + 8 * HEADS)
    head_dim = load_long(M + 8 * HEAD_DIM)
    for b in range(blocks * t // nt, blocks * (t + 1) // nt):
        at = w + b * width * columns * 16
        call_product(function, at, x, INPUT_BYTES * width, width // 4, product_rows(n, fine), products)
        for r in range(n):
            row = rows + 8 * ROW * r
            at_q = q + r * heads * head_dim * 4
            for c in range(columns):
                o = b * columns + c
                v = product_value(products, r, c, columns, steps, sums, scales, bias, o * 64, fine)
                store_head(M, row, layer, o * 16 // head_dim, o * 16 % head_dim, v, at_q)


@apart
def norm_heads(M, L, t, nt, rows, n, layer, q):
    """Normalise queries and keys per head, then rotate them and scale the queries (Qwen3)."""
    heads = load_long(M + 8 * HEADS)
    kv_heads = load_long(M + 8 * KV_HEADS)
    head_dim = load_long(M + 8 * HEAD_DIM)
    floor = load_float(M + 8 * HEAD_NORM_FLOOR)
    each = heads + kv_heads
    for u in range(n * each * t // nt, n * each * (t + 1) // nt):
        r = u // each
        head = u % each
        row = rows + 8 * ROW * r
        if head < heads:
            at = q + (r * heads + head) * head_dim * 4
            weight = load_long(L + 8 * NORM_Q)
            scale = splat(load_float(M + 8 * QUERY_SCALE))
        else:
            size = load_long(row + 8 * CAPACITY) * head_dim * 4
            base = load_long(row + 8 * CACHE) + (layer * 2 * kv_heads + head - heads) * size
            at = base + load_long(row + 8 * SLOT) * head_dim * 4
            weight = load_long(L + 8 * NORM_K)
            scale = splat(1.0)
        _, squares = row_maximum(at, head_dim, 0)
        length = splat(1.0 / (squares + floor) ** 0.5)
        turn = load_long(row + 8 * POSITION) * head_dim * 4
        for i in range(0, 4 * head_dim, 64):
            v = mul(mul(load(at + i), length), load(weight + i))
            cos = load(load_long(M + 8 * COS) + turn + i)
            sin = load(load_long(M + 8 * SIN) + turn + i)
            store(at + i, mul(fma(swap_pairs(v), sin, mul(v, cos)), scale))


@apart
def gate_up_product(m, t, nt, x, width, n, steps, sums, products, act, inner, fine):
    """act = silu(gate) up, this thread's pairs of blocks: the matrix alternates blocks of gate and up."""
    columns = load_long(m + 8 * COLUMNS)
    pairs = load_long(m + 8 * BLOCKS) // 2
    w = load_long(m + 8 * WEIGHTS)
    scales = load_long(m + 8 * SCALES)
    bias = load_long(m + 8 * BIAS)
    function = load_long(m + 8 * PRODUCT)
    one = splat(1.0)
    minus = splat(-1.4426950408889634)
    each = product_rows(n, fine)
    ups = products + each * columns * 64
    for b in range(pairs * t // nt, pairs * (t + 1) // nt):
        size = width * columns * 16
        call_product(function, w + 2 * b * size, x, INPUT_BYTES * width, width // 4, each, products)
        call_product(function, w + (2 * b + 1) * size, x, INPUT_BYTES * width, width // 4, each, ups)
        for r in range(n):
            for c in range(columns):
                at = (2 * b * columns + c) * 64
                g = product_value(products, r, c, columns, steps, sums, scales, bias, at, fine)
                at += columns * 64
                u = product_value(ups, r, c, columns, steps, sums, scales, bias, at, fine)
                silu = div(g, add(one, pow2(mul(g, minus))))
                store(act + r * inner * 4 + (b * columns + c) * 64, mul(silu, u))


# --- the pass ---------------------------------------------------------------------------------------------------
@compiled
def embed_rows(t, nt, M, rows, n, x, hidden):
    """Read the float16 embeddings of this thread's rows."""
    table = load_long(M + 8 * TABLE)
    for r in range(n * t // nt, n * (t + 1) // nt):
        token = load_long(rows + 8 * (ROW * r + TOKEN))
        for i in range(0, hidden, 16):
            store(x + 4 * (r * hidden + i), load_half(table + 2 * (token * hidden + i)))


@compiled
def copy_rows(t, nt, n, width, source, to):
    """Copy this thread's rows of floats."""
    for r in range(n * t // nt, n * (t + 1) // nt):
        for i in range(4 * r * width, 4 * (r + 1) * width, 64):
            store(to + i, load(source + i))


@compiled
def meet(t, nt, sync):
    """Wait for the other threads after the work since the last meeting."""
    barrier(t, nt, sync, load_acquire(sync + 128 * t) + 1)


@compiled
def own_rows(t, nt, n, S, P):
    """Return what a thread needs to round rows: (whether threads share this work; its rows first..end; the
    buffers of bytes, steps and sums)."""
    if nt > 1 and n >= SHARED_ROWS:
        bytes_ = load_long(S + 8 * BYTES0)
        return (
            True,
            n * t // nt,
            n * (t + 1) // nt,
            bytes_,
            load_long(S + 8 * STEPS0),
            load_long(S + 8 * SUMS0),
        )
    bytes_ = load_long(P + 8 * BYTES)
    return False, 0, n, bytes_, load_long(P + 8 * STEPS), load_long(P + 8 * SUMS)


@compiled
def norm_floor(M, norm):
    """Return the floor of the norm before a sublayer, -1 without a norm. norm: its field."""
    return load_float(M + 8 * NORM_FLOOR) if norm != NO_NORM else NO_FLOOR


@apart
def attention_sublayer(t, nt, M, L, rows, n, layer, x, reads, wide_reads, S, P):
    """Add the attention of a layer to x. reads [n, wide_reads]: what is projected to queries, keys and values;
    0: the normalised states."""
    hidden = load_long(M + 8 * HIDDEN)
    heads = load_long(M + 8 * HEADS)
    kv_heads = load_long(M + 8 * KV_HEADS)
    head_dim = load_long(M + 8 * HEAD_DIM)
    fine = load_long(M + 8 * FINE)
    y = load_long(S + 8 * Y)
    q = load_long(S + 8 * Q)
    sync = load_long(S + 8 * SYNC)
    products = load_long(P + 8 * PRODUCTS)
    wide = heads * head_dim
    norm = NO_NORM if reads else load_long(L + 8 * NORM_IN)
    source = reads if reads else x
    width = wide_reads if reads else hidden
    shared, first, end, bytes_, steps, sums = own_rows(t, nt, n, S, P)
    floor = norm_floor(M, norm)
    quantise_rows(source, width, first, end, bytes_, steps, sums, floor, max(norm, 0), fine)
    if shared:
        meet(t, nt, sync)
    qkv_product(M, L, t, nt, bytes_, width, n, steps, sums, products, rows, layer, q, fine)
    meet(t, nt, sync)
    if load_long(L + 8 * NORM_Q):
        norm_heads(M, L, t, nt, rows, n, layer, q)
        meet(t, nt, sync)
    scores = load_long(P + 8 * SCORES)
    attend_units(t, nt, rows, n, layer, heads, kv_heads, head_dim, q, y, scores, load_long(P + 8 * HEADS_OUT))
    meet(t, nt, sync)
    quantise_rows(y, wide, first, end, bytes_, steps, sums, NO_FLOOR, 0, fine)
    if shared:
        meet(t, nt, sync)
    product(L + 8 * OUT * MATRIX, t, nt, bytes_, wide, n, steps, sums, products, x, hidden, fine, 1)
    meet(t, nt, sync)


@apart
def feed_forward_sublayer(t, nt, M, L, n, x, S, P):
    """Add the feed-forward of a layer to x."""
    hidden = load_long(M + 8 * HIDDEN)
    inner = load_long(M + 8 * INNER)
    fine = load_long(M + 8 * FINE)
    act = load_long(S + 8 * ACT)
    sync = load_long(S + 8 * SYNC)
    products = load_long(P + 8 * PRODUCTS)
    norm = load_long(L + 8 * NORM_MLP)
    shared, first, end, bytes_, steps, sums = own_rows(t, nt, n, S, P)
    quantise_rows(x, hidden, first, end, bytes_, steps, sums, norm_floor(M, norm), max(norm, 0), fine)
    if shared:
        meet(t, nt, sync)
    gate_up_product(
        L + 8 * GATE_UP * MATRIX, t, nt, bytes_, hidden, n, steps, sums, products, act, inner, fine
    )
    meet(t, nt, sync)
    quantise_rows(act, inner, first, end, bytes_, steps, sums, NO_FLOOR, 0, 1)
    if shared:
        meet(t, nt, sync)
    product(L + 8 * DOWN * MATRIX, t, nt, bytes_, inner, n, steps, sums, products, x, hidden, 1, 1)
    meet(t, nt, sync)


@apart
def output_logits(t, nt, M, n, x, logits, S, P):
    """Store the logits of n rows of states x."""
    hidden = load_long(M + 8 * HIDDEN)
    fine = load_long(M + 8 * FINE)
    shared, first, end, bytes_, steps, sums = own_rows(t, nt, n, S, P)
    floor = load_float(M + 8 * NORM_FLOOR)
    weight = load_long(M + 8 * OUTPUT_NORM)
    quantise_rows(x, hidden, first, end, bytes_, steps, sums, floor, weight, fine)
    if shared:
        meet(t, nt, load_long(S + 8 * SYNC))
    m = load_long(M + 8 * OUTPUT)
    products = load_long(P + 8 * PRODUCTS)
    product(m, t, nt, bytes_, hidden, n, steps, sums, products, logits, load_long(M + 8 * VOCAB), fine, 0)


@apart
def forward(t, nt, M, rows, n, job, S, P):
    """Run layers FIRST..END of a job over n rows, as thread t of nt, and the output matrix over the rows
    from HEAD_FROM on (n: none)."""
    hidden = load_long(M + 8 * HIDDEN)
    x = load_long(job + 8 * X)
    captures = load_long(job + 8 * CAPTURES)
    skipped = load_long(job + 8 * SKIPPED)
    reads = load_long(job + 8 * READS)
    sync = load_long(S + 8 * SYNC)
    if load_long(job + 8 * EMBEDS):
        embed_rows(t, nt, M, rows, n, x, hidden)
        meet(t, nt, sync)
    for layer in range(load_long(job + 8 * FIRST), load_long(job + 8 * END)):
        L = M + 8 * (MATRICES + layer * LAYER)
        if captures:
            to = load_long(captures + 8 * layer)
            if to:
                copy_rows(t, nt, n, hidden, x, to)
        if skipped == 0 or load_long(skipped + 16 * layer) == 0:
            attention_sublayer(t, nt, M, L, rows, n, layer, x, reads, load_long(job + 8 * READ_WIDTH), S, P)
        reads = 0
        if skipped == 0 or load_long(skipped + 16 * layer + 8) == 0:
            feed_forward_sublayer(t, nt, M, L, n, x, S, P)
    head_from = load_long(job + 8 * HEAD_FROM)
    if head_from < n:
        at = x + 4 * hidden * head_from
        output_logits(t, nt, M, n - head_from, at, load_long(job + 8 * LOGITS), S, P)
    meet(t, nt, sync)


@compiled
def run_pass(t, nt, M, rows, n, job, S, P):
    """Run one pass (``forward``)."""
    forward(t, nt, M, rows, n, job, S, P)


@compiled
def run_linear(t, nt, m, x, width, n, out, stride, fine, S, P):
    """out [n, stride] = x W^T + b of one matrix, x [n, width] in floats. fine: quantise x to 16 bits."""
    sync = load_long(S + 8 * SYNC)
    bytes_ = load_long(P + 8 * BYTES)
    steps = load_long(P + 8 * STEPS)
    sums = load_long(P + 8 * SUMS)
    products = load_long(P + 8 * PRODUCTS)
    quantise_rows(x, width, 0, n, bytes_, steps, sums, NO_FLOOR, 0, fine)
    product(m, t, nt, bytes_, width, n, steps, sums, products, out, stride, fine, 0)
    meet(t, nt, sync)


# --- the draft loop ---------------------------------------------------------------------------------------------
@apart
def argmax(x, count):
    """Return the first index of the largest of ``count`` floats, and that float."""
    best = load_float(x)
    whole = count // 16 * 16
    if whole:
        m = load(x)
        for i in range(64, 4 * whole, 64):
            m = larger(m, load(x + i))
        best = largest(m)
    for i in range(whole, count):
        best = max(best, load_float(x + 4 * i))
    i = 0
    while i < count - 1 and load_float(x + 4 * i) != best:
        i += 1
    return i, best


@apart
def softmax_of(x, count, top, scale, out):
    """Store the softmax of ``count`` floats at ``out``: 2^(scale (x - top)) over its sum. Return the sum of
    the powers."""
    power = splat(scale)
    most = splat(top)
    whole = count // 16 * 16
    sums = 0.0
    for i in range(0, 4 * whole, 64):
        v = pow2(mul(sub(load(x + i), most), power))
        store(out + i, v)
        sums += total(v)
    if whole < count:
        last = splat(0.0)
        store(out + 4 * whole, last)  # the row is padded
        for i in range(whole, count):
            store_float(out + 4 * i, load_float(x + 4 * i) - top)
        v = pow2(mul(load(out + 4 * whole), power))
        store(out + 4 * whole, v)
        for i in range(whole, count):
            sums += load_float(out + 4 * i)
    share = splat(1.0 / sums)
    for i in range(0, 4 * whole, 64):
        store(out + i, mul(load(out + i), share))
    for i in range(whole, count):
        store_float(out + 4 * i, load_float(out + 4 * i) / sums)
    return sums


@apart
def sample_index(probs, count, u):
    """Return the index at which the running sum of ``count`` probabilities passes u times their sum; one of
    probability 0 is never returned."""
    everything = 0.0
    for i in range(count):
        everything += load_float(probs + 4 * i)
    at = u * everything
    running = 0.0
    found = -1
    for i in range(count):
        p = load_float(probs + 4 * i)
        running += p
        if p > 0.0:
            found = i
            if running > at:
                break
    return found


@compiled
def choose_token(logits, k, count, D):
    """Choose the k-th token of a draft loop from its logits and store it; return (its id, whether the loop
    ends with it)."""
    top_index, top = argmax(logits, count)
    index = top_index
    probs = load_long(D + 8 * PROBS)
    least = load_float(D + 8 * MIN_PROB)
    uniforms = load_long(D + 8 * UNIFORMS)
    prob = 1.0
    if probs:
        at = probs + 4 * k * ((count + 15) // 16 * 16)
        softmax_of(logits, count, top, load_float(D + 8 * LOG2_SCALE), at)
        if uniforms:
            index = max(sample_index(at, count, load_double(uniforms + 8 * k)), 0)
        prob = load_float(at + 4 * index)
    token = index
    ids = load_long(D + 8 * IDS)
    if ids:
        token = load_long(ids + 8 * index)
    store_long(load_long(D + 8 * TOKENS) + 8 * k, token)
    store_float(load_long(D + 8 * TOKEN_PROBS) + 4 * k, prob)
    return token, prob < least


@compiled
def run_draft(t, nt, M, rows, n, job, count, D, S, P):
    """Run n rows, then generate ``count`` tokens, one pass each: the argmax, or sampled with the uniform
    numbers of D. Ends after a token whose probability is below MIN_PROB."""
    sync = load_long(S + 8 * SYNC)
    hidden = load_long(M + 8 * HIDDEN)
    stride = load_long(M + 8 * VOCAB)
    x = load_long(job + 8 * X)
    record = load_long(D + 8 * RECORD)
    width = load_long(D + 8 * NUM_IDS)
    at = rows
    for k in range(count):
        forward(t, nt, M, at, n, job, S, P)
        if t == 0:
            logits = load_long(job + 8 * LOGITS)
            token, ends = choose_token(logits, k, width, D)
            to = load_long(D + 8 * STATES) + 4 * k * hidden
            for i in range(0, 4 * hidden, 64):
                store(to + i, load(x + 4 * (n - 1) * hidden + i))
            store_long(load_long(D + 8 * MADE), k + 1)
            last = at + 8 * ROW * (n - 1)
            slot = load_long(last + 8 * SLOT) + 1
            store_long(record + 8 * TOKEN, token)
            store_long(record + 8 * POSITION, load_long(last + 8 * POSITION) + 1)
            store_long(record + 8 * CACHE, load_long(last + 8 * CACHE))
            store_long(record + 8 * CAPACITY, load_long(last + 8 * CAPACITY))
            store_long(record + 8 * PAST, slot)
            store_long(record + 8 * COUNT, 1)
            store_long(record + 8 * LIST, record + 8 * (ROW + 1))
            store_long(record + 8 * SLOT, slot)
            store_int(record + 8 * (ROW + 1), slot)
            store_long(record + 8 * ROW, 1 if ends else 0)
            store_long(job + 8 * LOGITS, logits + 4 * stride)
            store_long(job + 8 * HEAD_FROM, 0)
        meet(t, nt, sync)
        if load_long(record + 8 * ROW):
            break
        at = record
        n = 1
