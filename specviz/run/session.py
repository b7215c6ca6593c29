"""Sessions and runs: a loaded target, a method with its knobs and sampling settings; prompt in, events out.

Cancellation, deadline, stop strings, end tokens and the length limit all end a run within one round; however it ends, also when the
caller drops the generator, its KV cache is freed. The engine's clock is paused while the caller handles an event.
"""
from __future__ import annotations

import threading
import time
import uuid
from dataclasses import asdict
from datetime import datetime, timezone
from difflib import get_close_matches
from typing import Any, Iterator, Sequence

import torch

from ..core import Costs, FixedCosts, Method, Sampling, State
from ..trace.metrics import Totals
from ..trace.events import Committed, Event, Failed, Finished, Noted, Prefilled, TextEmitted, Started
from ..indexes.earlier_answers import Memory
from ..loops import speculate
from ..methods import catalogue
from .batch_prompts import BatchPrompts, why_not_batchable
from .cut_at_stop import cut_round
from .copied_tokens import CopiedTokens
from .processors import ProcessorFactory, stop_tokens
from .request import (GenerationRequest, SessionError, explain, largest, read_cancel, read_given, read_messages, read_predicted,
                      read_request, read_seconds, read_stops, read_whole, sentence)
from ..zoo.registry import ZooError
from ..zoo.text import Transcript, encode_chat, encode_plain

CHARACTERS_A_TOKEN = 64  # a prompt with more characters than this a context position is refused unread
LEAST_STEP = 0.05  # minimum cost of a draft step in deterministic runs, as a share of a target pass
MOST_TOP = 50  # maximum number of top tokens of a distribution that events carry


class Session:
    """``method`` is a Method or its key; ``knobs`` by name, defaults filled in. Raises SessionError with one sentence.

    memory: earlier answers of the same visitor; runs of this session read it and add their own. Without one every run begins with an
    empty memory. deterministic: the same seed gives the same run (bit-identical on models loaded as deterministic); timing
    measurements are ignored, costs are those of core.FixedCosts, and a draft step costs the draft model's share of the target's size.
    predicted: a predicted output, given to methods that draft from one. batch_prompts: further prompts that are answered in one batch
    with the run's own; events are those of its own prompt. request: everything else about the answer (penalties, stop, structure,
    log-probabilities ...); it takes the place of ``sampling``.
    """

    def __init__(self, loaded: Any, method: str | Method, knobs: dict[str, Any] | None = None, sampling: Sampling = Sampling(),
                 memory: Memory | None = None, deterministic: bool = False, predicted: str = "", batch_prompts: Sequence[str] = (),
                 request: GenerationRequest | None = None):
        read_given(loaded, method, knobs, sampling, memory)
        self.request = read_request(request, sampling)
        sampling = self.request.sampling
        self.loaded, self.sampling, self.memory, self.deterministic = loaded, sampling, memory, bool(deterministic)
        self.predicted = read_predicted(predicted, CHARACTERS_A_TOKEN * loaded.context)
        self.method = find_method(method) if isinstance(method, str) else method
        try:
            self.knobs = self.method.read_knobs(dict(knobs or {}))
        except ValueError as error:
            raise SessionError(sentence(error)) from None
        missing = loaded.why_not(self.method)
        if missing:
            raise SessionError(missing)
        self.batch_prompts = tuple(batch_prompts)
        alone = why_not_batchable(self) if batch_prompts else None
        if alone:
            raise SessionError(f"{self.method.title} {alone}: it takes one prompt at a time.")
        if self.method.exactness == "greedy only" and sampling.temperature > 0:
            raise SessionError(f"{self.method.title} works at temperature 0 only; set the temperature to 0.")
        self.processors = ProcessorFactory(self.request, loaded) if self.request.changes_logits or self.request.stop_token_ids else None

    def encode(self, prompt: str | list[dict[str, str]], raw: bool = False) -> list[int]:
        """Return token ids of a prompt or a conversation. Raises SessionError when it is empty, malformed or too long."""
        messages = read_messages(prompt)
        longest = CHARACTERS_A_TOKEN * self.loaded.context
        characters = sum(len(m["content"]) for m in messages)
        if characters > longest:
            raise SessionError(f"The prompt has {characters} characters; {self.loaded.name} takes at most {longest}.")
        try:
            tokenizer = self.loaded.tokenizer
        except ZooError as error:
            raise SessionError(str(error)) from None
        try:
            if raw:
                ids = encode_plain(tokenizer, "\n\n".join(m["content"] for m in messages))
            else:
                ids = encode_chat(tokenizer, messages)
        except Exception as error:  # a template may refuse an order of roles in its own words
            whose = "tokenizer" if raw or not getattr(tokenizer, "chat_template", None) else "chat template"
            raise SessionError(f"The {whose} of {self.loaded.name} refused the conversation: {sentence(error)}") from None
        if not ids:
            raise SessionError("The prompt is empty: write something first.")
        if len(ids) >= self.loaded.context:
            raise SessionError(f"The prompt has {len(ids)} tokens and leaves no room in the context of {self.loaded.context}.")
        if max(ids) >= self.loaded.vocab:
            raise SessionError(f"The tokenizer knows tokens that {self.loaded.name} does not have.")
        return ids

    def open(self, prompt, max_new_tokens: Any = None, stop: Sequence[str] | None = None, *, raw: bool = False,
             deadline: float | None = None, cancel: threading.Event | None = None, top_k_saved: int = 0) -> Run:
        """Check all arguments and return the run; nothing is allocated yet. Raises SessionError."""
        messages = read_messages(prompt)
        wanted = self.request.max_tokens if max_new_tokens is None else read_whole("max_new_tokens", max_new_tokens, 1)
        saved = read_whole("top_k_saved", top_k_saved, 0, MOST_TOP)
        stops, seconds = self.request.stop if stop is None else read_stops(stop), read_seconds(deadline)
        return Run(self, self.encode(prompt, raw), messages, wanted, stops, seconds, read_cancel(cancel), saved)

    def run(self, prompt: str | list[dict[str, str]], max_new_tokens: Any = None, stop: Sequence[str] | None = None, *,
            raw: bool = False, deadline: float | None = None, cancel: threading.Event | None = None,
            top_k_saved: int = 0) -> Iterator[Event]:
        """Yield Started, Prefilled, the rounds with TextEmitted after each Committed, then Finished or Failed.

        prompt: text, or messages {"role", "content"}; raw: without the chat template. deadline: seconds of wall clock from now.
        cancel: set it and the run ends after the round. top_k_saved: number of top tokens of each distribution in the events.
        max_new_tokens and stop default to the request's.
        Raises SessionError at once, before the first event, for anything that cannot be run.
        """
        return self.open(prompt, max_new_tokens, stop, raw=raw, deadline=deadline, cancel=cancel, top_k_saved=top_k_saved).events

    def costs(self) -> Costs:
        """Return the costs of a new run: measured, or fixed where the session is deterministic."""
        target, draft = (self.loaded.trace_facts(self.method).get(role) or {} for role in ("target", "draft"))
        share = draft.get("parameters", 0) / max(1, target.get("parameters", 1))
        return Costs() if not self.deterministic else FixedCosts(max(LEAST_STEP, share)) if share else FixedCosts()

    def state(self, ids: list[int], sampling: Sampling, limit: int, top_k_saved: int = 0) -> State:
        """Return the state of a new run on these prompt tokens."""
        return State(ids, sampling, limit=limit, stop=stop_tokens(self.request, self.loaded.end_tokens), costs=self.costs(),
                     top_k_saved=top_k_saved, logprobs=self.request.logprobs,
                     processors=self.processors.make() if self.processors else None)


class Run:
    """One run in progress. ``events`` is the stream; ``turn()`` gives the events up to the end of a round."""

    def __init__(self, session, ids, messages, wanted, stops, deadline, cancel, top_k_saved):
        self.session, self.loaded = session, session.loaded
        self.ids, self.messages, self.wanted = ids, messages, wanted
        self.limit = min(wanted, self.loaded.context - len(ids))
        self.transcript = Transcript(self.loaded.token_bytes, stops, session.request.min_tokens)
        self.cancel, self.top_k_saved = cancel, top_k_saved
        self.ends_at = None if deadline is None else time.monotonic() + deadline
        self.run_id, self.baseline_run_id = uuid.uuid4().hex[:12], None
        self.totals, self.state, self.kit, self.batch_prompts = Totals(), None, None, BatchPrompts(session)
        self.border = self.over = False
        self.remembered = CopiedTokens()
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
        except Exception as error:  # this run ends with a sentence; other lanes go on
            why = explain(self.session.method, error)
        finally:
            totals = self._counts()
            self.batch_prompts.close()
            if self.kit:
                self.kit.close()
                self._remember()
                if self.state:
                    self.state.draft_ready = bool  # the kit and its models are freed with the run
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
        self.kit.target.expect(largest(self.session.knobs))
        if self.session.predicted:
            self.kit.predicted = tuple(self.kit.encode(self.session.predicted))
        parts = self.session.method.build(self.kit, **self.session.knobs)
        self.state = self.session.state(list(self.ids), self.session.sampling, self.limit, self.top_k_saved)
        self.state.draft_ready = self.kit.draft_ready
        crowd = self.session.batch_prompts and self.batch_prompts.among(self.messages[-1]["content"], self.wanted)
        loop = crowd or parts.loop or speculate
        for event, border in self._cut_rounds(loop(parts, self.kit.target, self.state)):
            self.totals.fold(event)
            self.remembered.fold(event)
            self.border = border and not self._ends()
            yield event
            if border and self._ends():
                return

    def _remember(self) -> None:
        """Add the answer to the visitor's memory."""
        if self.session.memory is not None and self.state is not None:
            self.session.memory.add(list(self.transcript.tokens))  # without tokens after a stop string

    def _cut_rounds(self, loop: Iterator[Event]) -> Iterator[tuple[Event, bool]]:
        """Yield the loop's events, each with whether it ends a round. A round is held until it is whole, because a stop string may cut
        it; its text follows, then its notes."""
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
                *events, text = self._with_text([*held, event])
                held = []
                yield from ((one, False) for one in events)
                yield text, owed == 0

    def _with_text(self, events: list[Event]) -> list[Event]:
        """Append the text to a round's events and cut them after the token that completes a stop string."""
        committed = events[-1]
        pieces = []
        for token in committed.tokens:
            pieces.append(self.transcript.add(token))
            if self.transcript.stopped:
                events = cut_round(events, len(pieces))
                break
        return [*events, TextEmitted(committed.round, tuple(pieces))]

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
        return self.batch_prompts.busy + (sum(model.busy for model in self.kit.opened) if self.kit else 0.0)

    def _counts(self) -> dict[str, Any]:
        """Return the trace's totals, with seconds inside forward passes after the prefill, bytes of text, and the number of tokens
        copied from earlier answers."""
        return {**self.totals.record(), "forward_seconds": self._forward() - self._forward_before,
                "text_bytes": self.transcript.length, "remembered": self.remembered.tokens, **self._unrecorded(), **self._stopped_drafts()}

    def _unrecorded(self) -> dict[str, Any]:
        """Return counts of passes that a target of fixed shapes ran without a captured CUDA graph, by reason; prompts always do."""
        why = {name: count for name, count in getattr(self.kit and self.kit.target, "eager", {}).items() if name != "prompt"}
        return {"eager": why} if why else {}

    def _stopped_drafts(self) -> dict[str, Any]:
        """Return the draft models that stopped drafting: model, reason, and tokens of the text by then."""
        problems = self.kit.draft_problems() if self.kit else []
        return {"draft_stopped": problems} if problems else {}

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
            "sampling": asdict(sampling), "greedy": sampling.greedy, "max_new_tokens": self.wanted,
            "request": session.request.record(), **self.loaded.trace_facts(method),
            "top_k_saved": self.top_k_saved, "baseline_run_id": self.baseline_run_id, "deterministic": session.deterministic,
        }


def find_method(key: str) -> Method:
    """Return the method of this key. Raises SessionError that names the nearest ones."""
    known = catalogue()
    if key not in known:
        near = get_close_matches(str(key), known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
        raise SessionError(f"There is no method {str(key)[:60]!r}; {hint}")
    return known[key]


def _advance(loop: Iterator[Event]) -> Iterator[Event]:
    """Yield the loop's events, each computed without gradients, and close the loop at the end."""
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
