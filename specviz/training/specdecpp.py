"""Recipe of SpecDec++'s acceptance head (2405.19715); the code is in draft_length.py."""
from pathlib import Path

from . import draft_length
from .job import Job


def run(job: Job) -> Path:
    return draft_length.run(job, "specdecpp")
