"""Draft a chain and note what the round would cost on a modelled chip (core/chip_model.py)."""

from __future__ import annotations

from ...core import DraftingModel, Outcome, State
from ...core.chip_model import Chip, Model, round_cost
from .chain import DraftChain


class ChainOnChip(DraftChain):
    """Drafter of a chain with a draft model that notes the modelled seconds and joules of each round on a
    chip (core/chip_model.py). The output does not depend on the chip. sizes: sizes of target and draft
    model."""

    def __init__(self, model: DraftingModel, chip: Chip, sizes: tuple[Model, Model]):
        super().__init__(model)
        self.chip, self.target_size, self.draft_size = chip, *sizes

    def observe(self, state: State, outcome: Outcome) -> None:
        length = len(outcome.tree)
        ours, host, plain = (
            round_cost(chip, self.target_size, self.draft_size, n)
            for chip, n in ((self.chip, length), (self.chip.host_variant, length), (self.chip, 0))
        )
        state.note(
            "chip",
            on_chip=self.chip.on_chip,
            tokens=len(outcome.committed),
            drafted=length,
            draft=ours.draft,
            verify=ours.verify,
            sync=ours.sync,
            host=host.seconds,
            plain=plain.seconds,
            joules=ours.joules,
            plain_joules=plain.joules,
        )
