"""What a run may ask for, enforced on the server: the interface for programs never sees the page's sliders.

Everything arrives as whatever JSON can hold. ``read`` returns an Ask with every value in range, or raises Refused with one
sentence for people. Numbers are refused, not clamped: a run that was silently changed is not the run that was asked for.
"""
from __future__ import annotations

import math
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

PROMPT_CHARACTERS = 4000
NEW_TOKENS = 512
LANES = 5  # four methods, and plain decoding beside them
REPEATS = 5
PROMPTS = 8  # that a lane decodes at once: a class
TURNS = 40
CONVERSATION_CHARACTERS = 40_000
RUN_SECONDS = 60.0
WAITING = 20
OPEN_RUNS = 8  # of one client address at a time, waiting ones too: a classroom shares an address, a flood is one
NO_LIST = 'The methods must be a list of method names, or of {"method": name, "knobs": {knob: value}}.'
SENTENCE = 300  # characters of a refusal: what was sent is not echoed whole
NO_DRAFT = "none"
FIXED = "fixed"
BASELINE = "autoregressive"  # plain decoding: recorded in every run, so that a speed-up is measured and not assumed
SEED_BELOW = 2**31
PLAIN = {"distribution": "whole distribution"}  # knobs' values whose name is not a reader's word, as in stage.js


class Refused(ValueError):
    """One sentence for people."""


@dataclass(frozen=True)
class Ask:
    """A run that may be run. ``lanes``: (method key, knobs) in screen order, the baseline last; ``turns``: earlier messages.

    shelf: where the engine keeps what this visitor's earlier runs left behind; the same dict run after run.
    """

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
    shelf: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def models(self) -> str | None:
        """Target, draft and how they are kept as one name, by which a backend loads and keeps them; see ``together``."""
        return together(self.target, self.draft, self.deterministic)

    def messages(self) -> list[dict[str, str]]:
        """The conversation as the chat template wants it; the prompt is its last message."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.turns, {"role": "user", "content": self.prompt}]


def read(cards: dict[str, Any], *, prompt: Any, methods: Any = None, knobs: Any = None, max_new_tokens: Any = 128,
         temperature: Any = 0.0, top_p: Any = 1.0, seed: Any = 0, repeats: Any = 1, system: Any = "", turns: Any = None,
         target: Any = None, deterministic: Any = False, predicted: Any = "", draft: Any = None, prompts: Any = 1) -> Ask:
    """Check one request against the limits and the catalogue's cards (key -> card). Raises Refused with a sentence."""
    return Ask(
        prompt=_text(prompt, "The prompt", needed=True),
        lanes=_lanes(cards, methods, knobs),
        max_new_tokens=_number(max_new_tokens, "The length", 1, NEW_TOKENS, whole=True, unit=" tokens"),
        temperature=_number(temperature, "The temperature", 0, 2),
        top_p=_number(top_p, "Top-p", 0.01, 1),
        seed=_number(seed, "The seed", 0, SEED_BELOW - 1, whole=True),
        repeats=_number(repeats, "Repeats", 1, REPEATS, whole=True),
        prompts=_number(prompts, "Prompts at once", 1, PROMPTS, whole=True),
        deterministic=deterministic is True,
        system=_text(system, "The system prompt"),
        turns=_turns(turns),
        target=_name(target),
        predicted=_text(predicted, "The predicted text"),
        draft=_name(draft),
    )


def _text(value: Any, what: str, needed: bool = False) -> str:
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise Refused(f"{what} must be text.")
    if needed and not value.strip():
        raise Refused(f"{what} is empty: write something for the model to answer.")
    if len(value) > PROMPT_CHARACTERS:
        raise Refused(f"{what} has {len(value):,} characters; the limit is {PROMPT_CHARACTERS:,}.")
    return value.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be tokenised nor sent


def _number(value: Any, what: str, low: float, high: float, whole: bool = False, unit: str = "") -> Any:
    kind = "a whole number" if whole else "a number"
    try:
        if value is None or isinstance(value, bool):
            raise ValueError
        number = float(value)
        if not math.isfinite(number) or (whole and number != int(number)):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise Refused(f"{what} must be {kind} from {low:,} to {high:,}{unit}, not {_shown(value)}.") from None
    if not low <= number <= high:
        raise Refused(f"{what} must lie between {low:,} and {high:,}{unit}, not {_shown(value)}.")
    return int(number) if whole else number


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, (str, int, float, bool)) else f"a {type(value).__name__}"
    return _cut(text, 40)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "\u2026"


def _lanes(cards: dict[str, Any], methods: Any, knobs: Any) -> tuple[tuple[str, dict[str, Any]], ...]:
    """(method, knobs) a lane: a method may come again with other knobs; the same lane twice is one lane."""
    asked = [lane_of(item) for item in ([methods] if isinstance(methods, (str, dict)) else _listed(methods))]
    if knobs is None:
        knobs = {}
    if not isinstance(knobs, dict) or not all(isinstance(given, dict) for given in knobs.values()):
        raise Refused("The knobs must be given as {method: {knob: value}}.")
    alien = next((key for key in (*(key for key, _ in asked), *knobs) if key not in cards), None)
    if alien is not None:
        raise Refused(f"There is no method {_shown(alien)}; there are {', '.join(cards)}.")
    chosen: list[tuple[str, dict[str, Any]]] = []
    for key, own in asked:
        lane = (key, _knobs(cards[key], knobs.get(key, {}) | own))
        if key != BASELINE and lane not in chosen:
            chosen.append(lane)
    if len(chosen) > LANES - 1:
        raise Refused(f"At most {LANES} lanes run at once, plain decoding among them; {len(chosen) + 1} were asked for.")
    return (*chosen, (BASELINE, _knobs(cards[BASELINE], knobs.get(BASELINE, {}))))


def _listed(methods: Any) -> list[Any]:
    if not isinstance(methods or [], (list, tuple)):
        raise Refused(NO_LIST)
    return list(methods or [])


def lane_of(item: Any) -> tuple[str, dict[str, Any]]:
    """A lane as a method's name, or as {"method": name, "knobs": {knob: value}}; Refused with a sentence else."""
    if isinstance(item, str):
        return item, {}
    if isinstance(item, dict) and isinstance(item.get("method"), str) and isinstance(item.get("knobs", {}), dict):
        return item["method"], item.get("knobs", {})
    raise Refused(NO_LIST)


def titles(lanes: Any, cards: dict[str, Any]) -> list[str]:
    """What each lane is called: its method's title, and where a method comes twice the knobs in which its lanes differ."""
    out = []
    for key, knobs in lanes:
        others = [given for other, given in lanes if other == key]
        apart = [f"{name} {PLAIN.get(value, value)}" for name, value in knobs.items() if any(given.get(name) != value for given in others)]
        out.append(", ".join([cards[key].title, *apart]))
    return out


def _knobs(card: Any, given: dict[str, Any]) -> dict[str, Any]:
    try:
        return card.read_knobs(given)
    except ValueError as why:
        raise Refused(f"{card.title}: {_cut(str(why), SENTENCE)}.") from None


def _turns(turns: Any) -> tuple[dict[str, str], ...]:
    turns = turns or []
    good = isinstance(turns, (list, tuple)) and all(
        isinstance(t, dict) and t.get("role") in ("user", "assistant") and isinstance(t.get("content"), str) for t in turns)
    if not good:
        raise Refused('Earlier messages must be a list of {"role": "user" or "assistant", "content": text}.')
    if len(turns) > TURNS or sum(len(t["content"]) for t in turns) > CONVERSATION_CHARACTERS:
        raise Refused(f"This conversation is too long to continue (at most {TURNS} messages and "
                      f"{CONVERSATION_CHARACTERS:,} characters): start a new chat.")
    return tuple({"role": t["role"], "content": t["content"].encode("utf-8", "replace").decode("utf-8")} for t in turns)


def together(target: Any, draft: Any, fixed: bool = False) -> str | None:
    """Target and draft as one name; None: the default of both. fixed: weights stored the same way in every process."""
    return f"{target or ''}|{draft or ''}{f'|{FIXED}' * fixed}" if draft or fixed else target or None


def apart(models: str | None) -> tuple[str | None, str | None]:
    """(target, draft) of ``together``; None: the default, the draft that goes with the target."""
    target, draft, *_ = [*(models or "").split("|"), ""]
    return target or None, draft or None


def is_fixed(models: str | None) -> bool:
    """Whether ``together`` was told so."""
    return (models or "").split("|")[2:] == [FIXED]


def _name(target: Any) -> str | None:
    if target in (None, ""):
        return None
    if not isinstance(target, str) or len(target) > 200:
        raise Refused("The model must be given by its name.")
    return target


@dataclass(frozen=True)
class Visitor:
    """Who asked. address: the client's; unread: messages that lie ready for it; forget: throws those away."""

    address: str = ""
    unread: Callable[[], int] = lambda: 0
    forget: Callable[[], None] = lambda: None


@dataclass
class Turnstile:
    """One run at a time on one accelerator, first come first served; ``waiting`` places behind the one that runs."""

    waiting: int = WAITING
    open_runs: int = OPEN_RUNS
    _open: Counter[str] = field(default_factory=Counter)
    _line: list[object] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    def enter(self) -> object:
        """A place in the line. Raises Refused when the line is full."""
        ticket = object()
        with self._lock:
            if len(self._line) > self.waiting:
                raise Refused(f"{self.waiting} runs are waiting already: try again in a minute; the recorded run stays playable.")
            self._line.append(ticket)
        return ticket

    def ahead(self, ticket: object) -> int:
        """Runs before this one; 0 = its turn."""
        with self._lock:
            return self._line.index(ticket)

    def leave(self, ticket: object) -> None:
        """Give the place back; twice does nothing."""
        with self._lock:
            if ticket in self._line:
                self._line.remove(ticket)

    @contextmanager
    def visit(self, address: str) -> Iterator[None]:
        """An open run of this address, in the line or before it. Raises Refused when it has as many as it may."""
        with self._lock:
            if address and self._open[address] >= self.open_runs:
                raise Refused(f"{self.open_runs} runs of this address are open already: wait for one of them, or stop it.")
            self._open[address] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[address] -= 1
                self._open += Counter()  # keeps no address that has none
