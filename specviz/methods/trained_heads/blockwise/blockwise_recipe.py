"""Train the proposal heads of blockwise parallel decoding on the frozen target's last hidden states (Stern
et al. 1811.03115).

This is the paper's variant with a frozen base model and distillation, with the target's distribution as the
label. The paper trains one random head per step to save memory; here every step trains all heads.
"""

from __future__ import annotations

from pathlib import Path

from ....training import parallel_heads, ranks
from ....training.features import Batch, Features
from ....training.job import Job
from ....trees import full_tree
from . import blockwise_network as blockwise


def run(job: Job) -> Path:
    """Train the heads of blockwise parallel decoding; return the folder of their weights."""
    return parallel_heads.run(
        job,
        "blockwise",
        blockwise.build,
        head_states_function,
        lambda model, hparams: CARD.format(block=len(model) + 1, **hparams),
        chain=lambda model: full_tree((1,) * len(model)),
    )


def head_states_function(model: blockwise.Blockwise, features: Features) -> ranks.HeadStates:
    """Return a function (batch, head index) -> (kept, states): kept: indices into ``batch.where`` of the
    answer tokens that this head can predict, those with a token index + 1 positions earlier; states
    [len(kept), hidden]: the head's output there, before the output matrix (lm_head)."""

    def head_states(batch: Batch, index: int):
        kept, places = batch.back(index + 1)
        return kept, model.states(batch.states[places].float(), index)

    return head_states


CARD = """Proposal heads for blockwise parallel decoding: with the target's own token they give a block of {block}. The output
of one layer on the target's last state is split among the heads, which predict independently; the block is verified in one pass, so a
wrong token costs time and never changes the text. Rescored drafts, where a language model chooses a path through the heads' top
tokens, use the same heads.

Loss: distillation plus {hard_label_weight} times cross-entropy; head i's loss is multiplied by {loss_decay}^i."""
