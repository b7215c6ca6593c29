"""Recipe of SpecDec++'s acceptance head (2405.19715); the code is in draft_length.py."""

from pathlib import Path

from . import draft_length
from .job import Job


def run(job: Job) -> Path:
    """Train SpecDec++'s acceptance head; return the folder of its weights."""
    return draft_length.run(job, "specdecpp")
