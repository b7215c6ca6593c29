"""A reward head for drafted steps (2501.19324): see softer.py."""
from pathlib import Path

from . import softer
from .job import Job


def run(job: Job) -> Path:
    return softer.run(job, "reward")
