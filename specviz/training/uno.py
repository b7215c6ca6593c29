"""Recipe of Uno's diffusion LoRA (2609.04010); the code is in draft_path.py."""

from pathlib import Path

from . import draft_path
from .job import Job


def run(job: Job) -> Path:
    """Train Uno's diffusion LoRA; return the folder of its weights."""
    return draft_path.run(job, "uno")
