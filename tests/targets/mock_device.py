"""A device that is not there: its tensors lie in the processor's memory but call themselves another
device's, so that every read, every upload that waits and every mixture of the two is seen, as on a graphics
card, without one."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import cache

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _DummyBackendModule
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as set_up


class NoDice(_DummyBackendModule):
    """The device has no random numbers of its own, so whoever keeps those of every device keeps none of
    it."""

    def get_rng_state(self, device=None):
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, state, device=None):
        pass


CARD, HOST = torch.device("privateuseone"), torch.device("cpu")  # called "card" from its first use on
SHAPED = (
    "nonzero",
    "masked_select",
    "unique",
    "equal",
    "is_nonzero",
)  # what follows from values is read by the host


class Far(torch.Tensor):
    """A tensor of the device; ``near``: where its numbers lie."""

    near: torch.Tensor
    watch: Card

    @staticmethod
    def __new__(cls, near, watch):
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            near.shape,
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=CARD,
        )
        self.near, self.watch = near, watch
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} on the device outside Card()")

    def tolist(self):  # torch has none for classes like this one
        self.watch.waits["read"] += 1
        return self.near.tolist()


@cache
def _register() -> None:
    """Only when a test needs it: a process that has registered it cannot use a real card any more (torch
    knows one accelerator), so where there is one, conftest.py puts these tests last."""
    set_up("card", NoDice())


def _without_gradients(mode=True):
    return torch.no_grad() if mode else nullcontext()


class Card(TorchDispatchMode):
    """While it is entered the device "card" can be computed on. waits: how often the host waited for it, by
    why: "read" (values asked for), "upload" (values sent without being asked to go on meanwhile), "shape"
    (a shape that follows from values)."""

    def __init__(self):
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __enter__(self):
        _register()
        torch._C._set_only_lift_cpu_tensors(
            True
        )  # torch.tensor(..., device="card") then passes through here, too
        self._inference, torch.inference_mode = (
            torch.inference_mode,
            _without_gradients,
        )  # views of wrapped tensors break in it
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        torch.inference_mode = self._inference
        torch._C._set_only_lift_cpu_tensors(False)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        mine = {}
        far = []
        plain = []
        asked = []

        def near(x):
            if isinstance(x, Far):
                mine[id(x.near)] = x
                far.append(x)
                return x.near
            if isinstance(x, torch.device):
                asked.append(x)
                return HOST
            if isinstance(x, torch.Tensor):
                plain.append(x)
            return x

        there = tree_map(near, (args, dict(kwargs or {})))
        goes = asked[0].type == CARD.type if asked else bool(far)
        self._count(name, args, kwargs or {}, far, plain, goes, bool(asked))
        if asked and bool(far) != goes and name in ("to", "_to_copy"):
            out = (
                there[0][0] if far or plain else there[0]
            ).clone()  # another device's memory is not this one's
            others = {key: value for key, value in there[1].items() if key == "dtype" and value is not None}
            out = out.to(**others) if others else out
        else:
            out = func(*there[0], **there[1])
        return tree_map(
            lambda x: (
                mine.get(id(x))
                if id(x) in mine
                else Far(x, self)
                if goes and isinstance(x, torch.Tensor)
                else x
            ),
            out,
        )

    def _count(self, name, args, kwargs, far, plain, goes, asked) -> None:
        wide = [x for x in plain if x.dim()]
        if name == "_local_scalar_dense" and far:
            self.waits["read"] += 1
        elif name in ("to", "_to_copy") and asked and bool(far) != goes:
            self._copied(
                kwargs.get("non_blocking") or name == "to" and any(x is True for x in args[2:4]), goes
            )
        elif name == "copy_" and far and plain:
            self._copied(kwargs.get("non_blocking") or len(args) > 2 and args[2], isinstance(args[0], Far))
        elif name in ("index", "index_put", "index_put_") and far:
            self.waits["upload"] += bool(wide)  # places given by the host
            self.waits["shape"] += any(isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in args[1])
        elif far and any(word in name for word in SHAPED):
            self.waits["shape"] += 1
        else:
            assert not (far and wide), f"{name} of tensors of two devices"

    def _copied(self, goes_on, up) -> None:
        if not goes_on:
            self.waits["upload" if up else "read"] += 1
