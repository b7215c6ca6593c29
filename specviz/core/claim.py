"""A claim of a paper that can be tried here: its main effect relative to its own baseline, in a quantity
that does not need the paper's hardware."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# quantity -> (its name for readers, whether more of it is better)
QUANTITIES = {
    "accepted_length": ("tokens per target pass", True),
    "kept_share": ("share of the draft tokens that are kept", True),
    "discarded": ("discarded draft tokens per generated token", False),
    "layers_read": ("times that the target's layers are read per generated token", False),
}


@dataclass(frozen=True)
class Claim:
    """One claim on a method's card. text: the claim, a sentence; baseline: key of the method that it is
    compared with; quantity: one of QUANTITIES; figure, place: the paper's figure, and where it stands.

    The condition: knobs and baseline_knobs; temperature; tasks: of the shipped prompts, all if empty;
    requests: prompts in one batch; repeated: the request was answered before; tokens: generated at most."""

    text: str
    baseline: str
    quantity: str
    figure: str
    place: str
    knobs: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    baseline_knobs: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    temperature: float = 0.0
    tasks: tuple[str, ...] = ()
    requests: int = 1
    repeated: bool = False
    tokens: int = 64

    def __post_init__(self):
        assert self.quantity in QUANTITIES, self.quantity
