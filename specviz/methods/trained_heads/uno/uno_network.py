"""Uno's diffusion LoRA (2609.04010): its weights; see models/draft_path.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ....models import draft_path
from ....models.heads import TargetInfo


def build(target: TargetInfo, hparams: dict[str, Any]) -> draft_path.DraftPath:
    """Return an untrained LoRA for a target. hparams: rank, scale, block."""
    return draft_path.build("uno", target, hparams)


def load(folder: Path, target: TargetInfo) -> draft_path.DraftPath:
    """Load the LoRA of a checkpoint folder, in this project's layout or a LoRA adapter's. Raises
    ModelError."""
    return draft_path.load("uno", folder, target)
