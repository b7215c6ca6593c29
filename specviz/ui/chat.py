"""The conversation: earlier turns with coloured tokens, and the answer from which each turn continues.

It is derived from the trace: text from token ids and byte spans, the colour of a token from the round that
committed it.
"""

from __future__ import annotations

import codecs
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any

from ..engine.limits import BASELINE
from ..engine.messages import text
from ..engine.stream import Record

KEPT_RUNS = 4  # turns whose trace is kept, to be opened again; older ones keep their coloured text
VERDICTS = {"bonus": "bonus", "correction": "correction", "accepted": "accepted", "plain": "plain"}


@dataclass(frozen=True)
class LaneAnswer:
    """The answer of one lane. ``pieces``: ((text, verdict), ...) with adjacent pieces of the same verdict
    joined; ``complete``: the run ended without an error; ``cut``: it was stopped, ran out of time or
    failed, so that the answer may be incomplete."""

    lane: int
    key: str
    title: str
    text: str
    pieces: tuple[tuple[str, str], ...]
    complete: bool
    cut: bool = False  # stopped, out of time or failed: the answer is incomplete


@dataclass
class Turn:
    """One question and its answers. ``records``: the trace of the run; ``chosen``: index in ``answers`` of
    the answer from which the conversation continues."""

    question: str
    answers: list[LaneAnswer]
    records: list[Record] | None
    chosen: int = 0

    @property
    def answer(self) -> LaneAnswer:
        """The chosen answer."""
        return self.answers[self.chosen]

    @property
    def agree(self) -> bool:
        """Whether all lanes generated the same text, as exact greedy methods do."""
        return same_text(self.answers)


def same_text(answers: list[LaneAnswer]) -> bool:
    """Return whether all answers have the same text; a truncated answer counts as the same if it is a
    prefix of the others."""
    whole = max((answer.text for answer in answers), key=len, default="")
    return all(
        answer.text == whole or (answer.cut and whole.startswith(answer.text.rstrip("\ufffd")))
        for answer in answers
    )


@dataclass
class Chat:
    """The conversation of one visitor. ``frame``: number of the next frame for this visitor's board."""

    turns: list[Turn] = field(default_factory=list)
    frame: int = 1

    def messages(self) -> list[dict[str, str]]:
        """Return the earlier turns as messages for a chat template."""
        pairs = [
            ({"role": "user", "content": t.question}, {"role": "assistant", "content": t.answer.text})
            for t in self.turns
        ]
        return [message for pair in pairs for message in pair]

    def add(self, question: str, records: list[Record]) -> Turn | None:
        """Append a finished run as a turn; return None if no lane generated text."""
        answers = lane_answers(records)
        if not any(answer.text for answer in answers):
            return None
        longest = max(range(len(answers)), key=lambda i: len(answers[i].text)) if same_text(answers) else 0
        self.turns.append(Turn(question, answers, records, longest))
        for turn in self.turns[:-KEPT_RUNS]:
            turn.records = None
        return self.turns[-1]

    def put(self, earlier: list[Turn], question: str, records: list[Record]) -> Turn | None:
        """Replace the turns after ``earlier`` by a finished run; repeating the call changes nothing. Return
        None, without a change, if no lane generated text."""
        fresh = Chat(list(earlier))
        turn = fresh.add(question, records)
        if turn:
            self.turns = fresh.turns
        return turn

    def number(self) -> int:
        """Return the next frame's number and advance it."""
        self.frame += 1
        return self.frame - 1

    def view(self, count: int) -> list[dict[str, Any]]:
        """Return the first ``count`` turns as plain data for the page."""
        return [
            {
                "question": t.question,
                "lane": t.answer.title,
                "pieces": t.answer.pieces,
                "open": t.records is not None,
            }
            for t in self.turns[:count]
        ]


def lane_answers(records: list[Record]) -> list[LaneAnswer]:
    """Return the answer of each lane in the order of the board: methods first, plain decoding last."""
    by_lane: dict[int, list[Record]] = {}
    for record in records:
        by_lane.setdefault(record["lane"], []).append(record)
    answers = [_lane_answer(lane, rows) for lane, rows in sorted(by_lane.items())]
    return sorted(
        (answer for answer in answers if answer is not None), key=lambda answer: answer.key == BASELINE
    )


def _lane_answer(lane: int, rows: list[Record]) -> LaneAnswer | None:
    header = next((r for r in rows if r["type"] == "header"), None)
    if header is None:
        return None
    special = {i for r in rows if r["type"] == "vocab" for i in r.get("special", ())}
    verdicts = {
        r["round"]: ["accepted"] * len(r["path"]) + [VERDICTS.get(r["tail"]["why"], "plain")]
        for r in rows
        if r["type"] == "commit"
    }
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    pieces: list[tuple[str, str]] = []
    for row in rows:
        if row["type"] == "text":
            kinds = verdicts.get(row["round"], [])
            for i, piece in enumerate(row["pieces"]):
                raw = b"" if piece["tok"] in special else b64decode(piece["b"])
                _append(pieces, decode(raw), kinds[i] if i < len(kinds) else "plain")
    if pieces:
        _append(pieces, decode(b"", True), pieces[-1][1])
    done = next((r for r in rows if r["type"] == "done"), None)
    title, place = header["method"]["title"], header.get("answer")
    title = text("chat.answer", title=title, number=place["index"] + 1) if place else title
    return LaneAnswer(
        lane,
        header["method"]["key"],
        title,
        "".join(piece for piece, _ in pieces),
        tuple(pieces),
        done is not None and done["finish"] != "error",
        done is None or done["finish"] in ("stopped", "deadline", "error"),
    )


def _append(pieces: list[tuple[str, str]], text: str, verdict: str) -> None:
    if pieces and pieces[-1][1] == verdict:
        pieces[-1] = (pieces[-1][0] + text, verdict)
    elif text:
        pieces.append((text, verdict))
