"""The error for an unusable checkpoint, and functions that quote a file's content safely in its message."""

from __future__ import annotations

import json
from os.path import commonprefix
from pathlib import Path
from typing import Any

from ..core.errors import CodedError

VALUE = 80  # most characters of a file's value in a message
WORD = 160  # of a word, such as a path
SENTENCE = 600  # of a sentence


def shown(value: Any, max_length: int = VALUE) -> str:
    """Return a value from a file as text for a message: at most ``max_length`` characters, without control
    or direction characters."""
    text = value if isinstance(value, str) else str(value)
    return printable(text if len(text) <= max_length else text[: max_length - 1] + "\u2026")


def printable(text: str) -> str:
    """Return the text with unprintable characters escaped (control and direction characters, lone
    surrogates); a line end becomes a space."""
    text = text.replace("\n", " ")
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    )


def one_line(sentence: Any) -> str:
    """Return a message as one line of at most SENTENCE characters; the middle of a very long word is left
    out."""
    text = printable(str(sentence)[: 8 * SENTENCE])
    text = " ".join(
        word if len(word) <= WORD else f"{word[: VALUE - 40]}\u2026{word[-30:]}" for word in text.split(" ")
    )
    return text if len(text) <= SENTENCE else text[: SENTENCE - 1] + "\u2026"


def without_values(sentence: str, found: Any) -> str:
    """Return a message, such as one of another library, with long quotations of a file's values shortened.
    found: the file's parsed JSON."""
    values, rest = set(), [found]
    while rest and len(values) < 10_000:
        one = rest.pop()
        if isinstance(one, (dict, list)):
            rest += [*one, *one.values()] if isinstance(one, dict) else one
        try:
            text = str(one)
        except RecursionError:
            continue
        if len(text) > VALUE or not text.isprintable():
            values |= {text, repr(one)[1:-1]}
    for text in sorted(values, key=len, reverse=True):
        while (
            len(text) > VALUE and (at := sentence.find(text[: VALUE + 1])) >= 0
        ):  # the sentence may hold the beginning alone
            end = at + len(commonprefix([sentence[at:], text]))
            sentence = sentence[:at] + text[: VALUE - 1] + "\u2026" + sentence[end:]
    return sentence


def about_files(folder: Path, error: BaseException | str) -> str:
    """Return the first line of an error about a checkpoint folder, with long values of the folder's JSON
    files shortened."""
    words = (str(error).strip().splitlines() or [type(error).__name__])[0]
    found = []
    for name in (
        "config.json",
        "tokenizer_config.json",
        "generation_config.json",
        "model.safetensors.index.json",
    ):
        try:
            found.append(json.loads((folder / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):  # it is not there, or the error is about that
            continue
    return one_line(without_values(words, found))


class ModelError(CodedError, ValueError):
    """Error: a checkpoint cannot be used. The message is one line."""

    def __init__(self, sentence: Any = "", code: str = ""):
        super().__init__(one_line(sentence), code)
