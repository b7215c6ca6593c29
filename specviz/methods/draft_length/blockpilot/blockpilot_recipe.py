"""Train BlockPilot's network (2606.31315): from the end of a prompt, the draft length that is fastest along
its answer.

The authors sweep block sizes on a GPU and take the fastest as the label. Here the sweep is a replay: the
accepted lengths of EAGLE's chains along the target's greedy answer (adaeagle.py), at a fixed cost per draft
step and per verified token. The loss is the cross-entropy on the fastest length.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ....training import chains
from ....training.draft import collate
from ....training.features import Batch
from ....training.job import Job
from ....training.runner import Runner
from ..adaeagle.adaeagle_recipe import ChainLengthFeatures
from . import blockpilot_network as network


def run(job: Job) -> Path:
    """Train BlockPilot's network; return the folder of its weights."""
    hparams = job.hparams("blockpilot")
    features = ChainLengthFeatures(job, hparams)
    torch.manual_seed(job.seed)
    model = network.build(features.target_info, hparams)
    runner = Runner(job, "blockpilot", model, hparams, features.checkpoint_folder("blockpilot"))

    def loss_at(step: int):
        torch.manual_seed(job.seed * 1_000_003 + step)  # of the dropout
        model.train()
        states, speeds = examples(features, features.batch(step, runner.budget_spent()), hparams)
        return F.cross_entropy(model(states).float(), speeds.argmax(-1)), len(states)

    runner.train(loss_at, lambda: measure(model, features, hparams))
    model.eval()
    return chains.export(job, job.model_name("blockpilot"), model, features, runner, CARD.format(**hparams))


def speeds_of(lengths: list[int], longest: int, step_cost: float, row_cost: float) -> list[float]:
    """Return, for draft lengths 1 to ``longest``, the tokens per plain pass of an answer. lengths: how many
    tokens of a long draft are accepted at each of its positions."""
    found = []
    for gamma in range(1, longest + 1):
        place = rounds = 0
        while place < len(lengths):
            place += min(lengths[place], gamma) + 1
            rounds += 1
        found.append(len(lengths) / (max(1, rounds) * (1 + gamma * (step_cost + row_cost))))
    return found


def examples(features: ChainLengthFeatures, batch: Batch, hparams: dict) -> tuple[Tensor, Tensor]:
    """Return, for each answer of a batch whose prompt has a token before the last, (the target's hidden
    state there [n, hidden], speeds of the draft lengths [n, longest])."""
    rows, width = batch.where // batch.ids.shape[1], batch.ids.shape[1]
    accepted = features.lengths(batch, hparams["longest"]).long().tolist()
    states, speeds = [], []
    for row in rows.unique().tolist():
        mine = (rows == row).nonzero()[:, 0].tolist()
        first = int(batch.where[mine[0]])
        if first % width:  # the state before the root is the last that a prefill computes
            states.append(batch.states[first - 1])
            lengths = [accepted[i] for i in mine]
            speeds.append(speeds_of(lengths, hparams["longest"], hparams["step_cost"], hparams["row_cost"]))
    return torch.stack(states).float(), torch.tensor(speeds, device=batch.ids.device)


def measure(model: network.PromptLength, features: ChainLengthFeatures, hparams: dict) -> dict[str, float]:
    """Return the mean speed of the chosen lengths on held-out answers, and for comparison those of the best
    constant length and of the best length of each answer."""
    model.eval()
    some = features.heldout[:: max(1, len(features.heldout) // hparams["measure_rows"])]
    found = [
        examples(features, features.states(collate([a], hparams["length"], features.device)), hparams)
        for a in some
        if a.start < hparams["length"] - 1
    ]
    states, speeds = (torch.cat(parts) for parts in zip(*found))
    with torch.no_grad():
        chosen = speeds.gather(1, model(states).argmax(-1, keepdim=True)).mean()
    return {
        "speed_heldout": round(float(chosen), 4),
        "speed_of_a_constant": round(float(speeds.mean(0).max()), 4),
        "speed_of_the_best": round(float(speeds.max(-1).values.mean()), 4),
    }


CARD = """BlockPilot's network: two layers, {inner} wide, on the target's state at the end of the prompt. It chooses how long
EAGLE's chains are for the whole answer, so a wrong choice costs time and never changes the text.

Learned from greedy answers along which EAGLE drafted {longest} tokens from every place: the fastest length of each answer, where a draft
step costs {step_cost} and a verified token {row_cost} of a plain pass."""
