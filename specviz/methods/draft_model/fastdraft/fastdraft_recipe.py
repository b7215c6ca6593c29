"""FastDraft (Zafrir et al. 2411.11055): pre-train a draft on text, then align it on answers of the target,
within one budget."""

from pathlib import Path

from ....training import draft
from ....training.job import Job

ABOUT = """{first}, the rest into the target's own answers, token
by token (FastDraft); the target's distributions are not asked for."""


def run(job: Job) -> Path:
    """Train a draft model by FastDraft; return the folder of its weights."""
    return draft.run(job, "fastdraft", ABOUT)
