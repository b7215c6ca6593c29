"""Read training rows and convert them to token sequences.

A row is `{task, source, prompt, response}`. Rows come from a folder with `train.jsonl.gz` and
`heldout.jsonl.gz`, or from the project's generators (`corpus.py`). Chat rows are rendered with the target's
chat template; the loss covers the answer and the end token, never the question.
"""

import gzip
import itertools
import json
import random
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..core.errors import CodedError
from ..zoo.text import encode_chat
from .corpus import Row, make_rows

TASKS = ("story", "edit", "chat", "math", "code", "prose")
GRAM = 12  # an answer loops if some n-gram of this size
TIMES = 3  # occurs this often
FIELDS = ("task", "source", "prompt", "response")


class DataError(CodedError, ValueError):
    """Invalid training data."""


def read_rows(path: Path) -> list[Row]:
    """Return all training examples of one ``.jsonl.gz`` file. Raises DataError that names the first invalid
    line."""
    if not path.is_file():
        raise DataError(
            f"There is no {path.name} in {path.parent}: give --data a folder that has it, or leave --data out.",
            "data.file",
        )
    rows = []
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                rows.append(_row(line, path, number))
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is damaged or cut short after {len(rows)} rows: copy it again.", "data.damaged"
        ) from error
    if not rows:
        raise DataError(f"{path} holds no rows.", "data.empty")
    return rows


def _row(line: str, path: Path, number: int) -> Row:
    try:
        fields = json.loads(line)
        row = Row(*(fields[name] for name in FIELDS))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}, line {number}, is no row of {', '.join(FIELDS)}.", "data.row") from error
    if not all(isinstance(getattr(row, name), str) for name in FIELDS):
        raise DataError(f"{path}, line {number}: {', '.join(FIELDS)} must all be text.", "data.not_text")
    return row


def load(data: Path | None, split: str, own: int = 6000) -> list[Row]:
    """Return the training examples of a split ("train" or "heldout"): those of the data folder, or ``own``
    generated ones if ``data`` is None."""
    if data is not None:
        if not data.is_dir():
            raise DataError(
                f"There is no data folder {data}: give --data a folder, or leave it out.", "data.folder"
            )
        return read_rows(data / f"{split}.jsonl.gz")
    return make_rows(own, seed={"train": 1, "heldout": 2}[split])


def balanced(rows: list[Row], seed: int, weights: dict[str, float] | None = None):
    """Yield training examples without end, tasks in proportion to ``weights`` (None: equally often). The
    examples of a task are reshuffled once all of them were used."""
    rng = random.Random(seed)
    pools: dict[str, list[Row]] = {}
    for row in rows:
        pools.setdefault(row.task, []).append(row)
    names = sorted(name for name in pools if weights is None or weights.get(name, 0) > 0)
    if not names:
        raise DataError("No row belongs to a task with a weight above zero.", "data.weights")
    shares = [1.0 if weights is None else weights[name] for name in names]
    decks: dict[str, list[Row]] = {name: [] for name in names}
    while True:
        name = rng.choices(names, shares)[0]
        if not decks[name]:
            decks[name] = rng.sample(pools[name], len(pools[name]))
        yield decks[name].pop()


def chat_prompt(tokenizer, prompt: str, more: Sequence[str] = ()) -> list[int]:
    """Return the token ids of a prompt in the target's chat template, or of a conversation that goes on with
    ``more``: an answer, the user's next turn and so on. The text of a special token stays plain text."""
    roles = itertools.cycle(("user", "assistant"))
    return encode_chat(tokenizer, [{"role": next(roles), "content": text} for text in (prompt, *more)])


def chat_row(tokenizer, row: Row) -> tuple[list[int], int]:
    """Return (ids, start): the token ids of prompt and response in the chat template, and the index of the
    response's first token."""
    ids = chat_prompt(tokenizer, row.prompt)
    answer = tokenizer.encode(row.response, add_special_tokens=False, split_special_tokens=True)
    return ids + answer + [tokenizer.eos_token_id], len(ids)


def loops(ids: list[int], size: int = GRAM, times: int = TIMES) -> bool:
    """Return whether an answer repeats itself: whether some sequence of ``size`` token ids occurs at least
    ``times`` times."""
    grams = Counter(tuple(ids[i : i + size]) for i in range(len(ids) - size + 1))
    return max(grams.values(), default=0) >= times
