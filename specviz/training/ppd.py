"""Recipe of PPD's prompt tokens (2405.18628); the code is in in_target.py."""

from pathlib import Path

from . import in_target
from .job import Job


def run(job: Job) -> Path:
    """Train PPD's prompt tokens; return the folder of the weights."""
    return in_target.run(job, "ppd")
