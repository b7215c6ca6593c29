"""JetSpec's drafter: a block drafter whose positions attend to the text and to the positions before them
(2606.18394).

The layers are DFlash's; ``causal_head`` in the config sets the mask. The output at a position therefore
does not change when the block gets shorter, as in the target. Parameter names are those of the authors'
code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ....models import masked_block
from ....models.heads import TargetInfo


def build(target: TargetInfo, hparams: dict[str, Any]) -> masked_block.BlockDrafter:
    """Return an untrained block drafter for a target. hparams: those of a DFlash drafter."""
    return masked_block.build(target, hparams, causal_head=True)


def load(folder: Path, target: TargetInfo) -> masked_block.BlockDrafter:
    """Load the block drafter of a checkpoint folder. Raises ModelError."""
    return masked_block.load(folder, target)
