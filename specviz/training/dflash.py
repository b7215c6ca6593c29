"""DFlash's block drafter (2602.06036): see block.py."""
from pathlib import Path

from . import block
from .job import Job


def run(job: Job) -> Path:
    return block.run(job, "dflash")
