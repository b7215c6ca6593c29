"""Recipe of FSPAD's head (2408.15562); the code is in eagle_variants.py."""

from pathlib import Path

from . import eagle_variants as eagle_kin
from .job import Job


def run(job: Job) -> Path:
    """Train FSPAD's head; return the folder of its weights."""
    return eagle_kin.run(job, "fspad")
