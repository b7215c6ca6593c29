"""Recipe of DFlare's block drafter (2606.02091), from DFlash's weights; the code is in masked_block.py.

All of DFlash's layers read one projection of the captured hidden states; each of DFlare's layers reads its
own mixture of them. So DFlare's first projections to keys and values are fitted: each draft layer starts
from the mixture that reproduces DFlash's keys and values best, by least squares on hidden states of the
target's answers."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ....models import masked_block as plain
from ....training import masked_block
from ....training.job import Job
from . import dflare_network as network

FAVOURED = 2.0  # first weight of a layer's favourite, as the authors begin; the others have 0
RIDGE = 1e-3  # of the mean square of a column


def run(job: Job) -> Path:
    """Train DFlare's block drafter; return the folder of its weights."""
    return masked_block.run(job, "dflare", network.build, CARD, partial(fit_to_dflash, job))


@torch.no_grad()
def fit_to_dflash(job: Job, model: network.DFlare, features: masked_block.AuxStateFeatures) -> None:
    """Initialise each layer's mixture and its projections of the text, so that they reproduce the keys and
    values of the target's DFlash."""
    drafter = (
        plain.load(job.model(job.model_name("dflash")), features.target_info).float().to(features.device)
    )
    rows, step = [torch.empty(0)], 0
    while sum(map(len, rows)) < features.hparams["fit_rows"]:
        rows.append(features.batch(step, 0.0).captured.float().cpu())
        step += 1
    states = torch.cat(rows[1:])[: features.hparams["fit_rows"]].to(features.device)
    text, read = drafter.hidden_norm(drafter.fc(states)), len(model.read_layers)
    layer: Any
    other: Any
    for i, (layer, other) in enumerate(zip(model.layers, drafter.layers)):
        wanted = torch.cat([part(text) for part in (other.self_attn.k_proj, other.self_attn.v_proj)], 1)
        found = []
        for favourite in range(read):
            model.layer_fusion_weights[i] = FAVOURED * F.one_hot(torch.tensor(favourite), read)
            mixed = model.text_rows(states)[i]
            weight = ridge_regression(mixed, wanted)
            found.append((float((mixed @ weight - wanted).square().mean()), favourite, weight.T))
        _, favourite, weight = min(found, key=lambda one: one[0])
        model.layer_fusion_weights[i] = FAVOURED * F.one_hot(torch.tensor(favourite), read)
        for part, rows_of in zip(
            (layer.self_attn.k_proj_target, layer.self_attn.v_proj_target), weight.chunk(2)
        ):
            part.weight.copy_(rows_of)


def ridge_regression(x: Tensor, y: Tensor) -> Tensor:
    """Return the matrix [a, b] with the least squares |x matrix - y|^2, with a small penalty on its size. x
    [n, a], y [n, b]."""
    gram = x.T @ x
    gram.diagonal().add_(RIDGE * gram.diagonal().mean())
    return torch.linalg.solve(gram, x.T @ y)


CARD = """DFlare's block drafter: DFlash's {layers} layers, each of which reads its own mixture of the outputs of the target's layers
{after} (0 is the first). It drafts {length} tokens in one pass; the target checks them, so a wrong guess costs time and never changes
the text.

Attention and mixtures were trained from DFlash's; all other weights are DFlash's and lie there. The first mixtures and projections are
those that reproduce DFlash's keys and values best. Loss: distillation at every position of a block, multiplied by
e^(-position / {loss_decay_length}), plus {hard_label_weight} times cross-entropy on the generated tokens; {anchors} blocks per row of
text. The authors let the weight of far positions grow during training, and train more layers on about a hundred times the text."""
