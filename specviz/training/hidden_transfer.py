"""Hidden Transfer's matrices: see in_target.py."""
from pathlib import Path

from . import in_target
from .job import Job


def run(job: Job) -> Path:
    return in_target.run(job, "hidden_transfer")
