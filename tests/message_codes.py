"""Which message of a table a sentence is, so that tests name identifiers and no wording."""
from __future__ import annotations

import re

VAGUE = ("registry", "variable", "run.engine", "usage")  # messages that are another module's words


def codes(words: str, texts: dict[str, str]) -> set[str]:
    """Return the identifiers of the messages that these words may be."""
    plain = {code: text.replace("{{", "\0").replace("}}", "\1") for code, text in texts.items() if text and code not in VAGUE}
    patterns = {code: re.sub(r"\\\{.*?\\\}", ".*", re.escape(text)).replace("\0", r"\{").replace("\1", r"\}") for code, text in plain.items()}
    return {code for code, pattern in patterns.items() if re.fullmatch(pattern, words, re.S)}
