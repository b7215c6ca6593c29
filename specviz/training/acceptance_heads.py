"""Train networks for lossy acceptance (models/judge.py) on the target's own answers.

Judge (2501.19309): in each answer one token is replaced by one of the draft model. The label is "good" if
the target assigns about the same probability to its own following tokens after the replacement: then the
token was another wording, not a mistake. The paper uses human labels.

Reward (2501.19324): the draft model generates a step from the same position as one of the target's steps,
and the head learns to tell both apart. The paper uses a large reward model.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..models import judge
from ..models.heads import TargetInfo
from . import chains
from .draft import collate
from .draft_length import DraftFeatures, acceptance_loss
from .features import Batch, body_of
from .in_target import extra_row_mask
from .job import Job
from .runner import Runner

DRAWN = 512  # examples a step learns from


class ReplacementFeatures(DraftFeatures):
    """Batches of the target's answers, and a draft model that proposes other tokens or steps.
    ``target_info``: the target's sizes and device."""

    @property
    def target_info(self) -> TargetInfo:
        """The target's sizes and device, for the head's ``build``."""
        return body_of(self.path)


def run(job: Job, recipe: str) -> Path:
    """Train the head of a recipe ("judge" or "reward"); return the folder of its weights."""
    hparams = job.hparams(recipe)
    features = ReplacementFeatures(job, hparams)
    torch.manual_seed(job.seed)
    model = judge.build(features.target_info, hparams)
    runner = Runner(job, recipe, model, hparams, features.checkpoint_folder(recipe))
    kept: list[tuple[Tensor, Tensor]] = []

    def loss_at(step: int):
        # Making examples costs a thousand times more than learning from them, so a step draws from all that
        # were made.
        for turn in range(len(kept), step // hparams["uses"] + 1):
            batch = features.batch(turn, 1.0)  # of the target's own answers, at any time
            kept.append(EXAMPLES[recipe](features, batch, hparams, random.Random(f"{job.seed} {turn}")))
        states, good = (torch.cat(parts) for parts in zip(*kept))
        drawn = torch.randint(
            len(good), (min(len(good), DRAWN),), generator=torch.Generator().manual_seed(step)
        ).to(good.device)
        length = hparams.get("shrink", 0.0) * sum(
            weight.square().sum() for weight in model.parameters() if weight.dim() > 1
        )
        return acceptance_loss(model.logit(states[drawn]), good[drawn], hparams["bad"]) + length, len(drawn)

    measured = runner.train(loss_at, lambda: measure(model, features, EXAMPLES[recipe], hparams))
    known = KNOWN.format(**measured) if "loss_heldout" in measured else ""
    return chains.export(
        job, job.model_name(recipe), model, features, runner, CARDS[recipe].format(**hparams) + known
    )


def sample_positions(
    batch: Batch, min_following: int, count: int, rng: random.Random
) -> tuple[Tensor, Tensor]:
    """Sample ``count`` positions per row of text that are followed by at least ``min_following`` answer
    tokens. Return (row indices [r], positions [r, count]).

    Rows without such positions are left out; rows with fewer than ``count`` repeat some."""
    width, found = batch.ids.shape[1], {}
    for place in batch.where.tolist():
        found.setdefault(place // width, []).append(place % width)
    found = {row: mine[:-min_following] for row, mine in found.items() if len(mine) > min_following}
    taken = [
        rng.sample(mine, count) if len(mine) >= count else rng.choices(mine, k=count)
        for mine in found.values()
    ]
    to = {"dtype": torch.long, "device": batch.ids.device}
    return torch.tensor(list(found), **to), torch.tensor(taken, **to).view(-1, count)


@torch.no_grad()
def continuations(
    net: Any, ids: Tensor, positions: Tensor, continuation_ids: Tensor
) -> tuple[Tensor, Tensor]:
    """Run a model on texts and on alternative continuations of them in one forward pass. Return its final
    hidden states along the texts, [rows, width, hidden], and along the continuations, [rows, n, steps,
    hidden].

    ids [rows, width]: the texts; positions [rows, n]: the last text position that each continuation attends
    to; continuation_ids [rows, n, steps]: its token ids."""
    width, (each, steps) = ids.shape[1], continuation_ids.shape[1:]
    deep = torch.arange(1, steps + 1, device=ids.device)
    places = torch.cat(
        [
            torch.arange(width, device=ids.device).expand(len(ids), -1),
            (positions[..., None] + deep).flatten(1),
        ],
        1,
    )
    sees = extra_row_mask(positions, width, 1, steps)
    mask = torch.zeros(sees.shape, dtype=net.dtype, device=ids.device).masked_fill_(
        ~sees, torch.finfo(net.dtype).min
    )
    states = net.base_model(
        torch.cat([ids, continuation_ids.flatten(1)], 1),
        attention_mask=mask[:, None],
        position_ids=places,
        use_cache=False,
    ).last_hidden_state
    return states[:, :width], states[:, width:].unflatten(1, (each, steps))


def gather_positions(rows: Tensor, positions: Tensor) -> Tensor:
    """Return the entries of values [r, width, ...] at positions [r, n] or [r, n, m] of the second
    dimension."""
    return rows[torch.arange(len(rows), device=rows.device).view(-1, *[1] * (positions.dim() - 1)), positions]


@torch.no_grad()
def replacement_examples(
    features: ReplacementFeatures, batch: Batch, hparams: dict, rng: random.Random
) -> tuple[Tensor, Tensor]:
    """Return training examples of the judge: (the target's hidden states [n, hidden] at tokens that were
    replaced by the draft model's, labels [n]: 1 if the target assigns about the same probability to its own
    following tokens)."""
    after = hparams["after"]
    rows, positions = sample_positions(batch, after, hparams["places"], rng)
    ids = batch.ids[rows]
    probs = features.draft.lm_head(
        gather_positions(features.draft.base_model(ids).last_hidden_state, positions)
    ).float()
    probs.scatter_(
        -1, gather_positions(ids, positions + 1)[..., None], -torch.inf
    )  # the most probable token that is not the target's
    # positions that predict the tokens after the replaced one
    follows = positions[..., None] + torch.arange(1, after + 1, device=positions.device)
    continuation_ids = torch.cat([probs.argmax(-1)[..., None], gather_positions(ids, follows[..., 1:])], -1)
    text, other = continuations(features.target, ids, positions, continuation_ids)
    tokens = gather_positions(ids, follows + 1)[..., None]
    expected = [
        features.logits(states).log_softmax(-1).gather(-1, tokens)[..., 0].mean(-1)
        for states in (gather_positions(text, follows), other)
    ]
    return other[:, :, 0].flatten(0, 1), (expected[0] - expected[1] <= hparams["margin"]).float().flatten()


def step_examples(
    features: ReplacementFeatures, batch: Batch, hparams: dict, rng: random.Random
) -> tuple[Tensor, Tensor]:
    """Return training examples of the reward head: (the target's hidden states [2n, tokens, hidden] along
    steps, labels [2n]: 1 if the target generated the step). The n steps of the target come first, then n of
    the draft model from the same positions."""
    own, theirs = states_along_steps(features, batch, hparams, rng)
    return torch.cat([own, theirs]), torch.cat([torch.ones(len(own)), torch.zeros(len(theirs))]).to(
        own.device
    )


@torch.no_grad()
def states_along_steps(
    features: ReplacementFeatures, batch: Batch, hparams: dict, rng: random.Random
) -> tuple[Tensor, Tensor]:
    """Return the target's hidden states, each [n, tokens, hidden], along steps that it generated itself and
    along steps that the draft model generates from the same positions."""
    tokens = hparams["tokens"]
    rows, positions = sample_positions(batch, tokens, hparams["places"], rng)
    ids, draft = batch.ids[rows], features.draft
    last = gather_positions(draft.base_model(ids).last_hidden_state, positions)
    continuation_ids = ids.new_zeros(*positions.shape, 0)
    while True:
        continuation_ids = torch.cat([continuation_ids, draft.lm_head(last).argmax(-1)[..., None]], -1)
        if continuation_ids.shape[-1] == tokens:
            break
        last = continuations(draft, ids, positions, continuation_ids)[1][:, :, -1]
    text, theirs = continuations(features.target, ids, positions, continuation_ids)
    own = gather_positions(text, positions[..., None] + torch.arange(1, tokens + 1, device=positions.device))
    return own.flatten(0, 1), theirs.flatten(0, 1)


def measure(model, features: ReplacementFeatures, make_examples, hparams: dict) -> dict[str, float]:
    """Return the loss on held-out answers, and the loss of the best constant prediction for comparison.
    make_examples: the function that makes examples, ``replacement_examples`` or ``step_examples``."""
    min_following = hparams["after"] if "after" in hparams else hparams["tokens"]
    some = [a for a in features.heldout if min(len(a.ids), hparams["length"]) - a.start > min_following]
    some, rng = some[:: max(1, len(some) // hparams["measure_rows"])], random.Random(0)
    found = [
        make_examples(
            features, features.states(collate([a], hparams["length"], features.device)), hparams, rng
        )
        for a in some
    ]
    states, good = (torch.cat(parts) for parts in zip(*found))
    with torch.no_grad():
        logits = model.logit(states)
    share = (good.sum() / (good.sum() + hparams["bad"] * (1 - good).sum())).clamp(1e-6, 1 - 1e-6)
    return {
        "loss_heldout": round(float(acceptance_loss(logits, good, hparams["bad"])), 4),
        "loss_of_a_constant": round(
            float(acceptance_loss(share.logit().expand_as(good), good, hparams["bad"])), 4
        ),
        "good": round(float(good.mean()), 4),
        "right": round(float(((logits > 0) == (good > 0.5)).float().mean()), 4),
    }


KNOWN = """

On held-out answers: a loss of {loss_heldout} where the best constant answer has {loss_of_a_constant}, and right in {right} of the
cases, of which {good} are good ones."""
EXAMPLES = {judge.JUDGE: replacement_examples, judge.REWARD: step_examples}
CARDS = {
    judge.JUDGE: """A judge: one matrix on the target's states. **What it lets pass is not what the target would have written.**

Cross-entropy in which a bad token weighs {bad}. A token of the draft model's in the place of the target's counts as good when the
next {after} tokens of the answer lose no more than {margin} nats each, on average, by it.""",
    judge.REWARD: """A reward head: two layers on the target's states along a step, {inner} wide. **What it lets pass is the draft
model's text.**

Learned to tell {tokens} tokens of the target's from as many of the draft model's, written from the same places.""",
}
