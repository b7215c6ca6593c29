"""DSpark's block drafter, with Markov and confidence heads: see block.py."""
from pathlib import Path

from . import block
from .job import Job


def run(job: Job) -> Path:
    return block.run(job, "dspark")
