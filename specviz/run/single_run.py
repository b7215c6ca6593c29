"""One run in progress: yields events of a session's method, round by round, until the run ends.

Cancellation, deadline, stop strings, end tokens and the length limit all end a run within one round.
However it ends, its KV cache is freed, also if the caller drops the generator. The engine's clock is paused
while the caller handles an event.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import torch

from ..core import Parts, State, common_prefix_length
from ..core.errors import InvalidUse
from ..loops import speculate
from ..trace.events import Committed, Event, Failed, Finished, Noted, Prefilled, Started, TextEmitted
from ..trace.metrics import Totals
from ..zoo.draft_memory import run_memory
from ..zoo.kit import Kit
from ..zoo.text import Transcript
from .batch_prompts import BatchPrompts
from .copied_tokens import CopiedTokens
from .cut_at_stop import cut_round
from .request import explain, max_tree_size
from .structured import broken_answer

UNUSED = 64  # tries without a success after which a head may be another model's


class Run:
    """One run in progress. ``events`` yields all events; ``turn()`` yields those up to the end of one round.

    limit: maximum number of new tokens; border: whether the last event ended a round; over: whether the run
    has ended.
    """

    def __init__(self, session, ids, messages, wanted, stops, time_limit, cancel, top_k_saved):
        self.session, self.loaded = session, session.loaded
        self.ids = ids
        self.messages = messages
        self.wanted = wanted
        self._limit_to(self.loaded.context)
        self.transcript = Transcript(self.loaded.token_bytes, stops, session.request.min_tokens)
        self.cancel, self.top_k_saved = cancel, top_k_saved
        self.time_limit = time_limit
        self.run_id = uuid.uuid4().hex[:12]
        self.baseline_run_id: str | None = None
        self.totals, self.batch_prompts = Totals(), BatchPrompts(session)
        self.state: State | None = None
        self.kit: Kit | None = None
        self.parts: Parts | None = None
        self.border = self.over = False
        self.remembered = CopiedTokens()
        self._forward_before = 0.0  # in the prefill
        self.reused = 0  # tokens of the prompt that the KV cache held already
        self.events = self._stream()

    def _limit_to(self, context: int) -> None:
        """Set the most tokens of the answer, for models with room for ``context`` tokens in all. Raises
        InvalidUse without room."""
        if context <= len(self.ids):
            raise InvalidUse(
                f"The prompt has {len(self.ids)} tokens, and a model that this method writes with has a context of {context}.",
                "prompt.context",
            )
        whole = self.loaded.codec.most_tokens or self.wanted
        self.limit = min(self.wanted, whole, context - len(self.ids))
        self.whole = self.limit == whole < self.wanted  # the answer is complete at its limit

    def clock(self) -> float:
        """Seconds on the engine's clock so far."""
        return self.state.clock.now() if self.state else 0.0

    def turn(self) -> Generator[Event]:
        """Yield the next events, up to the end of a round, of the prefill, or of the run (then ``over`` is
        True)."""
        for event in self.events:
            yield event
            if self.border:
                return
        self.over = True

    def _stream(self) -> Generator[Event]:
        yield Started(self._header())
        why = ""
        totals = {}
        intact = False
        try:
            yield from self._rounds()
            self._check_format()
            intact = True
        except (Exception, SystemExit) as error:  # this run ends with a sentence; other lanes go on
            why = explain(self.session.method, error)
        finally:
            totals = self._counts()
            if intact and self.kit and self.parts:
                totals["memory"] = run_memory(self.kit, self.parts.drafter)
            self.batch_prompts.close()
            if self.kit:
                if intact and self.session.prefix_cache is not None and self.state:
                    self.session.prefix_cache.keep(
                        self.kit, self.loaded.conversation, self.session.method.exactness, len(self.ids)
                    )
                self.kit.close()
                self._remember()
                if self.state:
                    self.state.draft_ready = bool  # the kit and its models are freed with the run
            self.kit, self.parts, self.border = None, None, False
        yield Failed(why, totals) if why else Finished(self._finish(), totals, _peak_memory())

    def _rounds(self) -> Generator[Event]:
        """Play rounds until the run ends; it ends between rounds only."""
        if self.interrupted():
            return
        self.kit = kit = self.loaded.kit()
        if self.session.prefix_cache is not None:
            self.session.prefix_cache.take(kit, self.loaded.conversation, self.session.method.exactness)
            self.reused = common_prefix_length(kit.target.cached_tokens, self.ids[:-1])
        if self.session.memory is not None:
            self.session.memory.clear_unless_mark(self.loaded.name)
            kit.memory = self.session.memory
        kit.target.expect(max_tree_size(self.session.knobs))
        if self.session.predicted:
            kit.predicted = tuple(kit.encode(self.session.predicted))
        self.parts = parts = self.session.method.build(kit, **self.session.knobs)
        if self.reused and parts.drafter.hidden_states:
            kit.target.close()  # a kept cache has no hidden states, and the drafter reads those of the prompt
            self.reused = 0
        self._limit_to(kit.context)
        self.state = state = self.session.state(
            list(self.ids), self.session.sampling, self.limit, self.top_k_saved
        )
        state.draft_ready = kit.draft_ready
        crowd = self.session.batch_prompts and self.batch_prompts.shared_loop(
            self.messages[-1]["content"], self.wanted
        )
        loop = crowd or self.session.batch or parts.loop or self.loaded.loop or speculate
        for event, border in self._cut_rounds(loop(parts, kit.target, state)):
            self.totals.fold(event)
            self.remembered.fold(event)
            ends = border and self._ends()
            self.border = border and not ends
            yield event
            # a batch may have played the next round meanwhile: its events come first
            if ends or (border and self.session.batch is None and self.interrupted()):
                return

    def _check_format(self) -> None:
        """Raise SessionError if the answer violates its response format: no surface may hand it out as one
        that keeps it."""
        processors = self.session.processors
        grammar = processors.grammar if processors else None
        if grammar is not None and not grammar.matches(self.transcript.tokens, complete=False):
            raise broken_answer()

    def _remember(self) -> None:
        """Add the answer to the visitor's memory."""
        if self.session.memory is not None and self.state is not None:
            self.session.memory.add(list(self.transcript.tokens))  # without tokens after a stop string

    def _cut_rounds(self, loop: Generator[Event]) -> Generator[tuple[Event, bool]]:
        """Yield the loop's events, each with whether it ends a round. A round is held until it is whole,
        because a stop string may cut it; its text follows, then its notes."""
        held: list[Event] = []
        owed = 0
        assert self.state is not None  # the loop runs on it
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
                *events, text = self._with_text([*held, event], event)
                held = []
                yield from ((one, False) for one in events)
                yield text, owed == 0

    def _with_text(self, events: list[Event], committed: Committed) -> list[Event]:
        """Append the text to a round's events and cut them after the token that completes a stop string."""
        pieces = []
        for token in committed.tokens:
            pieces.append(self.transcript.add(token))
            if self.transcript.stopped:
                events = cut_round(events, len(pieces))
                break
        return [*events, TextEmitted(committed.round, tuple(pieces))]

    def interrupted(self) -> bool:
        """Return whether the run was cancelled or has reached its time limit."""
        return self.cancel.is_set() or (self.time_limit is not None and self.time_limit.reached())

    def _ends(self) -> bool:
        return self.transcript.stopped or (self.state is not None and self.state.done) or self.interrupted()

    def _finish(self) -> str:
        if self.transcript.stopped:
            return "stop_string"
        if self.state and self.state.ended:
            return "stop"
        if self.state and self.state.left <= 0:
            return "stop" if self.whole else "context" if self.limit < self.wanted else "length"
        return "stopped" if self.cancel.is_set() else "deadline"

    def _forward(self) -> float:
        return self.batch_prompts.busy + (sum(model.busy for model in self.kit.opened) if self.kit else 0.0)

    def _counts(self) -> dict[str, Any]:
        """Return the trace's totals, with seconds inside forward passes after the prefill, bytes of text,
        and the number of tokens copied from earlier answers."""
        return {
            **self.totals.record(),
            "forward_seconds": self._forward() - self._forward_before,
            "text_bytes": self.transcript.length,
            "remembered": self.remembered.tokens,
            **self._unrecorded(),
            **self._stopped_drafts(),
            **self._unused_head(),
            **({"reused": self.reused} if self.session.prefix_cache is not None else {}),
        }

    def _unrecorded(self) -> dict[str, Any]:
        """Return counts of passes that a target of fixed shapes ran without a captured CUDA graph, by
        reason; prompts always do."""
        why = {
            name: count
            for name, count in getattr(self.kit and self.kit.target, "eager", {}).items()
            if name != "prompt"
        }
        return {"eager": why} if why else {}

    def _stopped_drafts(self) -> dict[str, Any]:
        """Return the draft models that stopped drafting: model, reason, and tokens of the text by then."""
        problems = self.kit.draft_problems() if self.kit else []
        return {"draft_stopped": problems} if problems else {}

    def _unused_head(self) -> dict[str, Any]:
        """Return trained heads and drafts whose tokens were never accepted in so many tries that they may
        belong to another model."""
        kinds = sorted(
            need.partition(":")[2]
            for need in self.session.method.needs
            if need.startswith(("head:", "draft:"))
        )
        if not kinds or self.totals.accepted or self.totals.tried < UNUSED:
            return {}
        return {"head_unused": {"kinds": kinds, "tried": self.totals.tried}}

    def _header(self) -> dict[str, Any]:
        session = self.session
        method = self.session.method
        sampling = self.session.sampling
        *earlier, last = self.messages
        return {
            "schema": "specviz-trace/1",
            "run_id": self.run_id,
            "mode": "live",
            "clock": "engine",
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "method": {
                name: getattr(method, name)
                for name in ("key", "title", "family", "exactness", "paper", "summary")
            }
            | {"needs": sorted(method.needs)}
            | ({"bound": True} if method.bound else {}),
            "knobs": session.knobs,
            "prompt": {
                "text": last["content"],
                "ids": self.ids,
                "turns": [{"role": m["role"], "text": m["content"]} for m in earlier],
            },
            "sampling": asdict(sampling),
            "greedy": sampling.greedy,
            "max_new_tokens": self.wanted,
            "request": session.request.record(),
            "from_model": list(session.request.from_model),
            **self.loaded.trace_facts(method),
            "top_k_saved": self.top_k_saved,
            "baseline_run_id": self.baseline_run_id,
            "deterministic": session.deterministic,
        }


def _advance(loop: Generator[Event]) -> Generator[Event]:
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
