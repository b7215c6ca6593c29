"""A drafter as a generator of forward passes: it yields each pass that it needs, so that a loop over a
batch can merge the passes of many requests."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from .tree import DraftTree


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """One forward pass that a drafter yields: ``model.score(tree, start)``, run alone or merged with others
    of the same weights."""

    model: Any  # a ScoringModel
    tree: DraftTree
    start: int = 0
    alone = False

    def run(self) -> Any:
        """Run the pass alone and return its Scores."""
        return self.model.score(self.tree, self.start)


@dataclass(frozen=True, eq=False)
class UnbatchedCall:
    """A faster way to draft for a single request: call ``run``. A batched loop sends None back, and the
    drafter then yields its forward passes one by one."""

    run: Callable[[], Any]
    alone = True


DraftSteps = Generator[ForwardPass | UnbatchedCall, Any, DraftTree]


def run_alone(steps: DraftSteps) -> DraftTree:
    """Run a drafter's forward passes for a single request, without batching, and return the draft tree."""
    found = None
    while True:
        try:
            asked = steps.send(found)
        except StopIteration as over:
            return over.value
        found = asked.run()
