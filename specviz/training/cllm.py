"""CLLM: fine-tune the target so that Jacobi decoding converges in fewer passes (Kou et al. 2403.00835).

With ``rank``, only low-rank adapters of that rank are trained and saved (LoRA, Hu et al. 2106.09685).

In every greedy answer one block is replaced by earlier tokens of the text. A few Jacobi passes of the target turn the
replacement into a point of its Jacobi trajectory, whose fixed point is the original block. The model learns to predict
the same distributions from the wrong block as from the original (consistency loss, from the first wrong token on), and
to keep the target's distributions along the answer.
"""
from __future__ import annotations

import copy
import random
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ..models import causal
from ..models.heads import HeadWeights, config_of, fill
from . import chains, losses
from .draft import Batches, collate
from .features import Batch, Features
from .job import Job
from .runner import Runner
from .text_answers import Answer


class Trajectories(Features):
    """Batches of greedy answers, and the target as a trainable module (models/causal.py), which runs the Jacobi passes."""

    def __init__(self, job: Job, hparams: dict):
        super().__init__(job, hparams)
        self.own = self.wide = Batches([a for a in self.own.answers if a.greedy], hparams, job.seed, self.device)
        self.heldout = [a for a in self.heldout if a.greedy]
        config, found = causal.read(HeadWeights(self.path, self.target_info), config_of(self.path))
        self.before = fill(causal.CausalModel(config, self.path.name), found, self.target_info).to(self.device)


def run(job: Job) -> Path:
    """Fine-tune the target for Jacobi decoding; return the folder of the weights."""
    hparams = job.hparams("cllm")
    features = Trajectories(job, hparams)
    torch.manual_seed(job.seed)
    model = copy.deepcopy(features.before).requires_grad_()
    if hparams["rank"]:
        model = causal.LoraAdapters(model, hparams["rank"]).to(features.device)
    runner = Runner(job, "cllm", model, hparams, features.checkpoint_folder("cllm"))

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        rng = random.Random(f"{job.seed} {step}")
        return loss(model, batch, *trajectory_batch(features.before, batch, hparams, rng), hparams), len(batch.labels)

    runner.train(loss_at, lambda: measure(model, features, hparams))
    logp = measure(model.eval(), features, hparams)
    trained = LOW_RANK.format(**hparams) if hparams["rank"] else "all of its weights trained on"
    return chains.export(job, job.model_name("cllm"), model, features, runner, CARD.format(**hparams | logp, trained=trained), most=4e7)


@torch.no_grad()
def trajectory_batch(before: causal.CausalModel, batch: Batch, hparams: dict, rng: random.Random) -> tuple[Tensor, Tensor]:
    """Replace one block of each row by a point of its Jacobi trajectory. Return (ids [rows, width], first [rows]): the token ids,
    and the position of the first wrong token of each row (the width if there is none)."""
    ids, width = batch.ids.clone(), batch.ids.shape[1]
    places = batch.where % width + 1
    rows = batch.where // width
    for row in range(len(ids)):
        mine = places[rows == row].tolist()
        if not mine:
            continue
        start, end = rng.choice(mine), mine[-1] + 1
        block = range(start, min(start + hparams["block"], end))
        ids[row, start:block.stop] = torch.tensor([int(batch.ids[row, rng.randrange(start)]) for _ in block], device=ids.device)
        for _ in range(rng.randrange(hparams["passes"] + 1)):
            states = before(ids[row:row + 1, :block.stop])[0, start - 1:block.stop - 1]
            ids[row, start:block.stop] = (states @ before.output.T).argmax(-1)
    differs = ids != batch.ids
    return ids, torch.where(differs.any(1), differs.int().argmax(1), width)


def loss(model: causal.CausalModel | causal.LoraAdapters, batch: Batch, ids: Tensor, first: Tensor, hparams: dict) -> Tensor:
    """Return the consistency loss from the first wrong token of each row on, plus ``stay`` times the distillation loss along the
    unchanged text. ids, first: as ``trajectory_batch`` returns them."""
    width = batch.ids.shape[1]
    right = model(batch.ids).flatten(0, 1)
    stay = losses.distil(right[batch.where], model.output, batch.top_ids, batch.top_logp, batch.labels, hparams["hard_label_weight"])
    place, row = batch.where % width, batch.where // width
    kept = batch.where[(place + 1 >= first[row]) & (place + 1 < first[row] + hparams["block"])]
    if not len(kept):
        return hparams["stay"] * stay
    with torch.no_grad():
        probs = (right[kept] @ model.output.T).float().softmax(-1)
    logp = (model(ids).flatten(0, 1)[kept] @ model.output.T).float().log_softmax(-1)
    return F.kl_div(logp, probs, reduction="batchmean") + hparams["stay"] * stay


@torch.inference_mode()
def measure(model: causal.CausalModel | causal.LoraAdapters, features: Trajectories, hparams: dict) -> dict[str, float]:
    """Return held-out figures of the fine-tuned model and of the target: tokens per Jacobi pass on their own answers, and the loss
    on the target's answers."""
    some = features.heldout[:: max(1, len(features.heldout) // hparams["measure_rows"])]
    found = {}
    for name, one in (("target", features.before), ("cllm", model)):
        tried = [jacobi(one, answer, hparams["block"]) for answer in some]
        found[f"tokens_a_pass_{name}"] = round(sum(n for n, _ in tried) / max(1, sum(passes for _, passes in tried)), 4)
        logs = []
        for answer in some:
            batch = features.states(collate([answer], len(answer.ids), features.device))
            rows = (one(batch.ids).flatten(0, 1)[batch.where] @ one.output.T).float()
            logs.append(F.cross_entropy(rows, batch.labels))
        found[f"loss_{name}"] = round(float(torch.stack(logs).mean()), 4)
    return found


def jacobi(model: causal.CausalModel | causal.LoraAdapters, answer: Answer, size: int) -> tuple[int, int]:
    """Return (tokens, passes) of Jacobi decoding in blocks of ``size`` tokens, until as many tokens as the answer has are
    generated. The algorithm is that of the engine's BlockJacobi."""
    ids, goal, passes = answer.ids[:answer.start].tolist(), len(answer.ids), 0
    guesses: list[int] = []
    while len(ids) < goal:
        room = min(goal - len(ids) - 1, size - (len(ids) - answer.start) % size)
        block = guesses[:room] + [ids[place % len(ids)] for place in range(len(guesses[:room]), room)]
        device = model.output.device
        states = model(torch.tensor([ids + block], device=device))[0, len(ids) - 1:]
        predicted = (states @ model.output.T).argmax(-1).tolist()
        right = next((i for i, (a, b) in enumerate(zip(block, predicted)) if a != b), len(block))
        ids, guesses, passes = ids + predicted[:right + 1], predicted[right + 1:], passes + 1
    return goal - answer.start, passes


LOW_RANK = "with matrices of rank {rank} trained beside its own (LoRA)"
CARD = """A consistency model: the target itself, {trained}, so that Jacobi decoding in blocks of {block}
converges in fewer passes. **It is a target of its own: its output follows these weights, not the original target's.**

On held-out answers: {tokens_a_pass_cllm} tokens a pass, where the target has {tokens_a_pass_target}; and a loss of {loss_cllm} on
the target's own text, where the target has {loss_target}.

Loss: consistency from the first wrong token of a block on, after up to {passes} Jacobi passes of the target, plus {stay} times
distillation along the target's answers."""
