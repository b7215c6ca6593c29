"""Lazy device scalars: integers that stay on a device until the host reads one. Reading synchronises host
and device.

A drafter that takes the argmax of each step does not need its value on the host: the next step reads it on
the device. A ``LazyScalar`` stands among plain token ids in its place, and becomes an int when it is
compared, hashed or used as a number. One read copies all pending scalars of the thread at once, so that a
round synchronises once. On a CPU everything is a plain int.

docs/lazy_scalars.md explains what must stay lazy and why.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import total_ordering
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor


class _Pending(threading.local):
    def __init__(self):
        self.transfers: list[weakref.ref[PendingTransfer]] = []
        self.checks: list[tuple[Tensor, type[Exception]]] = []


_pending = _Pending()


class _HasList(Protocol):
    def tolist(self) -> Any: ...


def to_list(values: _HasList) -> Any:
    """Return the values as a list: ``values.tolist()`` of a tensor or an array. torch's own annotation is a
    bare list."""
    return values.tolist()


class PendingTransfer:
    """Integers [n] on a device that the host may read later. Reading ``values`` copies them to the host, in
    one transfer with all other pending ones of this thread and device."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor
        self.host_values: list[int] | None = None  # None: not read yet
        _pending.transfers.append(weakref.ref(self))

    @property
    def values(self) -> list[int]:
        """The integers on the host. The first use synchronises with the device."""
        if self.host_values is None:
            read(self.tensor.new_empty(0), self)
        assert self.host_values is not None  # read() filled it
        return self.host_values


def read(more: Tensor, *also: PendingTransfer) -> list[float]:
    """Return ``more`` [n] as a list of numbers, copied to the host in one transfer with all pending
    integers of its device, those of ``also`` included.

    Raises the error of a deferred check (see ``raise_if``) whose condition is true.
    """
    transfers = [
        transfer
        for ref in _pending.transfers
        if (transfer := ref()) is not None and transfer.host_values is None
    ]
    mine = [transfer for transfer in {*transfers, *also} if transfer.tensor.device == more.device]
    checks = [check for check in _pending.checks if check[0].device == more.device]
    _pending.checks = [check for check in _pending.checks if check[0].device != more.device]
    parts = [more, *(broken for broken, _ in checks), *(transfer.tensor for transfer in mine)]
    values: list[float] = to_list(torch.cat([part.double() for part in parts]))
    at = len(more)
    for _, error in checks:
        if values[at]:
            raise error
        at += 1
    for transfer in mine:
        transfer.host_values = [int(number) for number in values[at : at + len(transfer.tensor)]]
        at += len(transfer.tensor)
    _pending.transfers = [weakref.ref(transfer) for transfer in transfers if transfer.host_values is None]
    return values[: len(more)]


def raise_if(broken: Tensor, error: type[Exception]) -> None:
    """Raise ``error`` if ``broken`` (bool, [1] or []) is true. For a tensor on a device the check is
    deferred to the next ``read`` from that device, so that it costs no synchronisation."""
    if broken.device.type == "cpu":
        if bool(broken):
            raise error
    else:
        _pending.checks.append((broken.reshape(1), error))


def clear_pending() -> None:
    """Discard the checks that ``raise_if`` deferred. Called at the start of a run, because a run that was
    stopped inside a round leaves its unread checks behind."""
    _pending.checks = []


@total_ordering
class LazyScalar:
    """An integer on a device that is copied to the host when it is first used as a number."""

    __slots__ = ("transfer", "index")

    def __init__(self, transfer: PendingTransfer, index: int):
        self.transfer, self.index = transfer, index

    def __index__(self) -> int:
        return self.transfer.values[self.index]

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
        return "LazyScalar()" if self.transfer.host_values is None else repr(int(self))


def is_lazy(token: object) -> TypeGuard[LazyScalar]:
    """Return whether a token is a LazyScalar and not a plain int. Both are annotated as int."""
    return type(token) is LazyScalar


def is_on_device(tensor: Tensor) -> bool:
    """Return whether the tensor is not on the CPU, so that reading a value of it synchronises with a
    device."""
    return tensor.device.type != "cpu"


def lazy_ints(tensor: Tensor) -> Any:
    """Return integers as nested lists, as ``tensor.tolist()`` does: plain ints for a CPU tensor, lazy
    scalars for a device tensor."""
    if tensor.device.type == "cpu":
        return to_list(tensor)
    transfer = PendingTransfer(tensor.flatten())
    flat: list[Any] = [LazyScalar(transfer, at) for at in range(tensor.numel())]
    for size in reversed(tensor.shape[1:]):
        flat = [flat[at : at + size] for at in range(0, len(flat), size)]
    return flat if tensor.dim() else flat[0]


def plain(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tokens with lazy scalars replaced by ints."""
    return tuple(map(int, tokens)) if any(is_lazy(token) for token in tokens) else tokens


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to the device without blocking the host."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def token_tensor(device: torch.device, ids: Sequence[int | LazyScalar]) -> Tensor:
    """Return token ids as an int64 tensor [n] on the device. Lazy scalars are copied on the device, without
    synchronising."""
    lazy = [(place, token) for place, token in enumerate(ids) if is_lazy(token)]
    found = to_device(
        torch.tensor([0 if is_lazy(token) else token for token in ids], dtype=torch.int64), device
    )
    if lazy:
        values = torch.cat([token.transfer.tensor[token.index : token.index + 1] for _, token in lazy])
        found.index_copy_(
            0, to_device(torch.tensor([place for place, _ in lazy]), device), values.to(torch.int64)
        )
    return found


def select_rows(x: Tensor, rows: Sequence[int]) -> Tensor:
    """Return x[rows], for row indices that are on the host, without synchronising with the device of x."""
    return x.index_select(0, to_device(torch.tensor(rows, dtype=torch.int64), x.device))
