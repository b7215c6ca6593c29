"""The same row alone and in a batch: the logits of a position from a pass of its own, from a pass with other requests,
and from a pass with a draft's other rows, in float32, bfloat16 and int8, and how often the top-1 token differs.

Sums of floating-point numbers depend on their order, and a matrix product orders them by its shape. A batch-invariant
engine has a fixed order, or sums integers, as the int8 pass here does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core import DraftTree, Verdict
from ..evidence.certificate import plain_decoding
from ..models.llama import unsupported_reason
from ..run.request import SessionError, read_integer
from ..targets.fast import FastModel
from ..targets.int8 import Int8Model
from ..zoo.tokenizer import read_json
from .pass_costs import machine
from .tasks import sample_prompts

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

ROWS = 8  # requests of a batch, and rows of a verification
PAST = 16  # tokens of the prompt that are read
STEPS = 24  # positions of each text that are compared; a multiple of ROWS
WAYS = ("batch", "draft")


def batch_effects(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Compare logits of the same positions. payload {steps?} -> {rows: [{numbers, positions, batch, draft}], requests,
    machine}, yielded repeatedly. batch, draft: {changed: positions with other bits, flips: with another top-1 token,
    largest: difference of a logit, example}. Raises SessionError for a target with another forward pass."""
    steps = read_integer("steps", payload.get("steps", STEPS), ROWS, 4 * STEPS) // ROWS * ROWS
    why = unsupported_reason(read_json(loaded.folder, "config.json"))
    if why:
        raise SessionError(
            f"Rows cannot be compared in several number formats: {loaded.name} {why}.", "lab.batch_effects"
        )
    yield "Writing eight texts, which all passes then read."
    texts = _texts(loaded, steps)
    kinds: list[tuple[str, Callable[[], Any]]] = [
        ("float32", lambda: FastModel(loaded.folder, loaded.device, torch.float32)),
        ("bfloat16", lambda: FastModel(loaded.folder, loaded.device, torch.bfloat16)),
    ]
    if loaded.device.type == "cpu":
        kinds.append(("int8", lambda: Int8Model(loaded.folder, loaded.device)))
    rows: list[dict[str, Any]] = []
    for name, make in kinds:
        yield f"Reading the same positions in {name}."
        with torch.inference_mode():
            model = make()
            alone = _alone(model, texts)
            row = {"numbers": name, "positions": alone.shape[0] * alone.shape[1]}
            for way, logits in (("batch", _in_batch(model, texts)), ("draft", _in_draft(model, texts))):
                row[way] = _compared(loaded, alone, logits)
            del model
        rows.append(row)
        yield {"rows": list(rows), "requests": ROWS, "steps": steps, "machine": machine(loaded)}
        if stop():
            return


def _texts(loaded: Loaded, steps: int) -> list[list[int]]:
    """Return texts of PAST tokens of a prompt and the target's greedy continuation of them."""
    texts = []
    for prompt in sample_prompts(64):
        ids = list(loaded.tokenizer.encode(prompt, add_special_tokens=False))[:PAST]
        if len(ids) < PAST:
            continue
        with torch.inference_mode():
            texts.append([*ids, *plain_decoding(loaded.open_target(), ids, steps + 1)[0]])
        if len(texts) == ROWS:
            break
    shortest = min(len(text) for text in texts)
    whole = (shortest - PAST - 1) // ROWS * ROWS + PAST + 1  # an answer may end early
    return [text[:whole] for text in texts]


def _alone(model: Any, texts: list[list[int]]) -> Tensor:
    """Return logits [text, position, vocab] of passes with one row each."""
    out = []
    for text in texts:
        target = model.open()
        target.sync(text[:PAST])
        rows = []
        for token in text[PAST:-1]:
            rows.append(target.score(DraftTree()).logits[0].float().cpu())
            target.commit(Verdict((), token, "plain"))
        out.append(torch.stack(rows))
    return torch.stack(out)


def _in_batch(model: Any, texts: list[list[int]]) -> Tensor:
    """Return the same logits from passes with one row of each text."""
    targets = [model.open() for _ in texts]
    for target, text in zip(targets, texts):
        target.sync(text[:PAST])
    steps = []
    for at in range(PAST, len(texts[0]) - 1):
        scores = targets[0].score_many(targets, [DraftTree()] * len(targets))
        steps.append(torch.stack([one.logits[0].float().cpu() for one in scores]))
        for target, text in zip(targets, texts):
            target.commit(Verdict((), text[at], "plain"))
    return torch.stack(steps, 1)


def _in_draft(model: Any, texts: list[list[int]]) -> Tensor:
    """Return the same logits from passes with ROWS rows of one text, as when a draft is verified."""
    out = []
    for text in texts:
        target = model.open()
        target.sync(text[:PAST])
        rows = []
        for at in range(PAST, len(text) - 1, ROWS):
            chain = text[at : at + ROWS - 1]
            rows.append(target.score(DraftTree.chain(chain)).logits.float().cpu())
            target.commit(Verdict(tuple(range(len(chain))), text[at + ROWS - 1], "bonus"))
        out.append(torch.cat(rows))
    return torch.stack(out)


def _compared(loaded: Loaded, alone: Tensor, other: Tensor) -> dict[str, Any]:
    """Compare logits [text, position, vocab] of the same positions. example: the top-1 tokens of the first position
    where they differ, with their probabilities alone and in a batch; None if none differs."""
    changed = (alone != other).any(-1)
    mine, theirs = alone.argmax(-1), other.argmax(-1)
    flipped = mine != theirs
    found: dict[str, Any] = {
        "changed": int(changed.sum()),
        "flips": int(flipped.sum()),
        "largest": float((alone - other).abs().max()),
        "example": None,
    }
    if found["flips"]:
        text, at = flipped.nonzero()[0].tolist()
        pair = [int(mine[text, at]), int(theirs[text, at])]
        found["example"] = {
            "tokens": [loaded.token_bytes(token).decode("utf-8", "replace") for token in pair],
            "alone": alone[text, at].softmax(-1)[pair].tolist(),
            "batched": other[text, at].softmax(-1)[pair].tolist(),
        }
    return found
