"""What a drafter asks for while it drafts: passes of its own model, which may be run together with those of others."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Generator

from .tree import DraftTree


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """A pass that a drafter asks for: ``model.score(tree, start)``, by itself or together with others of the same weights."""

    model: Any  # a Target, or what a drafter asks like one
    tree: DraftTree
    start: int = 0
    alone = False

    def run(self) -> Any:
        return self.model.score(self.tree, self.start)


@dataclass(frozen=True, eq=False)
class UnbatchedCall:
    """What a drafter does quicker by itself, ``run``; who runs the passes of many requests together sends None instead, and the drafter
    asks for passes."""

    run: Callable[[], Any]
    alone = True


DraftSteps = Generator[ForwardPass | UnbatchedCall, Any, DraftTree]


def run_alone(steps: DraftSteps) -> DraftTree:
    """What the steps of a proposal come to when each pass is run as it is asked for."""
    found = None
    while True:
        try:
            asked = steps.send(found)
        except StopIteration as over:
            return over.value
        found = asked.run()
