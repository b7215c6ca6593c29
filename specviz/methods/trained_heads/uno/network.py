"""Uno's diffusion LoRA (2609.04010): see models/draft_path.py."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from ....models import draft_path
from ....models.heads import TargetInfo


def build(body: TargetInfo, hparams: dict[str, Any]) -> draft_path.DraftPath:
    """Return an untrained path. hparams: rank, scale, block."""
    return draft_path.build("uno", body, hparams)


def load(folder: Path, body: TargetInfo) -> draft_path.DraftPath:
    """Load the path of a folder, in this project's layout or a LoRA adapter's. Raises ModelError."""
    return draft_path.load("uno", folder, body)
