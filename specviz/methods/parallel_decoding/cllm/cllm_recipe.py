"""CLLM: fine-tune the target so that Jacobi decoding converges in fewer passes (Kou et al. 2403.00835).

With ``rank``, only low-rank adapters of that rank are trained and saved (LoRA, Hu et al. 2106.09685).

Blocks of a greedy answer are replaced by earlier tokens of the text. A few Jacobi passes of the target turn
a replacement into a point of its Jacobi trajectory, whose fixed point is the original block. The model
learns to predict the same distributions from the wrong block as from the original (consistency loss, from
the first wrong token on), and to keep the target's distributions along the answer. Blocks of one text share
its keys and values.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ....models import causal
from ....models.eagle_layers import KV
from ....models.heads import HeadWeights, config_of, fill
from ....training import chains, losses
from ....training.draft import Batches, collate
from ....training.features import Batch, Features
from ....training.in_target import extra_row_mask
from ....training.job import Job
from ....training.masked_block import sample_anchors
from ....training.runner import Runner
from ....training.text_answers import Answer


class Trajectories(Features):
    """Batches of greedy answers, and the target as a trainable module (models/causal.py), which runs the
    Jacobi passes."""

    def __init__(self, job: Job, hparams: dict):
        super().__init__(job, hparams)
        self.own = self.wide = Batches(
            [a for a in self.own.answers if a.greedy], hparams, job.seed, self.device
        )
        self.heldout = [a for a in self.heldout if a.greedy]
        config, found = causal.read(HeadWeights(self.path, self.target_info), config_of(self.path))
        self.before = fill(causal.CausalModel(config, self.path.name), found, self.target_info).to(
            self.device
        )


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
        points = trajectory_points(features.before, batch, hparams, random.Random(f"{job.seed} {step}"))
        return loss(model, batch, points, hparams), len(batch.labels)

    figures = runner.train(loss_at, lambda: measure(model, features, hparams))
    if "loss_cllm" not in figures:  # a measurement can fail
        figures = measure(model.eval(), features, hparams)
    trained = LOW_RANK.format(**hparams) if hparams["rank"] else "all of its weights trained on"
    return chains.export(
        job,
        job.model_name("cllm"),
        model,
        features,
        runner,
        CARD.format(**hparams | figures, trained=trained),
        most=4e7,
    )


@dataclass(frozen=True)
class TrajectoryPoints:
    """Points of Jacobi trajectories of blocks: what the blocks hold after some passes.

    owners [rows, n]: position of the token before each block; tokens [rows, n, block]: the block's token
    ids; right [rows, n, block]: those of its fixed point, the answer; inside, bool [rows, n, block]: True
    for positions before the answer's end."""

    owners: Tensor
    tokens: Tensor
    right: Tensor
    inside: Tensor

    def rows(self, model: causal.CausalModel | causal.LoraAdapters, past: list[KV]) -> Tensor:
        """Return a model's hidden states [rows, n, block, hidden] along the blocks. past: its keys and
        values along the texts."""
        (_, each, block), device = self.tokens.shape, self.tokens.device
        places = (self.owners[..., None] + torch.arange(1, block + 1, device=device)).flatten(1)
        width = past[0][0].shape[2]
        mask = extra_row_mask(self.owners, width, 1, block)[:, None, width:]
        return model.rows(self.tokens.flatten(1), places, mask, past)[0].unflatten(1, (each, block))

    @property
    def wrong(self) -> Tensor:
        """Bool [rows, n, block]: True from a block's first wrong token on, up to the answer's end."""
        return (((self.tokens != self.right) & self.inside).cumsum(-1) > 0) & self.inside


@torch.no_grad()
def trajectory_points(
    before: causal.CausalModel, batch: Batch, hparams: dict, rng: random.Random
) -> TrajectoryPoints:
    """Choose ``anchors`` blocks per row of text, fill them with earlier tokens of the row, and apply 0 to
    ``passes`` Jacobi passes of the target ``before``."""
    anchors = sample_anchors(batch, hparams["anchors"], rng)
    width = batch.ids.shape[1]
    block = hparams["block"]
    owners, ahead = batch.where[anchors] % width, torch.arange(block, device=anchors.device)
    index = anchors[..., None] + ahead
    known = index.clamp(max=len(batch.where) - 1)
    inside = (index < len(batch.where)) & (batch.where[known] == batch.where[anchors][..., None] + ahead)
    tokens = torch.tensor(
        [
            [[int(row[rng.randrange(end + 1)]) for _ in range(block)] for end in ends]
            for row, ends in zip(batch.ids.tolist(), owners.tolist())
        ],
        device=anchors.device,
    )
    passes = torch.tensor(
        [[rng.randrange(hparams["passes"] + 1) for _ in ends] for ends in owners.tolist()],
        device=anchors.device,
    )
    points = TrajectoryPoints(owners, tokens, batch.labels[known], inside)
    if not passes.any():
        return points
    states, past = before.rows(batch.ids)
    states = states[torch.arange(len(states), device=states.device)[:, None], owners]
    first = (states @ before.output.T).argmax(-1)[..., None]  # the target's own choice in every pass
    for turn in range(int(passes.max())):
        following = (points.rows(before, past) @ before.output.T).argmax(-1)
        moved = torch.cat([first, following[..., :-1]], -1)
        points = replace(points, tokens=torch.where((passes > turn)[..., None], moved, points.tokens))
    return points


def loss(
    model: causal.CausalModel | causal.LoraAdapters, batch: Batch, points: TrajectoryPoints, hparams: dict
) -> Tensor:
    """Return the consistency loss from the first wrong token of each block on, plus ``stay`` times the
    distillation loss along the unchanged text."""
    right, past = model.rows(batch.ids)
    stay = losses.distil(
        right.flatten(0, 1)[batch.where],
        model.output,
        batch.top_ids,
        batch.top_logp,
        batch.labels,
        hparams["hard_label_weight"],
        negatives=hparams.get("negatives", 0),
    )
    row, block, step = points.wrong.nonzero(as_tuple=True)
    if not len(row):
        return hparams["stay"] * stay
    with torch.no_grad():  # the fixed point's distributions are the goal
        probs = (right[row, points.owners[row, block] + 1 + step] @ model.output.T).float().softmax(-1)
    logp = (points.rows(model, past)[row, block, step] @ model.output.T).float().log_softmax(-1)
    return F.kl_div(logp, probs, reduction="batchmean") + hparams["stay"] * stay


@torch.inference_mode()
def measure(
    model: causal.CausalModel | causal.LoraAdapters, features: Trajectories, hparams: dict
) -> dict[str, float]:
    """Return held-out figures of the fine-tuned model and of the target: tokens per Jacobi pass on their
    own answers, and the loss on the target's answers."""
    some = features.heldout[:: max(1, len(features.heldout) // hparams["measure_rows"])]
    found = {}
    for name, one in (("target", features.before), ("cllm", model)):
        tried = [jacobi(one, answer, hparams["block"]) for answer in some]
        found[f"tokens_a_pass_{name}"] = round(
            sum(n for n, _ in tried) / max(1, sum(passes for _, passes in tried)), 4
        )
        logs = []
        for answer in some:
            batch = features.states(collate([answer], len(answer.ids), features.device))
            rows = (one(batch.ids).flatten(0, 1)[batch.where] @ one.output.T).float()
            logs.append(F.cross_entropy(rows, batch.labels))
        found[f"loss_{name}"] = round(float(torch.stack(logs).mean()), 4)
    return found


def jacobi(model: causal.CausalModel | causal.LoraAdapters, answer: Answer, size: int) -> tuple[int, int]:
    """Return (tokens, passes) of Jacobi decoding in blocks of ``size`` tokens, until as many tokens as the
    answer has are generated. The algorithm is that of the engine's BlockJacobi."""
    ids = answer.ids[: answer.start].tolist()
    goal = len(answer.ids)
    passes = 0
    device = model.output.device
    guesses: list[int] = []
    _, past = model.rows(torch.tensor([ids[:-1]], device=device))
    while len(ids) < goal:
        room = min(goal - len(ids) - 1, size - (len(ids) - answer.start) % size)
        block = guesses[:room] + [ids[place % len(ids)] for place in range(len(guesses[:room]), room)]
        end = len(ids) + len(block)
        places = torch.arange(len(ids) - 1, end, device=device)
        mask = torch.arange(end, device=device) <= places[:, None]
        states, past = model.rows(torch.tensor([[ids[-1], *block]], device=device), places[None], mask, past)
        predicted = (states[0] @ model.output.T).argmax(-1).tolist()
        right = next((i for i, (a, b) in enumerate(zip(block, predicted)) if a != b), len(block))
        ids = ids + predicted[: right + 1]
        guesses = predicted[right + 1 :]
        passes = passes + 1
        past = [(keys[:, :, : len(ids) - 1], values[:, :, : len(ids) - 1]) for keys, values in past]
    return goal - answer.start, passes


LOW_RANK = "with matrices of rank {rank} trained beside its own (LoRA)"
CARD = """A consistency model: the target itself, {trained}, so that Jacobi decoding in blocks of {block}
converges in fewer passes. **It is a target of its own: its output follows these weights, not the original target's.**

On held-out answers: {tokens_a_pass_cllm} tokens a pass, where the target has {tokens_a_pass_target}; and a loss of {loss_cllm} on
the target's own text, where the target has {loss_target}.

Loss: consistency from the first wrong token of a block on, after up to {passes} Jacobi passes of the target, plus {stay} times
distillation along the target's answers."""
