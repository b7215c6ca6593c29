"""Direct alignment with TVD++ (Goel et al. 2403.00858): pre-train on text, then reward tokens that are more probable under the
target."""
from pathlib import Path

from . import draft
from .job import Job

ABOUT = """The first {pretrain} of the budget went into plain text. Then tokens were drawn from the draft along the target's
answers, and each that the target finds likelier than the draft does was rewarded, less the mean reward and over its deviation
(TVD++)."""


def run(job: Job) -> Path:
    return draft.run(job, "tvdpp", ABOUT)
