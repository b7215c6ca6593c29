"""A judge of drafted tokens (2501.19309): see softer.py."""
from pathlib import Path

from . import softer
from .job import Job


def run(job: Job) -> Path:
    return softer.run(job, "judge")
