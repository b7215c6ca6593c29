"""Falcon's head (2412.12639): see eagle_kin.py."""
from pathlib import Path

from . import eagle_variants as eagle_kin
from .job import Job


def run(job: Job) -> Path:
    return eagle_kin.run(job, "falcon")
