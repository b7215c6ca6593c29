"""Numbers that lie on a device until somebody asks for one of them: to ask is to wait for the device, and a round should wait once.

A drafter that takes the likeliest token of each step need not know it: the next step reads it where it lies. ``Later`` stands in its
place among plain tokens and becomes one when it is compared, hashed or used as a number; then all numbers that wait are read in
one go. On a processor nothing waits, and no number is ever one of these.
"""
from __future__ import annotations

import threading
import weakref
from functools import total_ordering
from typing import Any, Sequence

import torch
from torch import Tensor


class _Waiting(threading.local):
    def __init__(self):
        self.reels: list[weakref.ref[Reel]] = []
        self.promises: list[tuple[Tensor, type[Exception]]] = []


_waiting = _Waiting()


class Reel:
    """Whole numbers [n] of one device; ``values`` reads them, with all others of this thread that wait there."""

    def __init__(self, numbers: Tensor):
        self.numbers = numbers
        self._values: list[int] | None = None
        _waiting.reels.append(weakref.ref(self))

    @property
    def values(self) -> list[int]:
        if self._values is None:
            read(self.numbers.new_empty(0), self)
        return self._values  # type: ignore[return-value]


def read(more: Tensor, *also: Reel) -> list[float]:
    """The numbers of ``more`` [n], read from its device in one go with every number that waits there."""
    reels = [reel for ref in _waiting.reels if (reel := ref()) is not None and reel._values is None]
    mine = [reel for reel in {*reels, *also} if reel.numbers.device == more.device]
    promises = [promise for promise in _waiting.promises if promise[0].device == more.device]
    _waiting.promises = [promise for promise in _waiting.promises if promise[0].device != more.device]
    told = torch.cat([more.double(), *(broken.double() for broken, _ in promises), *(reel.numbers.double() for reel in mine)]).tolist()
    at = len(more)
    for _, error in promises:
        if told[at]:
            raise error
        at += 1
    for reel in mine:
        reel._values = [int(number) for number in told[at:at + len(reel.numbers)]]
        at += len(reel.numbers)
    _waiting.reels = [weakref.ref(reel) for reel in reels if reel._values is None]
    return told[:len(more)]


def unless(broken: Tensor, error: type[Exception]) -> None:
    """Raise the error if ``broken`` (bool, [1] or []) holds; on a device, when something is next read there."""
    if broken.device.type == "cpu":
        if bool(broken):
            raise error
    else:
        _waiting.promises.append((broken.reshape(1), error))


def forget() -> None:
    """A run begins: what another one left unread, since it was stopped in the middle of a round, is nobody's."""
    _waiting.promises = []


@total_ordering
class Later:
    """One number of a reel."""

    __slots__ = ("reel", "at")

    def __init__(self, reel: Reel, at: int):
        self.reel, self.at = reel, at

    def __index__(self) -> int:
        return self.reel.values[self.at]

    __int__ = __index__

    def __eq__(self, other: Any) -> bool:
        return self is other or int(self) == other

    def __lt__(self, other: Any) -> bool:
        return int(self) < other

    def __hash__(self) -> int:
        return hash(int(self))

    def __add__(self, other: int) -> int:
        return int(self) + other

    __radd__ = __add__

    def __repr__(self) -> str:
        return "Later()" if self.reel._values is None else repr(int(self))


def numbers(tensor: Tensor) -> Any:
    """``tensor.tolist()`` of whole numbers [...], not read before they are asked for where that would mean to wait."""
    if tensor.device.type == "cpu":
        return tensor.tolist()
    reel = Reel(tensor.flatten())
    flat: list[Any] = [Later(reel, at) for at in range(tensor.numel())]
    for size in reversed(tensor.shape[1:]):
        flat = [flat[at:at + size] for at in range(0, len(flat), size)]
    return flat if tensor.dim() else flat[0]


def plain(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """The same, every one a number of the host's."""
    return tuple(map(int, tokens)) if any(type(token) is Later for token in tokens) else tokens


def sent(here: Tensor, device: torch.device) -> Tensor:
    """A host's tensor on the device; the host goes on meanwhile."""
    return (here.pin_memory() if device.type == "cuda" else here).to(device, non_blocking=True)


def ids_on(device: torch.device, ids: Sequence[int]) -> Tensor:
    """Token ids [n] as a tensor of the device, without waiting for those that lie there."""
    late = [(place, token) for place, token in enumerate(ids) if type(token) is Later]
    found = sent(torch.tensor([0 if type(token) is Later else token for token in ids], dtype=torch.int64), device)
    if late:
        values = torch.cat([token.reel.numbers[token.at:token.at + 1] for _, token in late])
        found.index_copy_(0, sent(torch.tensor([place for place, _ in late]), device), values.to(torch.int64))
    return found


def rows_of(x: Tensor, rows: Sequence[int]) -> Tensor:
    """x[rows], rows given by the host, without waiting for the device."""
    return x.index_select(0, sent(torch.tensor(rows, dtype=torch.int64), x.device))
