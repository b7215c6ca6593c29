"""Recipe of Jakiro's head (2502.06282); the code is in eagle_variants.py."""

from pathlib import Path

from . import eagle_variants as eagle_kin
from .job import Job


def run(job: Job) -> Path:
    """Train Jakiro's head; return the folder of its weights."""
    return eagle_kin.run(job, "jakiro")
