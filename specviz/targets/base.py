"""What every target shares: which tokens lie in its cache, which in its scratch, and how the one becomes the other.

Slots are filled in order: the committed rows first, then the scratch, which is the root followed by the nodes of the tree
scored last. A target adds the network through three primitives: run rows, gather scratch rows, crop. Everything about tokens
(prefill, rewind, catch-up, following an accepted path) is here, once.
"""
from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Sequence

import torch
from torch import Tensor

from ..core import DraftTree, Scores, Verdict

LARGE = 128  # shapes of larger trees are not kept
CHUNK = 512  # most prompt rows in one forward, so that masks stay small


class ContextOverflow(ValueError):
    """More tokens than the model can read."""


@dataclass(frozen=True, eq=False)
class Shape:
    """Who sees whom among scratch rows lo..n: depth [n-lo], sees [n-lo, n] (bool, the row itself included).

    all_seen: every row sees every scratch row, so that no mask is needed.
    """

    depth: Tensor
    sees: Tensor
    all_seen: bool


@dataclass(frozen=True)
class Rows:
    """One forward: rows lo..n of the scratch (row 0 the root, row i+1 node i) after ``past`` committed ones.

    ids [n-lo]; last: logits are wanted for the last row only.
    """

    tree: DraftTree
    ids: list[int]
    past: int
    lo: int
    last: bool

    @cached_property
    def shape(self) -> Shape:
        return shape_of(self.tree.parents, self.lo)

    @cached_property
    def chain(self) -> bool:
        return self.tree.parents == _line(len(self.tree))

    def entries(self, layer: int):
        """Entries of a layer whose rows are in this forward, with the rows' indices in it."""
        for entry in self.tree.inputs:
            if entry.layer == layer and entry.nodes and min(entry.nodes) + 1 >= self.lo:
                yield entry, [node + 1 - self.lo for node in entry.nodes]


def _shape(parents: tuple[int, ...], lo: int) -> Shape:
    n = len(parents) + 1
    if parents == _line(n - 1):
        sees = torch.ones(n, n, dtype=torch.bool).tril_()[lo:]
        return Shape(torch.arange(lo, n), sees, n - lo == 1)
    depth, bits = [0], [1]  # a row's ancestors as the bits of one whole number: no tensor work per node
    for i, parent in enumerate(parents):
        depth.append(depth[parent + 1] + 1)
        bits.append(bits[parent + 1] | 1 << (i + 1))
    width = (n + 7) // 8
    packed = torch.frombuffer(bytearray(b"".join(b.to_bytes(width, "little") for b in bits[lo:])), dtype=torch.uint8)
    sees = (packed.view(-1, width, 1) >> torch.arange(8, dtype=torch.uint8) & 1).view(n - lo, width * 8)[:, :n].bool()
    return Shape(torch.tensor(depth[lo:]), sees, bool(sees.all()))


_cached_shape = lru_cache(maxsize=512)(_shape)


def shape_of(parents: tuple[int, ...], lo: int) -> Shape:
    """Shape of the rows from lo on of a tree; kept for small trees, which come back round after round."""
    return (_shape if len(parents) > LARGE else _cached_shape)(parents, lo)


@lru_cache(maxsize=512)
def _line(n: int) -> tuple[int, ...]:
    """Parents of a chain of n nodes."""
    return tuple(range(-1, n - 1))


class Growing:
    """Rows that arrive in pieces. Views handed out stay as they were."""

    def __init__(self, first: Tensor):
        self._buffer, self._count = first, len(first)

    def add(self, keep: int, more: Tensor) -> Tensor:
        """The first ``keep`` rows followed by more; a view."""
        n = keep + len(more)
        if n > len(self._buffer) or keep < self._count:
            bigger = more.new_empty(max(n, 2 * keep, 8), *more.shape[1:])
            bigger[:keep] = self._buffer[:keep]
            self._buffer = bigger
        self._buffer[keep:n] = more
        self._count = n
        return self._buffer[:n]


class CachedTarget:
    """Token bookkeeping over three primitives: ``_forward``, ``_gather``, ``_crop``.

    vocab, context (most tokens it reads), hidden (width), layers: facts of the network; busy: seconds spent inside forwards;
    passes: forwards run; seen: the committed tokens whose rows the cache holds.
    """

    provides: frozenset[str] = frozenset({"tree", "rewind"})
    name = "the model"
    vocab: int
    context: int
    hidden: int
    layers: int

    def __init__(self):
        self.busy, self.passes = 0.0, 0
        self.seen: list[int] = []
        self.root: int | None = None
        self._want: frozenset[str] = frozenset()
        self._clear()

    # --- what a target adds ----------------------------------------------------------------------------------------
    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the rows, leaving their keys and values in slots past+lo and on; logits and taps of these rows."""
        raise NotImplementedError(f"{type(self).__name__} has no network")

    def _gather(self, past: int, rows: list[int]) -> None:
        """Move scratch rows (given by index, increasing) to the front of the scratch."""
        raise NotImplementedError(f"{type(self).__name__} has no cache")

    def _crop(self, length: int) -> None:
        """Slots from ``length`` on are stale."""

    # --- the contract ----------------------------------------------------------------------------------------------
    def tap(self, names: frozenset[str]) -> None:
        """Ask for states along with scores. Raises ValueError for a state this target does not have."""
        for name in names:
            kind, _, layer = name.partition(":")
            known = "tap:final" if name == "final" else "tap:layer" if kind == "layer" and layer.isdigit() else ""
            if known not in self.provides or (layer and int(layer) >= self.layers):
                raise ValueError(f"{self.name} has no state named {name!r}")
        self._want = frozenset(names)

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Make the cache hold tokens[:-1]; the last token becomes the root.

        What agrees is kept, also rows of the scratch (followed by token); the rest is dropped, what is missing is fed. Taps
        hold every row fed, logits the last one only, and ``fed`` counts them. Raises ContextOverflow, or ValueError when
        there is no token.
        """
        tokens = list(tokens)
        self._check(tokens)
        if tokens[-1] == self.root and tokens[:-1] == self.seen:
            return self._nothing()
        self._follow(tokens)
        keep = _common(self.seen, tokens[:-1])
        if keep < len(self.seen) or self._rows:
            del self.seen[keep:]
            self._drop()
        scores = self._feed(tokens[keep:-1])
        self.root = tokens[-1]
        return scores

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Logits and taps of the root and every node.

        ``start``: nodes before it are those of the last call, whose rows still lie in the scratch; only the rest is run, and
        the states an Entry sees are those of the rows run. Raises ValueError when the scratch holds something else.
        """
        if self.root is None:
            raise ValueError("score() before sync(): there is no root")
        old = self._tree
        if start and (start >= self._rows or tree.tokens[:start] != old.tokens[:start] or tree.parents[:start] != old.parents[:start]):
            raise ValueError(f"the scratch does not hold the first {start} nodes of this tree")
        if start and start == len(tree):
            start -= 1  # nothing new was asked for: run the last row again rather than none
        lone_root = not start and self._rows == 1 and len(tree) > 0 and not tree.inputs
        lo = start + 1 if start else int(lone_root)  # a root scored alone is not scored again below its first children
        tokens = tree.tokens[lo - 1:] if lo else (self.root,) + tree.tokens
        logits, taps = self._run(Rows(tree, [max(t, 0) for t in tokens], len(self.seen), lo, False))
        if lo:
            logits = self._logits.add(lo, logits)
            taps = {name: self._taps[name].add(lo, rows) for name, rows in taps.items()}
        else:
            self._logits, self._taps = Growing(logits), {name: Growing(rows) for name, rows in taps.items()}
        self._tree, self._rows = tree, len(tree) + 1
        return Scores(logits, taps, len(self.seen))

    def commit(self, verdict: Verdict) -> None:
        """Keep the root and the accepted path; the verdict's token becomes the root."""
        self._keep([0] + [i + 1 for i in verdict.path])
        self.root = verdict.token

    def close(self) -> None:
        """Give the cache's memory back. A later sync starts from nothing."""
        self.seen, self.root = [], None
        self._drop()

    # --- bookkeeping -----------------------------------------------------------------------------------------------
    def _clear(self) -> None:
        """Forget the scratch."""
        self._tree, self._rows = DraftTree(), 0
        self._logits, self._taps = None, {}

    def _drop(self) -> None:
        self._clear()
        self._crop(len(self.seen))

    def _check(self, tokens: list[int]) -> None:
        if not tokens:
            raise ValueError("there is nothing to decode from: the prompt is empty")
        if len(tokens) > self.context:
            raise ContextOverflow(f"{len(tokens)} tokens are more than {self.name} can read ({self.context})")

    def _nothing(self) -> Scores:
        empty = torch.empty(0)
        return Scores(empty.view(0, 1).expand(0, self.vocab), {t: empty.view(0, 1).expand(0, self.hidden) for t in self._want},
                      len(self.seen))

    def _follow(self, tokens: list[int]) -> None:
        """Commit the scratch rows that lie on the path of tokens[:-1]."""
        n = len(self.seen)
        if not self._rows or len(tokens) < n + 2 or tokens[n] != self.root or tokens[:n] != self.seen:
            return
        made = {node for entry in self._tree.inputs for node in entry.nodes}  # these rows are not their token's
        ends, best = [-1], -1
        for token in tokens[n + 1:-1]:  # twins are followed side by side
            ends = [c for end in ends for c in self._tree.children(end) if self._tree.tokens[c] == token and c not in made]
            if not ends:
                break
            best = ends[0]
        self._keep([0] + [i + 1 for i in self._tree.path(best)])

    def _keep(self, rows: list[int]) -> None:
        past = len(self.seen)
        if rows[-1] >= self._rows:
            raise ValueError("commit() of a path that was not scored")
        if rows[-1] >= len(rows):
            self._gather(past, rows)
        self.seen += [self.root if row == 0 else self._tree.tokens[row - 1] for row in rows]
        self._drop()

    def _feed(self, tokens: list[int]) -> Scores:
        """Run tokens as a chain behind the committed ones and commit them."""
        at, pieces, logits = len(self.seen), [], None
        for i in range(0, len(tokens), CHUNK):
            part = tokens[i:i + CHUNK]
            logits, taps = self._run(Rows(DraftTree.chain(part[1:]), part, len(self.seen), 0, True))
            self.seen += part
            pieces.append(taps)
        if logits is None:
            return self._nothing()
        taps = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
        return Scores(logits[-1:], taps, at, len(tokens))

    def _run(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        if max(rows.ids) >= self.vocab or min(rows.ids) < 0:
            raise ValueError(f"token {max(rows.ids)} is not in the vocabulary of {self.name} ({self.vocab} tokens)")
        began = time.perf_counter()
        try:
            with torch.inference_mode():
                return self._forward(rows)
        finally:
            self.busy += time.perf_counter() - began
            self.passes += 1


def _common(a: list[int], b: list[int]) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])
