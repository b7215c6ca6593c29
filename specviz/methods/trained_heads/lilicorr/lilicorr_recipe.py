"""Train LiLiCorr's lattice transformer over the target's frozen DFlash (2608.20530): see
block_corrections.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....training import block_corrections
from ....training.block_corrections import Blocks, Corrected
from ....training.job import Job
from . import lilicorr_network as network


def run(job: Job) -> Path:
    """Train LiLiCorr's lattice transformer; return the folder of its weights."""
    return block_corrections.run(job, "lilicorr", network.build, scores, CARD, scaled=scaled)


@contextmanager
def scaled(model: network.LiLiCorr, features: Corrected) -> Iterator[None]:
    """Train on embeddings that are as long as the block's states, and move the scale into the weights at
    the end. A target's embeddings may be much shorter, and then candidates would differ by their rank
    alone."""
    if isinstance(model.token_proj, nn.Linear):
        model.embed_scale = float(
            features.drafter.norm.weight.square().mean().sqrt() / features.embedding.float().std()
        )
    yield
    model.fold_scale()


def scores(model: network.LiLiCorr, features: Corrected, blocks: Blocks) -> Tensor:
    """Return the network's scores of the block drafter's candidates, [n, positions, m], given the true
    token before each position. After a token that is no candidate, they are the block drafter's own
    logits."""
    start, pairs = model(
        F.embedding(blocks.ids, features.embedding).float(), blocks.log_probs, blocks.states, blocks.text
    )
    own = blocks.log_probs if model.add_base else torch.zeros_like(blocks.log_probs)
    same = blocks.ids[:, :-1] == blocks.before[:, 1:, None]
    at = same.int().argmax(-1)[..., None, None].expand(-1, -1, 1, blocks.ids.shape[-1])
    later = torch.where(
        same.any(-1, keepdim=True), own[:, 1:] + pairs.gather(2, at)[:, :, 0], blocks.log_probs[:, 1:]
    )
    return torch.cat([own[:, :1] + start[:, None], later], 1)


CARD = """A LiLiCorr head: {lilicorr_num_layers} layers of {lilicorr_hidden_size} numbers over the {candidates} top tokens of each
place of DFlash's block score every transition between neighbouring places. The target checks what is drafted, so a wrong guess costs time
and never changes the text.

DFlash is frozen. Distillation of the target's probabilities on the candidates after the true token before, weight
e^(-place / {loss_decay_length}), {anchors} blocks a row of text. Embeddings were scaled to the length of the states in training."""
