"""A method as data: a frozen description and a ``build()`` that returns its parts. The catalogue, page,
command line, benchmark and tests read everything they need from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .claim import Claim
from .errors import InvalidUse
from .note_kind import Note
from .note_kinds import register_notes
from .parts import CapableTarget, Parts

EXACTNESS = ("exact", "greedy only", "approximate", "simulated")
COMPARED = (
    "code",
    "formula",
    "notes",
)  # public code read or run, the paper's formulas, or notes taken from the paper
AS_PUBLISHED = "As published."
MOST_CHARACTERS = 200  # of a knob that is a text


@dataclass(frozen=True)
class Knob:
    """A setting of a method: a number from ``low`` to ``high``, one of ``choices``, a switch (default True
    or False), or a text (default a string, no choices) that ``parse`` reads.

    only_with: choices that are valid only with some values of another knob, as (choice, other knob, its
    values). needs: (value, need): from this value of a number on, or from this place among the choices (the
    first is 1), the models must meet a further need. by_time: this choice makes decisions from measured
    times, so a seed does not fix the run.
    """

    name: str
    default: Any
    low: float | None = None
    high: float | None = None
    help: str = ""
    choices: tuple[str, ...] = ()
    only_with: tuple[tuple[str, str, tuple[Any, ...]], ...] = ()
    needs: tuple[tuple[int, str], ...] = ()
    by_time: bool = False
    parse: Callable[[str], Any] | None = None  # raises InvalidUse for a text that it cannot read

    @property
    def top(self) -> float | None:
        """The highest value of a number, or the number of choices."""
        return len(self.choices) or self.high

    def highest(self, capabilities: frozenset[str]) -> float | None:
        """Return the highest value of a number that models with these capabilities allow, or how many of
        the choices."""
        return min((value - 1 for value, need in self.needs if need not in capabilities), default=self.top)

    def value_at(self, place: float) -> Any:
        """Return the value of a number, or the choice at a place (the first is 1)."""
        return self.choices[int(place) - 1] if self.choices else place

    def place_of(self, value: Any) -> float:
        """Return the place of a value, as ``value_at`` counts."""
        return self.choices.index(value) + 1 if self.choices else value

    def conflict_reason(self, choice: str, others: dict[str, Any]) -> str | None:
        """Return why a choice is incompatible with the values of the other knobs, and which choices are
        compatible; None if it is compatible."""
        for mine, other, values in self.only_with:
            if mine == choice and other in others and others[other] not in values:
                fitting = [
                    c
                    for c in self.choices
                    if all(others.get(o) in v for m, o, v in self.only_with if m == c and o in others)
                ]
                return (
                    f"{self.name} {choice!r} does not go with {other} {others[other]!r}: choose {other} {_or(values)}"
                    + (f", or {self.name} {_or(fitting)}" if fitting else "")
                )
        return None

    def read(self, value: Any) -> Any:
        """Parse a value, given as a number or text, into the type that build() takes. None gives the
        default. Raises InvalidUse (a ValueError) for a value of the wrong type or out of range."""
        if value is None:
            return self.default
        if self.choices:
            if str(value) not in self.choices:
                raise InvalidUse(
                    f"{self.name} must be one of {', '.join(self.choices)}, not {value!r:.60}", "knob.choice"
                )
            return str(value)
        if isinstance(self.default, bool):
            if str(value).lower() not in ("true", "false", "1", "0"):
                raise InvalidUse(f"{self.name} must be true or false, not {value!r:.60}", "knob.flag")
            return str(value).lower() in ("true", "1")
        if self.parse is not None:
            if len(str(value)) > MOST_CHARACTERS:
                raise InvalidUse(f"{self.name} is longer than {MOST_CHARACTERS} characters", "knob.range")
            self.parse(str(value))
            return str(value)
        try:
            number = float(value)
            if isinstance(value, bool) or not math.isfinite(number):
                raise ValueError
            if isinstance(self.default, int) and number != int(number):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            kind = "a whole number" if isinstance(self.default, int) else "a number"
            raise InvalidUse(f"{self.name} must be {kind}, not {value!r:.60}", "knob.kind") from None
        assert self.low is not None and self.high is not None  # a number has bounds
        if not self.low <= number <= self.high:
            raise InvalidUse(
                f"{self.name} must lie between {self.low} and {self.high}, not {value!s:.60}", "knob.range"
            )
        return int(number) if isinstance(self.default, int) else number


class Codec(Protocol):
    """Read-only view of a target's tokenizer or picture codec (zoo/codec.py).

    columns: tokens per row of the output's grid, 0 for text; tokens: ids that an output may contain;
    neighbours [len(tokens), k]: for each token, the other tokens by L2 distance of their pixels, nearest
    first, if the target has the capability "codebook"."""

    columns: int
    tokens: range

    @property
    def neighbours(self) -> Any:
        """Neighbours of each codebook entry, [tokens, k]: the other tokens by L2 distance of their pixels,
        nearest first."""
        ...


class Kit(Protocol):
    """The argument of build(): facts about the loaded target, and functions that open its draft models,
    trained draft heads and datastores. vocab: size of the vocabulary."""

    vocab: int
    target: CapableTarget
    predicted: tuple[
        int, ...
    ]  # tokens of a predicted output, as the caller expects the answer to be; may be empty
    codec: Codec

    @property
    def caption(self) -> tuple[int, ...]:
        """Tokens that name what the picture before the prompt shows; empty without one."""
        ...

    def open(self, role: str) -> CapableTarget:
        """Return a new model by its role ("draft", "middle", ...): the weights are shared between runs, the
        KV cache is its own. Raises ModelError (a ValueError) if the target is paired with none."""
        ...

    def head(self, kind: str) -> Any:
        """Return the trained draft head of a kind ("medusa", "eagle", ...) that belongs to the target.
        Raises ModelError (a ValueError) if there is none."""

    def bridge(self, role: str) -> Any:
        """Return the mapping between the target's vocabulary and that of the model with this role, which
        has another tokenizer."""

    def open_store(self, name: str) -> Any:
        """Return a datastore of text or hidden states by name. Raises an error if there is none or if it
        was made for another target."""


@dataclass(frozen=True)
class Family:
    """A family of methods: one folder of methods/, declared in its __init__.py.

    title, about: name and one sentence for the page; place: rank in the order in which families are taught;
    founder: key of the family's first method; shape: name of the picker's drawing of a round; empty: drawn
    from each method's needs.
    """

    title: str
    about: str
    place: int = 100
    founder: str = ""
    shape: str = ""


@dataclass(frozen=True)
class Trained:
    """A kind of draft weights that a recipe of specviz/training makes for a target, declared by the method
    that introduces it.

    kind: name of the recipe, of the weights' folder and of what methods need ("head:<kind>" or
    "draft:<kind>"); about: for people; network: module with ``load(folder, target)`` and ``build(target,
    hparams)``, empty for a complete draft model; after: the kind that must be trained first; one_pass: a
    whole block is drafted in one forward pass.
    """

    kind: str
    about: str
    network: str = ""
    after: str = ""
    one_pass: bool = False

    @property
    def need(self) -> str:
        """The name of these weights in ``Method.needs``: "head:<kind>" for a draft head, "draft:<kind>" for
        a draft model."""
        return f"{'head' if self.network else 'draft'}:{self.kind}"


def no_parts(kit: Kit, **knobs: Any) -> Parts:
    """Raise TypeError: the ``build`` of a method that runs on a server, where nothing is decoded in this
    process."""
    raise TypeError("the lane of a server has no parts here")


@dataclass(frozen=True)
class Method:
    """One decoding method: its card (the description on the page) and the function that builds its parts.
    Raises InvalidUse (a ValueError) for invalid values.

    key: file name in methods/<family>/; title, paper, summary: for people; exactness: one of EXACTNESS;
    family: title of its folder, filled in by the catalogue; knobs: its settings.

    build(kit, **knobs) -> Parts; needs: roles of other models ("draft") and capabilities of the target
    ("tree", ...); trains: weights that it introduces.

    look, wins, loses: what to watch on the page, and when the method is fast or slow; differs: differences
    from the paper or its code, or AS_PUBLISHED; compared: what the implementation was compared with, one of
    COMPARED; published: the paper's values of knobs whose defaults were tuned for small models on two
    cores; relative: key of the nearest method, beside which the benchmark page shows this one; aliases:
    names in engines' options and in papers, for search; claims: the paper's, which
    ``specviz claims`` tries; notes: kinds of annotations that only it writes
    into the trace.
    """

    key: str
    title: str
    paper: str
    summary: str
    build: Callable[..., Parts] = no_parts
    family: str = ""
    exactness: str = "exact"
    knobs: tuple[Knob, ...] = ()
    needs: frozenset[str] = frozenset()
    look: str = ""
    wins: str = ""
    loses: str = ""
    differs: str = ""
    compared: str = "notes"
    published: dict[str, Any] = field(default_factory=dict[str, Any], hash=False)
    relative: str = ""
    aliases: tuple[str, ...] = ()
    trains: tuple[Trained, ...] = ()
    by_time: bool = False  # it decides by measured times; see ``decides_by_time``
    bound: bool = False  # an upper bound on speed, never offered as a method that pays
    any_order: bool = False  # it also decodes a target that gives the patches of a whole scale in one pass
    unchecked: str = ""  # it may write tokens that no processed logits allowed, so response_format is refused: the end of a sentence
    notes: dict[str, Note] = field(default_factory=dict[str, Note], hash=False)
    claims: tuple[Claim, ...] = ()

    @property
    def requires(self) -> frozenset[str]:
        """The capabilities that the method needs: ``needs``, and, unless the method generates pictures
        scale by scale, that the target generates one token after another."""
        return self.needs if self.any_order or "scales" in self.needs else self.needs | {"sequence"}

    @property
    def decides_by_time(self) -> bool:
        """Whether the method, with any choice of its knobs, makes decisions from measured times, so that
        the seed alone does not determine the run."""
        return self.by_time or any(knob.by_time for knob in self.knobs)

    def __post_init__(self):
        register_notes(self.notes)
        if self.exactness not in EXACTNESS:
            raise InvalidUse(f"exactness of {self.key} must be one of {EXACTNESS}", "method.exactness")
        if self.compared not in COMPARED:
            raise InvalidUse(f"compared of {self.key} must be one of {COMPARED}", "method.compared")
        self.read_knobs(self.published)

    def read_knobs(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the values of all knobs, parsed and with defaults filled in. Raises InvalidUse (a
        ValueError) that names an unknown knob, a value out of range, or two values that are
        incompatible."""
        known = {knob.name: knob for knob in self.knobs}
        for name in given:
            if name not in known:
                raise InvalidUse(
                    f"{self.key} has no knob {name!r:.60}; it has {', '.join(known) or 'none'}",
                    "knob.unknown",
                )
        values = {name: knob.read(given.get(name)) for name, knob in known.items()}
        for name, knob in known.items():
            refusal = knob.conflict_reason(values[name], values)
            if refusal:
                raise InvalidUse(refusal, "knob.pair")
        return values


def _or(words: Iterable[object]) -> str:
    *most, last = [str(word) for word in words]
    return f"{', '.join(most)} or {last}" if most else last
