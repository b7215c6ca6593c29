"""A network of the Llama family in int8, run by the compiled pass."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from . import llama_pass as kernel
from . import row_functions
from .cache import is_cached
from .matrix import Int8Matrix
from .memory import address, aligned, round_up
from .progress import PROGRESS
from .sequence_rows import SequenceRows, chain_rows
from .workers import Workers, Workspace, workspace

log = logging.getLogger(__name__)


class Sizes(NamedTuple):
    """Padded sizes of a network: hidden and inner are multiples of 32, head_dim of 16; vocab is the number
    of outputs. floor: width times eps of the norms; head_floor: of the norms of heads; scale: of queries."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    floor: float
    head_floor: float
    scale: float


@dataclass(frozen=True)
class CompiledLayer:
    """The matrices of a layer; gate_up and down are None without a feed-forward.

    norm_q, norm_k: weights [head_dim] of its norms of queries and keys, if it has them. norm_in, norm_mlp:
    weights [hidden] of the norms before its sublayers, times sqrt(hidden), None: all 1; only a network with
    inputs of 16 bits reads them. normed: whether there is a norm before its attention.
    """

    qkv: Int8Matrix
    out: Int8Matrix
    gate_up: Int8Matrix | None
    down: Int8Matrix | None
    norm_q: np.ndarray | None = None
    norm_k: np.ndarray | None = None
    norm_in: np.ndarray | None = None
    norm_mlp: np.ndarray | None = None
    normed: bool = True

    @property
    def matrices(self) -> list[Int8Matrix]:
        """The matrices that it has."""
        return [m for m in (self.qkv, self.out, self.gate_up, self.down) if m is not None]

    def fields(self) -> list[int]:
        """Return the int64 that the compiled pass reads."""
        numbers = [int(field) for matrix in self.matrices for field in matrix.fields]
        numbers += [0] * (kernel.NORM_Q - len(numbers))
        norms = (self.norm_q, self.norm_k, self.norm_in, self.norm_mlp)
        numbers += [0 if norm is None else address(norm) for norm in norms]
        if not self.normed:
            numbers[kernel.NORM_IN] = kernel.NO_NORM
        return numbers


class DraftedTokens(NamedTuple):
    """What a draft loop made: tokens int64 [made]; logits [made, outputs], padded; distributions [made,
    outputs] that tokens were sampled from (None for the argmax); states [made, hidden] after the last layer;
    token_probs [made], empty without a threshold."""

    tokens: np.ndarray
    logits: np.ndarray
    distributions: np.ndarray | None
    states: np.ndarray
    token_probs: np.ndarray


class _Records:
    """The rows of a pass as the compiled code reads them. count: rows; longest: slots that they reach."""

    def __init__(self, sequences: Sequence[SequenceRows]):
        self.count = sum(len(rows.tokens) for rows in sequences)
        most = max(rows.lists.shape[1] for rows in sequences)
        records = np.empty((self.count, kernel.ROW), np.int64)
        lists = np.empty((self.count, most), np.int32)
        at = 0
        longest = 0
        for rows in sequences:
            count = len(rows.tokens)
            part = records[at : at + count]
            part[:, kernel.TOKEN] = rows.tokens
            part[:, kernel.POSITION] = rows.positions
            part[:, kernel.CACHE] = rows.cache
            part[:, kernel.CAPACITY] = rows.capacity
            part[:, kernel.PAST] = rows.past
            part[:, kernel.COUNT] = rows.counts
            part[:, kernel.SLOT] = rows.slots
            lists[at : at + count, : rows.lists.shape[1]] = rows.lists
            longest = max(longest, int(rows.slots.max()) + 1)
            at += count
        records[:, kernel.LIST] = address(lists) + np.arange(self.count) * (4 * most)
        self._kept = records, lists
        self.address = address(records)
        self.longest = longest + most


class CompiledNetwork:
    """Layers, embedding table and output matrix as the compiled pass reads them.

    table: float16 [vocab, hidden]; output: the output matrix; fine: quantise the inputs of all matrices to 16
    bits; output_norm: weights of the norm before the output matrix, as a layer's ``norm_in``; set_rotations
    gives the rotary tables.
    """

    def __init__(
        self,
        sizes: Sizes,
        layers: Sequence[CompiledLayer],
        table: np.ndarray | None,
        output: Int8Matrix | None,
        fine: bool = False,
        output_norm: np.ndarray | None = None,
    ):
        self.sizes = sizes
        self.layers, self.table, self.output = layers, table, output
        self.fine, self.output_norm = fine, output_norm
        self._rotary: list[tuple[np.ndarray, np.ndarray]] = []  # a pass on another thread may read old ones
        self.nbytes = sum(m.nbytes for layer in layers for m in layer.matrices)
        self.nbytes += 0 if output is None else output.nbytes
        numbers = [0] * kernel.MATRICES
        for field, value in (
            (kernel.HIDDEN, sizes.hidden),
            (kernel.LAYERS, sizes.layers),
            (kernel.HEADS, sizes.heads),
            (kernel.KV_HEADS, sizes.kv_heads),
            (kernel.HEAD_DIM, sizes.head_dim),
            (kernel.INNER, sizes.inner),
            (kernel.VOCAB, 0 if output is None else output.outputs),
            (kernel.TABLE, 0 if table is None else address(table)),
            (kernel.OUTPUT, 0 if output is None else address(output.fields)),
            (kernel.FINE, int(fine)),
            (kernel.OUTPUT_NORM, 0 if output_norm is None else address(output_norm)),
        ):
            numbers[field] = value
        self._model = np.array(numbers + [n for layer in layers for n in layer.fields()], np.int64)
        floats = self._model.view(np.float32)
        floats[2 * kernel.NORM_FLOOR] = sizes.floor
        floats[2 * kernel.HEAD_NORM_FLOOR] = sizes.head_floor
        floats[2 * kernel.QUERY_SCALE] = sizes.scale * math.log2(math.e)

    def set_rotations(self, cos: np.ndarray, sin: np.ndarray) -> None:
        """Set the rotary tables, float32 [positions, head_dim], sin with the sign of its place in a pair. Tables
        that are shorter than those before change nothing."""
        if self._rotary and len(self._rotary[-1][0]) >= len(cos):
            return
        self._rotary.append((cos, sin))
        self._model[kernel.COS] = address(cos)
        self._model[kernel.SIN] = address(sin)

    def warm_up(self) -> None:
        """Run one row and one draft token, so that no later call waits for compilation. Call it after
        ``set_rotations``. Logs that it takes long if nothing is in the cache."""
        if not is_cached():
            log.warning(
                "The forward pass is compiled for this processor; this happens once and takes ten to thirty seconds."
            )
        s = self.sizes
        capacity = 16
        cache = np.zeros((s.layers, 2, s.kv_heads, capacity, s.head_dim), np.float32)
        row = chain_rows(address(cache), capacity, [0], 0, 0, capacity)
        x = aligned((1, s.hidden), np.float32)
        x[:] = 0
        logits = None if self.output is None else np.empty((1, self.output.outputs), np.float32)
        self.run([row], x, False, 0, s.layers, logits)
        if self.output is not None and self.table is not None:
            self.draft(row, 1, 1.0, np.full(1, 0.5), None, None, self.output.rows)
        row_functions.warm_up()
        PROGRESS.reset()

    def run(
        self,
        sequences: Sequence[SequenceRows],
        x: np.ndarray,
        embed: bool,
        first: int,
        end: int,
        logits: np.ndarray | None = None,
        captured: dict[int, np.ndarray] | None = None,
        skipped: frozenset[int] = frozenset(),
        reads: np.ndarray | None = None,
    ) -> None:
        """Run layers first..end over the rows of all sequences, in order.

        x [rows, hidden]: their states, replaced by those after the layers; embed: start from the tokens'
        embeddings instead. logits [last rows, outputs]: receives the logits of the last rows. captured:
        layer -> [rows, hidden], which receives the states that enter it. skipped: sublayers to leave out
        (2i: attention of layer i, 2i + 1: its feed-forward). reads [rows, inputs of the matrix]: what the first
        of these layers projects to queries, keys and values, instead of its normalised states.
        """
        records = _Records(sequences)
        n = records.count
        pointers = self._pointers(captured)
        left_out = self._left_out(skipped)
        job = np.array(
            [
                first,
                end,
                int(embed),
                n if logits is None else n - len(logits),
                0 if pointers is None else address(pointers),
                0 if left_out is None else address(left_out),
                address(x),
                0 if logits is None else address(logits),
                0 if reads is None else address(reads),
                0 if reads is None else reads.shape[1],
            ],
            np.int64,
        )
        with self._workspace(n, records.longest, 0 if reads is None else reads.shape[1]) as (space, threads):
            threads.call(kernel.run_pass, address(self._model), records.address, n, address(job), space=space)

    def draft(
        self,
        rows: SequenceRows,
        count: int,
        temperature: float,
        uniforms: np.ndarray | None,
        min_prob: float | None,
        ids: np.ndarray | None,
        outputs: int,
    ) -> DraftedTokens:
        """Run the rows of one sequence, a chain, then generate ``count`` tokens after them, each in the slot
        after the last one's.

        uniforms float64 [count]: sample with these numbers at this temperature (None: the argmax). min_prob:
        stop after the first token whose probability is smaller. ids int64 [outputs]: the token of each of the
        ``outputs`` logits, None if they are the same.
        """
        assert self.output is not None and self.table is not None
        records = _Records([rows])
        n = records.count
        s = self.sizes
        wide = self.output.outputs
        x = aligned((n, s.hidden), np.float32)
        logits = np.empty((count, wide), np.float32)
        states = aligned((count, s.hidden), np.float32)
        distributed = uniforms is not None or min_prob is not None
        padded = round_up(outputs, 16)
        probs = aligned((count, padded) if distributed else (1, 16), np.float32)
        tokens = np.zeros(count, np.int64)
        token_probs = np.zeros(count, np.float32)
        made = np.zeros(1, np.int64)
        record = np.zeros(kernel.ROW + 2, np.int64)
        job = np.zeros(kernel.JOB, np.int64)
        job[: kernel.READS] = 0, s.layers, 1, n - 1, 0, 0, address(x), address(logits)
        settings = np.zeros(kernel.MADE + 1, np.int64)
        for field, array in (
            (kernel.TOKENS, tokens),
            (kernel.STATES, states),
            (kernel.PROBS, probs if distributed else None),
            (kernel.TOKEN_PROBS, token_probs),
            (kernel.UNIFORMS, uniforms),
            (kernel.IDS, ids),
            (kernel.RECORD, record),
            (kernel.MADE, made),
        ):
            settings[field] = 0 if array is None else address(array)
        settings[kernel.NUM_IDS] = outputs
        floats = settings.view(np.float32)
        floats[2 * kernel.LOG2_SCALE] = math.log2(math.e) / (temperature or 1.0)
        floats[2 * kernel.MIN_PROB] = -1.0 if min_prob is None else min_prob
        with self._workspace(n, records.longest + count) as (space, threads):
            threads.call(
                kernel.run_draft,
                address(self._model),
                records.address,
                n,
                address(job),
                count,
                address(settings),
                space=space,
            )
        end = int(made[0])
        return DraftedTokens(
            tokens[:end],
            logits[:end],
            probs[:end, :outputs] if uniforms is not None else None,
            states[:end],
            token_probs[:end] if min_prob is not None else token_probs[:0],
        )

    def _workspace(
        self, rows: int, slots: int, width: int = 0
    ) -> AbstractContextManager[tuple[Workspace, Workers]]:
        s = self.sizes
        wide = s.heads * s.head_dim
        rows *= 1 + self.fine  # products of 16-bit inputs come in pairs of rows
        return workspace(rows, max(s.hidden, s.inner, wide, width), wide, s.inner, slots)

    def _pointers(self, captured: dict[int, np.ndarray] | None) -> np.ndarray | None:
        if not captured:
            return None
        pointers = np.zeros(self.sizes.layers, np.int64)
        for layer, states in captured.items():
            pointers[layer] = address(states)
        return pointers

    def _left_out(self, skipped: frozenset[int]) -> np.ndarray | None:
        if not skipped:
            return None
        left_out = np.zeros(2 * self.sizes.layers, np.int64)
        left_out[list(skipped)] = 1
        return left_out
