"""Limits of a visitor's run, checked on the server, because programs do not use the page's sliders. (Limits
per client address: address_budget.py and run_queue.py; of a request's bytes and time: http_guard.py and
http_timeouts.py.)

Input is any JSON. Its size is checked first (``SIZES``), then types and ranges: ``read_request`` returns a
RunRequest with every value in range, or raises Refused. Numbers out of range are refused, not clamped, so
that a run never silently differs from the request."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from .messages import SENTENCE, Refused, close_names, shorten
from .run_queue import OPEN_RUNS, RUN_SECONDS, WAITING, RunQueue, Visitor

PROMPT_CHARACTERS = 4000
NEW_TOKENS = 512
LANES = 5  # four methods, and plain decoding
ANSWERS = 4  # answers (n) of each lane
LANES_IN_ALL = 10  # lanes times answers
REPEATS = 5
PROMPTS = 8  # decoded at once by a lane
TURNS = 40
CONVERSATION_CHARACTERS = 40_000
QUESTION_CHARACTERS = 20_000
PICTURE_CHARACTERS = 700_000  # of a picture as a data URL, about 500 KB
NO_DRAFT = "none"
FIXED = "fixed"
GENERATION = (
    "n",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "bad_words",
    "min_tokens",
    "logprobs",
    "ignore_eos",
    "stop",
    "stop_token_ids",
    "response_format",
    "tools",
    "tool_choice",
    "enable_thinking",
    "guidance_scale",
    "image",
    "hide_image",
    "generation_config",
)  # as run.request names them
BASELINE = (
    "autoregressive"  # plain decoding: recorded in every run, so that a speed-up is measured and not assumed
)
SEED_BELOW = 2**53  # integers that JSON keeps
VALUE_NAMES = {
    "distribution": "whole distribution"
}  # knob values whose name is not a reader's word, as in stage.js

__all__ = [
    "OPEN_RUNS",
    "RUN_SECONDS",
    "SENTENCE",
    "WAITING",
    "Refused",
    "RunQueue",
    "Visitor",
]  # and what is defined here


@dataclass(frozen=True)
class Size:
    """Limits of the size of a JSON value. what: its name in messages; characters: maximum length of each
    text and key; values: maximum number of values in lists and objects, itself included; depth: maximum
    nesting; picture: maximum length of a text that is a picture's data URL."""

    what: str
    characters: int
    values: int = 1
    depth: int = 0
    picture: int = 0


# Every field of every endpoint. Checked before anything else is done with a value.
SIZES = {
    "prompt": Size("The prompt", PROMPT_CHARACTERS),
    "system": Size("The system prompt", PROMPT_CHARACTERS),
    "predicted": Size("The predicted text", PROMPT_CHARACTERS),
    "methods": Size("The list of methods", 400, 600, 3),
    "knobs": Size("The knobs", 400, 4000, 2),
    "turns": Size("The list of earlier messages", CONVERSATION_CHARACTERS, 600, 2),
    "target": Size("The model's name", 200),
    "draft": Size("The draft model's name", 200),
    "max_new_tokens": Size("The length", 40),
    "temperature": Size("The temperature", 40),
    "top_p": Size("Top-p", 40),
    "seed": Size("The seed", 40),
    "repeats": Size("Repeats", 40),
    "prompts": Size("Prompts at once", 40),
    "deterministic": Size("The switch for a deterministic run", 40),
    "n": Size("The number of answers (n)", 40),
    "name": Size("The question's name", 60),
    "session": Size("The session's name", 64),
    "generation": Size("The request's further fields", CONVERSATION_CHARACTERS, 4000, 24),
    "payload": Size("The question", QUESTION_CHARACTERS, 4000, 8),
    "body": Size("The request", CONVERSATION_CHARACTERS, 20_000, 24),
    "openai body": Size("The request", CONVERSATION_CHARACTERS, 20_000, 24, PICTURE_CHARACTERS),
}
PICTURE = "data:image/"  # begins a picture's data URL
DIGITS = 400  # of an integer
BODY_BYTES = 2**20  # of a request


def check_size(name: str, value: Any) -> None:
    """Raise Refused where a JSON value is larger than ``SIZES`` allows; stops at the first excess."""
    size = SIZES[name]
    left, todo = size.values, [(value, 0)]
    while todo:
        one, depth = todo.pop()
        if depth > size.depth:
            raise Refused("size.depth", what=size.what, most=size.depth)
        left -= 1
        if left < 0 or (isinstance(one, (list, tuple, dict)) and len(one) > left):
            raise Refused("size.values", what=size.what, most=size.values)
        if isinstance(one, dict):
            todo += [(key, depth) for key in one if isinstance(key, str) and len(key) > size.characters]
            todo += [(inner, depth + 1) for inner in one.values()]
        elif isinstance(one, (list, tuple)):
            todo += [(inner, depth + 1) for inner in one]
        elif isinstance(one, str) and len(one) > (
            most := max(size.characters, size.picture * one[:64].lstrip().lower().startswith(PICTURE))
        ):
            raise Refused("size.text", what=size.what, count=len(one), most=most)
        elif isinstance(one, int) and one.bit_length() > 3.33 * DIGITS:
            raise Refused("size.text", what=size.what, count=one.bit_length() * 301 // 1000, most=DIGITS)


@dataclass(frozen=True)
class RunRequest:
    """A validated request for a run. ``lanes``: (method key, knobs) in the order of the screen, plain
    decoding last; ``turns``: earlier messages; ``shelf``: what the engine keeps from this visitor's earlier
    runs; all requests of a visitor share one dict."""

    prompt: str
    lanes: tuple[tuple[str, dict[str, Any]], ...]
    max_new_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    repeats: int = 1
    prompts: int = 1
    deterministic: bool = False
    system: str = ""
    turns: tuple[dict[str, str], ...] = ()
    target: str | None = None
    predicted: str = ""
    draft: str | None = None
    generation: dict[str, Any] = field(
        default_factory=dict
    )  # fields of run.request.GenerationRequest, checked by the engine
    shelf: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def answers(self) -> int:
        """Number of answers per lane; the i-th uses seed + i."""
        return self.generation.get("n", 1)

    @property
    def models(self) -> str | None:
        """One name for target, draft model and weight layout, which identifies loaded models; see
        ``model_key``."""
        return model_key(self.target, self.draft, self.deterministic)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields. The page always sends all settings; if ``generation_config`` asks
        for the model's recommended ones, temperature 0 and top_p 1 count as not set."""
        own = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "max_tokens": self.max_new_tokens,
        }
        if self.generation.get("generation_config"):
            own = {
                name: value
                for name, value in own.items()
                if (name, value) not in (("temperature", 0), ("top_p", 1))
            }
        return {"generation_config": False} | self.generation | own

    def messages(self) -> list[dict[str, str]]:
        """Return the conversation for the chat template; the prompt is its last message."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.turns, {"role": "user", "content": self.prompt}]


def read_request(
    cards: dict[str, Any],
    *,
    prompt: Any,
    methods: Any = None,
    knobs: Any = None,
    max_new_tokens: Any = 128,
    temperature: Any = 0.0,
    top_p: Any = 1.0,
    seed: Any = 0,
    repeats: Any = 1,
    system: Any = "",
    turns: Any = None,
    target: Any = None,
    deterministic: Any = False,
    predicted: Any = "",
    draft: Any = None,
    prompts: Any = 1,
    generation: Any = None,
) -> RunRequest:
    """Check one request against the limits and the catalogue's cards (key -> card). Raises Refused."""
    for name, value in locals().items():
        if name != "cards":
            check_size(name, value)
    return _affordable(
        RunRequest(
            prompt=_text("prompt", prompt, needed=True),
            lanes=_lanes(cards, methods, knobs),
            max_new_tokens=_number(
                "max_new_tokens", max_new_tokens, 1, NEW_TOKENS, whole=True, unit=" tokens"
            ),
            temperature=_number("temperature", temperature, 0, 2),
            top_p=_number("top_p", top_p, 0.01, 1),
            seed=_number("seed", seed, 0, SEED_BELOW - 1, whole=True),
            repeats=_number("repeats", repeats, 1, REPEATS, whole=True),
            prompts=_number("prompts", prompts, 1, PROMPTS, whole=True),
            deterministic=deterministic is True,
            system=_text("system", system),
            turns=_turns(turns),
            target=model_name(target),
            predicted=_text("predicted", predicted),
            draft=model_name(draft),
            generation=_generation(generation),
        )
    )


def _affordable(asked: RunRequest) -> RunRequest:
    """Return the run if its lanes have at most as many answers in all as a visitor may ask for. Raises
    Refused."""
    lanes = len(asked.lanes)
    if asked.answers > 1 and asked.prompts > 1:
        raise Refused("field.answers_prompts")
    if lanes * asked.answers > LANES_IN_ALL:
        raise Refused("field.answers", n=asked.answers, lanes=lanes, most=LANES_IN_ALL)
    return asked


def _generation(given: Any) -> dict[str, Any]:
    """Return further fields of a request by name, without None and empty values. Raises Refused that names
    an unknown one."""
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise Refused("field.generation_form")
    for name in given:
        if name not in GENERATION:
            raise Refused("field.generation", name=_shown(name), names=", ".join(GENERATION))
    given = {name: value for name, value in given.items() if value is not None and value not in ("", [], {})}
    return given if "n" not in given else given | {"n": _number("n", given["n"], 1, ANSWERS, whole=True)}


def _text(name: str, value: Any, needed: bool = False) -> str:
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise Refused("field.text", what=SIZES[name].what)
    if needed and not value.strip():
        raise Refused("field.empty", what=SIZES[name].what)
    return _encodable(value)


def without_surrogates(value: Any) -> Any:
    """Return a JSON value, whose size was checked, with the lone surrogates of all its texts and keys, which
    cannot be encoded, replaced by question marks."""
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(inner) for key, inner in value.items()}
    return [without_surrogates(inner) for inner in value] if isinstance(value, list) else value


def _encodable(text: str) -> str:
    """Return the text with lone surrogates, which cannot be encoded, replaced by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _number(name: str, value: Any, low: float, high: float, whole: bool = False, unit: str = "") -> Any:
    kind, what = "a whole number" if whole else "a number", SIZES[name].what
    try:
        if value is None or isinstance(value, bool):
            raise ValueError
        number = float(value)
        if not math.isfinite(number) or (whole and number != int(number)):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise Refused(
            "field.number", what=what, kind=kind, low=low, high=high, unit=unit, value=_shown(value)
        ) from None
    if not low <= number <= high:
        raise Refused("field.range", what=what, low=low, high=high, unit=unit, value=_shown(value))
    return int(number) if whole else number


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return shorten(
        repr(value) if isinstance(value, (str, int, float, bool)) else f"a {type(value).__name__}", 40
    )


def _lanes(cards: dict[str, Any], methods: Any, knobs: Any) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return (method, knobs) of each lane; a method may repeat with other knobs, and identical lanes are
    merged."""
    asked = [
        parse_lane(item) for item in ([methods] if isinstance(methods, (str, dict)) else _list_of(methods))
    ]
    if knobs is None:
        knobs = {}
    if not isinstance(knobs, dict) or not all(isinstance(given, dict) for given in knobs.values()):
        raise Refused("field.knobs")
    unknown = next((key for key in (*(key for key, _ in asked), *knobs) if key not in cards), None)
    if unknown is not None:
        raise Refused("field.method", name=_shown(unknown), names=close_names(unknown, cards))
    chosen: list[tuple[str, dict[str, Any]]] = []
    for key, own in asked:
        lane = (key, read_knobs(cards[key], knobs.get(key, {}) | own))
        if key != BASELINE and lane not in chosen:
            chosen.append(lane)
    if len(chosen) > LANES - 1:
        raise Refused("field.lanes", most=LANES, count=len(chosen) + 1)
    return (*chosen, (BASELINE, read_knobs(cards[BASELINE], knobs.get(BASELINE, {}))))


def _list_of(methods: Any) -> list[Any]:
    if not isinstance(methods or [], (list, tuple)):
        raise Refused("field.methods")
    return list(methods or [])


def parse_lane(item: Any) -> tuple[str, dict[str, Any]]:
    """Return (method key, knobs) of a lane, given as a key or as {"method": key, "knobs": {knob: value}}.
    Raises Refused."""
    if isinstance(item, str):
        return item, {}
    if (
        isinstance(item, dict)
        and isinstance(item.get("method"), str)
        and isinstance(item.get("knobs", {}), dict)
    ):
        return item["method"], item.get("knobs", {})
    raise Refused("field.methods")


def lane_titles(lanes: Any, cards: dict[str, Any]) -> list[str]:
    """Return the title of each lane: its method's title, and the knobs that differ if several lanes use the
    same method."""
    whole = [
        (key, {knob.name: knob.default for knob in getattr(cards[key], "knobs", ())} | knobs)
        for key, knobs in lanes
    ]
    out = []
    for key, knobs in whole:
        others = [given for other, given in whole if other == key]
        different = [
            f"{name.replace('_', ' ')} {VALUE_NAMES.get(value, value)}"
            for name, value in knobs.items()
            if any(given[name] != value for given in others)
        ]
        out.append(", ".join([cards[key].title, *different]))
    return out


def read_knobs(card: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the given knobs of a method's lane, checked by the method; empty if none is given. Raises
    Refused with the method's message."""
    try:
        return card.read_knobs(given) if given else {}
    except ValueError as why:
        raise Refused("field.knob", title=card.title, why=shorten(str(why)).rstrip(".")) from None


def _turns(turns: Any) -> tuple[dict[str, str], ...]:
    turns = turns or []
    good = isinstance(turns, (list, tuple)) and all(
        isinstance(t, dict) and t.get("role") in ("user", "assistant") and isinstance(t.get("content"), str)
        for t in turns
    )
    if not good:
        raise Refused("field.turns")
    if len(turns) > TURNS or sum(len(t["content"]) for t in turns) > CONVERSATION_CHARACTERS:
        raise Refused("field.conversation", turns=TURNS, characters=CONVERSATION_CHARACTERS)
    return tuple({"role": t["role"], "content": _encodable(t["content"])} for t in turns)


def model_key(target: Any, draft: Any, fixed: bool = False) -> str | None:
    """Return one name for target and draft model; None if both are the defaults. fixed: with a memory
    layout of the weights that is the same in every process."""
    return f"{target or ''}|{draft or ''}{f'|{FIXED}' * fixed}" if draft or fixed else target or None


def split_model_key(models: str | None) -> tuple[str | None, str | None]:
    """Return (target, draft) of a ``model_key``; None stands for the default target, or the draft paired
    with the target."""
    target, draft, *_ = [*(models or "").split("|"), ""]
    return target or None, draft or None


def has_fixed_layout(models: str | None) -> bool:
    """Return whether a ``model_key`` requests a fixed memory layout of the weights."""
    return (models or "").split("|")[2:] == [FIXED]


def model_name(name: Any) -> str | None:
    """Check a model's name; return it, or None if it is not given. Raises Refused."""
    if name in (None, ""):
        return None
    if not isinstance(name, str) or len(name) > SIZES["target"].characters:
        raise Refused("field.model")
    return name
