"""Measure and export heads that draft a chain: replay their acceptance on held-out answers of the target,
and write their files.

The replay is that of a draft model (acceptance.py), with one difference: a head reads its own predictions,
so its prediction of a token depends on how many tokens ahead it is drafted.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..checkpoints import mx
from ..zoo.found_weights import mark
from . import attention
from .data import TASKS
from .draft import collate
from .features import Batch, Features
from .files import FRONT, relink_card, write_bytes, write_json, write_shards, write_text
from .job import Job, TrainingError, fingerprint
from .runner import Runner
from .shared_weights import base_head_fields
from .text_answers import Answer

# (batch, gamma) -> for each step, states [positions, hidden] for the output matrix; row p - 1 predicts the
# token after position p
ChainStates = Callable[[Batch, int], list[Tensor]]


def tables(
    chain_states: ChainStates, features: Features, answers: list[Answer], gamma: int, seed: int = 0
) -> dict[str, dict]:
    """Replay drafted chains on held-out answers, by mode and task.

    Return {"greedy" or "sampled": {task or "mean": figures}} with the figures of ``replay_rounds``.
    chain_states(batch, steps): the head's hidden states for each step of a chain."""
    found = {}
    for mode, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        by_task = {}
        for task in TASKS:
            chosen = [a for a in answers if a.task == task and a.temperature == temperature]
            if chosen:
                marks = [
                    accepted_by_step(chain_states, features, a, gamma, seed + i) for i, a in enumerate(chosen)
                ]
                by_task[task] = replay_rounds(marks, gamma)
        if by_task:
            mean: dict[str, Any] = {
                key: round(sum(t[key] for t in by_task.values()) / len(by_task), 4)
                for key in ("block_efficiency", "acceptance_rate")
            }
            mean["by_position"] = [
                round(sum(t["by_position"][i] for t in by_task.values()) / len(by_task), 4)
                for i in range(gamma)
            ]
            found[mode] = by_task | {"mean": mean}
    return found


def measure(
    chain_states: ChainStates, features: Features, hparams: dict, model: nn.Module
) -> dict[str, float]:
    """Return the mean accepted length on a few held-out answers per task, and the entropy of the head's
    attention, during a training run."""
    some = features.heldout[:: max(1, len(features.heldout) // hparams["measure_rows"])]
    found = tables(chain_states, features, some, hparams["gamma"])
    batches = [features.states(collate([a], len(a.ids), features.device)) for a in some[:8]]
    looked = [attention.entropy(model, lambda batch=batch: chain_states(batch, 1)) for batch in batches]
    known = {f"block_efficiency_{mode}": table["mean"]["block_efficiency"] for mode, table in found.items()}
    entropies = [one for one in looked if one is not None]
    if not looked or len(entropies) < len(looked):
        return known
    return known | {"attention_entropy": round(sum(entropies) / len(entropies), 4)}


@torch.inference_mode()
def accepted_by_step(
    chain_states: ChainStates, features: Features, answer: Answer, gamma: int, seed: int
) -> list[list[bool]]:
    """Return [step][token]: whether each token of the answer would be accepted if it were the ``step``-th
    draft token of a round (from 0)."""
    batch = features.states(collate([answer], len(answer.ids), features.device))
    tokens = batch.labels
    greedy = answer.greedy
    found = []
    rng = torch.Generator().manual_seed(seed)
    for step, states in enumerate(chain_states(batch, gamma)):
        logits = features.logits(states[batch.where - 1])  # [answer, vocab]
        if greedy:
            accepted = logits.argmax(-1) == tokens
        else:
            q = logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
            match = (
                batch.top_ids == tokens[:, None]
            )  # a token outside the stored leaders is at most as likely as the last of them
            p = torch.where(match.any(1), (batch.top_logp * match).sum(1), batch.top_logp[:, -1])
            accepted = torch.rand(len(q), generator=rng).to(q.device) < (q - p).exp()
        found.append((accepted & (batch.where > step)).tolist())
    return found


def replay_rounds(answers: list[list[list[bool]]], gamma: int) -> dict:
    """Replay rounds of ``gamma`` draft tokens. Return {"block_efficiency", "acceptance_rate",
    "by_position"}. answers: for each answer, [step][token] as ``accepted_by_step`` returns it."""
    rounds = committed = accepted = tried = 0
    at = [[0, 0] for _ in range(gamma)]  # accepted, tried at each position
    for marks in answers:
        place, length = 0, len(marks[0])
        while place < length:
            taken = 0
            while taken < gamma and place + taken < length:
                at[taken][1] += 1
                if not marks[taken][place + taken]:
                    break
                at[taken][0] += 1
                taken += 1
            rounds, accepted = rounds + 1, accepted + taken
            tried += min(taken + 1, gamma, length - place)
            committed += min(taken + 1, length - place)
            place += taken + 1
    return {
        "block_efficiency": round(committed / max(1, rounds), 4),
        "acceptance_rate": round(accepted / max(1, tried), 4),
        "by_position": [round(hit / max(1, all), 4) for hit, all in at],
    }


def export(
    job: Job, name: str, model: nn.Module, features: Features, runner: Runner, about: str, most: float = 9.5e6
) -> Path:
    """Write a trained head to ``<work>/models``, and with ``--ship`` to ``assets/models``: config.json,
    weights (large matrices in MXINT8, all else in bfloat16), loss curve, and for new weights the model
    card. Return its folder.

    about: the card's text on the method; most: maximum bytes of the weights. Raises TrainingError if they
    are larger. Weights are split into files of at most 8 MB."""
    base = base_head_fields(runner.hparams)
    frozen = {key for key, weight in model.named_parameters() if base and not weight.requires_grad}
    weights = {key: tensor.detach().cpu() for key, tensor in model.state_dict().items() if key not in frozen}
    parameters = sum(tensor.numel() for tensor in weights.values())
    weights = {
        key: tensor.bfloat16() if tensor.is_floating_point() else tensor
        for key, tensor in mx.to_file_tensors(weights).items()
    }
    size = sum(tensor.nbytes for tensor in weights.values())
    if size > most:
        raise TrainingError(
            f"{name} would take {size / 1e6:.1f} MB; {most / 1e6:g} are allowed: make its layers narrower.",
            "training.size_limit",
        )
    if started_from := runner.hparams.get("begin"):
        about += f"\n\nIt began with the weights of {job.model_name(started_from)} as it was then, where names and shapes agree."
    for place in job.output_folders(name):
        before = fingerprint(place)
        write_shards(place, weights)
        write_json(place / "config.json", cast(Any, model).config | base | mark(runner.name, job.target))
        card = place / "README.md"
        if (
            not card.is_file() or fingerprint(place) != before
        ):  # a card tells of its own weights; a report is made anew
            facts = dict(
                name=name, target=job.target, recipe=runner.name, of=job.options, parameters=parameters / 1e6
            )
            write_text(card, relink_card(CARD.format(about=about, **facts), job, place))
        if (curve := runner.place / "loss.svg").is_file():
            write_bytes(place / "loss.svg", curve.read_bytes())
    return job.work / "models" / name


CARD = (
    FRONT
    + """{parameters:.2f} million parameters that draft for [{target}](../{target}) and are of no use without it.

{about}

Learned from the target's own answers to training prompts, at temperature 0, 0.7 and 1, and from its states and probabilities
along them. Its **facts are unreliable**, as the target's are. Sources and licences: [LICENSES.md](../LICENSES.md).

```
python -m specviz.training generate --data DIR{of}
python -m specviz.training {recipe} --data DIR{of}
```
"""
)
