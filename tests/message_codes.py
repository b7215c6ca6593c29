"""Which message of a table a sentence is, so that tests name identifiers and no wording."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from functools import cache

import pytest

from specviz import ROOT
from tools.error_list import raise_sites

VAGUE = ("registry", "variable", "run.engine", "usage")  # messages that are another module's words


def codes(words: str, texts: dict[str, str]) -> set[str]:
    """Return the identifiers of the messages that these words may be."""
    plain = {
        code: text.replace("{{", "\0").replace("}}", "\1")
        for code, text in texts.items()
        if text and code not in VAGUE
    }
    patterns = {
        code: re.sub(r"\\\{.*?\\\}", ".*", re.escape(text)).replace("\0", r"\{").replace("\1", r"\}")
        for code, text in plain.items()
    }
    return {code for code, pattern in patterns.items() if re.fullmatch(pattern, words, re.S)}


@contextmanager
def refuses(kind: type[BaseException], code: str, *parts: object):
    """Expect an error of a kind with the identifier ``code``, whose sentence holds ``parts``: names, keys
    and numbers."""
    with pytest.raises(kind) as caught:
        yield caught
    assert getattr(caught.value, "code", None) == code, (
        f"{getattr(caught.value, 'code', None)}: {caught.value}"
    )
    assert not [part for part in parts if str(part) not in str(caught.value)], str(caught.value)


@cache
def _engine() -> list[tuple[str, re.Pattern[str]]]:
    found = []
    for site in raise_sites():
        pieces = re.split(r"\{[^{}]*\}|\u2026", site.sentence.rstrip("."))
        if site.code and re.search(r"[a-z]{3}.*[a-z]{3}", " ".join(pieces)):
            found.append((site.code, re.compile(".*".join(map(re.escape, pieces)), re.S)))
    return found


def command_codes(words: str) -> set[str]:
    """Return the identifiers of the messages of the command line, or the engine's errors, that a line on
    stderr may be."""
    from specviz.cli.messages import TEXTS

    return codes(words.removeprefix("specviz: ").strip(), TEXTS) | engine_codes(words)


def engine_codes(words: str) -> set[str]:
    """Return the identifiers of the engine's errors whose sentence may be part of these words."""
    return {code for code, pattern in _engine() if pattern.search(words)}


@cache
def viewer_texts() -> dict[str, str]:
    """Return the table of assets/viewer/messages.js: identifier -> text."""
    script, text = (
        (ROOT / "assets" / "viewer" / "messages.js").read_text(encoding="utf-8"),
        r'"(?:[^"\\]|\\.)*"',
    )
    found = re.finditer(rf'^    "?([\w.]+)"?:\s*({text}(?:\s*\+\s*{text})*),$', script, re.M)
    return {entry[1]: "".join(json.loads(part) for part in re.findall(text, entry[2])) for entry in found}


class _Given(dict):
    """Values of a message; one that is missing becomes a mark."""

    def __missing__(self, name):
        return _Missing()


class _Missing:
    def __format__(self, spec):
        return "\0"

    def __getattr__(self, name):
        return self

    def __getitem__(self, name):
        return self


def begins(texts: dict[str, str], code: str, **values: object) -> str:
    """Return the message of a table up to its first value that is not given; all of it where none is
    missing."""
    return texts[code].format_map(_Given(values)).partition("\0")[0]
