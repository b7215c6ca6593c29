"""Recipe of DFlash's block drafter (2602.06036); the code is in masked_block.py."""

from pathlib import Path

from . import masked_block
from .job import Job


def run(job: Job) -> Path:
    """Train DFlash's block drafter; return the folder of its weights."""
    return masked_block.run(job, "dflash")
