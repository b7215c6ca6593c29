"""S2D (Kavehzadeh et al. 2407.01955): one draft with exits after half, three quarters and all of its
layers, trained together."""

from pathlib import Path

from ....training import draft
from ....training.job import Job

ABOUT = """It has exits after half, three quarters and all of its {layers} layers, with one norm and one output matrix. All three
were trained together (sorted fine-tuning), so one file is three draft models."""


def run(job: Job) -> Path:
    """Train a draft model with early exits by S2D; return the folder of its weights."""
    return draft.run(job, "s2d", ABOUT)
