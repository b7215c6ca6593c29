"""The KV caches of several sequences side by side, so that a packed pass computes the attention of a layer
once for all of them.

It is a copy: each sequence keeps its own cache and can leave at any time. The copy is only used where
attention sums exactly (models/exact_attention.py), because then a row's keys and values depend on the
tokens up to it alone, and neither padding nor other sequences change a bit of its result.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from weakref import WeakKeyDictionary, finalize

import torch
from torch import Tensor

from ..models.llama import Block, Llama
from .llama import STEP, LlamaTarget
from .rows import Rows

LARGEST = 2**30  # bytes; more sequences or longer texts attend one after another

PackedSequence = tuple[LlamaTarget, Rows, slice]  # a sequence, its rows, and their place among all rows


class SharedCache:
    """Keys and values of sequences of one model, [layers, 2, places, kv_heads, slots, head_dim]. A sequence
    keeps its place for as long as it is alive; what its place holds is known by its tokens. One pass at a
    time uses it: runs of other threads that share the weights attend one sequence after another meanwhile,
    and wait with closing a sequence that has a place."""

    def __init__(self, model: Llama):
        self.model = model
        self.store = torch.zeros(0)
        self.places: WeakKeyDictionary[LlamaTarget, int] = WeakKeyDictionary()
        self.tokens: dict[int, list[int]] = {}  # by place: the tokens whose keys and values it holds
        self.lock = threading.Lock()  # of all the above

    @contextmanager
    def attending(
        self, lanes: Sequence[PackedSequence], masks: Sequence[Tensor | None]
    ) -> Iterator[SharedPass | None]:
        """Within this context the attention of these sequences is computed by the SharedPass; None if it
        cannot be computed together. masks: of each sequence's rows, as ``LlamaTarget._mask`` returns it."""
        if not self.lock.acquire(blocking=False):
            yield None
            return
        try:
            together = self.begin(lanes, masks) if self.fits(lanes) else None
            yield together
            if together is not None:
                together.end()
        finally:
            self.lock.release()

    def fits(self, lanes: Sequence[PackedSequence]) -> bool:
        """Return whether the attention of these sequences may be computed together."""
        model = self.model
        if len(lanes) < 2 or model.blocks[0].exact is None or model.device.type != "cpu":
            return False
        own = all(
            not rows.lo
            and not rows.tree.inputs
            and not target.skip
            and not target.prefix
            and rows.past == len(target.cached_tokens)
            for target, rows, _ in lanes
        )
        return own and self.size(*self.needed(lanes)) <= LARGEST

    def size(self, places: int, slots: int) -> int:
        """Return the bytes of a copy with that many places and slots."""
        model = self.model
        return places * slots * 2 * model.layers * model.kv_heads * model.head_dim * model.dtype.itemsize

    def needed(self, lanes: Sequence[PackedSequence]) -> tuple[int, int]:
        """Return how many places and slots a pass over these sequences needs, besides the sequences that
        have a place."""
        taken = {
            *self.places.values(),
            *self._free_places(sum(target not in self.places for target, *_ in lanes)),
        }
        return max(taken) + 1, -(-max(rows.past + len(rows.ids) for _, rows, _ in lanes) // STEP) * STEP

    def begin(self, lanes: Sequence[PackedSequence], masks: Sequence[Tensor | None]) -> SharedPass:
        """Bring the places of these sequences up to date and return the pass over them."""
        self._reserve(lanes)
        for target, rows, _ in lanes:
            place = self.places[target]
            have = self.held(place, target.cached_tokens)
            if have < rows.past:
                self.store[:, :, place, :, have : rows.past] = target.slots[:, :, :, have : rows.past]
            self.tokens[place] = target.cached_tokens[
                : rows.past
            ]  # what the pass adds counts once it is over
        return SharedPass(self, lanes, masks)

    def forget(self, target: LlamaTarget) -> None:
        """Free the place of a sequence that ends, and the memory with the last of them."""
        if target in self.places:
            with self.lock:
                self.places.pop(target, None)
                self._free()

    def collected(self) -> None:
        """Free the place of a sequence that nothing refers to any more. Python calls this at any time, so
        it does not wait: during a pass the place stays until the next one begins."""
        if self.lock.acquire(blocking=False):
            try:
                self._free()
            finally:
                self.lock.release()

    def held(self, place: int, tokens: Sequence[int]) -> int:
        """Return how many of these tokens, from the first on, a place holds."""
        known = self.tokens.get(place, [])
        return next(
            (i for i, (a, b) in enumerate(zip(known, tokens)) if a != b), min(len(known), len(tokens))
        )

    def _free(self) -> None:
        taken = set(self.places.values())
        for place in [place for place in self.tokens if place not in taken]:
            del self.tokens[place]  # its sequence is gone
        if not taken:
            self.store = torch.zeros(0)

    def _free_places(self, wanted: int) -> list[int]:
        taken = set(self.places.values())
        return list(islice((place for place in count() if place not in taken), wanted))

    def _reserve(self, lanes: Sequence[PackedSequence]) -> None:
        self._free()
        places, slots = self.needed(lanes)
        new = [target for target, *_ in lanes if target not in self.places]
        for target, place in zip(new, self._free_places(len(new))):
            self.places[target] = place
            finalize(target, self.collected).atexit = False
        have_places, have_slots = (
            (self.store.shape[2], self.store.shape[4]) if self.store.dim() == 6 else (0, 0)
        )
        if places <= have_places and slots <= have_slots:
            return
        if (
            self.size(max(places, have_places), max(slots, have_slots)) > LARGEST
        ):  # a copy of longer texts, or of more, begins anew
            have_places = have_slots = 0
            self.tokens.clear()
            self.store = torch.zeros(0)
        bigger = torch.zeros(
            self.model.layers,
            2,
            max(places, have_places),
            self.model.kv_heads,
            max(slots, have_slots),
            self.model.head_dim,
            dtype=self.model.dtype,
        )
        if have_places:
            bigger[:, :, :have_places, :, :have_slots] = self.store
        self.store = bigger


class SharedPass:
    """One packed pass over sequences of a SharedCache: ``attend`` layer by layer, then ``end``."""

    def __init__(self, cache: SharedCache, lanes: Sequence[PackedSequence], masks: Sequence[Tensor | None]):
        self.cache = cache
        self.lanes = lanes
        model = cache.model
        kv, group = model.kv_heads, model.group
        self.used = max(cache.places[target] for target, *_ in lanes) + 1
        self.longest, self.most = (
            max(rows.past + len(rows.ids) for _, rows, _ in lanes),
            max(len(rows.ids) for _, rows, _ in lanes),
        )
        mask = torch.full((self.used, group, self.most, self.longest), -torch.inf, dtype=model.dtype)
        place = []
        slot = []
        row = []
        for (target, rows, _), seen in zip(lanes, masks):
            n, mine = len(rows.ids), cache.places[target]
            end = rows.past + n
            mask[mine, :, :n, :end] = 0.0 if seen is None else seen.view(group, n, end)
            place += [mine] * n
            slot += range(rows.past, end)
            row += range(n)
        self.place = torch.tensor(place)
        self.slot = torch.tensor(slot)
        self.row = torch.tensor(row)
        self.mask = (
            mask[:, None].expand(-1, kv, -1, -1, -1).reshape(self.used * kv, group * self.most, self.longest)
        )

    def attend(self, layer: int, block: Block, q: Tensor, new: Tensor) -> Tensor:
        """Return the attention of all rows, [kv_heads, group, rows, head_dim]. q, of that shape: queries;
        new [2, kv_heads, rows, head_dim]: keys and values of the rows, which are stored."""
        assert block.exact is not None  # ``fits`` asked
        kv, group, rows, size = q.shape
        store = self.cache.store[layer]
        store[:, self.place, :, self.slot] = new.permute(2, 0, 1, 3)
        asked = q.new_zeros(self.used, kv, group, self.most, size)
        asked[self.place, :, :, self.row] = q.permute(2, 0, 1, 3)
        keys, values = store[:, : self.used, :, : self.longest].flatten(1, 2)
        found = block.exact.attention(
            asked.view(self.used * kv, group * self.most, size), keys, values, self.mask
        )
        return found.view(self.used, kv, group, self.most, size)[self.place, :, :, self.row].permute(
            1, 2, 0, 3
        )

    def end(self) -> None:
        """Write the new rows into the sequences' own caches."""
        for target, rows, _ in self.lanes:
            place, end = self.cache.places[target], rows.past + len(rows.ids)
            target.slots[:, :, :, rows.past : end] = self.cache.store[:, :, place, :, rows.past : end]
            self.cache.tokens[place] += rows.ids if rows.chain else rows.ids[:1]
