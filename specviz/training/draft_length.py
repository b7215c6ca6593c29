"""Train networks that decide the draft length (models/draft_length.py) on acceptance probabilities of the
draft model's tokens.

At every position of the target's answers a draft token is sampled. It is accepted with probability min(1, p
/ q), computed from both models' distributions at temperature 1.

SpecDec++ (2405.19715): the draft model processes the text with most tokens replaced by its own, and the
head learns from the hidden state after each of its own tokens. The loss is a weighted cross-entropy in
which rejections weigh more, divided by the total weight. DISCO (2405.04304): rounds are simulated along the
text, so that each token has the draft position that it would have in a run; half of the rows are drafted
greedily, where a token is accepted iff it is the target's argmax.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
from torch import Tensor

from ..models import draft_length
from ..models.draft_length import acceptance_loss
from ..models.heads import TargetInfo
from . import chains
from .draft import collate
from .features import Batch, Features, body_of
from .job import Job, TrainingError, fingerprint
from .reduced_draft import open_draft
from .runner import Runner


class DraftFeatures(Features):
    """Batches of the target's answers, with the draft model whose acceptance the trained network predicts.
    ``target_info``: the draft model's sizes and device."""

    def __init__(self, job: Job, hparams: dict):
        super().__init__(job, hparams)
        self.draft_path = job.model(job.draft_name())
        if job.ship and fingerprint(self.draft_path) != fingerprint(job.shipped / self.draft_path.name):
            raise TrainingError(
                f"This would judge {self.draft_path}, which is not the shipped draft model: ship that one first.",
                "training.not_shipped",
            )
        net = open_draft(self.draft_path, torch.float32, self.path)
        self.draft = net.to(self.device).eval().requires_grad_(False)

    @property
    def target_info(self) -> TargetInfo:
        """The draft model's sizes and device, for the network's ``build``."""
        return body_of(self.draft_path)

    def checkpoint_folder(self, name: str) -> Path:
        """Return the checkpoint folder. Its name depends on the weights of target and draft model, so that
        new weights start a new checkpoint."""
        return self.job.folder(name, f"{self.mark}-{fingerprint(self.draft_path)}")

    @torch.no_grad()
    def distributions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return (p, q), each [n, vocab]: the distributions of target and draft model at temperature 1 at
        the positions ``batch.where``."""
        p = (batch.states[batch.where].to(self.head.dtype) @ self.head.T).float().softmax(-1)
        return p, self.draft(batch.ids).logits.flatten(0, 1)[batch.where].float().softmax(-1)

    def rng(self, step: int) -> torch.Generator:
        """Return the random stream of a step."""
        return torch.Generator(self.device).manual_seed(self.job.seed * 1_000_003 + step)


def run(job: Job, recipe: str) -> Path:
    """Train the network of a recipe ("specdecpp" or "disco"); return the folder of its weights."""
    hparams = job.hparams(recipe)
    features = DraftFeatures(job, hparams)
    torch.manual_seed(job.seed)
    model = draft_length.build(features.target_info, hparams)
    runner = Runner(job, recipe, model, hparams, features.checkpoint_folder(recipe))
    predictions = PREDICTIONS[recipe]

    def loss_at(step: int):
        logits, accept_probs = predictions(
            model, features, features.batch(step, runner.budget_spent()), hparams, step
        )
        return acceptance_loss(logits, accept_probs, hparams["refused"]), len(accept_probs)

    runner.train(loss_at, lambda: measure(model, features, predictions, hparams))
    return chains.export(
        job, job.model_name(recipe), model, features, runner, CARDS[recipe].format(**hparams)
    )


def sample_tokens(p: Tensor, q: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return (tokens [n] sampled from the draft distributions q, the probability min(1, p / q) [n] that
    each is accepted)."""
    tokens = torch.multinomial(q, 1, generator=rng)
    return tokens[:, 0], (p.gather(1, tokens) / q.gather(1, tokens)).clamp(max=1)[:, 0]


def specdecpp_predictions(
    model, features: DraftFeatures, batch: Batch, hparams: dict, step: int
) -> tuple[Tensor, Tensor]:
    """Return SpecDec++'s predictions and labels: (predicted log odds of acceptance, true acceptance
    probabilities), both [n], for the draft model's tokens in a text of which most tokens are the draft
    model's."""
    states, accept_probs, own = states_of_mixed_text(features, batch, hparams["targets"], features.rng(step))
    return model.logit(states[own]), accept_probs[own]


@torch.no_grad()
def states_of_mixed_text(
    features: DraftFeatures, batch: Batch, share: float, rng: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Replace most answer tokens by tokens of the draft model; keep a ``share`` of the target's. Return
    (the draft model's hidden states [n, hidden] after each answer token, acceptance probabilities [n],
    whether each token is the draft model's [n])."""
    tokens, accept_probs = sample_tokens(*features.distributions(batch), rng)
    own = torch.rand(len(tokens), generator=rng, device=tokens.device) >= share
    ids = batch.ids.flatten().clone()
    ids[batch.where + 1] = torch.where(own, tokens, batch.labels)
    states = features.draft.base_model(ids.view_as(batch.ids)).last_hidden_state.flatten(0, 1)
    return states[batch.where + 1], accept_probs, own


def disco_predictions(
    model, features: DraftFeatures, batch: Batch, hparams: dict, step: int
) -> tuple[Tensor, Tensor]:
    """Return DISCO's predictions and labels: (predicted log odds of acceptance, true acceptance
    probabilities), both [m], for the tokens that simulated rounds along the answers draft."""
    q, depths, accept_probs = simulate_rounds(features, batch, hparams["most"], step)
    return model.logit(q, depths), accept_probs


@torch.no_grad()
def simulate_rounds(
    features: DraftFeatures, batch: Batch, most: int, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Simulate rounds of up to ``most`` draft tokens along the answers. Return (draft distributions [m,
    vocab], positions in the draft from 0 [m], acceptance probabilities [m]) of the drafted tokens."""
    p, q = features.distributions(batch)
    tokens, accept_probs = sample_tokens(p, q, features.rng(step))
    coin = random.Random(f"{features.job.seed} {step}")
    owner = (batch.where // batch.ids.shape[1]).tolist()
    greedy = {row: coin.random() < 0.5 for row in sorted(set(owner))}
    chosen = torch.tensor([greedy[row] for row in owner], device=q.device)
    accept_probs = torch.where(chosen, (q.argmax(-1) == p.argmax(-1)).to(accept_probs.dtype), accept_probs)
    kept = []
    depths = []
    depth = 0
    before = -1
    for i, (row, prob) in enumerate(zip(owner, accept_probs.tolist())):
        depth = 0 if row != before else depth
        before = row
        if depth < most:  # otherwise the draft was fully accepted, and this token is the bonus token
            kept.append(i)
            depths.append(depth)
        depth = depth + 1 if depth < most and coin.random() < prob else 0
    return q[kept], torch.tensor(depths, device=q.device), accept_probs[kept]


def measure(model, features: DraftFeatures, predictions, hparams: dict) -> dict[str, float]:
    """Return the loss on held-out answers, the loss of the best constant prediction for comparison, and the
    mean true and predicted acceptance probability."""
    some = features.heldout[:: max(1, len(features.heldout) // hparams["measure_rows"])]
    found = [
        predictions(
            model, features, features.states(collate([a], hparams["length"], features.device)), hparams, i
        )
        for i, a in enumerate(some)
        if a.start < hparams["length"] - 1
    ]
    logits, accept_probs = (torch.cat(parts) for parts in zip(*found))
    good = accept_probs.sum()
    share = (good / (good + hparams["refused"] * (1 - accept_probs).sum())).clamp(1e-6, 1 - 1e-6)
    return {
        "loss_heldout": round(float(acceptance_loss(logits, accept_probs, hparams["refused"])), 4),
        "loss_of_a_constant": round(
            float(acceptance_loss(share.logit().expand_as(accept_probs), accept_probs, hparams["refused"])), 4
        ),
        "accepted": round(float(accept_probs.mean()), 4),
        "predicted": round(float(logits.sigmoid().mean()), 4),
    }


PREDICTIONS = {draft_length.ACCEPTANCE: specdecpp_predictions, draft_length.DISCO: disco_predictions}

CARDS = {
    draft_length.ACCEPTANCE: """SpecDec++'s acceptance head: {layers} residual blocks on the last states of the
draft model, trained to tell whether the token just read will be accepted. It decides how long a draft is, so a wrong guess costs
time and never changes the text.

Cross-entropy in which a refusal weighs {refused}; {targets} of the tokens it reads are the target's, as in the paper.""",
    draft_length.DISCO: """DISCO's classifier: two layers on the draft's {top} largest probabilities, its entropy and
the token's place in the draft. It decides how long a draft is, so a wrong guess costs time and never changes the text.

Cross-entropy along rounds of up to {most} tokens, half of the rows drafted greedily.""",
}
