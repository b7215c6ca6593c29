"""Train EAGLE-3's head on the target's hidden states along its own answers (Li et al. 2503.01840).

The only loss is the divergence of the predicted next-token distribution, on true states and on a few steps
of the head's own states (the paper's training-time test). The target's distribution is restricted to its
stored top tokens that are in the draft vocabulary, and renormalised; positions whose top-1 token is outside
are skipped. The draft vocabulary consists of the most frequent tokens of the answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ....models import eagle3
from ....training import attention, chains, losses
from ....training.features import Batch
from ....training.job import Job
from ....training.masked_block import AuxStateFeatures
from ....training.runner import Runner


class ReducedVocabFeatures(AuxStateFeatures):
    """Batches with the captured hidden states that an EAGLE-3 head reads. ``logits`` uses the head's own
    output matrix over the draft vocabulary, if it has one."""

    def __init__(self, job: Job, hparams: dict):
        super().__init__(job, hparams, eagle3.build)
        self.model: eagle3.Eagle3 | None = None

    def logits(self, states: Tensor) -> Tensor:
        """Return the head's logits over the target's vocabulary, [n, vocab], from its states [n, hidden]."""
        assert self.model is not None  # built after the features
        return self.model.logits(states, super().logits).float()


def run(job: Job) -> Path:
    """Train EAGLE-3's head; return the folder of its weights."""
    hparams = job.hparams("eagle3")
    features = ReducedVocabFeatures(job, hparams)
    torch.manual_seed(job.seed)
    model = features.model = eagle3.build(features.target_info, hparams)
    if model.d2t is not None:
        model.set_draft_vocab(most_frequent_tokens(features, len(model.d2t)))
    if model.lm_head is not None:
        initialise_output_matrix(model, features)
    runner = Runner(job, "eagle3", model, hparams, features.checkpoint_folder("eagle3"))

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        attention.limit_scores(model, lambda: rollout_states(model, features, batch, 1), step, hparams)
        return loss(model, features, batch, hparams), len(batch.labels)

    runner.train(
        loss_at, lambda: chains.measure(chain_states_function(model, features), features, hparams, model)
    )
    output = (
        BORROWED if model.lm_head is None else OWN.format(count=model.lm_head.out_features, vocab=model.vocab)
    )
    about = CARD.format(**hparams | {"output": output, "read": list(model.read_layers)})
    return chains.export(job, job.model_name("eagle3"), model, features, runner, about)


def most_frequent_tokens(features: ReducedVocabFeatures, count: int) -> Tensor:
    """Return the ``count`` most frequent token ids of the answers; of equally frequent ones the smaller
    id."""
    counts = torch.zeros(features.target_info.vocab, dtype=torch.long)
    for answer in features.own.answers:
        counts += torch.bincount(answer.ids[answer.start :].long(), minlength=len(counts))
    return counts.argsort(descending=True, stable=True)[:count]


@torch.no_grad()
def initialise_output_matrix(model: eagle3.Eagle3, features: ReducedVocabFeatures) -> None:
    """Initialise the head's output matrix with the rows of the target's output matrix (lm_head) for the
    draft vocabulary."""
    head = features.head.detach().cpu()
    assert model.lm_head is not None
    model.lm_head.weight.copy_(head if model.tokens is None else head[model.tokens])


def chain_states_function(model: eagle3.Eagle3, features: ReducedVocabFeatures) -> chains.ChainStates:
    """Return the function (batch, steps) -> predicted hidden states for each step of a chain, as
    ``chains.tables`` takes it."""
    return lambda batch, steps: rollout_states(model, features, batch, steps)


def rollout_states(
    model: eagle3.Eagle3, features: ReducedVocabFeatures, batch: Batch, steps: int
) -> list[Tensor]:
    """Return the head's states [rows * width, hidden], one tensor per step of the rollout: from the second
    step on it reads its own states. Row i predicts the token at position i + 2."""
    following = batch.ids.roll(-1, 1)  # the last column has no next token; no answer position uses it
    states = batch.captured.float().view(*batch.ids.shape, -1)
    return [x.flatten(0, 1) for x in model(F.embedding(following, features.embedding).float(), states, steps)]


def loss(model: eagle3.Eagle3, features: ReducedVocabFeatures, batch: Batch, hparams: dict) -> Tensor:
    """Return the mean cross-entropy with the target's distribution over the steps of the rollout, step i
    weighted by ``loss_decay`` ** i."""
    total: Any = 0.0  # a tensor from the first term on
    weights = 0.0
    # None: the target's output matrix, which covers every token
    part = None if model.lm_head is None else restrict_to_draft_vocabulary(model, batch)
    for step, states in enumerate(rollout_states(model, features, batch, hparams["rollout"])):
        kept, _ = batch.back(
            step + 1
        )  # positions predicted from ``step`` states of the head and at least one true one
        kept = kept if part is None else kept[part[2][kept]]
        if not len(kept):
            continue
        rows = states[batch.where[kept] - 1]
        if part is None:
            rows = rows if model.norm_output else model.norm(rows)
            top = slice(hparams.get("leaders"))
            found = losses.distil(
                rows,
                features.head,
                batch.top_ids[kept, top],
                batch.top_logp[kept, top],
                batch.labels[kept],
                negatives=hparams.get("negatives", 0),
            )
        else:
            probs, at, _ = part
            logq = model.draft_logits(rows).float().log_softmax(-1)
            found = -(probs[kept] * logq.gather(1, at[kept])).sum(-1).mean()
        weight = hparams["loss_decay"] ** step
        total, weights = total + weight * found, weights + weight
    if not weights:  # the draft vocabulary has no token of this batch
        return cast(Tensor, 0.0 * sum(weight.sum() for weight in model.parameters()))
    return total / weights


def restrict_to_draft_vocabulary(model: eagle3.Eagle3, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Restrict the target's stored top tokens to the draft vocabulary and renormalise. Return
    (probabilities [n, top], index of each token in the draft vocabulary [n, top], whether the top-1 token
    is in it [n])."""
    p = batch.top_logp.float().exp()
    if model.tokens is None:
        return (
            p / p.sum(-1, keepdim=True),
            batch.top_ids,
            torch.ones(len(p), dtype=torch.bool, device=p.device),
        )
    assert model.t2d is not None  # as there is ``tokens``
    t2d = model.t2d.to(p.device)
    in_vocab, at = t2d[batch.top_ids], (t2d.long().cumsum(0) - 1).clamp(min=0)[batch.top_ids]
    fine = t2d[batch.top_ids.gather(1, p.argmax(-1, keepdim=True))[:, 0]]
    p = p * in_vocab
    return p / p.sum(-1, keepdim=True).clamp(min=1e-9), at, fine


OWN = "an output matrix of its own over {count} of {vocab} tokens; the target's embedding is shared"
BORROWED = "embedding and output matrix are shared with the target: a matrix of its own over few of the tokens would leave out too many"
CARD = """An EAGLE-3 head (one layer; {output}). It reads what enters the target's layers {read} (0 is the first) and continues
states of its own, one token at a time; the target verifies the draft, so a wrong token costs time and never changes the
text.

Cross-entropy to the target's distribution, {rollout} steps on its own states; step i's loss is multiplied by {loss_decay}^i. The paper
trains seven steps on about a hundred times the text, with the full distributions; here only the top tokens of each are stored."""
