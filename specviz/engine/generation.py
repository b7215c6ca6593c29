"""Answer one request for generation (of the OpenAI-compatible endpoint) on loaded models, with plain data
as input and output."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .zero_gpu import time_limit

if TYPE_CHECKING:
    from ..run.session import Session
    from ..zoo.pair import Loaded

Chunk = dict[str, Any]
TOP = 5  # best tokens of each distribution that are kept in the trace


@dataclass(frozen=True)
class Generation:
    """A request for generation. prompt: messages, or text or token ids without a chat template if ``raw``;
    fields: those of run.request.GenerationRequest; owner: whose KV caches may be reused; seeded: the caller
    chose the seed, so the answer may depend on no measured time; more: further prompts; echo: each answer
    begins with its prompt; silent: nothing is generated; predicted: a predicted output."""

    prompt: Any
    raw: bool
    method: str
    knobs: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    owner: str = ""  # whose conversation it is: KV caches are reused within it only
    address: str = ""  # of the client; addresses take turns within a batch
    seeded: bool = False
    more: tuple[Any, ...] = ()
    echo: bool = False
    silent: bool = False
    predicted: str = ""


def generate(
    loaded: Loaded,
    asked: Generation,
    seconds: float,
    cancel: threading.Event | None = None,
    caches: Any = None,
) -> Iterator[list[Chunk]]:
    """Generate the request's ``n`` answers to each prompt one after another. Yield lists of chunks: {index,
    text, logprobs, token_ids} while an answer grows, and {index, finish, usage, speculative, metrics,
    timings, records} at its end. Raises SessionError, RunFailed."""
    for answer in answers(prepare(loaded, asked), asked, seconds, cancel, caches):
        yield from answer


def prepare(loaded: Loaded, asked: Generation, batch: Any = None) -> list[Session]:
    """Check a request and return the session of each answer, ``n`` to the first prompt, then ``n`` to the
    second, and so on: its picture is decoded and its grammar compiled, but nothing is run. Missing fields
    take the values that the model's generation_config.json recommends. Raises SessionError."""
    from ..run.request import GenerationRequest
    from ..run.session import Session

    request = GenerationRequest.for_model(asked.fields, loaded, {"temperature": 1.0})
    first = Session(
        loaded,
        asked.method,
        asked.knobs,
        request=request,
        batch=batch,
        deterministic=asked.seeded,
        predicted=asked.predicted,
    )
    return [session for _ in (asked.prompt, *asked.more) for session in first.each()]


def answers(
    sessions: list[Session], asked: Generation, seconds: float, cancel: threading.Event | None, caches: Any
) -> list[Generator[list[Chunk]]]:
    """Return one generator of chunks for each session of ``prepare``. Raises SessionError before anything is
    run."""
    prompts = (asked.prompt, *asked.more)
    each = len(sessions) // len(prompts)
    pairs = [(session, prompts[i // each]) for i, session in enumerate(sessions)]
    for session, prompt in pairs:
        session.encode(prompt, asked.raw)
        if caches is not None:
            session.lease(caches, asked.owner, prompt, asked.raw, whole=True)
    share = seconds if sessions[0].batch else seconds / len(sessions)
    return [
        _answer(session, replace(asked, prompt=prompt), index, share, cancel)
        for index, (session, prompt) in enumerate(pairs)
    ]


def _answer(
    session: Any, asked: Generation, index: int, seconds: float, cancel: Any
) -> Generator[list[Chunk]]:
    from ..run.result import Result, RunFailed
    from ..run.tool_calls import CallReader, is_tagged
    from ..trace.events import Committed, Finished, TextEmitted
    from ..trace.recorder import Recorder
    from ..zoo.text import Transcript
    from .speculation_fields import SpeculationFields

    loaded, request = session.loaded, session.request
    if asked.echo:
        yield [{"index": index, **_echo(session, asked, cancel)}]
    if asked.silent:
        yield [_unanswered(session, asked, index)]
        return
    figures = SpeculationFields(session.method.key)
    tokens: list[Any] = []
    recorder, result = Recorder(index, loaded.token_bytes, loaded.token_bytes.special), Result()
    transcript = Transcript(loaded.token_bytes, request.stop, request.min_tokens)
    decode = loaded.codec.decoder()
    ends = frozenset() if request.ignore_eos else loaded.end_tokens  # not part of the text, special or not
    sent = 0
    calls = CallReader(
        () if request.tool_choice == "none" else request.tools,
        bool(request.tools) and is_tagged(loaded.tokenizer),
    )
    records: list[dict[str, Any]] = []
    reused = 0  # tokens of the prompt that the KV cache held already
    limit = time_limit(seconds)
    for event in session.run(asked.prompt, raw=asked.raw, deadline=limit, cancel=cancel, top_k_saved=TOP):
        result.take(event)
        records += recorder.take(event)
        sources = figures.take(event)
        if isinstance(event, Committed):
            logprobs = _logprobs(loaded, event, sources) if request.logprobs is not None else None
            tokens = list(event.tokens)
        elif isinstance(event, TextEmitted):
            for piece in event.pieces:
                if piece[0] not in ends:
                    transcript.add(piece[0])
            text, sent = (
                decode(bytes(transcript.data[sent : transcript.stable_length])),
                max(sent, transcript.stable_length),
            )
            timings = figures.timings(result)
            yield [
                {
                    "index": index,
                    "text": calls.take(text),
                    "logprobs": logprobs,
                    "token_ids": tokens,
                    "timings": timings,
                }
            ]
        elif isinstance(event, Finished):
            reused = event.totals.get("reused", 0)
    if result.why:
        raise RunFailed(result.why)
    rest = calls.take(decode(bytes(transcript.data[sent : transcript.length]), True))
    held, found = calls.close()
    rest += held
    metrics = result.metrics()
    yield [{"index": index, "text": rest, "logprobs": None}] if rest else []
    yield [
        {
            "index": index,
            "finish": result.finish_reason,
            "records": records,
            "tool_calls": found,
            "usage": {
                "prompt_tokens": len(result.prompt_ids),
                "completion_tokens": len(result.token_ids),
                "cached_tokens": reused,
                "prompt_token_ids": result.prompt_ids,
                **figures.prediction(),
            },
            "metrics": {"speculative_decoding": figures.vllm()},
            "timings": figures.timings(result),
            "speculative": {
                "method": session.method.key,
                "knobs": session.knobs,
                "passes": result.totals.rounds,
                "tokens": result.totals.tokens,
                "tried": result.totals.tried,
                "accepted": result.totals.accepted,
                "mean_accepted_length": metrics["block_efficiency"],
                "acceptance_rate": metrics["acceptance_rate"],
                "tokens_per_second": metrics["tokens_per_second"],
                "time_to_first_token": metrics["time_to_first_token"],
                "request": request.record(),
                "from_model": list(request.from_model),
                "batch": session.batch.largest if session.batch else 1,
            },
        }
    ]


def _echo(session: Any, asked: Generation, cancel: threading.Event | None) -> Chunk:
    """Return the text of the prompt and, if asked for, the log-probability of each of its tokens; the first
    token has none."""
    from ..run.prompt_logprobs import prompt_logprobs

    loaded, top = session.loaded, session.request.logprobs
    ids = session.encode(asked.prompt, asked.raw)
    data = b"".join(loaded.token_bytes.output_bytes(one, not i) for i, one in enumerate(ids))
    text = asked.prompt if isinstance(asked.prompt, str) else data.decode("utf-8", "replace")
    if top is None:
        return {"text": text, "logprobs": None, "token_ids": []}
    cancelled = cancel.is_set if cancel is not None else bool
    found = [(None, []), *prompt_logprobs(loaded, ids, top, cancelled)]
    entries = [
        _token_logprob(loaded, i, logprob, best) | {"source": "prompt"}
        for i, (logprob, best) in zip(ids, found)
    ]
    return {"text": text, "logprobs": entries, "token_ids": []}


def _unanswered(session: Any, asked: Generation, index: int) -> Chunk:
    """Return the last chunk of a request that generates nothing."""
    from ..run.result import Result
    from .speculation_fields import SpeculationFields

    ids = session.encode(asked.prompt, asked.raw)

    figures = SpeculationFields(session.method.key)
    usage = {"prompt_tokens": len(ids), "completion_tokens": 0, "cached_tokens": 0, "prompt_token_ids": ids}
    counts = dict.fromkeys(("passes", "tokens", "tried", "accepted"), 0)
    return {
        "index": index,
        "finish": "length",
        "records": [],
        "tool_calls": [],
        "usage": usage | figures.prediction(),
        "metrics": {"speculative_decoding": figures.vllm()},
        "timings": figures.timings(Result()),
        "speculative": {
            "method": session.method.key,
            **counts,
            "time_to_first_token": None,
            "request": session.request.record(),
        },
    }


def _logprobs(loaded: Loaded, event: Any, sources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the log-probability of each token of a round, its source, and its top alternatives."""
    tops: Any = event.top_logprobs or ((),) * len(event.tokens)
    return [
        _token_logprob(loaded, number, logprob, top) | source
        for number, logprob, top, source in zip(event.tokens, event.logprobs or (), tops, sources)
    ]


def _token_logprob(loaded: Loaded, number: int, logprob: float | None, top: Any) -> dict[str, Any]:
    """Return {id, token, bytes, logprob} of a token, and of its alternatives in ``top_logprobs``."""

    def token(one: int, value: float | None) -> dict[str, Any]:
        # A special token has a name, and adds no bytes to the text.
        name, data = loaded.token_bytes(one), loaded.token_bytes.output_bytes(one)
        return {"id": one, "token": token_name(name), "bytes": list(data), "logprob": value}

    return token(number, logprob) | {"top_logprobs": [token(int(one), value) for one, value in top]}


def token_name(data: bytes) -> str:
    """Return a token's text, or, as OpenAI names the part of a character, "bytes:" and its bytes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
