"""Answer one request for generation (of the OpenAI-compatible endpoint) on loaded models, with plain data
as input and output."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..run.session import Session
    from ..zoo.pair import Loaded

Chunk = dict[str, Any]
TOP = 5  # best tokens of each distribution that are kept in the trace


@dataclass(frozen=True)
class Generation:
    """A request for generation. prompt: messages, or text without a chat template if ``raw``; fields: those
    of run.request.GenerationRequest; owner: whose KV caches may be reused; seeded: the caller chose the seed,
    so the answer may depend on no measured time."""

    prompt: Any
    raw: bool
    method: str
    knobs: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    owner: str = ""  # whose conversation it is: KV caches are reused within it only
    seeded: bool = False


def generate(
    loaded: Loaded,
    asked: Generation,
    seconds: float,
    cancel: threading.Event | None = None,
    caches: Any = None,
) -> Iterator[list[Chunk]]:
    """Generate the request's ``n`` answers one after another. Yield lists of chunks: {index, text,
    logprobs} while an answer grows, and {index, finish, usage, speculative, records} at its end. Raises
    SessionError, RunFailed."""
    for answer in answers(prepare(loaded, asked), asked, seconds, cancel, caches):
        yield from answer


def prepare(loaded: Loaded, asked: Generation, batch: Any = None) -> list[Session]:
    """Check a request and return the session of each of its ``n`` answers: its picture is decoded and its
    grammar compiled, but nothing is run. Missing fields take the values that the model's
    generation_config.json recommends. Raises SessionError."""
    from ..run.request import GenerationRequest
    from ..run.session import Session

    request = GenerationRequest.for_model(asked.fields, loaded, {"temperature": 1.0})
    return Session(
        loaded, asked.method, asked.knobs, request=request, batch=batch, deterministic=asked.seeded
    ).each()


def answers(
    sessions: list[Session], asked: Generation, seconds: float, cancel: threading.Event | None, caches: Any
) -> list[Generator[list[Chunk]]]:
    """Return one generator of chunks for each session of ``prepare``. Raises SessionError before anything is
    run."""
    if caches is not None:
        for session in sessions:
            session.lease(caches, asked.owner, asked.prompt, asked.raw, whole=True)
    share = seconds if sessions[0].batch else seconds / len(sessions)
    return [_answer(session, asked, index, share, cancel) for index, session in enumerate(sessions)]


def _answer(
    session: Any, asked: Generation, index: int, seconds: float, cancel: Any
) -> Generator[list[Chunk]]:
    from ..run.result import Result, RunFailed
    from ..run.tool_calls import CallReader, is_tagged
    from ..trace.events import Committed, Finished, TextEmitted
    from ..trace.recorder import Recorder
    from ..zoo.text import Transcript

    loaded, request = session.loaded, session.request
    recorder, result = Recorder(index, loaded.token_bytes, loaded.token_bytes.special), Result()
    transcript = Transcript(loaded.token_bytes, request.stop, request.min_tokens)
    decode = loaded.codec.decoder()
    sent = 0
    calls = CallReader(
        () if request.tool_choice == "none" else request.tools,
        bool(request.tools) and is_tagged(loaded.tokenizer),
    )
    records: list[dict[str, Any]] = []
    reused = 0  # tokens of the prompt that the KV cache held already
    for event in session.run(asked.prompt, raw=asked.raw, deadline=seconds, cancel=cancel, top_k_saved=TOP):
        result.take(event)
        records += recorder.take(event)
        if isinstance(event, Committed):
            logprobs = _logprobs(loaded, event) if request.logprobs is not None else None
        elif isinstance(event, TextEmitted):
            for piece in event.pieces:
                transcript.add(piece[0])
            text, sent = (
                decode(bytes(transcript.data[sent : transcript.stable_length])),
                max(sent, transcript.stable_length),
            )
            yield [{"index": index, "text": calls.take(text), "logprobs": logprobs}]
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
            },
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


def _logprobs(loaded: Loaded, event: Any) -> list[dict[str, Any]]:
    """Return {id, token, bytes, logprob} of each token of a round, and of its top alternatives."""

    def token(number: int, logprob: float) -> dict[str, Any]:
        # A special token has a name, and adds no bytes to the text.
        name, data = loaded.token_bytes(number), loaded.token_bytes.output_bytes(number)
        return {"id": number, "token": token_name(name), "bytes": list(data), "logprob": logprob}

    tops: Any = event.top_logprobs or ((),) * len(event.tokens)
    return [
        token(number, logprob) | {"top_logprobs": [token(int(one), value) for one, value in top]}
        for number, logprob, top in zip(event.tokens, event.logprobs or (), tops)
    ]


def token_name(data: bytes) -> str:
    """Return a token's text, or, as OpenAI names the part of a character, "bytes:" and its bytes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
