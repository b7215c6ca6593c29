"""Recipe of a reward head for drafted steps (2501.19324); the code is in acceptance_heads.py."""

from pathlib import Path

from . import acceptance_heads
from .job import Job


def run(job: Job) -> Path:
    """Train the reward head of drafted steps; return the folder of its weights."""
    return acceptance_heads.run(job, "reward")
