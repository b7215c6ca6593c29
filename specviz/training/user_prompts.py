"""Prompts of the kinds that visitors type, to be answered by the target.

`prompts.jsonl.gz` of the data folder holds ``{prompt, kind, source}``, some with a second user turn ``then``.
Prompts that overlap the evaluation sets of the folder (``eval/*.jsonl``) are left out, so that no drafter is
measured on what it was trained on.
"""

import gzip
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .corpus import Row
from .data import DataError

FILE = "prompts.jsonl.gz"
GRAM = 8  # words that may not occur in both a training prompt and an evaluation prompt
TASKS = {"code": "code", "math/reasoning": "math"}  # the task whose shards and figures a kind counts to
OTHERS = "chat"


@dataclass(frozen=True)
class Prompt(Row):
    """A prompt without a response. kind: what is asked for; then: the user's second turn, empty if there is
    none."""

    kind: str = ""
    then: str = ""


def load(data: Path | None) -> list[Prompt]:
    """Return the prompts of a data folder that do not overlap its evaluation sets; none if it has no such
    file. Raises DataError for a damaged file."""
    if data is None or not (data / FILE).is_file():
        return []
    try:
        with gzip.open(data / FILE, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        found = [
            Prompt(
                TASKS.get(row["kind"], OTHERS),
                row["source"],
                row["prompt"],
                "",
                row["kind"],
                row.get("then", ""),
            )
            for row in rows
        ]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{data / FILE} is damaged or cut short: copy it again.", "data.damaged") from error
    return without_overlap(found, evaluation_texts(data / "eval"))


def evaluation_texts(folder: Path) -> list[str]:
    """Return all prompts of the evaluation sets in a folder."""
    texts = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            texts += row["turns"] if "turns" in row else [row["prompt"]]
    return texts


def without_overlap(prompts: list[Prompt], texts: list[str]) -> list[Prompt]:
    """Return the prompts that share no ``GRAM`` consecutive words with any of these texts and whose words
    are not those of one of them."""
    whole = {tuple(words(text)) for text in texts}
    taken = {gram for text in texts for gram in grams(text)}
    return [
        one
        for one in prompts
        if tuple(words(one.prompt)) not in whole and taken.isdisjoint(grams(one.prompt))
    ]


def words(text: str) -> list[str]:
    """Return the lower-case words of a text, without punctuation."""
    return re.findall(r"\w+", text.lower())


def grams(text: str) -> set[tuple[str, ...]]:
    """Return all sequences of ``GRAM`` words of a text."""
    found = words(text)
    return {tuple(found[i : i + GRAM]) for i in range(len(found) - GRAM + 1)}


def by_kind(prompts: list[Prompt], seed: int) -> Iterator[Prompt]:
    """Yield each prompt once, kinds equally often while they last."""
    rng = random.Random(seed)
    decks: dict[str, list[Prompt]] = {}
    for one in rng.sample(prompts, len(prompts)):
        decks.setdefault(one.kind, []).append(one)
    while decks:
        kind = rng.choice(sorted(decks))
        yield decks[kind].pop()
        if not decks[kind]:
            del decks[kind]
