"""Recipe of DISCO's classifier (2405.04304); the code is in draft_length.py."""

from pathlib import Path

from . import draft_length
from .job import Job


def run(job: Job) -> Path:
    """Train DISCO's classifier; return the folder of its weights."""
    return draft_length.run(job, "disco")
