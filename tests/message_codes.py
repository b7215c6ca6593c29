"""Which message of a table a sentence is, so that tests name identifiers and no wording."""
from __future__ import annotations

import re
from contextlib import contextmanager

import pytest

VAGUE = ("registry", "variable", "run.engine", "usage")  # messages that are another module's words


def codes(words: str, texts: dict[str, str]) -> set[str]:
    """Return the identifiers of the messages that these words may be."""
    plain = {code: text.replace("{{", "\0").replace("}}", "\1") for code, text in texts.items() if text and code not in VAGUE}
    patterns = {code: re.sub(r"\\\{.*?\\\}", ".*", re.escape(text)).replace("\0", r"\{").replace("\1", r"\}") for code, text in plain.items()}
    return {code for code, pattern in patterns.items() if re.fullmatch(pattern, words, re.S)}


@contextmanager
def refuses(kind: type[BaseException], code: str, *parts: object):
    """Expect an error of a kind with the identifier ``code``, whose sentence holds ``parts``: names, keys and numbers."""
    with pytest.raises(kind) as caught:
        yield caught
    assert getattr(caught.value, "code", None) == code, f"{getattr(caught.value, 'code', None)}: {caught.value}"
    assert not [part for part in parts if str(part) not in str(caught.value)], str(caught.value)
