"""Recipe of Orthrus' second attention path (2605.12825); the code is in draft_path.py."""

from pathlib import Path

from . import draft_path
from .job import Job


def run(job: Job) -> Path:
    """Train Orthrus' second attention path; return the folder of its weights."""
    return draft_path.run(job, "orthrus")
