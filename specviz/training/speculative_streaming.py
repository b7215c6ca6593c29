"""Recipe of Speculative Streaming's streams (2402.11131); the code is in in_target.py."""

from pathlib import Path

from . import in_target
from .job import Job


def run(job: Job) -> Path:
    """Train Speculative Streaming's streams; return the folder of the weights."""
    return in_target.run(job, "speculative_streaming")
