"""Prompts that the target writes itself.

A chat model that is given the template up to the beginning of the user's turn continues with a user's
message (Magpie: Xu et al., arXiv 2406.08464). Its answers to such messages are material for drafters beyond
the tasks of the data folder.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from . import data
from .files import write_json
from .job import TrainingError

SOURCE = "self-written"
TASK = "chat"
LIKELY = (
    0.95  # share of a prompt's tokens that must be among the target's top ones; what is not is mostly noise
)
WORDS = 4  # shorter ones are greetings and fragments
PER_ROUND = 1.25  # prompts sampled for each one needed
ROUNDS = 4


def user_turn(tokenizer) -> list[int]:
    """Return the token ids of the chat template up to where the user's text begins. Raises TrainingError if
    the template has no such place."""
    one, other = data.chat_prompt(tokenizer, "a"), data.chat_prompt(tokenizer, "9")
    same = next((i for i, (x, y) in enumerate(zip(one, other)) if x != y), 0)
    if not same:
        raise TrainingError(
            "The target's chat template does not begin with the same tokens for every prompt: "
            "set self_written to 0 in generate.yaml.",
            "generate.template",
        )
    return one[:same]


class PromptWriter:
    """Sample prompts from the target.

    generator: an AnswerGenerator of the target, whose ``new_tokens`` limits a prompt's length. folder:
    where the prompts of each shard are kept; a later run reads them, so that no prompt occurs twice.
    temperature: of the sampling."""

    def __init__(self, generator: Any, folder: Path, temperature: float):
        self.generator = generator
        self.folder = folder
        self.temperature = temperature
        self.start = user_turn(generator.tokenizer)
        self.seen = {text for path in sorted(folder.glob("prompts-*.json")) for text in read(path)}

    def prompts(self, count: int) -> list[str]:
        """Return up to ``count`` new prompts; fewer if the target repeats itself."""
        found: list[str] = []
        batch = self.generator.hparams["batch"]
        for _ in range(ROUNDS):
            wanted = int(PER_ROUND * (count - len(found)) + 1)
            for first in range(0, wanted, batch):
                rows = [(self.start, TASK, self.temperature)] * min(batch, wanted - first)
                found += [
                    text
                    for text in map(self.text, self.generator.decode(rows))
                    if text is not None and self.new(text)
                ]
            if len(found) >= count:
                break
        return found[:count]

    def text(self, answer: Any) -> str | None:
        """Return the text of a sampled prompt; None if it is unfinished, too short, repetitive or
        unlikely."""
        ids = answer.ids[answer.start :].tolist()
        if not ids or ids[-1] != self.generator.tokenizer.eos_token_id or data.loops(ids, 6, 2):
            return None
        likely = [token in top for token, top in zip(ids, answer.top_ids.tolist())]
        text = self.generator.tokenizer.decode(ids[:-1], skip_special_tokens=True).strip()
        fits = sum(likely) >= LIKELY * len(ids) and len(text.split()) >= WORDS and "\ufffd" not in text
        return text if fits else None

    def new(self, text: str) -> bool:
        """Return whether this prompt was not written before, and remember it."""
        key = " ".join(text.lower().split())
        fresh = key not in self.seen
        self.seen.add(key)
        return fresh

    def replace(self, shard: int, pairs: list, share: float) -> list:
        """Return a shard's (row, temperature) pairs with a share of their prompts replaced by self-written
        ones; write these into ``prompts-SHARD.json``."""
        texts = self.prompts(round(share * len(pairs)))
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / f"prompts-{shard:05d}.json", {"prompts": texts})
        rows = [
            (dataclasses.replace(row, prompt=text, task=TASK, source=SOURCE), temperature)
            for (row, temperature), text in zip(pairs, texts)
        ]
        return rows + pairs[len(rows) :]


def read(path: Path) -> list[str]:
    """Return the prompts of one file, in the form in which they are compared."""
    return [
        " ".join(text.lower().split()) for text in json.loads(path.read_text(encoding="utf-8"))["prompts"]
    ]
