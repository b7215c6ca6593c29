"""Direct alignment with TVD++ (Goel et al. 2403.00858): pre-train a draft on text, then reward tokens to
which the target gives a higher probability than the draft does."""

from pathlib import Path

from ....training import draft
from ....training.job import Job

ABOUT = """{first}. Tokens were drawn from the draft along the target's
answers, and each that the target finds likelier than the draft does was rewarded, less the mean reward and over its deviation
(TVD++)."""


def run(job: Job) -> Path:
    """Train a draft model by TVD++; return the folder of its weights."""
    return draft.run(job, "tvdpp", ABOUT)
