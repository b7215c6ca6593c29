"""Recipe of PaSS's look-ahead embeddings (2311.13581); the code is in in_target.py."""

from pathlib import Path

from . import in_target
from .job import Job


def run(job: Job) -> Path:
    """Train PaSS's look-ahead embeddings; return the folder of the weights."""
    return in_target.run(job, "pass_sampling")
