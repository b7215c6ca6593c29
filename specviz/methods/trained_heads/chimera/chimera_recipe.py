"""Train Chimera's trigram encoder and heads on the frozen target's hidden states along its own answers
(Zeng et al. 2402.15758).

Trigrams are made of the true tokens after a position, as on an accepted path; the hidden states of these
tokens are replaced by the encoder's outputs. The authors use the heads' own top-1 tokens instead, and also
regress the first output to the target's next hidden state; here the only loss is distillation from the
target's distribution.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ....training import parallel_heads, ranks
from ....training.features import Batch, Features
from ....training.job import Job
from . import chimera_network as chimera


def run(job: Job) -> Path:
    """Train Chimera's trigram encoder and heads; return the folder of their weights."""
    return parallel_heads.run(
        job,
        "chimera",
        chimera.build,
        lambda model, features: BatchHeadStates(model, features).head_states,
        lambda model, hparams: CARD.format(**hparams),
        run_attention=text_states,
        most=1.4e7,
    )  # three states wide before they are one


def text_states(model: chimera.Chimera, head_states: ranks.HeadStates, batch: Batch) -> None:
    """Run the decoder layer over the text alone, without trigrams of later tokens; called to measure the
    entropy of its attention."""
    model(batch.states.float().view(*batch.ids.shape, -1), [])


class BatchHeadStates:
    """Compute the heads' hidden states at the positions of a training batch. The states of all heads are
    computed once per batch."""

    def __init__(self, model: chimera.Chimera, features: Features):
        self.model, self.features = model, features
        self._of: Batch | None = None
        self._outputs: list[Tensor] = []

    def head_states(self, batch: Batch, index: int):
        """Return (kept, states [m, hidden]) of head ``index``: indices into ``batch.where``, and the head's
        hidden states at them."""
        if self._of is not batch:
            self._of, self._outputs = (
                batch,
                self.model(batch.states.float().view(*batch.ids.shape, -1), self._codes(batch.ids)),
            )
        kept, places = batch.back(index + 1)
        return kept, self.model.joined(
            index, batch.states[places].float(), self._outputs[index].flatten(0, 1)[places]
        )

    def _codes(self, ids: Tensor) -> list[Tensor]:
        """Return for each step the code of the trigram that ends ``step`` tokens after a position's next
        one; past the end of a row the last token repeats, without a loss there."""
        n, device = ids.shape[1], ids.device
        ends = torch.arange(1, n + len(self.model), device=device)[:, None] + torch.arange(
            -2, 1, device=device
        )
        ends[0] = torch.tensor([0, 1, 1], device=device)  # of a text of two tokens
        embeds = F.embedding(
            ids[:, ends.clamp(max=n - 1)], self.features.embedding
        ).float()  # [rows, ends, 3, hidden]
        codes = self.model.trigrams(embeds)
        return [codes[:, step : step + n] for step in range(len(self.model))]


CARD = """Chimera: {heads} heads after a trigram encoder and one decoder layer over the whole text's states; embedding
and output matrix are the target's. Each head reads the last three tokens through the encoder and the rest through the layer. A tree is
drafted level by level and verified in one pass, so a wrong token costs time and never changes the text. The accuracy of each rank of
each head is in config.json.

Loss: distillation plus {hard_label_weight} times cross-entropy; head i's loss is multiplied by {loss_decay}^i."""
