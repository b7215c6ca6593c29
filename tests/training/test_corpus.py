import ast
import csv
import io
import json
from collections import Counter

import pytest

from specviz.training import corpus
from specviz.training.data import TASKS

ROWS = corpus.make_rows(1300, seed=5)


def of(kind):
    return [row for row in ROWS if row.source == f"generated-{kind}"]


def test_same_seed_same_rows_and_another_seed_others():
    assert corpus.make_rows(60, 1) == corpus.make_rows(60, 1)
    assert corpus.make_rows(60, 1) != corpus.make_rows(60, 2)


def test_all_six_tasks_are_there():
    assert set(Counter(row.task for row in ROWS[:13])) == set(TASKS)


@pytest.mark.parametrize("kind", corpus.KINDS)
def test_rows_are_whole_and_varied(kind):
    rows = of(kind)
    assert all(row.prompt and row.response and "{" not in row.prompt.split("\n")[0] for row in rows)
    assert len({(row.prompt, row.response) for row in rows}) > len(rows) // 4


def test_copy_is_verbatim():
    assert all(row.prompt.endswith("\n" + row.response) for row in of("copy"))


def test_rename_leaves_no_old_name():
    for row in of("rename"):
        old, new = row.prompt.split("\n")[0].rstrip(":").split("the name ")[1].split(" changed to ")
        assert old not in row.response and new in row.response


def test_quote_is_a_sentence_of_the_text_with_the_word():
    for row in of("quote"):
        word = row.prompt.split('"')[1]
        sentence = row.response.strip('"')
        assert word in sentence and sentence in row.prompt


def test_typo_differs_by_one_swap():
    for row in of("typo"):
        broken = row.prompt.split("\n", 1)[1]
        assert broken != row.response and sorted(broken) == sorted(row.response)
        assert sum(a != b for a, b in zip(broken, row.response)) == 2


def test_numbered_lines_hold_every_sentence():
    for row in of("numbered"):
        lines = [line.split(". ", 1)[1] for line in row.response.split("\n")]
        assert " ".join(lines) == row.prompt.split("\n", 1)[1]


def test_arithmetic_is_right():
    for row in of("arithmetic"):
        left, right = row.response.rstrip(".").split(" = ")
        assert eval(left) == int(right)
    for row in of("word-problem"):
        for line in row.response.split("\n")[:2]:
            left, right = line.rstrip(".").split(" = ")
            assert eval(left) == int(right)


def test_python_parses():
    for row in of("python"):
        ast.parse(row.response.removeprefix("```python\n").removesuffix("\n```"))


def test_conversions_keep_the_records():
    def read(text):
        if text.startswith("["):
            return [list(map(str, row.values())) for row in json.loads(text)]
        if text.startswith("|"):
            return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n")[2:]]
        return list(csv.reader(io.StringIO(text)))[1:]

    for row in of("convert"):
        assert read(row.prompt.split("\n", 1)[1]) == read(row.response)
