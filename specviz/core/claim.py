"""A claim of a paper that can be tried here: its main effect relative to its own baseline, in a quantity
that does not need the paper's hardware."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# quantity -> (its name for readers, whether more of it is better); it is compared by its ratio to the baseline's
QUANTITIES = {
    "accepted_length": ("tokens per target pass", True),
    "equal_drafts": ("tokens per target pass, both rules on the same drafts", True),
    "kept_share": ("share of the draft tokens that are kept", True),
    "discarded": ("discarded draft tokens per generated token", False),
    "layers_read": ("times that the target's layers are read per generated token", False),
    "draft_passes": ("sequential passes of the drafter per generated token", False),
    "modelled_time": ("modelled time of a token, in target passes", False),
    "batch_rows": ("tokens of the batch's passes per generated token of the batch", False),
    "padded_rows": ("tokens of the batch's passes per generated token, beside padding", False),
    "cache_read": ("cached tokens read per generated token, in 16-bit keys and values", False),
    "chip_time": ("modelled time of a token on a chip, in ms", False),
    "parameters_read": ("million parameters read per generated patch", False),
    "expert_bytes": ("bytes of experts read per row of the passes", False),
    "draft_layers": ("layers of the draft model run per drafted token", False),
    "inner_passes": ("passes of the middle model per token that it drafts", False),
    "asked_share": ("share of the tokens for which the second model is asked", False),
    "texts": ("tokens of all continuations per target pass", True),
}
# Quantities that may be 0 are compared by their difference.
BY_DIFFERENCE = frozenset({"kept_share", "discarded", "asked_share", "draft_passes"})


@dataclass(frozen=True)
class Claim:
    """One claim on a method's card. text: the claim, a sentence; baseline: key of the method that it is
    compared with; quantity: one of QUANTITIES; figure, place: the paper's figure ("" if no source that was
    read gives one), and where it stands.

    The condition: knobs and baseline_knobs; temperature; tasks: of the shipped prompts, all if empty;
    requests: prompts in one batch; repeated: the request was answered before; given: "prompt" (the prompt is
    the predicted output) or "schema" (the answer has a JSON schema); tokens: generated at most; target: name
    of the only target that the claim can be tried on, "" for any; step: modelled cost of a draft step, in
    target passes; factor: the method is compared with this multiple of the baseline's value; why: what the
    verdict is due to, for readers."""

    text: str
    baseline: str
    quantity: str
    figure: str = ""
    place: str = ""
    knobs: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    baseline_knobs: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    temperature: float = 0.0
    tasks: tuple[str, ...] = ()
    requests: int = 1
    repeated: bool = False
    given: str = ""
    tokens: int = 64
    target: str = ""
    step: float = 0.1
    factor: float = 1.0
    why: str = ""

    def __post_init__(self):
        assert self.quantity in QUANTITIES, self.quantity
        assert self.given in ("", "prompt", "schema"), self.given
