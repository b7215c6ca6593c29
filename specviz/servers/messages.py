"""All messages about external servers, by identifier. Tests refer to identifiers, so a wording can be
changed here alone.

``DOUBTS``: reasons why a reported figure is impossible, as ends of sentences.
"""

from __future__ import annotations

import re
from typing import Any

TEXTS = {
    "url": "A server's address is http://host:port or https://host, maybe with a path, and holds no password.",
    "form": "A server is given as {form}.",
    "variable": "{variable}: {why}",
    "unknown": "There is no server {name!r}; there are {names}, and {form} will do.",
    "registry": "{why}",
    "page_size": "{name} sent a page of more than {size}.",
    "stream_size": "{name} sent more than {size}: cut there.",
    "line_size": "{name} sent a line of more than {size}: cut there.",
    "messages": "{name} sent more than {count:,} messages: cut there.",
    "message_size": "{name} sent a message of more than {size}: cut there.",
    "lines": "{name} sent more than {count:,} lines: cut there.",
    "pieces": "{name} sent its answer in more than {count:,} pieces: cut there.",
    "too_much": "{name} sent more than it was asked for: cut there.",
    "silent": "{name} did not answer: it was silent for too long.",
    "late": "{name} took longer than a run may take.",
    "stopped": "{name} was stopped.",
    "redirect": "{name} sends its callers elsewhere ({status}); that is not followed.",
    "status": "{name} refused with status {status}{why}.",
    "compressed": "{name} sent a compressed answer, which was not asked for.",
    "type": "{name} sent {type} instead of a stream of events.",
    "refused": "{name} cannot be reached: nothing listens at its address.",
    "name": "{name} cannot be reached: its name is not known here.",
    "certificate": "{name} has no certificate that is trusted here.",
    "closed": "{name} closed the connection before its answer was whole.",
    "unreachable": "{name} cannot be reached.",
    "http": "{name} does not speak HTTP as it should.",
    "closed_in_message": "{name} closed the connection inside a message.",
    "utf8": "{name} sent bytes that are not UTF-8 text.",
    "json": "{name} sent a message that is not JSON.",
    "shape": "{name} sent a message of an unknown form.",
    "error": "{name} ended with an error: {why}.",
    "unfinished": "{name} ended its stream without saying that the answer was whole.",
    "empty": "{name} answered without any text.",
    "no_model": "{name} names no model; say which with its entry's model.",
    "ended": "",
}
DOUBTS = {
    "count": "its {what} is not a count",
    "missing": "it leaves out {what}",
    "ids": "its token ids are not token ids",
    "histogram": "its histogram is malformed",
    "histogram_drafted": "its histogram holds more accepted tokens than were drafted",
    "histogram_steps": "its histogram and its count of steps differ",
    "histogram_lengths": "its histogram and its count of drafted tokens differ",
    "histograms": "its two histograms differ",
    "histogram_accepted": "its histogram and its count of accepted tokens differ",
    "accepted": "it reports more accepted tokens than drafted ones",
    "steps": "its lists of steps are malformed",
    "totals": "its steps and its totals differ",
    "model": "it reports that {found} answers where {asked} was asked for",
    "written_ids": "it reports {written} written tokens and sent the ids of {tokens}",
    "written_text": "it reports {written} written tokens and sent {messages} messages with text",
    "accepted_text": "it reports {accepted} accepted tokens in an answer of {tokens}",
}
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]+")


def one_line(words: Any, most: int = 160) -> str:
    """Return text from a server for use in a message: on one line, of bounded length, without control or
    direction characters."""
    text = words if isinstance(words, str) else str(words)
    text = " ".join(_HIDDEN.sub(" ", text[: 8 * most]).split())
    return text if len(text) <= most else text[:most] + "\u2026"


class ServerError(ValueError):
    """A server cannot be used, or violated its protocol. ``code``: the identifier of the message in TEXTS."""

    def __init__(self, code: str, /, **values: Any):
        super().__init__(TEXTS[code].format(**values).replace("..", "."))
        self.code, self.values = f"server.{code}", values


class ImpossibleFigure(ValueError):
    """A reported figure is impossible. The message is the end of a sentence; ``code``: its identifier in
    DOUBTS."""

    def __init__(self, code: str, /, **values: Any):
        super().__init__(DOUBTS[code].format(**values))
        self.code, self.values = code, values
