"""The result of a run, accumulated from its events: text, finish reason and figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..trace.events import Checked, Committed, Event, Failed, Finished, Started, TextEmitted
from ..trace.metrics import Totals
from ..trace.output import describe


class RunFailed(RuntimeError):
    """Error: the engine failed during the run. The message says why."""


@dataclass
class Result:
    """The result of a run, built from its events by ``take``.

    text: ends before the stop string that ended the run; token_ids: ends with the token that completed it;
    forward_seconds: time in forward passes; logprobs, top_logprobs: one entry per token, if the request
    asks for them; see the comments for the other fields.
    """

    prompt_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    totals: Totals = field(default_factory=Totals)
    forward_seconds: float = 0.0
    why: str = ""  # it failed
    head_unused: dict[str, Any] = field(
        default_factory=dict
    )  # {kinds, tried} of heads of which nothing was accepted
    logprobs: list[float] | None = None
    top_logprobs: list[list[list[float]]] | None = None
    output: dict[str, Any] | None = None  # what ``data`` is, as the header says
    busy: bool = False  # other processes took the CPU (run/machine.py)
    reused: int | None = (
        None  # tokens of the prompt whose keys and values the turn before left; None without its cache
    )
    memory: dict[str, int] = field(default_factory=dict)  # of the method, in bytes (zoo/draft_memory.py)
    _text: bytearray = field(default_factory=bytearray)
    _length: int | None = None

    def take(self, event: Event) -> None:
        """Add the next event of the run."""
        self.totals.fold(event)
        if isinstance(event, Started):
            self.prompt_ids, self.output = list(event.header["prompt"]["ids"]), event.header.get("output")
        elif isinstance(event, Committed):
            if event.logprobs is not None:
                self.logprobs = (self.logprobs or []) + list(event.logprobs)
                self.top_logprobs = (self.top_logprobs or []) + list(event.top_logprobs or ())
        elif isinstance(event, TextEmitted):
            self.token_ids += [piece[0] for piece in event.pieces]
            self._text += b"".join(piece[1] for piece in event.pieces)
        elif isinstance(event, Finished):
            self.finish_reason, self._length = event.finish, event.totals["text_bytes"]
            self.forward_seconds = event.totals["forward_seconds"]
            self.head_unused = event.totals.get("head_unused", {})
            self.reused = event.totals.get("reused")
            self.memory = event.totals.get("memory", {})
        elif isinstance(event, Checked):
            self.busy = self.busy or event.kind == "busy"
        elif isinstance(event, Failed):
            self.finish_reason, self.why = "error", event.why

    @property
    def data(self) -> bytes:
        """The output's bytes: text in UTF-8, or the pixels of patches."""
        return bytes(self._text[: self._length])

    @property
    def text(self) -> str:
        """The output as text; for a picture, a description."""
        return describe(self.output, self.data)

    @property
    def overhead_share(self) -> float | None:
        """Share of the time after the prefill that was spent outside forward passes."""
        return 1 - self.forward_seconds / self.totals.seconds if self.totals.seconds else None

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of trace/metrics.py, their raw counts, and the share of time outside forward
        passes."""
        return {
            **self.totals.metrics(),
            **self.totals.record(),
            "forward_seconds": self.forward_seconds,
            "overhead_share": self.overhead_share,
        }

    def record(self) -> dict[str, Any]:
        """Return the result as the JSON of ``python -m specviz run``."""
        logprobs = (
            {} if self.logprobs is None else {"logprobs": self.logprobs, "top_logprobs": self.top_logprobs}
        )
        reused = {} if self.reused is None else {"reused": self.reused}
        return {
            "text": self.text,
            "token_ids": self.token_ids,
            "prompt_ids": self.prompt_ids,
            "finish_reason": self.finish_reason,
            "busy": self.busy,
            "metrics": self.metrics(),
            "along_the_answer": self.totals.along_the_answer(),
            **logprobs,
            **({"head_unused": self.head_unused} if self.head_unused else {}),
            **reused,
        }


def collect(events: Iterable[Event]) -> Result:
    """Consume all events and return the Result. Raises RunFailed if the run failed."""
    result = Result()
    for event in events:
        result.take(event)
    if result.why:
        raise RunFailed(result.why)
    return result
