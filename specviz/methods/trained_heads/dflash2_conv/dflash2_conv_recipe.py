"""Recipe of the convolutions of DFlash2's block drafter, over the target's DFlash and its DFlash2 selector,
both frozen.

The loss is the block's own (masked_block.py) plus that of the selector's scores, given the true token
before each position. The selector's scores are a low-rank bias on the logits, so they are computed like a
Markov head's.
"""

from pathlib import Path

import torch
from torch import Tensor

from ....training import masked_block
from ....training.features import Batch, Features
from ....training.job import Job
from ..dflash2 import dflash2_network as selectors
from . import dflash2_conv_network as network


def run(job: Job) -> Path:
    """Train the convolutions of DFlash2's block drafter; return the folder of the weights."""
    kept: list[selectors.CandidateSelector] = []

    def selected(
        _: network.DFlash2, features: Features, batch: Batch, states: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        if not kept:
            kept.append(
                selectors.load(job.model(job.model_name("dflash2")), features.target_info)
                .float()
                .candidate_selector
            )
        query = kept[0].predecessor_codebook[batch.ids.flatten()[batch.where[index]]] * kept[
            0
        ].hidden_projection(states)
        return torch.cat([states, query], -1), torch.cat(
            [features.head.float(), kept[0].successor_codebook], 1
        )

    return masked_block.run(job, "dflash2_conv", network.build, CARD, corrected=selected)


CARD = """DFlash2's convolutions in DFlash's {layers} layers: {conv_kernel_size} rows of a block are mixed before and after the attention
and the feed-forward, with weights for each group of {conv_group_size} channels that depend on the row. DFlash2's selector of this target
then chooses among the candidates of each place. The target checks what is drafted, so a wrong guess costs time and never changes the
text.

The convolutions alone were trained; the layers are DFlash's and lie there. Loss: distillation of the block's own predictions and of the
selector's, given the true token before, at every position, multiplied by e^(-position / {loss_decay_length}); {anchors} blocks per row
of text."""
