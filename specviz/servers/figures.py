"""The figures of a server's lane, each with a badge: ``observed`` (reported by the server or timed by the
client), ``inferred`` (from the sizes of messages) or ``unknown``. A figure that contradicts another is left
out, and the contradiction is listed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .dialects import Drafts, Message, OpenAI
from .messages import DOUBTS

LONGEST_LIST = 4096  # steps that are kept one by one
MOST_DEPTH = 64
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(\{[^}]*\})?\s+([0-9.eE+-]+)")
_PLACE = re.compile(r'position="(\d{1,3})"')


@dataclass
class ServerFigures:
    """Accumulates the figures of a stream from its messages."""

    engine: OpenAI
    tokens: int = 0  # ids received, or one for each message with text where none are
    messages: int = 0  # with text
    largest: int = 0  # tokens of a message
    with_ids: int = 0  # messages with text and their tokens' ids
    asked: int | None = None
    written: int | None = None
    drafts: Drafts | None = None
    own: dict[str, float] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    def add(self, message: Message) -> int:
        """Add a message; return the number of its tokens, as far as they are reported."""
        self.asked = self.asked if message.asked is None else message.asked
        self.written = self.written if message.written is None else message.written
        self.drafts, self.own = message.drafts or self.drafts, message.own or self.own
        if message.doubt:
            self.doubt(message.doubt)
        if not message.text and not message.ids:
            return 0
        size = len(message.ids) if message.ids else 1
        self.tokens, self.messages, self.largest = (
            self.tokens + size,
            self.messages + 1,
            max(self.largest, size),
        )
        self.with_ids += message.ids is not None
        return size

    def doubt(self, words: str) -> None:
        """Record why a figure is impossible, as the end of a sentence. The same reason is recorded once."""
        if words not in self.doubts:
            self.doubts.append(words)

    def facts(
        self, before: dict[str, float] | None = None, after: dict[str, float] | None = None
    ) -> dict[str, Any]:
        """Return {facts: [{name, badge, value}], doubts: [...]}: figures of this request, and figures named
        ``server_...`` over all clients since the request began. before, after: the server's metrics at its
        begin and end (``read_metrics``)."""
        ids = self.messages > 0 and self.with_ids == self.messages
        tokens = self._count(ids)
        facts = [
            tokens,
            _fact("token_ids", "observed" if ids else "unknown", None),
            _fact("refused_ids", "unknown", None),
        ]
        facts += [_fact("prompt_tokens", "observed", self.asked)] if self.asked is not None else []
        facts += self._speculation(tokens["value"], ids)
        facts += [_fact(f"own_{name}", "observed", value) for name, value in self.own.items()]
        facts += _server(self.engine, before or {}, after or {})
        return {"facts": facts, "doubts": self.doubts[:8]}

    def _count(self, ids: bool) -> dict[str, Any]:
        """Return the answer's length: the number of ids received, else the server's count, else one token
        per message."""
        if (
            ids
            and self.written is not None
            and self.written != self.tokens
            and abs(self.written - self.tokens) > 1
        ):  # an end token
            self.doubt(DOUBTS["written_ids"].format(written=self.written, tokens=self.tokens))
        if ids:
            return _fact("tokens", "observed", self.tokens)
        if self.written is not None and (self.messages > 0) == (self.written > 0):
            return _fact("tokens", "observed", self.written)
        if self.written is not None:
            self.doubt(DOUBTS["written_text"].format(written=self.written, messages=self.messages))
        return _fact("tokens", "inferred", self.messages)

    def _speculation(self, tokens: int, ids: bool) -> list[dict[str, Any]]:
        found = self.drafts
        # The end of an answer may cut what its last pass accepted.
        if found is not None and found.accepted > tokens + MOST_DEPTH:
            self.doubt(DOUBTS["accepted_text"].format(accepted=found.accepted, tokens=tokens))
            found = None
        if found is None:
            return self._inferred(tokens, ids)
        out = [
            _fact("drafted", "observed", found.drafted),
            _fact("accepted", "observed", found.accepted),
            _fact("acceptance_rate", "observed", found.accepted / found.drafted if found.drafted else None),
        ]
        steps = 0 if found.steps is None else found.steps + self.engine.prefill_writes
        # Each pass adds one token of the target, unless the answer ended before it; one without a draft is no step.
        passes = max(steps, tokens - found.accepted, 0) or None
        out += [
            _fact("passes", "observed", passes),
            _fact("accepted_length", "observed", tokens / passes if passes else None),
        ]
        if found.steps is not None:
            out.append(_fact("steps", "observed", found.steps))
        if found.histogram:
            known = all(
                length or len(line) == 1 for length, line in found.histogram.items()
            )  # how long each draft was
            out.append(
                _fact("by_position", "observed" if known else "inferred", by_position(found.histogram))
            )
        if found.per_step:
            out.append(_fact("per_step", "observed", [list(step) for step in found.per_step[:LONGEST_LIST]]))
        return out

    def _inferred(self, tokens: int, ids: bool) -> list[dict[str, Any]]:
        """Return figures derived from message sizes, if the engine sends one message per pass and at least
        one held several tokens."""
        unknown = [_fact(name, "unknown", None) for name in ("drafted", "accepted", "acceptance_rate")]
        sized = ids or (self.written is not None and tokens > self.messages)
        if self.engine.per_step and sized and self.messages and tokens > self.messages:
            return [
                _fact("passes", "inferred", self.messages),
                _fact("accepted_length", "inferred", tokens / self.messages),
                *unknown,
            ]
        return [_fact("passes", "unknown", None), _fact("accepted_length", "unknown", None), *unknown]


def by_position(histogram: dict[int, list[int]]) -> list[list[int]]:
    """Return [[tried, accepted], ...] for each position in a chain. A position counts as tried if all
    before it were accepted. Key 0 with longer rows means drafts of unknown length; they are taken to be as
    long as the longest accepted one."""
    out: list[list[int]] = []
    for length, line in histogram.items():
        places = length if len(line) <= length + 1 and length else len(line) - 1
        for place in range(1, min(places, MOST_DEPTH) + 1):
            while len(out) < place:
                out.append([0, 0])
            out[place - 1][0] += sum(line[place - 1 :])
            out[place - 1][1] += sum(line[place:])
    return out


def read_metrics(engine: OpenAI, page: str) -> dict[str, float]:
    """Parse the text of an engine's /metrics page. Return {figure: value} with this project's names, summed
    over labels; "accepted_at:2" is draft position 2."""
    found: dict[str, float] = {}
    for line in page.splitlines()[:100_000]:
        match = _SAMPLE.match(line)
        name = (engine.counters.get(match[1]) or engine.gauges.get(match[1])) if match else None
        if match is None or not name:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        place = _PLACE.search(match[2] or "")
        name = f"{name}:{int(place[1])}" if place and name == "accepted_at" else name
        if 0 <= value <= 1e15:
            found[name] = value if match[1] in engine.gauges else found.get(name, 0.0) + value
    return found


def _server(engine: OpenAI, before: dict[str, float], after: dict[str, float]) -> list[dict[str, Any]]:
    """Return figures of the whole server: the increase of its counters, including other clients' requests;
    gauges at their current value."""
    gained = {
        name: after[name] - before[name]
        for name in after
        if name in before and name not in engine.gauges.values()
    }
    if any(value < 0 for value in gained.values()):  # it was restarted in between
        gained = {}
    out = [
        _fact(f"server_{name}", "observed", after[name]) for name in engine.gauges.values() if name in after
    ]
    if gained.get("steps") and gained.get("drafted"):
        out += [
            _fact("server_accepted_length", "observed", 1 + gained.get("accepted", 0.0) / gained["steps"]),
            _fact("server_acceptance_rate", "observed", gained.get("accepted", 0.0) / gained["drafted"]),
        ]
    places = sorted(int(name.partition(":")[2]) for name in gained if name.startswith("accepted_at:"))[
        :MOST_DEPTH
    ]
    if places and gained.get("steps"):
        rates = [gained[f"accepted_at:{i}"] / gained["steps"] for i in places]
        out.append(_fact("server_by_position", "observed", rates))
    if gained.get("passes") and gained.get("tokens"):
        out.append(_fact("server_tokens_per_pass", "observed", gained["tokens"] / gained["passes"]))
    return out


def _fact(name: str, badge: str, value: Any) -> dict[str, Any]:
    return {
        "name": name,
        "badge": badge if value is not None or name in ("token_ids", "refused_ids") else "unknown",
        "value": value,
    }
