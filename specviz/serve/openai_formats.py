"""Formats of the answers of the OpenAI-compatible endpoint, complete or streamed."""

from __future__ import annotations

import codecs
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, ClassVar

from ..engine.messages import Refused, shorten
from .openai_errors import error_object
from .openai_fields import ApiLimits, Wanted, joined_text

ROLES = ("system", "developer", "user", "assistant", "tool")
LAST_ROLES = ("user", "tool", "assistant")  # an assistant's message is continued
MESSAGE_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning")
FINISH = {
    "stop": "stop",
    "stop_string": "stop",
    "length": "length",
    "context": "length",
    "deadline": "length",
    "stopped": "stop",
}
ALIVE = ": keep-alive\n\n"  # a comment, which clients skip


class Shape:
    """The format of an answer, complete or streamed. Each endpoint has a subclass. base: the server's own
    address; wanted: what the request chooses of the format."""

    raw = False
    prefix = ""
    name = ""
    fields: tuple[str, ...] = ()  # of this kind of request only
    prompts: ClassVar[Callable[[dict[str, Any], ApiLimits], list[Any]]]  # what is to be continued
    logprobs: ClassVar[
        Callable[[dict[str, Any]], int | None]
    ]  # how many alternatives of each token it asks for

    @staticmethod
    def picture(body: dict[str, Any]) -> dict[str, str]:
        """Return the field ``image`` of a request whose messages hold a picture. Raises Refused."""
        return {}

    @staticmethod
    def echo(body: dict[str, Any]) -> bool:
        """Return whether each answer begins with its prompt. Raises Refused."""
        return False

    def __init__(self, model: str, base: str, wanted: Wanted = Wanted()):
        self.id, self.base, self.model = self.prefix + secrets.token_hex(12), base, model
        self._wanted = wanted
        self._head = {"id": self.id, "object": self.name, "created": int(time.time()), "model": model}
        self._answers: dict[int, dict[str, Any]] = {}
        self._prompts: dict[int, dict[str, Any]] = {}  # prompt -> its token counts
        self._written = {"completion": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
        self._speculative: dict[str, Any] = {}
        self.records: list[dict[str, Any]] = []  # the trace of the answers that have ended

    def add(self, chunk: dict[str, Any]) -> None:
        """Add a chunk of generation.generate to the complete answer."""
        answer = self._answers.setdefault(
            chunk["index"], {"text": "", "logprobs": [], "ids": [], "finish": None, "calls": []}
        )
        answer["text"] += chunk.get("text", "")
        answer["logprobs"] += chunk.get("logprobs") or []
        answer["ids"] += chunk.get("token_ids") or []
        if "finish" in chunk:
            self._finish(answer, chunk)

    def _finish(self, answer: dict[str, Any], chunk: dict[str, Any]) -> None:
        calls = chunk["tool_calls"][:1] if self._wanted.one_call else chunk["tool_calls"]
        answer["calls"] = [
            {"id": "call_" + secrets.token_hex(12), "type": "function", "function": call} for call in calls
        ]
        answer["finish"] = "tool_calls" if answer["calls"] else FINISH.get(chunk["finish"], "stop")
        answer |= {name: chunk[name] for name in ("metrics", "timings")}
        usage = chunk["usage"]
        self._prompts[chunk["index"] // self._wanted.n] = usage
        self._written["completion"] += usage["completion_tokens"]
        for name in ("accepted_prediction_tokens", "rejected_prediction_tokens"):
            self._written[name] += usage[name]
        self._speculative = _together(self._speculative, chunk["speculative"])

    @property
    def usage(self) -> dict[str, Any]:
        """The token counts so far, summed over the answers; accepted and rejected prediction tokens are draft
        tokens."""
        written, asked = self._written, sum(usage["prompt_tokens"] for usage in self._prompts.values())
        cached = sum(usage["cached_tokens"] for usage in self._prompts.values())
        details = {name: count for name, count in written.items() if name != "completion"}
        return {
            "prompt_tokens": asked,
            "completion_tokens": written["completion"],
            "total_tokens": asked + written["completion"],
            **({"prompt_tokens_details": {"cached_tokens": cached}} if cached else {}),
            "completion_tokens_details": details,
        }

    def whole(self) -> dict[str, Any]:
        """Return the complete answer as JSON data."""
        choices = [
            self._choice(index, answer) | self._details(index, answer)
            for index, answer in sorted(self._answers.items())
        ]
        found = {"choices": choices, "usage": self.usage, "speculative": self._speculative}
        return self._head | found | self._of_one("metrics") | self._of_one("timings")

    def _of_one(self, name: str) -> dict[str, Any]:
        """Return a field of the only answer; where there are several, each choice has its own."""
        only = self._answers.get(0, {})
        return {name: only[name]} if self._wanted.choices == 1 and name in only else {}

    def _details(self, index: int, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that other engines add to a choice."""
        ids = {"token_ids": answer["ids"]} if self._wanted.token_ids else {}
        if answer["finish"] is None:
            return ids
        if self._wanted.token_ids:
            ids["prompt_token_ids"] = self._prompts[index // self._wanted.n]["prompt_token_ids"]
        return ids | {name: answer[name] for name in ("metrics", "timings")}

    async def events(
        self, first: dict[str, Any] | None, chunks: AsyncGenerator[dict[str, Any] | None]
    ) -> AsyncIterator[str]:
        """Yield the server-sent events of a streamed answer. first, chunks: None where nothing came for a
        while, which becomes a comment that keeps the connection open."""
        async with aclosing(chunks):
            try:
                yield self._event(first) if first else ALIVE
                async for chunk in chunks:
                    yield self._event(chunk) if chunk else ALIVE
            except Refused as why:
                yield f"data: {json.dumps(error_object(why)[1])}\n\n"
        if self._wanted.usage:
            last = {"choices": [], "usage": self.usage} | self._of_one("metrics")
            yield f"data: {json.dumps(self._stream_head() | last)}\n\n"
        yield "data: [DONE]\n\n"

    def _event(self, chunk: dict[str, Any]) -> str:
        index = chunk["index"]
        begun = index in self._answers
        self.add(chunk)
        whole, logprobs, ended = self._answers[index], chunk.get("logprobs") or [], "finish" in chunk
        answer = whole | {
            "text": chunk.get("text", ""),
            "logprobs": logprobs,
            "ids": chunk.get("token_ids") or [],
            "finish": whole["finish"] if ended else None,
            "before": whole["logprobs"][: len(whole["logprobs"]) - len(logprobs)],
        }
        more: dict[str, Any] = {"speculative": chunk["speculative"]} if ended else {}
        if self._wanted.choices == 1 and (ended or self._wanted.timings and "timings" in chunk):
            more["timings"] = chunk["timings"]
        if self._wanted.usage:
            more["usage"] = self.usage if self._wanted.each_usage else None
        choice = self._delta(index, answer, begun) | self._details(index, answer)
        return f"data: {json.dumps(self._stream_head() | {'choices': [choice]} | more)}\n\n"

    def _stream_head(self) -> dict[str, Any]:
        return self._head

    def _choice(self, index: int, answer: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _delta(self, index: int, answer: dict[str, Any], begun: bool) -> dict[str, Any]:
        raise NotImplementedError


def is_picture(part: Any) -> bool:
    """Return whether a part of a message's content is a picture."""
    return isinstance(part, dict) and part.get("type") == "image_url"


def without_pictures(message: Any) -> Any:
    """Return a message's content without its pictures; the target reads a picture before the whole
    conversation."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or message.get("role") != "user":
        return content
    return [part for part in content if not is_picture(part)]


def _message(one: Any) -> dict[str, Any] | None:
    """Return a message of a request's body with its text parts joined; None if it is malformed. Raises
    Refused that names a field which is not supported."""
    if not isinstance(one, dict):
        return None
    unknown = [name for name in one if name not in MESSAGE_FIELDS and one[name]]
    if unknown:
        raise Refused("openai.field", field=f"messages: {shorten(unknown[0], 60)}")
    calls = {name: one[name] for name in ("tool_calls", "tool_call_id", "name") if one.get(name)}
    content = without_pictures(one)
    text = "" if content is None and "tool_calls" in calls else joined_text(content)
    named = all(isinstance(calls.get(name, ""), str) for name in ("tool_call_id", "name"))
    if text is None or not named or one.get("role") not in ROLES:
        return None
    return {"role": one["role"].replace("developer", "system"), "content": text, **calls}


class ChatShape(Shape):
    """The format of /v1/chat/completions."""

    prefix = "chatcmpl-"
    name = "chat.completion"
    fields = ("messages", "top_logprobs", "continue_final_message", "add_generation_prompt")

    @staticmethod
    def prompts(body: dict[str, Any], limits: ApiLimits) -> list[Any]:
        """Return the conversation of a request's body, as the only prompt. Raises Refused."""
        given = body.get("messages")
        if not isinstance(given, list) or not 0 < len(given) <= limits.turns + 1:
            raise Refused("openai.messages", most=limits.turns + 1)
        read = [_message(one) for one in given]
        messages = [one for one in read if one is not None]
        if len(messages) != len(given) or messages[-1]["role"] not in LAST_ROLES:
            raise Refused("openai.messages", most=limits.turns + 1)
        if sum(len(m["content"]) for m in messages) > limits.characters:
            raise Refused("field.conversation", turns=limits.turns, characters=limits.characters)
        continued = messages[-1]["role"] == "assistant"
        for name, value in (("continue_final_message", continued), ("add_generation_prompt", not continued)):
            if body.get(name) not in (None, value):
                raise Refused("openai.value", field=name, form=f"{json.dumps(value)} with this last message")
        return [messages]

    @staticmethod
    def picture(body: dict[str, Any]) -> dict[str, str]:
        """Return the field ``image`` for the picture in a request's messages; empty without one. Raises
        Refused."""
        given = body.get("messages")
        contents = [
            one.get("content") for one in (given if isinstance(given, list) else ()) if isinstance(one, dict)
        ]
        parts = [
            part for content in contents if isinstance(content, list) for part in content if is_picture(part)
        ]
        if not parts:
            return {}
        address = parts[0].get("image_url")
        address = address.get("url") if isinstance(address, dict) else address
        if len(parts) > 1 or not isinstance(address, str):
            raise Refused(
                "openai.value",
                field="image_url",
                form='one picture in all messages, {"url": "data:image/png;base64,..."}',
            )
        return {"image": address}

    @staticmethod
    def logprobs(body: dict[str, Any]) -> int | None:
        """Return the requested number of alternatives per token, 0 for log-probabilities of the tokens
        alone, None for none. Raises Refused."""
        asked, top = body.get("logprobs"), body.get("top_logprobs")
        if asked not in (None, True, False) or isinstance(asked, int) and not isinstance(asked, bool):
            raise Refused("openai.value", field="logprobs", form="true or false")
        if top is not None and not asked:
            raise Refused("openai.value", field="top_logprobs", form="given together with logprobs: true")
        return (top or 0) if asked else None

    def _stream_head(self) -> dict[str, Any]:
        return self._head | {"object": "chat.completion.chunk"}

    def _choice(self, index: int, answer: dict[str, Any]) -> dict[str, Any]:
        calls = {"tool_calls": answer["calls"]} if answer["calls"] else {}
        content = answer["text"] or (None if calls else "")
        return {
            "index": index,
            "message": {"role": "assistant", "content": content, "refusal": None, **calls},
            "logprobs": self._logprobs(answer),
            "finish_reason": answer["finish"],
        }

    def _delta(self, index: int, answer: dict[str, Any], begun: bool) -> dict[str, Any]:
        delta = ({} if begun else {"role": "assistant"}) | (
            {"content": answer["text"]} if answer["text"] or not begun else {}
        )
        if answer["calls"]:
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(answer["calls"])]
        return {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(answer),
            "finish_reason": answer["finish"],
        }

    @staticmethod
    def _logprobs(answer: dict[str, Any]) -> dict[str, Any] | None:
        def known(one: dict[str, Any]) -> dict[str, Any]:  # OpenAI's fields, and where a token comes from
            names = ("token", "bytes", "logprob", "source", "draft_logprob")
            return {name: one[name] for name in names if name in one}

        content = [
            known(one) | {"top_logprobs": [known(top) for top in one["top_logprobs"]]}
            for one in answer["logprobs"] or ()
        ]
        return {"content": content, "refusal": None} if content else None


class CompletionShape(Shape):
    """The format of /v1/completions."""

    raw = True
    prefix = "cmpl-"
    name = "text_completion"
    fields = ("prompt", "echo")

    @staticmethod
    def prompts(body: dict[str, Any], limits: ApiLimits) -> list[Any]:
        """Return the prompts of a request's body: texts, or lists of token ids. Raises Refused."""
        given = body.get("prompt")
        if isinstance(given, str) or (isinstance(given, list) and given and type(given[0]) is int):
            given = [given]
        if not isinstance(given, list) or not given or not all(_is_prompt(one, limits) for one in given):
            form = f"texts of 1 to {limits.characters:,} characters, or lists of token ids"
            raise Refused("openai.value", field="prompt", form=form)
        return given

    @staticmethod
    def echo(body: dict[str, Any]) -> bool:
        found = body.get("echo") or False
        if not isinstance(found, bool):
            raise Refused("openai.value", field="echo", form="true or false")
        return found

    @staticmethod
    def logprobs(body: dict[str, Any]) -> int | None:
        """Return the requested number of alternatives per token, None for no log-probabilities."""
        return body.get("logprobs")

    def _choice(self, index: int, answer: dict[str, Any]) -> dict[str, Any]:
        return {
            "index": index,
            "text": answer["text"],
            "logprobs": self._logprobs(answer),
            "finish_reason": answer["finish"],
        }

    def _delta(self, index: int, answer: dict[str, Any], begun: bool) -> dict[str, Any]:
        return self._choice(index, answer)

    @staticmethod
    def _logprobs(answer: dict[str, Any]) -> dict[str, Any] | None:
        found = answer["logprobs"]
        if not found:
            return None
        earlier = answer.get("before", [])
        offsets = _offsets([*earlier, *found])[len(earlier) :]
        return {
            "tokens": [one["token"] for one in found],
            "token_logprobs": [one["logprob"] for one in found],
            "text_offset": offsets,
            "top_logprobs": [
                None if one["logprob"] is None else _by_name([one, *one["top_logprobs"]]) for one in found
            ],
            "token_sources": [one["source"] for one in found],
            "draft_logprobs": [one.get("draft_logprob") for one in found],
        }


def _is_prompt(one: Any, limits: ApiLimits) -> bool:
    """Return whether a value is a text or a list of token ids that may be a prompt."""
    if isinstance(one, list):
        return bool(one) and all(type(i) is int for i in one)
    return isinstance(one, str) and 0 < len(one) <= limits.characters


def _by_name(tops: list[dict[str, Any]]) -> dict[str, float]:
    """Return {token: log-probability} of a token and its alternatives. Tokens of one text are all kept: the
    later ones are named by their ids, as vLLM does."""
    found: dict[str, float] = {}
    ids: set[int] = set()
    for top in tops:
        if top["id"] not in ids:
            ids.add(top["id"])
            found[f"token_id:{top['id']}" if top["token"] in found else top["token"]] = top["logprob"]
    return found


def _offsets(tokens: list[dict[str, Any]]) -> list[int]:
    """Return the place in the text at which each token begins; a token inside a character begins where that
    character does."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    at = 0
    found = []
    for one in tokens:
        data = bytes(one["bytes"])
        broken = (
            decoder.getstate()[0] and data and not 0x80 <= data[0] < 0xC0
        )  # the character before stays incomplete
        found.append(at + bool(broken))
        at += len(decoder.decode(data))
    return found


def _together(before: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of the answers of a request: counts are added, the rest is the last answer's."""
    out = dict(answer)
    for name in ("passes", "tokens", "tried", "accepted"):
        out[name] = before.get(name, 0) + answer[name]
    out["mean_accepted_length"] = out["tokens"] / out["passes"] if out["passes"] else None
    out["acceptance_rate"] = out["accepted"] / out["tried"] if out["tried"] else None
    out["time_to_first_token"] = before.get("time_to_first_token", answer["time_to_first_token"])
    out["request"] = before.get("request", answer["request"])
    return out
