"""Recipe of JetSpec's causal block drafter (2606.18394), from DFlash's weights; the code is in
masked_block.py."""

from pathlib import Path

from ....training import masked_block
from ....training.job import Job
from . import jetspec_network as network


def run(job: Job) -> Path:
    """Train JetSpec's causal block drafter; return the folder of its weights."""
    return masked_block.run(job, "jetspec", network.build, CARD)


CARD = """JetSpec's block drafter: DFlash's {layers} layers with causal attention inside the block. It reads the outputs of the target's
layers {after} (0 is the first) and drafts {length} tokens in one pass; the target checks them, so a wrong guess costs time and never
changes the text.

Its attention was trained from DFlash's; all other weights are DFlash's and lie there. Loss: forward KL at every position of a block,
multiplied by e^(-position / {loss_decay_length}); {anchors} blocks per row of text. The authors train five layers and about a hundred
times the text."""
