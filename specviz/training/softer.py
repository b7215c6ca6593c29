"""Networks that let more pass than the target's distribution does (models/judge.py), taught on the target's own answers.

Judge (2501.19309; its labels were written by hand): in each answer one token is replaced by the draft model's. It is good when
the target, having read it, expects the next tokens of its own answer about as much as before: then it was another wording, and no
mistake.

Reward (2501.19324, whose reward model is a large one of its own): from the same place the draft model writes a step where the
target wrote one; the head learns to tell the target's from the draft's.
"""
from __future__ import annotations

import random
from pathlib import Path

import torch
from torch import Tensor

from ..models import judge
from ..models.heads import Body
from . import chains
from .draft import collate
from .draft_length import Drafted, loss
from .features import Batch, body_of
from .job import Job
from .runner import Runner


class Beside(Drafted):
    """Batches of the target's text with the draft model beside it. ``body``: the target's facts."""

    @property
    def body(self) -> Body:
        return body_of(self.path)

    @torch.no_grad()
    def read(self, ids: Tensor) -> Tensor:
        """The target's states after its last norm, [rows, width, hidden], of a text."""
        return self.target.base_model(ids).last_hidden_state

    @torch.no_grad()
    def guess(self, ids: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        """The draft model's logits [n, vocab] of the token behind a place of each of these rows."""
        return self.draft.lm_head(self.draft.base_model(ids).last_hidden_state[rows, places]).float()


def run(job: Job, recipe: str) -> Path:
    numbers = job.numbers(recipe)
    features = Beside(job, numbers)
    torch.manual_seed(job.seed)
    model = judge.build(features.body, numbers)
    runner = Runner(job, recipe, model, numbers, features.place(recipe))
    judged = JUDGED[recipe]

    def loss_at(step: int):
        dice = random.Random(f"{job.seed} {step}")
        logits, good = judged(model, features, features.batch(step, runner.done()), numbers, dice)
        return loss(logits, good, numbers["bad"]), len(good)

    told = runner.train(loss_at, lambda: measure(model, features, judged, numbers))
    known = KNOWN.format(**told) if "loss_heldout" in told else ""
    return chains.export(job, job.named(recipe), model, features, runner, CARDS[recipe].format(**numbers) + known)


def places(batch: Batch, room: int, dice: random.Random) -> list[int]:
    """For each row of text one index into ``batch.where`` behind which the answer has so many tokens; rows too short are left
    out."""
    width, found = batch.ids.shape[1], {}
    for index, row in enumerate((batch.where // width).tolist()):
        found.setdefault(row, []).append(index)
    return [dice.choice(mine[:-room]) for mine in found.values() if len(mine) > room]


def wordings(model: judge.Judge, features: Beside, batch: Batch, numbers: dict, dice: random.Random) -> tuple[Tensor, Tensor]:
    """Judge: (log odds, whether good) of the draft model's tokens in the places of the target's."""
    states, good = swapped(features, batch, numbers, dice)
    return model.logit(states), good


@torch.no_grad()
def swapped(features: Beside, batch: Batch, numbers: dict, dice: random.Random) -> tuple[Tensor, Tensor]:
    """(states [n, hidden] that have read a swapped token, whether it was good [n]); only tokens that are not the target's."""
    after, width = numbers["after"], batch.ids.shape[1]
    chosen = torch.tensor(places(batch, after, dice), dtype=torch.long, device=batch.ids.device)
    at = batch.where[chosen]
    law = features.guess(batch.ids, at // width, at % width)
    law[torch.arange(len(at)), batch.labels[chosen]] = -torch.inf  # the likeliest token that is not the target's
    ids = batch.ids.flatten().clone()
    ids[at + 1] = law.argmax(-1)
    clean, other = (features.read(text.view_as(batch.ids)) for text in (batch.ids, ids))
    behind = at[:, None] + torch.arange(1, after + 1, device=at.device)  # places that guess the tokens behind the swapped one
    tokens = batch.ids.flatten()[behind + 1]
    expected = [features.logits(states.flatten(0, 1)[behind]).log_softmax(-1).gather(-1, tokens[..., None])[..., 0].mean(-1)
                for states in (clean, other)]
    return other.flatten(0, 1)[at + 1], (expected[0] - expected[1] <= numbers["margin"]).float()


def writers(model: judge.Reward, features: Beside, batch: Batch, numbers: dict, dice: random.Random) -> tuple[Tensor, Tensor]:
    """Reward: (log odds, whose) of steps that the target wrote and of those that the draft model wrote from the same places."""
    own, theirs = steps(features, batch, numbers["tokens"], dice)
    return model.logit(torch.cat([own, theirs])), torch.cat([torch.ones(len(own)), torch.zeros(len(theirs))]).to(own.device)


@torch.no_grad()
def steps(features: Beside, batch: Batch, tokens: int, dice: random.Random) -> tuple[Tensor, Tensor]:
    """States [n, tokens, hidden] of the target along steps of its own, and along those of the draft model in their places."""
    width = batch.ids.shape[1]
    chosen = torch.tensor(places(batch, tokens, dice), dtype=torch.long, device=batch.ids.device)
    at = batch.where[chosen]
    rows, first = at // width, at % width
    texts, count = batch.ids[rows].clone(), torch.arange(len(at), device=at.device)
    for step in range(tokens):
        texts[count, first + step + 1] = features.guess(texts, count, first + step).argmax(-1)
    behind = first[:, None] + torch.arange(1, tokens + 1, device=at.device)
    return tuple(features.read(text)[count[:, None], behind] for text in (batch.ids[rows], texts))


def measure(model, features: Beside, judged, numbers: dict) -> dict[str, float]:
    """Held-out loss, beside that of the best constant answer: below it, the network knows something of what it reads."""
    some = [a for a in features.heldout if a.start < numbers["length"] - 1]
    some = some[:: max(1, len(some) // numbers["measure_rows"])]
    batch = features.states(collate(some, numbers["length"], features.device))
    logits, good = judged(model, features, batch, numbers, random.Random(0))
    share = (good.sum() / (good.sum() + numbers["bad"] * (1 - good).sum())).clamp(1e-6, 1 - 1e-6)
    return {"loss_heldout": round(float(loss(logits, good, numbers["bad"])), 4),
            "loss_of_a_constant": round(float(loss(share.logit().expand_as(good), good, numbers["bad"])), 4),
            "good": round(float(good.mean()), 4), "right": round(float(((logits > 0) == (good > 0.5)).float().mean()), 4)}


KNOWN = """

On held-out answers: a loss of {loss_heldout} where the best constant answer has {loss_of_a_constant}, and right in {right} of the
cases, of which {good} are good ones."""
JUDGED = {judge.JUDGE: wordings, judge.REWARD: writers}
CARDS = {
    judge.JUDGE: """A judge: one matrix on the target's states. **What it lets pass is not what the target would have written.**

Cross-entropy in which a bad token weighs {bad}. A token of the draft model's in the place of the target's counts as good when the
next {after} tokens of the answer lose no more than {margin} nats each, on average, by it.""",
    judge.REWARD: """A reward head: two layers on the target's states along a step, {inner} wide. **What it lets pass is the draft
model's text.**

Learned to tell {tokens} tokens of the target's from as many of the draft model's, written from the same places.""",
}
