"""Recipe of a target's own answers, which its drafters are trained on: text, or pictures for a target that
paints patches."""

from pathlib import Path

from ..zoo.codec import codec_capabilities
from . import picture_answers, text_answers
from .job import Job


def run(job: Job) -> Path:
    """Generate the target's answers for training and for measurements; return their folder."""
    paints = "output:patches" in codec_capabilities(job.model(job.target))
    return (picture_answers if paints else text_answers).run(job, job.hparams("generate"))
