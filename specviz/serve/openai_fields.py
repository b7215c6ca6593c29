"""Fields of a request to the OpenAI-compatible endpoint: those of OpenAI, vLLM and llama.cpp that existing
clients send. A field that would change the answer and is not supported is refused by name."""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import dataclass
from typing import Any

from ..engine.limits import ANSWERS, CONVERSATION_CHARACTERS, NEW_TOKENS, PROMPTS, RUN_SECONDS, TURNS
from ..engine.messages import Refused, shorten

REQUEST_FIELDS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "bad_words",
    "min_tokens",
    "ignore_eos",
    "stop",
    "stop_token_ids",
    "seed",
    "max_tokens",
    "n",
    "response_format",
    "tools",
    "tool_choice",
    "enable_thinking",
    "guidance_scale",
    "hide_image",
    "generation_config",
)
ALIASES = {"repeat_penalty": "repetition_penalty", "max_completion_tokens": "max_tokens"}
GUIDED = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
OTHER_FIELDS = (
    *ALIASES,
    *GUIDED,
    "structured_outputs",
    "prediction",
    "chat_template_kwargs",
    "model",
    "stream",
    "stream_options",
    "logprobs",
    "speculative",
    "return_token_ids",
    "timings_per_token",
    "parallel_tool_calls",
    "best_of",
)
# Fields that change nothing here: any value of this type, or these values only.
WITHOUT_EFFECT: dict[str, type | tuple[Any, ...]] = {
    "user": str,
    "safety_identifier": str,
    "service_tier": str,
    "reasoning_effort": str,
    "verbosity": str,
    "prompt_cache_key": str,
    "prompt_cache_retention": str,
    "request_id": str,
    "cache_salt": str,  # read by openai_api: it separates KV caches
    "metadata": dict,
    "store": bool,
    "cache_prompt": bool,
    "spaces_between_special_tokens": bool,
    "modalities": (["text"],),
    "echo": (False,),
    "suffix": ("",),
    "skip_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "return_tokens_as_token_ids": (False,),
    "use_beam_search": (False,),
    "detokenize": (True,),
    "length_penalty": (1,),
    "priority": (0,),
    "typical_p": (1,),
    "mirostat": (0,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "dynatemp_range": (0,),
    "id_slot": (-1,),
}
STRUCTURES = ("json", "regex", "choice", "grammar", "json_object")  # of structured_outputs
SWITCHES = ("disable_fallback", "disable_any_whitespace")  # JSON is always compact here
MOST_CHOICES = 32  # of a request on one's own machine
ALTERNATIVES = 12_000  # some 100 bytes each: one answer of 512 tokens may have all 20 of each
LARGEST = 2**20  # tokens of an answer that may fill the context


@dataclass(frozen=True)
class ApiLimits:
    """Limits of a request; the defaults are those of a shared page. max_tokens: of an answer, None for as
    many as the context holds; answers: n; choices: prompts times n; seconds: of a request; turns, characters:
    of a conversation or a prompt; alternatives: log-probabilities of an answer that is no stream."""

    max_tokens: int | None = NEW_TOKENS
    answers: int = ANSWERS
    choices: int = PROMPTS
    seconds: float = RUN_SECONDS
    turns: int = TURNS
    characters: int = CONVERSATION_CHARACTERS
    alternatives: int = ALTERNATIVES

    @classmethod
    def own(cls, max_tokens: int | None, seconds: float) -> ApiLimits:
        """Return the limits of a server on one's own machine."""
        return cls(max_tokens, MOST_CHOICES, MOST_CHOICES, seconds, 1000, 2**20, sys.maxsize)


@dataclass(frozen=True)
class Wanted:
    """The parts of an answer's format that a request chooses. n: answers to each prompt; choices: answers in
    all; usage: the stream
    ends with the token counts; each_usage: every chunk has them; one_call: an answer calls one tool at
    most."""

    n: int = 1
    choices: int = 1
    streamed: bool = False
    usage: bool = False
    each_usage: bool = False
    token_ids: bool = False
    timings: bool = False
    one_call: bool = False


def read_generation(body: dict[str, Any], kind: Any, limits: ApiLimits) -> tuple[dict[str, Any], Wanted]:
    """Read what a request's body says about generation; return the arguments of a Generation except method
    and owner, and the format of the answer. kind: the endpoint's Shape. Raises Refused."""
    _known(body, kind.fields)
    fields = {name: body[name] for name in REQUEST_FIELDS if body.get(name) is not None}
    template = _template_fields(body.get("chat_template_kwargs"))
    for name, other, value in (
        *((name, ALIASES[name], body.get(name)) for name in ALIASES),
        ("chat_template_kwargs", "enable_thinking", template.get("enable_thinking")),
    ):
        if value is not None and fields.setdefault(other, value) != value:
            raise Refused("openai.value", field=name, form=f"given without {other}, or with the same value")
    echo = kind.echo(body)
    silent = echo and fields.get("max_tokens") == 0
    if silent or "max_tokens" not in fields:
        fields["max_tokens"] = 1 if silent else limits.max_tokens or LARGEST
    structure = _structure(body)
    fields |= {
        "logprobs": kind.logprobs(body),
        "seed": fields.get("seed", secrets.randbits(31)),
        **({"response_format": structure} if structure else {}),
    }
    for name, most in (("max_tokens", limits.max_tokens or LARGEST), ("n", limits.answers)):
        value = fields.get(name, 1)
        if type(value) is not int or not 1 <= value <= most:
            raise Refused("openai.value", field=name, form=f"a whole number from 1 to {most}")
    prompts = kind.prompts(body, limits)
    n = fields.get("n", 1)
    if len(prompts) * n > limits.choices:
        raise Refused("openai.value", field="prompt", form=f"at most {limits.choices} prompts times n")
    if body.get("best_of") not in (None, 1, n):
        raise Refused("openai.value", field="best_of", form="1 or n")
    _check_alternatives(fields, len(prompts) * n, limits, bool(body.get("stream")))
    fields |= kind.picture(body)
    asked = {"prompt": prompts[0], "more": tuple(prompts[1:]), "raw": kind.raw, "fields": fields}
    asked["seeded"] = body.get("seed") is not None
    return asked | {"echo": echo, "silent": silent, "predicted": _prediction(body)}, _wanted(
        body, n, n * len(prompts)
    )


def _check_alternatives(fields: dict[str, Any], choices: int, limits: ApiLimits, streamed: bool) -> None:
    """Refuse an answer whose one message would be too large. Raises Refused."""
    top = fields.get("logprobs")
    each = 1 + top if isinstance(top, int) else 0
    if not streamed and choices * fields["max_tokens"] * each > limits.alternatives:
        form = f"at most {limits.alternatives} log-probabilities in all (answers x max_tokens x alternatives), or a stream"
        raise Refused("openai.value", field="logprobs", form=form)


def _known(body: dict[str, Any], own: tuple[str, ...]) -> None:
    """Raise Refused that names a field which is not supported, or has a value that is not."""
    for name, value in body.items():
        if value is None or name in (*REQUEST_FIELDS, *OTHER_FIELDS, *own):
            continue
        allowed = WITHOUT_EFFECT.get(name)
        if allowed is None:
            if value not in ([], {}):
                raise Refused("openai.field", field=shorten(name, 60))
        elif isinstance(allowed, type):
            if not isinstance(value, allowed):
                raise Refused("openai.value", field=name, form=f"a value of type {allowed.__name__}")
        elif not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
            raise Refused("openai.value", field=name, form=f"{json.dumps(allowed[0])} on this server")


def _wanted(body: dict[str, Any], n: int, choices: int) -> Wanted:
    streamed, usage, each = _stream_fields(body)
    flags = {}
    for name in ("return_token_ids", "timings_per_token", "parallel_tool_calls"):
        flags[name] = body.get(name)
        if flags[name] is not None and not isinstance(flags[name], bool):  # 0 is not read as false
            raise Refused("openai.value", field=name, form="true or false")
    return Wanted(
        n,
        choices,
        streamed,
        usage,
        each,
        bool(flags["return_token_ids"]),
        bool(flags["timings_per_token"]),
        flags["parallel_tool_calls"] is False,
    )


def _stream_fields(body: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Read ``stream``, whether its last event holds the usage, and whether every one does. Raises Refused."""
    streamed, options = body.get("stream") or False, body.get("stream_options") or {}
    if not isinstance(streamed, bool):
        raise Refused("openai.value", field="stream", form="true or false")
    names = ("include_usage", "continuous_usage_stats", "include_obfuscation")
    good = isinstance(options, dict) and set(options) <= set(names) and (streamed or not options)
    if not good or not all(isinstance(value, bool) for value in options.values()):
        raise Refused(
            "openai.value",
            field="stream_options",
            form='{"include_usage": true or false}, given together with stream: true',
        )
    usage = options.get("include_usage", False)
    return streamed, usage, usage and options.get("continuous_usage_stats", False)


def _structure(body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the response_format that a request asks for under any of its names. Raises Refused."""
    found: dict[str, Any] = {}
    if body.get("response_format") is not None:
        found["response_format"] = body["response_format"]
    for name, kind in GUIDED.items():
        if body.get(name) is not None:
            found[name] = _format(name, kind, body[name])
    if body.get("structured_outputs") is not None:
        found["structured_outputs"] = _structured(body["structured_outputs"])
    if len(found) > 1:
        first, second = list(found)[:2]
        raise Refused("openai.value", field=second, form=f"given without {first}")
    return next(iter(found.values()), None)


def _structured(given: Any) -> dict[str, Any] | None:
    """Return vLLM's structured_outputs as a response_format. Raises Refused."""
    given = (
        {name: one for name, one in given.items() if one is not None} if isinstance(given, dict) else {"": 0}
    )
    kinds = [name for name in STRUCTURES if given.get(name) is not None and given.get(name) is not False]
    switches = [given[name] for name in SWITCHES if name in given]
    if (
        len(kinds) != 1
        or set(given) - {*STRUCTURES, *SWITCHES}
        or not all(isinstance(one, bool) for one in switches)
    ):
        raise Refused(
            "openai.value", field="structured_outputs", form=f"an object with one of {', '.join(STRUCTURES)}"
        )
    return _format("structured_outputs", kinds[0], given[kinds[0]])


def _format(field: str, kind: str, value: Any) -> dict[str, Any]:
    if kind == "json":
        try:
            schema = json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            raise Refused("openai.value", field=field, form="a JSON schema") from None
        return {"type": "json_schema", "json_schema": {"schema": schema}}
    if kind == "json_object":
        return {"type": "json_object"}
    return {"type": "lark", "lark": value} if kind == "grammar" else {"type": kind, kind: value}


def _prediction(body: dict[str, Any]) -> str:
    """Return the predicted output of a request: OpenAI's {"type": "content", "content": text or parts}.
    Raises Refused."""
    given = body.get("prediction")
    if given is None:
        return ""
    content = given.get("content") if isinstance(given, dict) and given.get("type") == "content" else None
    text = joined_text(content)
    if text is None:
        raise Refused(
            "openai.value", field="prediction", form='an object {"type": "content", "content": text}'
        )
    return text


def joined_text(content: Any) -> str | None:
    """Return a message's content, a text or a list of text parts, as one text; None for anything else."""
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    ):
        return "".join(part["text"] for part in content)
    return content if isinstance(content, str) else None


def _template_fields(given: Any) -> dict[str, Any]:
    """Read vLLM's chat_template_kwargs: only enable_thinking. Raises Refused that names any other."""
    given = {} if given is None else given
    if not isinstance(given, dict) or set(given) - {"enable_thinking"}:
        raise Refused(
            "openai.value", field="chat_template_kwargs", form='an object {"enable_thinking": true or false}'
        )
    return given
