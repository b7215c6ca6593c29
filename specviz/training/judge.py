"""Recipe of a judge of drafted tokens (2501.19309); the code is in acceptance_heads.py."""

from pathlib import Path

from . import acceptance_heads
from .job import Job


def run(job: Job) -> Path:
    """Train the judge of drafted tokens; return the folder of its weights."""
    return acceptance_heads.run(job, "judge")
