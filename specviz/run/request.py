"""The request type that command line, Python, HTTP and page share, and functions that parse all other input
from people and programs.

Every value is checked; invalid ones raise SessionError.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ..core import Method, Sampling
from ..core.errors import code_of
from ..indexes.earlier_answers import Memory
from ..zoo.picture_input import read_data_url
from ..zoo.registry import ZooError
from .conversation import read_messages, read_tools  # noqa: F401 - read from here, too
from .errors import SessionError, explain, sentence  # noqa: F401 - read from here, too
from .response_format import read_format
from .tool_calls import read_tool_choice, required_tools

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

MOST_STOPS = 16  # stop strings
LONGEST_STOP = 200  # characters of one


MOST_SEED = 2**53
MOST_TOKENS = 2**20  # tokens of an answer
MOST_COPIES = 32  # answers (n)
MOST_LOGPROBS = 20  # top log-probabilities per token
MOST_BIASES = 1024  # entries of logit_bias
MOST_BAD_WORDS = 256  # bad words
MOST_STOP_IDS = 256  # stop token ids
MOST_GUIDANCE = 20.0  # classifier-free guidance
BIAS = 100.0  # logit biases are clamped to [-100, 100]
SWITCH = "generation_config"  # the field of ``for_model``
SWITCHED_ON = "SPECVIZ_GENERATION_CONFIG"  # the owner's default for it


@dataclass(frozen=True)
class GenerationRequest:
    """The parameters of a generation: one type for every surface.

    Names and semantics are vLLM's; differences from transformers are in docs/requests.md.

    temperature, top_k, top_p, min_p, seed: see core.Sampling. repetition_penalty counts tokens of prompt
    and output, frequency_penalty and presence_penalty those of the output. logit_bias: (token id, bias)
    pairs, each bias clamped to [-100, 100]. bad_words: texts that are not generated. min_tokens: no end
    token, stop token or stop string before so many tokens. ignore_eos: the model's end tokens do not end
    the run. stop: texts that end the run and are not part of it; a special token's name matches that token.
    stop_token_ids: ids that end the run. n: number of answers, the i-th from seed + i. logprobs: record the
    log-probability of every written token, and of this many top tokens, under the model's own distribution
    (before penalties, masks and temperature). response_format: see ``read_format``. tools, enable_thinking:
    given to the chat template as they are; refused where it does not read them. tool_choice: "none" (tools
    are not given to the template), "auto", "required" (the answer is a call) or {"type": "function",
    "function": {"name"}} (a call of this function). guidance_scale: of classifier-free guidance, 1 for none
    (targets/guided.py). image: a picture that the target reads before the prompt, as a data URL
    (zoo/picture_input.py); hide_image: it is kept with the run, and the target does not read it.
    from_model: names of the fields that ``for_model`` took from the model.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[str, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0
    max_tokens: int = 128
    n: int = 1
    logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | dict[str, Any] | None = None
    enable_thinking: bool | None = None
    guidance_scale: float = 1.0
    image: str | None = None
    hide_image: bool = False
    from_model: tuple[str, ...] = ()

    @classmethod
    def for_model(
        cls, given: dict[str, Any], loaded: Loaded, usual: dict[str, Any] | None = None
    ) -> GenerationRequest:
        """Build a request for a loaded model from plain data. All surfaces use this one rule for the model's
        generation_config.json.

        If the request has ``generation_config: true``, or the owner set SPECVIZ_GENERATION_CONFIG=1, fields
        that the request does not set take the values that the model recommends. All other fields take the
        defaults of ``usual``, or else their own.
        """
        if not isinstance(given, dict):
            return cls.from_dict(given)
        given = {name: value for name, value in given.items() if value is not None}
        if given.get("image") and loaded.codec.picture_size is None:
            try:
                loaded.with_picture("")  # raises, before a picture is decoded for a target that reads none
            except ZooError as error:
                raise SessionError(str(error), code_of(error, "session.refused")) from None
        switched = _switch(SWITCH, given.pop(SWITCH, os.environ.get(SWITCHED_ON) == "1"))
        found = (
            {name: value for name, value in loaded.generation_defaults.items() if name not in given}
            if switched
            else {}
        )
        return replace(cls.from_dict((usual or {}) | found | given), from_model=tuple(found))

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> GenerationRequest:
        """Build and check a request from plain data; None means the default. Raises SessionError that names
        an unknown field."""
        if not isinstance(given, dict):
            raise SessionError("A request is an object with named fields.", "request.object")
        known = [field.name for field in fields(cls) if field.name != "from_model"]
        if SWITCH in given:
            raise SessionError(
                "generation_config needs a loaded model: GenerationRequest.for_model(fields, loaded).",
                "request.generation_config",
            )
        for name in given:
            if name not in known:
                near = get_close_matches(str(name)[:60], known, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
                raise SessionError(f"A request has no field {str(name)[:60]!r}; {hint}", "request.field")
        return cls(**{name: value for name, value in given.items() if value is not None})

    def __post_init__(self):
        sampling = read_sampling(
            self.temperature, self.top_k if self.top_k != -1 else 0, self.top_p, self.seed, self.min_p
        )
        values = asdict(sampling) | {
            "repetition_penalty": read_number("repetition_penalty", self.repetition_penalty),
            "presence_penalty": _between("presence_penalty", self.presence_penalty, -2.0, 2.0),
            "frequency_penalty": _between("frequency_penalty", self.frequency_penalty, -2.0, 2.0),
            "logit_bias": read_bias(self.logit_bias),
            "bad_words": _texts("bad_words", self.bad_words, MOST_BAD_WORDS),
            "min_tokens": read_integer("min_tokens", self.min_tokens, 0, MOST_TOKENS),
            "ignore_eos": _switch("ignore_eos", self.ignore_eos),
            "stop": read_stops(self.stop),
            "stop_token_ids": _token_ids("stop_token_ids", self.stop_token_ids),
            "max_tokens": read_integer("max_tokens", self.max_tokens, 1),
            "n": read_integer("n", self.n, 1, MOST_COPIES),
            "logprobs": None
            if self.logprobs is None
            else read_integer("logprobs", self.logprobs, 0, MOST_LOGPROBS),
            "response_format": read_format(self.response_format),
            "tools": read_tools(self.tools),
            "enable_thinking": None
            if self.enable_thinking is None
            else _switch("enable_thinking", self.enable_thinking),
            "guidance_scale": _between("guidance_scale", self.guidance_scale, 0.0, MOST_GUIDANCE),
            "image": None if self.image is None else read_image(self.image),
            "hide_image": _switch("hide_image", self.hide_image),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "tool_choice", read_tool_choice(self.tool_choice, self.tools))
        if not 0 < self.repetition_penalty <= 100:
            raise SessionError(
                f"repetition_penalty must lie above 0 and at most 100, not {self.repetition_penalty:g}.",
                "request.repetition_penalty",
            )
        if self.min_tokens > self.max_tokens:
            raise SessionError(
                f"min_tokens must be at most max_tokens ({self.max_tokens}), not {self.min_tokens}.",
                "request.min_tokens",
            )
        if self.seed + self.n - 1 > MOST_SEED:
            raise SessionError(
                f"Answer i has seed + i, and seeds end at {MOST_SEED}: n is at most {MOST_SEED - self.seed + 1}.",
                "request.seed",
            )
        if self.is_constrained and self.ignore_eos:
            raise SessionError(
                "ignore_eos does not go with response_format: a complete answer ends with an end token.",
                "request.ignore_eos",
            )
        if self.must_call and self.response_format:
            raise SessionError(
                "response_format does not go with a tool_choice that asks for a call.",
                "request.tool_choice_format",
            )

    @property
    def sampling(self) -> Sampling:
        """Temperature, filters and seed."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed, self.min_p)

    @property
    def seen_image(self) -> str | None:
        """The picture that the target reads, as a data URL; None without one."""
        return None if self.hide_image else self.image

    @property
    def must_call(self) -> tuple[dict[str, Any], ...]:
        """The tools of which the answer must call one."""
        return required_tools(self.tools, self.tool_choice)

    @property
    def is_constrained(self) -> bool:
        """Whether a grammar masks the logits of the answer."""
        return self.response_format is not None or bool(self.must_call)

    @property
    def bans_tokens(self) -> str:
        """The name of a field that forbids tokens, or may (a logit bias); empty without one."""
        fields = ("bad_words", "min_tokens", "logit_bias")
        return next((name for name in fields if getattr(self, name)), "")

    @property
    def changes_logits(self) -> bool:
        """Whether the request needs logits processors."""
        plain = GenerationRequest()
        return self.is_constrained or any(
            getattr(self, name) != getattr(plain, name)
            for name in (
                "repetition_penalty",
                "presence_penalty",
                "frequency_penalty",
                "logit_bias",
                "bad_words",
                "min_tokens",
            )
        )

    def each(self) -> Iterator[GenerationRequest]:
        """Yield one request for each of the ``n`` answers; the i-th has seed + i."""
        for i in range(self.n):
            yield replace(self, n=1, seed=self.seed + i)

    def record(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as plain data."""
        plain = asdict(GenerationRequest())
        return {
            name: value
            for name, value in asdict(self).items()
            if value != plain[name] and name != "from_model"
        }


def read_image(given: Any) -> str:
    """Return a picture, given as a data URL, as ``zoo.picture_input.read_data_url`` does. Raises
    SessionError."""
    try:
        return read_data_url(given)
    except ZooError as error:
        raise SessionError(str(error), code_of(error, "picture.damaged")) from None


def read_bias(given: Any) -> tuple[tuple[int, float], ...]:
    """Parse {token id: bias} or pairs into pairs; ids may be text, as JSON has them. Biases are clamped to
    [-100, 100]. Raises SessionError."""
    if not isinstance(given, (dict, list, tuple)) or len(given) > MOST_BIASES:
        raise SessionError(
            f"logit_bias is an object of at most {MOST_BIASES} token ids with their biases.",
            "request.logit_bias",
        )
    pairs = list(given.items()) if isinstance(given, dict) else list(given)
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        raise SessionError("logit_bias is an object of token ids with their biases.", "request.logit_bias")
    read = [
        (
            read_integer("logit_bias: a token id", token, 0, 2**31),
            max(-BIAS, min(BIAS, read_number("logit_bias", bias))),
        )
        for token, bias in pairs
    ]
    tokens: set[int] = set()
    for token, _ in read:
        if token in tokens:
            raise SessionError(f"logit_bias has token {token} twice.", "request.logit_bias_twice")
        tokens.add(token)
    return tuple(read)


def _between(name: str, value: Any, low: float, high: float) -> float:
    number = read_number(name, value)
    if not low <= number <= high:
        raise SessionError(f"{name} must lie between {low:g} and {high:g}, not {number:g}.", "request.range")
    return number


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SessionError(f"{name} must be true or false, not {str(value)[:40]!r}.", "request.flag")
    return value


def _texts(name: str, given: Any, most: int) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else given
    if (
        not isinstance(texts, (list, tuple))
        or len(texts) > most
        or not all(isinstance(text, str) and text.strip() and len(text) <= LONGEST_STOP for text in texts)
    ):
        raise SessionError(
            f"{name} are at most {most} texts of 1 to {LONGEST_STOP} characters.", "request.texts"
        )
    return tuple(texts)


def _token_ids(name: str, given: Any) -> tuple[int, ...]:
    if not isinstance(given, (list, tuple)) or len(given) > MOST_STOP_IDS:
        raise SessionError(f"{name} are at most {MOST_STOP_IDS} token ids.", "request.stop_ids")
    return tuple(read_integer(name, token, 0, 2**31) for token in given)


def read_sampling(
    temperature: Any = 0.0, top_k: Any = 0, top_p: Any = 1.0, seed: Any = 0, min_p: Any = 0.0
) -> Sampling:
    """Parse sampling settings from numbers or text. Raises SessionError."""
    try:
        return Sampling(
            read_number("temperature", temperature),
            read_integer("top_k", top_k),
            read_number("top_p", top_p),
            read_integer("seed", seed, -MOST_SEED, MOST_SEED),
            read_number("min_p", min_p),
        )
    except ValueError as error:
        raise SessionError(sentence(error), code_of(error, "request.sampling")) from None


def read_number(name: str, value: Any) -> float:
    """Parse a finite number; ``name`` is used in the message. Raises SessionError."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise SessionError(f"{name} must be a number, not {str(value)[:40]!r}.", "request.number")
    return number


def read_integer(name: str, value: Any, low: float = 0, high: float = math.inf) -> int:
    """Parse an integer from ``low`` to ``high``; ``name`` is used in the message. Raises SessionError."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else read_number(name, value)
    if number != int(number) or not low <= number <= high:
        most = f" to {high}" if high < math.inf else " or more"
        raise SessionError(
            f"{name} must be a whole number{f', {low}{most}' if low > -math.inf else ''}, not {str(value)[:40]}.",
            "request.whole",
        )
    return int(number)


def read_given(loaded: Loaded, method: Any, knobs: Any, sampling: Any, memory: Any) -> None:
    """Check the arguments of a Session. Raises SessionError for a wrong type."""
    if not hasattr(loaded, "unsupported_reason") or not hasattr(loaded, "kit"):
        raise SessionError(
            f"A session needs loaded models, as load() gives them, not {type(loaded).__name__}.",
            "session.loaded",
        )
    if not isinstance(method, (str, Method)):
        raise SessionError(f"A method is a Method or its key, not {type(method).__name__}.", "session.method")
    if knobs is not None and not (isinstance(knobs, dict) and all(isinstance(name, str) for name in knobs)):
        raise SessionError("Knobs are values by name.", "session.knobs")
    if not isinstance(sampling, Sampling):
        raise SessionError(f"sampling must be a Sampling, not {type(sampling).__name__}.", "session.sampling")
    if memory is not None and not isinstance(memory, Memory):
        raise SessionError(f"memory must be a Memory or None, not {type(memory).__name__}.", "session.memory")


def read_request(request: Any, sampling: Sampling) -> GenerationRequest:
    """Return the request; without one, a request with these sampling settings. Raises SessionError if both
    are given and differ."""
    if request is None:
        return GenerationRequest(**asdict(sampling))
    if not isinstance(request, GenerationRequest):
        raise SessionError(
            f"request must be a GenerationRequest, not {type(request).__name__}.", "session.request"
        )
    if sampling not in (Sampling(), request.sampling):
        raise SessionError("Give either sampling or a request, not both.", "session.both")
    return request


def read_cancel(cancel: Any) -> threading.Event:
    """Return the event that cancels a run, a new one if None is given. Raises SessionError."""
    if cancel is not None and not isinstance(cancel, threading.Event):
        raise SessionError(
            f"cancel must be a threading.Event, not {type(cancel).__name__}.", "session.cancel"
        )
    return cancel or threading.Event()


def read_predicted(text: Any, longest: int) -> str:
    """Return a predicted output of at most ``longest`` characters; empty if there is none. Raises
    SessionError."""
    if not isinstance(text or "", str):
        raise SessionError("The predicted text must be text.", "request.predicted")
    if len(text or "") > longest:
        raise SessionError(
            f"The predicted text has {len(text)} characters; at most {longest} are read.",
            "request.predicted_long",
        )
    return text or ""


def read_stops(stop: Any) -> tuple[str, ...]:
    """Parse stop strings, one text or a list. Raises SessionError."""
    if not isinstance(stop, (str, list, tuple, type(None))):
        raise SessionError(f"Stop strings are a list of texts, not {type(stop).__name__}.", "request.stop")
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MOST_STOPS or not all(isinstance(s, str) and s and len(s) <= LONGEST_STOP for s in stops):
        raise SessionError(
            f"Stop strings are at most {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters.",
            "request.stop_length",
        )
    return stops


def read_seconds(deadline: Any) -> float | None:
    """Parse a deadline in seconds, None for none. Raises SessionError."""
    if deadline is not None and read_number("deadline", deadline) < 0:
        raise SessionError("The deadline must be 0 seconds or more.", "request.deadline")
    return None if deadline is None else float(deadline)


def max_tree_size(knobs: dict[str, Any]) -> int:
    """Return an estimate of the number of nodes, including the root, of the largest draft tree that these
    knobs allow. A target with static shapes uses it to choose its bucket; a larger tree makes it switch to
    a larger bucket."""
    sizes = [knobs.get(name) for name in ("nodes", "gamma", "depth", "window", "block", "most", "length")]
    return 1 + max((size for size in sizes if type(size) is int), default=0)
