"""Sessions: a loaded target, a method with its knobs, and a request. A session turns a prompt into events."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ..core import Costs, FixedCosts, Method, Sampling, State
from ..core.errors import code_of
from ..indexes.earlier_answers import Memory
from ..loops.continuous import ContinuousBatch
from ..methods import catalogue
from ..trace.events import Event
from ..zoo.registry import ZooError
from .batch_prompts import session_unbatchable_reason
from .conversation import continues_assistant, is_token_ids, read_token_ids, template_options
from .prefix_cache import PrefixCache, PrefixPool
from .processors import ProcessorFactory, stop_tokens
from .request import (
    GenerationRequest,
    SessionError,
    read_cancel,
    read_given,
    read_integer,
    read_messages,
    read_predicted,
    read_request,
    read_stops,
    sentence,
)
from .single_run import Run
from .time_limit import TimeLimit, read_time_limit

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

CHARACTERS_A_TOKEN = 64  # a prompt with more characters than this a context position is refused unread
LEAST_STEP = 0.05  # minimum cost of a draft step in deterministic runs, as a share of a target pass
MOST_TOP = 50  # maximum number of top tokens of a distribution that events carry
TOKENIZER_PANIC = "PanicException"  # of tokenizers' Rust code, no Exception: a pattern that gave up, for one


class Session:
    """One method on loaded models, ready to run prompts.

    ``method`` is a Method or its key; ``knobs`` by name, defaults filled in. Raises SessionError.

    memory: earlier answers of the same visitor; runs of this session read it and add their own. Without one
    every run begins with an empty memory. deterministic: the same seed gives the same run (bit-identical on
    models loaded as deterministic); timing measurements are ignored, costs are those of core.FixedCosts,
    and a draft step costs the draft model's share of the target's size. predicted: a predicted output, for
    methods that draft from one. batch_prompts: further prompts answered in one batch with the run's own,
    which alone emits events. request: all other parameters of the answer (penalties, stop, structure,
    log-probabilities ...); replaces ``sampling``. prefix_cache: of the conversation; the previous turn's KV
    cache is reused. batch: runs of sessions with the same ContinuousBatch share forward passes; one thread
    advances all of them.
    """

    def __init__(
        self,
        loaded: Loaded,
        method: str | Method,
        knobs: dict[str, Any] | None = None,
        sampling: Sampling = Sampling(),
        memory: Memory | None = None,
        deterministic: bool = False,
        predicted: str = "",
        batch_prompts: Sequence[str] = (),
        request: GenerationRequest | None = None,
        prefix_cache: PrefixCache | None = None,
        batch: ContinuousBatch | None = None,
    ):
        read_given(loaded, method, knobs, sampling, memory)
        self.request = read_request(request, sampling)
        sampling = self.request.sampling
        loaded = guided(with_picture(loaded, self.request), self.request)
        self.loaded = loaded
        self.sampling = sampling
        self.memory = memory
        self.deterministic = bool(deterministic)
        self.predicted = read_predicted(predicted, CHARACTERS_A_TOKEN * loaded.context)
        self.method = find_method(method) if isinstance(method, str) else method
        try:
            self.knobs = self.method.read_knobs(dict(knobs or {}))
        except ValueError as error:
            raise SessionError(sentence(error), code_of(error, "session.knob")) from None
        missing = loaded.unsupported_reason(self.method)
        if missing:
            raise SessionError(missing, "method.missing")
        for name, most in loaded.knob_limits(self.method).items():
            knob = next(knob for knob in self.method.knobs if knob.name == name)
            if knob.place_of(self.knobs[name]) > most:
                raise SessionError(
                    f"{self.method.title} takes {name} up to {knob.value_at(most)} with {loaded.name}: more needs models "
                    "that it does not have.",
                    "session.knob_limit",
                )
        self.batch_prompts = tuple(batch_prompts)
        self.prefix_cache = prefix_cache
        self.batch = batch
        alone = session_unbatchable_reason(self) if batch_prompts or batch else None
        if alone:
            raise SessionError(
                f"{self.method.title} {alone}: it takes one prompt at a time.", "method.one_prompt"
            )
        if self.request.is_constrained and self.method.unchecked:
            raise SessionError(
                f"{self.method.title} {self.method.unchecked}: it does not go with response_format.",
                "request.response_format_unchecked",
            )
        if self.request.bans_tokens and self.method.unchecked:
            raise SessionError(
                f"{self.method.title} {self.method.unchecked}: it does not go with {self.request.bans_tokens}.",
                "request.ban_unchecked",
            )
        if self.method.exactness == "greedy only" and sampling.temperature > 0:
            raise SessionError(
                f"{self.method.title} works at temperature 0 only; set the temperature to 0.",
                "method.greedy_only",
            )
        self.processors = (
            ProcessorFactory(self.request, loaded)
            if self.request.changes_logits or self.request.stop_token_ids
            else None
        )

    def each(self) -> list[Session]:
        """Return a session for each of the request's ``n`` answers; the i-th uses seed + i."""
        sessions: list[Session] = [copy.copy(self) for _ in range(self.request.n)]
        for session, request in zip(sessions, self.request.each()):
            session.request, session.sampling = request, request.sampling
        return sessions

    def lease(
        self, pool: PrefixPool, owner: str, prompt: Any, raw: bool = False, whole: bool = False
    ) -> None:
        """Reuse the KV cache of the conversation that a prompt continues, from ``pool``; whole: as there.
        Methods that need hidden states of the prompt recompute it, because the cache does not hold them."""
        if not any(need.startswith(("head:", "tap:")) for need in self.method.needs):
            self.prefix_cache = pool.lease(owner, self.encode(prompt, raw), whole)

    def messages(self, prompt: Any) -> list[dict[str, Any]]:
        """Return a prompt as messages; token ids as the text that they stand for. Raises SessionError."""
        if not is_token_ids(prompt):
            return read_messages(prompt)
        data = b"".join(map(self.loaded.token_bytes, read_token_ids(prompt, self.loaded.vocab)))
        return [{"role": "user", "content": data.decode("utf-8", "replace")}]

    def encode(self, prompt: str | list[dict[str, str]] | list[int], raw: bool = False) -> list[int]:
        """Return the token ids of a prompt or a conversation; a list of token ids is returned as it is.
        Raises SessionError if it is empty, malformed or too long."""
        if is_token_ids(prompt):
            return self._fitting(read_token_ids(prompt, self.loaded.vocab))
        messages = read_messages(prompt)
        longest = CHARACTERS_A_TOKEN * self.loaded.context
        characters = sum(len(m["content"]) for m in messages)
        if characters > longest:
            raise SessionError(
                f"The prompt has {characters} characters; {self.loaded.name} takes at most {longest}.",
                "prompt.long",
            )
        try:
            codec, tokenizer = self.loaded.codec, self.loaded.tokenizer
        except ZooError as error:
            raise SessionError(str(error), code_of(error, "session.refused")) from None
        tools = () if self.request.tool_choice == "none" else self.request.tools
        options = template_options(tools, self.request.enable_thinking, tokenizer, self.loaded.name, raw)
        if continues_assistant(messages, raw):
            options["continue_final_message"] = True
        try:
            ids = codec.encode(messages, raw, **options)
        except ZooError as error:
            raise SessionError(str(error), code_of(error, "session.refused")) from None
        except BaseException as error:  # a template may refuse an order of roles in its own words
            panic = not isinstance(error, Exception)
            if panic and type(error).__name__ != TOKENIZER_PANIC:
                raise
            bare = raw or not getattr(tokenizer, "chat_template", None)
            whose = "tokenizer" if panic or bare else "chat template"
            raise SessionError(
                f"The {whose} of {self.loaded.name} refused the conversation: {sentence(error)}",
                "prompt.template",
            ) from None
        return self._fitting(ids)

    def _fitting(self, ids: list[int]) -> list[int]:
        """Return the token ids of a prompt if the target can continue them. Raises SessionError."""
        if not ids:
            raise SessionError("The prompt is empty: write something first.", "prompt.empty")
        if len(ids) >= self.loaded.context:
            raise SessionError(
                f"The prompt has {len(ids)} tokens and leaves no room in the context of {self.loaded.context}.",
                "prompt.context",
            )
        if max(ids) >= self.loaded.vocab:
            raise SessionError(
                f"The tokenizer knows tokens that {self.loaded.name} does not have.", "prompt.tokens"
            )
        return ids

    def open(
        self,
        prompt,
        max_new_tokens: Any = None,
        stop: Sequence[str] | None = None,
        *,
        raw: bool = False,
        deadline: float | TimeLimit | None = None,
        cancel: threading.Event | None = None,
        top_k_saved: int = 0,
    ) -> Run:
        """Check all arguments and return the Run, whose events have not started; arguments as in ``run``.
        Nothing is allocated yet. Raises SessionError."""
        if self.request.n > 1:
            raise SessionError(
                f"A run gives one answer, not {self.request.n}: run each session of Session.each().",
                "request.n",
            )
        messages = self.messages(prompt)
        wanted = (
            self.request.max_tokens
            if max_new_tokens is None
            else read_integer("max_new_tokens", max_new_tokens, 1)
        )
        saved = read_integer("top_k_saved", top_k_saved, 0, MOST_TOP)
        stops, limit = self.request.stop if stop is None else read_stops(stop), read_time_limit(deadline)
        return Run(self, self.encode(prompt, raw), messages, wanted, stops, limit, read_cancel(cancel), saved)

    def run(
        self,
        prompt: str | list[dict[str, str]],
        max_new_tokens: Any = None,
        stop: Sequence[str] | None = None,
        *,
        raw: bool = False,
        deadline: float | TimeLimit | None = None,
        cancel: threading.Event | None = None,
        top_k_saved: int = 0,
    ) -> Iterator[Event]:
        """Yield Started, Prefilled, the rounds with TextEmitted after each Committed, then Finished or
        Failed.

        prompt: text, messages {"role", "content"} (an assistant's last one is continued), or token ids; raw:
        without the chat template. deadline: seconds of wall clock from now, or a TimeLimit. cancel: set it and
        the run ends after the round. top_k_saved: number of top tokens of each distribution in the events.
        max_new_tokens and stop default to the request's. Raises SessionError at once, before the first
        event, for anything that cannot be run.
        """
        return self.open(
            prompt, max_new_tokens, stop, raw=raw, deadline=deadline, cancel=cancel, top_k_saved=top_k_saved
        ).events

    def costs(self) -> Costs:
        """Return the cost table of a new run: of measured costs, or of fixed ones if the session is
        deterministic."""
        target, draft = (self.loaded.trace_facts(self.method).get(role) or {} for role in ("target", "draft"))
        share = draft.get("parameters", 0) / max(1, target.get("parameters", 1))
        return (
            Costs()
            if not self.deterministic
            else FixedCosts(max(LEAST_STEP, share))
            if share
            else FixedCosts()
        )

    def state(self, ids: list[int], sampling: Sampling, limit: int, top_k_saved: int = 0) -> State:
        """Return the state of a new run on these prompt tokens."""
        return State(
            ids,
            sampling,
            limit=limit,
            stop=stop_tokens(self.request, self.loaded.end_tokens),
            costs=self.costs(),
            top_k_saved=top_k_saved,
            logprobs=self.request.logprobs,
            processors=self.processors.make() if self.processors else None,
        )


def with_picture(loaded: Loaded, request: GenerationRequest) -> Loaded:
    """Return the loaded models set to read the request's picture before every prompt. Raises SessionError."""
    try:
        return (
            loaded
            if request.image is None
            else loaded.with_picture(request.image).with_picture(request.seen_image)
        )
    except ZooError as error:
        raise SessionError(str(error), code_of(error, "session.refused")) from None


def guided(loaded: Loaded, request: GenerationRequest) -> Loaded:
    """Return the loaded models with the classifier-free guidance that the request asks for. Raises
    SessionError."""
    try:
        return loaded if request.guidance_scale == 1 else loaded.with_guidance(request.guidance_scale)
    except ZooError as error:
        raise SessionError(str(error), code_of(error, "session.refused")) from None


def find_method(key: str) -> Method:
    """Return the method with this key. Raises SessionError that names the nearest key."""
    known = catalogue()
    if key not in known:
        near = get_close_matches(str(key), known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
        raise SessionError(f"There is no method {str(key)[:60]!r}; {hint}", "method.unknown")
    return known[key]
