"""Recipe of Hidden Transfer's matrices (2404.12022); the code is in in_target.py."""

from pathlib import Path

from . import in_target
from .job import Job


def run(job: Job) -> Path:
    """Train Hidden Transfer's matrices; return the folder of the weights."""
    return in_target.run(job, "hidden_transfer")
