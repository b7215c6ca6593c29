"""A tokenizer.json that attacks: what would take minutes or all memory is refused before it is read by the package,
and a pattern that gives up is a refusal."""

from __future__ import annotations

import json
import shutil

import pytest

from specviz import Session, load
from specviz.run.request import SessionError
from specviz.zoo.registry import ZooError, register
from specviz.zoo.tokenizer import open_tokenizer

FILES = ("tokenizer.json", "tokenizer_config.json", "config.json")


def replace(old: str, new: str) -> dict:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def added(count: int) -> list[dict]:
    return [{"id": 8192 + i, "content": f"<t{i}>", "special": True} for i in range(count)]


BOMBS = {
    "ten times ten times ...": {"normalizer": {"type": "Sequence", "normalizers": [replace("a", "a" * 10)] * 12}},
    "nested": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [replace("a", "b" * 900)]}]}},
    "a long prefix": {"normalizer": {"type": "Prepend", "prepend": "a" * 50_000_000}},
    "a long space": {"pre_tokenizer": {"type": "Metaspace", "replacement": "a" * 10_000, "prepend_scheme": "always"}},
    "many added tokens": {"added_tokens": added(300_000)},
}  # fmt: skip


def folder(tmp_path, change):
    source = register().find("Llama-specviz-16M").folder()
    for name in FILES:
        shutil.copy(source / name, tmp_path / name)
    stored = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    (tmp_path / "tokenizer.json").write_text(json.dumps(stored | change), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", BOMBS)
def test_a_tokenizer_that_takes_too_much_is_refused(tmp_path, name):
    with pytest.raises(ZooError) as refused:
        open_tokenizer(folder(tmp_path, BOMBS[name]))
    assert refused.value.code == "tokenizer.bounds"


def test_usual_steps_are_read(tmp_path):
    steps = [replace("``", '"'), replace(" ", "▁"), {"type": "Prepend", "prepend": "▁"}]
    place = folder(tmp_path, {"normalizer": {"type": "Sequence", "normalizers": steps}})
    assert open_tokenizer(place).encode("a b")


def test_brackets_without_end_are_refused(tmp_path):
    place = folder(tmp_path, {})
    deep = '{"type":"Sequence","normalizers":[' * 20_000 + '{"type":"Lowercase"}' + "]}" * 20_000
    whole = (place / "tokenizer.json").read_text(encoding="utf-8")
    (place / "tokenizer.json").write_text('{"x": ' + deep + "," + whole.lstrip()[1:], encoding="utf-8")
    with pytest.raises(ZooError):
        open_tokenizer(place)


def test_a_pattern_that_gives_up_refuses_the_prompt(monkeypatch):
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    loaded = load("Llama-specviz-16M", device="cpu")
    backend = loaded.tokenizer.backend_tokenizer
    before = backend.pre_tokenizer
    backend.pre_tokenizer = Split(Regex("(a+)+$"), "isolated")
    try:
        for raw in (True, False):  # without and with the chat template
            with pytest.raises(SessionError) as refused:
                Session(loaded, "autoregressive").encode("a" * 3000 + "b", raw)
            assert refused.value.code == "prompt.template" and "tokenizer" in str(refused.value)
    finally:
        backend.pre_tokenizer = before
