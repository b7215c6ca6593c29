"""DistillSpec (Zhou et al. 2310.08461): the recipe `draft` with another divergence, and on-policy steps on
text that the draft generates itself."""

from pathlib import Path

from ....training import draft
from ....training.job import Job

ABOUT = """Of the text it learns on, a share of {on_policy} is its own, and the target's distribution along it is what it is held
against, by the divergence {divergence} (DistillSpec). {first}."""


def run(job: Job) -> Path:
    """Train a draft model by DistillSpec; return the folder of its weights."""
    return draft.run(job, "distillspec", ABOUT)
