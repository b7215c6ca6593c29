"""Recipe of DSpark's block drafter with Markov and confidence heads; the code is in masked_block.py."""

from pathlib import Path

from . import masked_block
from .job import Job


def run(job: Job) -> Path:
    """Train DSpark's block drafter; return the folder of its weights."""
    return masked_block.run(job, "dspark")
