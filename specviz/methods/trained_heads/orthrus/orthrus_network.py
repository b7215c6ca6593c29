"""Orthrus' second attention path (2605.12825): its weights; see models/draft_path.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ....models import draft_path
from ....models.heads import TargetInfo


def build(target: TargetInfo, hparams: dict[str, Any]) -> draft_path.DraftPath:
    """Return an untrained second path for a target. hparams: rank, scale, block, mask_token."""
    return draft_path.build("orthrus", target, hparams)


def load(folder: Path, target: TargetInfo) -> draft_path.DraftPath:
    """Load the second path of a checkpoint folder. Raises ModelError."""
    return draft_path.load("orthrus", folder, target)
