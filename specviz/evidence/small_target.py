"""A small target beside the chosen one: twelve tokens, double precision, flat distributions.

On a trained model one token often has nearly all of the probability, and a mistake that changes the others
is seldom seen. Here every token is probable, and rounding errors are 1e-15."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..core import Method
from ..targets.tiny import TinyNet, TinyTarget

VOCAB = 12
CONTEXT = 96
LAYERS = 4  # deep enough that layers can be left out
SHARE = 0.4  # of the way from another net to the target's weights at which the draft model lies
SHARP = 1.2  # factor of the logits
ROLES = frozenset({"draft", "middle", "small"})


class SmallTarget:
    """A tiny target and draft model with random weights, in the form of zoo.Loaded. ``prompts``: token
    ids."""

    prompts = ([1, 2, 0, 3, 1, 2], [4, 4, 1])
    codec: Any = SimpleNamespace(prompts=(), capabilities=frozenset())
    context = CONTEXT
    end_tokens = frozenset({7})
    name = "the small target"
    vocab = VOCAB

    def __init__(self):
        self._net = TinyNet(VOCAB, 3, sharp=SHARP, layers=LAYERS)
        other = TinyNet(VOCAB, 10, sharp=SHARP, layers=LAYERS)
        self._draft = other.interpolate(self._net, SHARE)

    def open_target(self) -> TinyTarget:
        """Return a new target."""
        return TinyTarget(self._net, CONTEXT)

    def kit(self) -> Any:
        """Return what Method.build is given."""
        return SimpleNamespace(
            vocab=VOCAB,
            target=self.open_target(),
            predicted=(),
            piece=lambda token: b"." if token == 0 else b"x",
            open=lambda role, required=False: TinyTarget(self._draft, CONTEXT),
        )

    def unsupported_reason(self, method: Method) -> str | None:
        """Return why a method cannot run; None if it can."""
        return None if runs_on_small_target(method) else f"{method.title} needs trained parts."

    def knob_limits(self, method: Method) -> dict[str, Any]:
        """Return no further limits of a method's knobs."""
        return {}


def runs_on_small_target(method: Method) -> bool:
    """Return whether a method needs nothing but a target and draft models."""
    return method.needs <= TinyTarget.capabilities | ROLES
