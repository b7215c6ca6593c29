import copy
import gzip
import itertools
import json
from collections import Counter

import pytest
from transformers import AutoTokenizer

from specviz.training import data
from specviz.training.job import SHIPPED, TARGET

from ..message_codes import refuses

ROW = {"task": "chat", "source": "s", "prompt": "Hello", "response": "Hi!"}


def write(path, rows):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def words():
    return AutoTokenizer.from_pretrained(SHIPPED / TARGET)


def test_missing_folder_and_missing_file(tmp_path):
    with refuses(data.DataError, "data.folder"):
        data.load(tmp_path / "nowhere", "train")
    with refuses(data.DataError, "data.file", "train.jsonl.gz"):
        data.load(tmp_path, "train")


def test_truncated_file(tmp_path):
    path = tmp_path / "train.jsonl.gz"
    write(path, [ROW | {"prompt": str(n)} for n in range(500)])
    path.write_bytes(path.read_bytes()[:-60])
    with refuses(data.DataError, "data.damaged"):
        data.load(tmp_path, "train")


@pytest.mark.parametrize(
    "bad, code",
    [
        ({"task": "chat"}, "data.row"),
        (["list"], "data.row"),
        (ROW | {"prompt": None}, "data.not_text"),
        (ROW | {"response": 3}, "data.not_text"),
    ],
)
def test_bad_rows_are_named_by_line(tmp_path, bad, code):
    write(tmp_path / "train.jsonl.gz", [ROW, bad])
    with refuses(data.DataError, code, 2):
        data.load(tmp_path, "train")


def test_not_gzip_and_empty(tmp_path):
    (tmp_path / "train.jsonl.gz").write_text("{}")
    with refuses(data.DataError, "data.damaged"):
        data.load(tmp_path, "train")
    write(tmp_path / "train.jsonl.gz", [])
    with refuses(data.DataError, "data.empty"):
        data.load(tmp_path, "train")


def test_the_prompt_is_the_template(words):
    for prompt in ("Hello", "two\nlines", " spaced ", "12 + 34", "é漢字🙂"):
        ids = words.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)[
            "input_ids"
        ]
        assert data.chat_prompt(words, prompt) == ids


def test_the_prompt_is_another_targets_template(words):
    """Of a tokenizer with other control tokens and a default system message, as SmolLM2's."""
    other = copy.deepcopy(words)
    other.chat_template = (
        "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|system|>\nBe brief.<|end|>\n{% endif %}"
        "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    text = other.decode(data.chat_prompt(other, "Hello <|end|>"))
    assert "Be brief." in text and text.endswith("<|assistant|>") and "Hello <|end|>" in text
    assert data.chat_prompt(other, "Hello <|end|>").count(other.eos_token_id) == 2, (
        "what is typed ends no turn"
    )


def test_special_text_in_a_row_stays_text(words):
    row = data.Row("chat", "s", "a<|end|>b", "x<|user|>y")
    ids, start = data.chat_row(words, row)
    assert ids[:start].count(words.eos_token_id) == 1
    assert ids[start:].count(words.eos_token_id) == 1 and ids[-1] == words.eos_token_id
    assert words.decode(ids[start:-1]) == row.response


def test_balanced_follows_the_weights_and_the_seed():
    rows = [
        data.Row(task, "s", str(n), "r")
        for task, count in (("chat", 900), ("math", 30))
        for n in range(count)
    ]
    first = list(itertools.islice(data.balanced(rows, 3), 400))
    assert first == list(itertools.islice(data.balanced(rows, 3), 400))
    assert 150 < Counter(row.task for row in first)["math"] < 250
    only = list(itertools.islice(data.balanced(rows, 3, {"math": 1.0}), 60))
    assert (
        Counter(row.prompt for row in only).most_common(1)[0][1] == 2
    )  # a deck is used up before it is shuffled anew
    with refuses(data.DataError, "data.weights"):
        next(data.balanced(rows, 3, {"math": 0.0}))
