"""Hostile strings: in a prompt they never become control tokens, on a terminal never commands, in an error
never pages of text."""

from __future__ import annotations

import random

import pytest

from specviz.cli.terminal import escape_control_characters
from specviz.core import Sampling
from specviz.run import Session, SessionError
from specviz.trace.files import Trace
from specviz.trace.page import to_html
from specviz.trace.recorder import Recorder
from specviz.zoo.text import encode_chat, encode_plain

from ..run.fakes import SPECIALS, FakeLoaded, byte_level, metaspace, pieces, wordpiece

STRINGS = [
    "<script>alert(1)</script>",
    "</script><script>",
    "<!--<script>",
    "]]>",
    "<img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "{{7*7}}",
    "{% raw %}",
    "${7*7}",
    "`id`",
    "$(id)",
    "'; drop table t; --",
    "%s%n%x",
    "{0.__class__}",
    "../../etc/passwd",
    "\x1b[2J\x1b]0;x\x07",
    "\x9b31m",
    "\r\x08\x7f",
    "\u202eevil",
    "\u2066x\u2069",
    "\u200e",
    "\ufeff",
    "\ufffe",
    "\ud800",
    "\udfff\ud800",
    "\0",
    "\u2028\u2029",
    "A\u0300" * 500,
    "\U0001f469\u200d\U0001f4bb",
    "\U000e0041",
    "\ue0000123456789abcdef\ue001",
    "<0x0A>",
    "\u2581",
    "\u0120",
    *SPECIALS,
    "<|end|" + "|>",
    "<s>",
    "</s>",
    "[SEP]",
]


def hostile(rng: random.Random) -> str:
    return "".join(
        rng.choice(STRINGS) if rng.random() < 0.6 else chr(rng.randrange(0x110000))
        for _ in range(rng.randrange(1, 8))
    )


def control(tokenizer) -> set[int]:
    return {i for i, t in tokenizer.added_tokens_decoder.items() if t.special}


def check(text: str) -> None:
    """Control tokens of what is encoded are the template's own, whatever was typed."""
    for tokenizer in (byte_level(), pieces(), metaspace(), wordpiece()):
        specials = control(tokenizer)
        own = [i for i in encode_plain(tokenizer, "x") if i in specials]
        ids = encode_plain(tokenizer, text)
        unknown = tokenizer.unk_token_id
        assert [i for i in ids if i in specials and i != unknown] == [i for i in own if i != unknown], text
    tokenizer = byte_level()
    specials = control(tokenizer)
    turns = [
        {"role": "system", "content": text},
        {"role": "user", "content": text},
        {"role": "assistant", "content": text},
        {"role": "user", "content": "x" + text},
    ]
    plain = encode_chat(tokenizer, [{**turn, "content": "x"} for turn in turns])
    ids = encode_chat(tokenizer, turns)
    assert [i for i in ids if i in specials] == [i for i in plain if i in specials], text
    shown = escape_control_characters(text)
    assert not any(
        ord(c) < 32 and c not in "\t\n" or 127 <= ord(c) < 160 or c in "\u202a\u202e\u2066\u2069\u200e"
        for c in shown
    )


def test_what_is_typed_is_never_a_control_token():
    for text in STRINGS:
        check(text)
    for seed in range(60):
        check(hostile(random.Random(seed)))


@pytest.mark.soak
def test_twenty_thousand_hostile_strings():
    for seed in range(10_000, 30_000):
        check(hostile(random.Random(seed)))


@pytest.mark.parametrize("text", STRINGS)
def test_a_page_of_a_hostile_run_is_inert(text):
    loaded = FakeLoaded(context=4096)
    session = Session(loaded, "autoregressive", None, Sampling(1.0))
    recorder = Recorder(0, loaded.token_bytes)
    try:
        records = [record for event in session.run("x" + text, 2) for record in recorder.take(event)]
    except SessionError as error:
        assert len(str(error)) < 600
        return
    page = to_html(Trace.load(Trace(records).lines()), title=text)
    data = page.split('<script type="application/json" id="trace">')[1].split("</script>")[0]
    assert "<" not in data and ">" not in data and "\u2028" not in data
    assert page.count("<script") == 2 and "<img" not in page.split("<style>")[0]


@pytest.mark.parametrize("text", [one for one in STRINGS if one.strip()] + ["x" * 900_000])
def test_an_error_says_little_of_what_was_sent(text):
    loaded = FakeLoaded()
    for build in (
        lambda: Session(loaded, text),
        lambda: Session(loaded, "speculative", {text: 1}),
        lambda: Session(loaded, "speculative", {"gamma": text}),
        lambda: Session(loaded, "speculative").run("x", text),
        lambda: Session(loaded, "speculative").run("x", deadline=text),
    ):
        with pytest.raises(SessionError) as caught:
            build()
        assert len(str(caught.value)) < 3000 and "\n" not in str(caught.value)
