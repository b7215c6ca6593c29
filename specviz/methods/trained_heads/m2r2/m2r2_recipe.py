"""Train M2R2's adapters on hidden states, keys and values of the target's first layers along its own answers
(Bhendawade et al. 2502.02040).

At the exit, the sum of the slow and the fast residual predicts the next token. Only the adapters are trained.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache

from ....models.pretrained import with_cache
from ....training import early_exit
from ....training.features import Batch, Features, batch_of, only_layers
from ....training.job import Job
from . import m2r2_network as m2r2


class ExitLayerFeatures(Features):
    """Batches whose ``layer`` holds the hidden states that enter the exit layer, followed by keys and
    values of each layer before it, concatenated: [rows * width, hidden + exit * 2 * kv_heads *
    head_dim]."""

    @torch.no_grad()
    def states(self, material) -> Batch:
        """Run the target over the output of ``draft.collate``; return it as a Batch with these states, keys
        and values."""
        assert self.layer is not None  # the exit
        cache = DynamicCache()
        with only_layers(self.target, 0, self.layer + 1):  # nothing reads the states above
            out = self.target.model(
                material[0], use_cache=True, output_hidden_states=True, **with_cache(self.target.model, cache)
            )
        held: list[Any] = cache.layers[: self.layer]
        kv = [part.transpose(1, 2).flatten(2) for one in held for part in (one.keys, one.values)]
        rows = torch.cat([out.hidden_states[self.layer], *kv], -1)
        return batch_of(material, out.last_hidden_state.flatten(0, 1), rows.flatten(0, 1))


def run(job: Job) -> Path:
    """Train M2R2's adapters; return the folder of their weights."""
    return early_exit.run(job, "m2r2", ExitLayerFeatures, m2r2.build, predict, CARD)


def predict(model: m2r2.FastResidual, features: ExitLayerFeatures, batch: Batch) -> Tensor:
    """Return the hidden states at the exit [rows * width, hidden]; the target's output matrix turns them
    into logits."""
    rows, width = batch.ids.shape
    slow, kv = batch.captured.float().split(
        [features.target_info.hidden, batch.captured.shape[-1] - features.target_info.hidden], -1
    )
    parts = kv.view(rows, width, model.exit, 2, *model.keys).permute(2, 3, 0, 4, 1, 5)
    fast = model(F.embedding(batch.ids, features.embedding).float(), [tuple(pair) for pair in parts])
    return features.target.model.norm(slow + fast.flatten(0, 1))


chain_states_function = partial(early_exit.chain_states_function, predict)


CARD = """M2R2's adapters: beside each of the target's first {exit_layer} layers one of rank {rank} moves a fast residual, with
queries over the layer's own keys and values and a small feed-forward. At the exit it is added to the target's own state, and the
target's last norm and output matrix draft from there; the check goes on from the first layers' work, so a wrong guess costs time
and never changes the text.

Loss: distillation plus {hard_label_weight} times cross-entropy on the generated tokens; only the adapters are trained. The paper's
formulas were not available: the form of the adapters and the combination of both residuals are this project's."""
