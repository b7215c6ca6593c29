"""Orthrus' second attention path (2605.12825): see models/draft_path.py."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from ....models import draft_path
from ....models.heads import TargetInfo


def build(body: TargetInfo, hparams: dict[str, Any]) -> draft_path.DraftPath:
    """Return an untrained path. hparams: rank, scale, block, mask_token."""
    return draft_path.build("orthrus", body, hparams)


def load(folder: Path, body: TargetInfo) -> draft_path.DraftPath:
    """Load the path of a folder. Raises ModelError."""
    return draft_path.load("orthrus", folder, body)
