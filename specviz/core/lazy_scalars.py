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
        self.transfers: list[weakref.ref[PendingTransfer]] = []
        self.promises: list[tuple[Tensor, type[Exception]]] = []


_waiting = _Waiting()


class PendingTransfer:
    """Whole numbers [n] of one device; ``values`` reads them, with all others of this thread that wait there."""

    def __init__(self, numbers: Tensor):
        self.numbers = numbers
        self._values: list[int] | None = None
        _waiting.transfers.append(weakref.ref(self))

    @property
    def values(self) -> list[int]:
        if self._values is None:
            read(self.numbers.new_empty(0), self)
        return self._values  # type: ignore[return-value]


def read(more: Tensor, *also: PendingTransfer) -> list[float]:
    """The numbers of ``more`` [n], read from its device in one go with every number that waits there."""
    transfers = [transfer for ref in _waiting.transfers if (transfer := ref()) is not None and transfer._values is None]
    mine = [transfer for transfer in {*transfers, *also} if transfer.numbers.device == more.device]
    promises = [promise for promise in _waiting.promises if promise[0].device == more.device]
    _waiting.promises = [promise for promise in _waiting.promises if promise[0].device != more.device]
    told = torch.cat([more.double(), *(broken.double() for broken, _ in promises), *(transfer.numbers.double() for transfer in mine)]).tolist()
    at = len(more)
    for _, error in promises:
        if told[at]:
            raise error
        at += 1
    for transfer in mine:
        transfer._values = [int(number) for number in told[at:at + len(transfer.numbers)]]
        at += len(transfer.numbers)
    _waiting.transfers = [weakref.ref(transfer) for transfer in transfers if transfer._values is None]
    return told[:len(more)]


def raise_if(broken: Tensor, error: type[Exception]) -> None:
    """Raise the error if ``broken`` (bool, [1] or []) holds; on a device, when something is next read there."""
    if broken.device.type == "cpu":
        if bool(broken):
            raise error
    else:
        _waiting.promises.append((broken.reshape(1), error))


def clear_pending() -> None:
    """A run begins: what another one left unread, since it was stopped in the middle of a round, is nobody's."""
    _waiting.promises = []


@total_ordering
class LazyScalar:
    """One number of a reel."""

    __slots__ = ("transfer", "at")

    def __init__(self, transfer: PendingTransfer, at: int):
        self.transfer, self.at = transfer, at

    def __index__(self) -> int:
        return self.transfer.values[self.at]

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
        return "Later()" if self.transfer._values is None else repr(int(self))


def numbers(tensor: Tensor) -> Any:
    """``tensor.tolist()`` of whole numbers [...], not read before they are asked for where that would mean to wait."""
    if tensor.device.type == "cpu":
        return tensor.tolist()
    transfer = PendingTransfer(tensor.flatten())
    flat: list[Any] = [LazyScalar(transfer, at) for at in range(tensor.numel())]
    for size in reversed(tensor.shape[1:]):
        flat = [flat[at:at + size] for at in range(0, len(flat), size)]
    return flat if tensor.dim() else flat[0]


def plain(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """The same, every one a number of the host's."""
    return tuple(map(int, tokens)) if any(type(token) is LazyScalar for token in tokens) else tokens


def to_device(here: Tensor, device: torch.device) -> Tensor:
    """A host's tensor on the device; the host goes on meanwhile."""
    return (here.pin_memory() if device.type == "cuda" else here).to(device, non_blocking=True)


def token_tensor(device: torch.device, ids: Sequence[int]) -> Tensor:
    """Token ids [n] as a tensor of the device, without waiting for those that lie there."""
    late = [(place, token) for place, token in enumerate(ids) if type(token) is LazyScalar]
    found = to_device(torch.tensor([0 if type(token) is LazyScalar else token for token in ids], dtype=torch.int64), device)
    if late:
        values = torch.cat([token.transfer.numbers[token.at:token.at + 1] for _, token in late])
        found.index_copy_(0, to_device(torch.tensor([place for place, _ in late]), device), values.to(torch.int64))
    return found


def select_rows(x: Tensor, rows: Sequence[int]) -> Tensor:
    """x[rows], rows given by the host, without waiting for the device."""
    return x.index_select(0, to_device(torch.tensor(rows, dtype=torch.int64), x.device))
