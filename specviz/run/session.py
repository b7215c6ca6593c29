"""One run: a loaded target, a method with its knobs, a sampling law; a prompt in, events out. And a race of several.

Stop, deadline, stop strings, end tokens and the length limit all end a run within one round; whatever way it ends, also when
the caller walks away, its cache is freed. Timing is the engine's: its clock stands still while an event is looked at.
"""
from __future__ import annotations

import random
import threading
import time
import uuid
from dataclasses import asdict, replace
from datetime import datetime, timezone
from difflib import get_close_matches
from functools import partial
from typing import Any, Callable, Iterator, Sequence

import torch

from ..core import BrokenModel, Method, Sampling, State

from ..trace.metrics import Totals
from ..trace.events import Committed, Drafted, Event, Failed, Finished, Judged, Noted, Prefilled, Said, Started
from ..indexes.earlier_answers import Memory
from ..loops import speculate
from ..methods import catalogue
from .request import SessionError, read_messages, read_predicted, read_seconds, read_stops, read_whole, sentence
from ..zoo.text import Transcript, encode_chat, encode_plain

MOST_REPEATS, WARM_TOKENS = 20, 12
CHARACTERS_A_TOKEN = 64  # a prompt with more characters than this a context position is refused unread
MOST_TOP = 50  # of a law's best tokens that events may carry


class Session:
    """``method`` is a Method or its key; ``knobs`` by name, defaults filled in. Raises SessionError with one sentence.

    memory: what earlier runs of the same visitor left behind; this session's runs read it and add their answers. Without one
    every run begins with an empty one. predicted: a text that the answer is expected to be like; what drafts from such a text is
    given its tokens, whatever else is told the method.
    """

    def __init__(self, loaded: Any, method: str | Method, knobs: dict[str, Any] | None = None, sampling: Sampling = Sampling(),
                 memory: Memory | None = None, predicted: str = ""):
        self.loaded, self.sampling, self.memory = loaded, sampling, memory
        self.predicted = read_predicted(predicted, CHARACTERS_A_TOKEN * loaded.context)
        self.method = find_method(method) if isinstance(method, str) else method
        try:
            self.knobs = self.method.read_knobs(dict(knobs or {}))
        except ValueError as error:
            raise SessionError(sentence(error)) from None
        missing = loaded.why_not(self.method)
        if missing:
            raise SessionError(missing)
        if self.method.exactness == "greedy only" and sampling.temperature > 0:
            raise SessionError(f"{self.method.title} works at temperature 0 only; set the temperature to 0.")

    def encode(self, prompt: str | list[dict[str, str]], raw: bool = False) -> list[int]:
        """Token ids of a prompt or a conversation. Raises SessionError when it is empty, malformed or too long."""
        messages = read_messages(prompt)
        longest = CHARACTERS_A_TOKEN * self.loaded.context
        characters = sum(len(m["content"]) for m in messages)
        if characters > longest:
            raise SessionError(f"The prompt has {characters} characters; {self.loaded.name} takes at most {longest}.")
        try:
            if raw:
                ids = encode_plain(self.loaded.tokenizer, "\n\n".join(m["content"] for m in messages))
            else:
                ids = encode_chat(self.loaded.tokenizer, messages)
        except Exception as error:  # a template may refuse an order of roles in its own words
            raise SessionError(f"The chat template of {self.loaded.name} refused the conversation: {sentence(error)}") from None
        if not ids:
            raise SessionError("The prompt is empty: write something first.")
        if len(ids) >= self.loaded.context:
            raise SessionError(f"The prompt has {len(ids)} tokens and leaves no room in the context of {self.loaded.context}.")
        if max(ids) >= self.loaded.vocab:
            raise SessionError(f"The tokenizer knows tokens that {self.loaded.name} does not have.")
        return ids

    def open(self, prompt, max_new_tokens: Any = 128, stop: Sequence[str] = (), *, raw: bool = False,
             deadline: float | None = None, cancel: threading.Event | None = None, top_k_saved: int = 0) -> Run:
        """Check everything and make the run ready; nothing is allocated yet. Raises SessionError."""
        messages = read_messages(prompt)
        wanted, saved = read_whole("max_new_tokens", max_new_tokens, 1), read_whole("top_k_saved", top_k_saved, 0, MOST_TOP)
        stops, seconds = read_stops(stop), read_seconds(deadline)
        return Run(self, self.encode(prompt, raw), messages, wanted, stops, seconds, cancel or threading.Event(), saved)

    def run(self, prompt: str | list[dict[str, str]], max_new_tokens: Any = 128, stop: Sequence[str] = (), *, raw: bool = False,
            deadline: float | None = None, cancel: threading.Event | None = None, top_k_saved: int = 0) -> Iterator[Event]:
        """Started, Prefilled, the rounds with Said after each Committed, at last Finished or Failed.

        prompt: text, or messages {"role", "content"}; raw: without the chat template. deadline: seconds of wall clock from
        now. cancel: set it and the run ends after the round. top_k_saved: best tokens of each law that the events carry.
        Raises SessionError at once, before the first event, for anything that cannot be run.
        """
        return self.open(prompt, max_new_tokens, stop, raw=raw, deadline=deadline, cancel=cancel, top_k_saved=top_k_saved).events


class Run:
    """One run in progress. ``events`` is the stream; ``turn()`` gives the events up to the end of a round."""

    def __init__(self, session, ids, messages, wanted, stops, deadline, cancel, top_k_saved):
        self.session, self.loaded = session, session.loaded
        self.ids, self.messages, self.wanted = ids, messages, wanted
        self.limit = min(wanted, self.loaded.context - len(ids))
        self.transcript = Transcript(self.loaded.token_bytes, stops)
        self.cancel, self.top_k_saved = cancel, top_k_saved
        self.ends_at = None if deadline is None else time.monotonic() + deadline
        self.run_id, self.baseline_run_id = uuid.uuid4().hex[:12], None
        self.totals, self.state, self.kit = Totals(), None, None
        self.border = self.over = False
        self._forward_before = 0.0  # in the prefill
        self.events = self._stream()

    def clock(self) -> float:
        """Engine seconds so far."""
        return self.state.clock.now() if self.state else 0.0

    def turn(self) -> Iterator[Event]:
        """The next events, up to the end of a round, of the prefill, or of the run (then ``over`` is true)."""
        for event in self.events:
            yield event
            if self.border:
                return
        self.over = True

    def _stream(self) -> Iterator[Event]:
        yield Started(self._header())
        why, totals = "", {}
        try:
            yield from self._rounds()
        except Exception as error:  # the engine broke: this run ends with a sentence, what runs beside it goes on
            why = explain(self.session.method, error)
        finally:
            totals = self._counts()
            if self.kit:
                self.kit.close()
                self._remember()
            self.kit, self.border = None, False
        yield Failed(why, totals) if why else Finished(self._finish(), totals, _peak_memory())

    def _rounds(self) -> Iterator[Event]:
        """Play until something ends the run; it ends between rounds only."""
        if self.interrupted():
            return
        self.kit = self.loaded.kit()
        if self.session.memory is not None:
            self.session.memory.belong(self.loaded.name)
            self.kit.memory = self.session.memory
        if self.session.predicted:
            self.kit.predicted = tuple(self.kit.encode(self.session.predicted))
        parts = self.session.method.build(self.kit, **self.session.knobs)
        self.state = State(list(self.ids), self.session.sampling, limit=self.limit, stop=self.loaded.end_tokens,
                           top_k_saved=self.top_k_saved)
        for event, border in self._told((parts.loop or speculate)(parts, self.kit.target, self.state)):
            self.totals.fold(event)
            self.border = border and not self._ends()
            yield event
            if border and self._ends():
                return

    def _remember(self) -> None:
        """What was written becomes a past answer, whichever method wrote it."""
        if self.session.memory is not None and self.state is not None:
            self.session.memory.add(self.state.tokens[len(self.ids):])

    def _told(self, loop: Iterator[Event]) -> Iterator[tuple[Event, bool]]:
        """The loop's events, and whether a round is over with this one. A round is told whole, because a stop string may
        cut it; its text follows it, then its notes."""
        held: list[Event] = []
        owed = 0
        for event in _advance(loop):
            if isinstance(event, Prefilled):
                self._forward_before = self._forward()
                yield event, True
            elif isinstance(event, Noted):
                owed -= 1
                yield event, owed == 0
            elif not isinstance(event, Committed):
                held.append(event)
            else:
                owed = len(self.state.notes)
                *told, said = self._say([*held, event])
                held = []
                yield from ((one, False) for one in told)
                yield said, owed == 0

    def _say(self, events: list[Event]) -> list[Event]:
        """A round with its text at the end, cut after the token that completes a stop string."""
        committed = events[-1]
        pieces = []
        for token in committed.tokens:
            pieces.append(self.transcript.add(token))
            if self.transcript.stopped:
                events = cut_round(events, len(pieces))
                break
        return [*events, Said(committed.round, tuple(pieces))]

    def left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.ends_at is None else max(0.0, self.ends_at - time.monotonic())

    def interrupted(self) -> bool:
        return self.cancel.is_set() or (self.ends_at is not None and time.monotonic() >= self.ends_at)

    def _ends(self) -> bool:
        return self.transcript.stopped or self.state.done or self.interrupted()

    def _finish(self) -> str:
        if self.transcript.stopped:
            return "stop_string"
        if self.state and self.state.ended:
            return "stop"
        if self.state and self.state.left <= 0:
            return "context" if self.limit < self.wanted else "length"
        return "stopped" if self.cancel.is_set() else "deadline"

    def _forward(self) -> float:
        return sum(model.busy for model in self.kit.opened) if self.kit else 0.0

    def _counts(self) -> dict[str, Any]:
        """The trace's totals, and beside them: seconds inside forwards after the prefill, bytes of the text."""
        return {**self.totals.record(), "forward_seconds": self._forward() - self._forward_before,
                "text_bytes": self.transcript.length}

    def _header(self) -> dict[str, Any]:
        session, method, sampling = self.session, self.session.method, self.session.sampling
        *earlier, last = self.messages
        return {
            "schema": "specviz-trace/1", "run_id": self.run_id, "mode": "live", "clock": "engine",
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "method": {name: getattr(method, name) for name in ("key", "title", "family", "exactness", "paper", "summary")},
            "knobs": session.knobs,
            "prompt": {"text": last["content"], "ids": self.ids,
                       "turns": [{"role": m["role"], "text": m["content"]} for m in earlier]},
            "sampling": asdict(sampling), "max_new_tokens": self.wanted, **self.loaded.facts,
            "top_k_saved": self.top_k_saved, "baseline_run_id": self.baseline_run_id,
        }


def race(sessions: Sequence[Session], prompt: str | list[dict[str, str]], max_new_tokens: Any = 128,
         stop: Sequence[str] = (), *, repeats: Any = 1, **options: Any) -> Iterator[tuple[int, Event | None]]:
    """Several methods on one prompt: (lane, event), the lanes taking turns, one whole round at a time.

    The lane whose engine clock shows the least goes next, so all progress as on one clock, and every lane is measured alone
    and interleaved with the others. A lane that fails says so; the others go on. Keywords as in ``Session.run``.
    repeats: above 1, a short run of each lane is thrown away first, and after the race each is run again, whole and unseen, in
    a shuffled order; (lane, None) tells that one of these begins. Their figures are the ``repeats`` in the totals of each lane's
    Finished: [{tokens, seconds}, ...].
    """
    times = read_whole("repeats", repeats, 1, MOST_REPEATS)
    open_run = partial(Session.open, prompt=prompt, stop=stop)
    runs = [open_run(session, max_new_tokens=max_new_tokens, **options) for session in sessions]
    plain = next((run.run_id for run in runs if is_baseline(run.session.method)), None)
    for run in runs:
        run.baseline_run_id = plain if run.run_id != plain else None
    if times == 1:
        return _take_turns(runs)

    def again(lane: int, length: int, left: float | None) -> Run:
        return open_run(sessions[lane], max_new_tokens=length, **options | {"deadline": left})

    return _measured(runs, times, again)


def _measured(runs: list[Run], times: int, again: Callable[[int, int, float | None], Run]) -> Iterator[tuple[int, Event | None]]:
    """A race, and then the lanes that finished once more, again and again; again(lane, length, seconds left) -> a new run."""
    ends: dict[int, Finished] = {}
    took: dict[int, list[dict[str, float]]] = {}
    for lane in range(len(runs)):
        _figures(again(lane, WARM_TOKENS, runs[lane].left()))
    for lane, event in _take_turns(runs):
        if isinstance(event, Finished):
            ends[lane], took[lane] = event, []
        else:
            yield lane, event
    dice = random.Random(len(runs))
    for lane in (lane for _ in range(times - 1) for lane in dice.sample(list(ends), len(ends))):
        if runs[lane].interrupted():
            break
        yield lane, None
        figures = _figures(again(lane, runs[lane].wanted, runs[lane].left()))
        if figures and figures["tokens"] == ends[lane].totals["tokens"]:  # a run that was cut short is not the same run
            took[lane].append(figures)
    yield from ((lane, replace(end, totals={**end.totals, "repeats": took[lane]})) for lane, end in ends.items())


def _figures(run: Run) -> dict[str, float] | None:
    """Play a run unseen: its tokens, and seconds after the prefill; None when it failed."""
    for event in run.events:
        if isinstance(event, Finished):
            return {name: event.totals[name] for name in ("tokens", "seconds")}
    return None


def _take_turns(runs: list[Run]) -> Iterator[tuple[int, Event]]:
    try:
        for lane, run in enumerate(runs):
            yield lane, next(run.events)
        while waiting := [(run.clock(), lane) for lane, run in enumerate(runs) if not run.over]:
            lane = min(waiting)[1]
            yield from ((lane, event) for event in runs[lane].turn())
    finally:
        for run in runs:
            run.events.close()


def cut_round(events: list[Event], count: int) -> list[Event]:
    """A round's events as if it had ended with its ``count``-th token, as the engine cuts at an end token: that token becomes
    the last one, and what hung below it was never examined."""
    committed = events[-1]
    if count >= len(committed.tokens):
        return events
    gone = set(committed.path[count:])
    path = committed.path[:count - 1]
    nodes = next((e.nodes for e in events if isinstance(e, Drafted)), ())
    below = gone | {n["id"] for n in nodes if n["parent"] in gone or n["parent"] == committed.path[count - 1]}
    skip = {"rule": "", "p": None, "q": None, "a": None, "u": None, "verdict": "skipped"}
    late = len(committed.tokens) - count
    kv = {**committed.kv, "after": committed.kv["after"] - late, "dropped": committed.kv["dropped"] + late}
    out: list[Event] = []
    for event in events[:-1]:
        if isinstance(event, Judged):
            event = replace(event, trials=tuple({"node": t["node"], **skip} if t["node"] in below else t for t in event.trials))
        out.append(event)
    return [*out, replace(committed, path=path, tokens=committed.tokens[:count], kind="accepted", tail_prob=None, tail_top=None,
                          kv=kv)]


def find_method(key: str) -> Method:
    """The method of this key. Raises SessionError that names what there is."""
    known = catalogue()
    if key not in known:
        near = get_close_matches(str(key), known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
        raise SessionError(f"There is no method {str(key)[:60]!r}; {hint}")
    return known[key]


def is_baseline(method: Method) -> bool:
    """Whether speed-ups are measured against it: plain decoding, which opens the catalogue."""
    return method.key == next(iter(catalogue()))


def explain(method: Method, error: Exception) -> str:
    """Why a run broke, for a person."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return "The device ran out of memory; try a smaller model, fewer lanes or a shorter run."
    if isinstance(error, BrokenModel):
        return sentence(error)
    return sentence(f"{method.title} stopped: {sentence(error)}")


def _advance(loop: Iterator[Event]) -> Iterator[Event]:
    """The loop's events, each computed without gradients; the loop is closed whatever happens."""
    try:
        while True:
            with torch.inference_mode():
                event = next(loop, None)
            if event is None:
                return
            yield event
    finally:
        loop.close()


def _peak_memory() -> int | None:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
