"""Pictures of one to three things on a grid of nine cells, questions about them, and answers in a small
grammar.

Pictures and texts are made by this program (drawings.py). So the probability of every word of a
description, given the words before it but not the picture, can be computed exactly (``blind_probs``)."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np

from . import drawings

CELLS = 3  # to a side
SIDE = 72  # pixels
CELL = SIDE // CELLS
THINGS = (
    "heart",
    "star",
    "circle",
    "square",
    "triangle",
    "diamond",
    "ring",
    "moon",
    "sun",
    "cross",
    "house",
    "tree",
    "flower",
    "fish",
    "cup",
    "flag",
)
COLOURS = ("red", "yellow", "green", "blue", "purple", "pink", "brown", "black")
PLACES = (
    "at the top left",
    "at the top",
    "at the top right",
    "on the left",
    "in the middle",
    "on the right",
    "at the bottom left",
    "at the bottom",
    "at the bottom right",
)
COUNTS = (0.2, 0.4, 0.4)  # probabilities of one, two and three things
NUMBERS = ("one", "two", "three")
SMALL = 1 / 3  # probability that a thing is small
SIZES = {False: 0.95, True: 0.5}  # share of the cell's side, by whether the thing is small
OPENINGS = ("The picture shows", "This is a picture of", "I see", "There is")
DESCRIBE = (
    "What does the picture show?",
    "Describe the picture.",
    "What do you see?",
    "What is in the picture?",
)


@dataclass(frozen=True)
class Item:
    """A thing in a cell of the picture. cell: 0 to 8, in reading order."""

    cell: int
    thing: str
    colour: str
    small: bool

    @property
    def phrase(self) -> str:
        """The thing in words, such as "a small red star"."""
        return f"a {'small ' if self.small else ''}{self.colour} {self.thing}"


Scene = tuple[Item, ...]  # in reading order
SAMPLES: tuple[Scene, ...] = (
    (Item(0, "heart", "red", False), Item(4, "fish", "blue", False), Item(8, "sun", "yellow", False)),
    (Item(3, "house", "brown", False), Item(5, "tree", "green", False)),
    (Item(1, "moon", "yellow", False), Item(2, "star", "pink", True), Item(7, "cup", "purple", False)),
    (Item(4, "flower", "pink", False),),
    (Item(2, "cross", "red", True), Item(6, "diamond", "blue", False), Item(8, "ring", "black", False)),
    (Item(0, "flag", "green", False), Item(8, "house", "red", False)),
    (
        Item(1, "triangle", "purple", False),
        Item(3, "circle", "black", True),
        Item(5, "square", "yellow", True),
    ),
)


def draw_scene(rng: random.Random) -> Scene:
    """Return a random scene of one to three different things."""
    count = rng.choices((1, 2, 3), COUNTS)[0]
    cells, things = sorted(rng.sample(range(CELLS**2), count)), rng.sample(THINGS, count)
    return tuple(
        Item(cell, thing, rng.choice(COLOURS), rng.random() < SMALL) for cell, thing in zip(cells, things)
    )


class Painter:
    """Paints scenes from prepared outlines of all things, which is faster than drawing each thing anew."""

    def __init__(self, seed: int, variants: int):
        rng = random.Random(f"{seed} outlines")
        self._stock = {
            (thing, small): [
                drawings.cover(drawings.Wish(thing, ""), rng, CELL, size) for _ in range(variants)
            ]
            for thing in THINGS
            for small, size in SIZES.items()
        }

    def paint(self, scene: Scene, rng: random.Random) -> np.ndarray:
        """Return the picture of a scene, uint8 [SIDE, SIDE, 3]."""
        picture = np.tile(np.array(drawings.DAY, np.uint8), (SIDE, SIDE, 1))
        for item in scene:
            row, column = divmod(item.cell, CELLS)
            covered = rng.choice(self._stock[item.thing, item.small])
            painted = drawings.coloured(
                covered, drawings.COLOURS[item.colour], drawings.DAY, rng.uniform(0.9, 1.08)
            )
            picture[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL] = painted
        return picture


def caption(scene: Scene) -> str:
    """Return the names of the scene's things, without their positions."""
    return " ".join(item.phrase.removeprefix("a ") for item in scene)


def description(scene: Scene, opening: str) -> str:
    """Return a sentence that describes the scene: ``opening``, then each thing and its position."""
    *most, last = [f"{item.phrase} {PLACES[item.cell]}" for item in scene]
    return f"{opening} {', '.join(most)}{' and ' if most else ''}{last}."


def conversation(scene: Scene, turns: int, rng: random.Random) -> list[tuple[str, str]]:
    """Return ``turns`` (question, answer) pairs about a scene. Most questions ask for a description."""
    return [rng.choices(list(QUESTIONS.values()), SHARES)[0](scene, rng) for _ in range(turns)]


def _describe(scene: Scene, rng: random.Random) -> tuple[str, str]:
    return rng.choice(DESCRIBE), description(scene, rng.choice(OPENINGS))


def _at_place(scene: Scene, rng: random.Random) -> tuple[str, str]:
    cell = rng.choice([item.cell for item in scene] if rng.random() < 0.75 else range(CELLS**2))
    phrase = next((item.phrase for item in scene if item.cell == cell), "nothing")
    return f"What is {PLACES[cell]}?", f"There is {phrase} {PLACES[cell]}."


def _asked(scene: Scene, rng: random.Random) -> tuple[str, Item | None]:
    thing = rng.choice([item.thing for item in scene] if rng.random() < 0.8 else THINGS)
    return thing, next((item for item in scene if item.thing == thing), None)


def _colour(scene: Scene, rng: random.Random) -> tuple[str, str]:
    thing, item = _asked(scene, rng)
    question = f"What {rng.choice(('colour', 'color'))} is the {thing}?"
    return question, f"The {thing} is {item.colour}." if item else f"There is no {thing}."


def _place(scene: Scene, rng: random.Random) -> tuple[str, str]:
    thing, item = _asked(scene, rng)
    return (
        f"Where is the {thing}?",
        f"The {thing} is {PLACES[item.cell]}." if item else f"There is no {thing}.",
    )


def _count(scene: Scene, rng: random.Random) -> tuple[str, str]:
    count = NUMBERS[len(scene) - 1]
    return (
        "How many things are there?",
        f"There {'is' if len(scene) == 1 else 'are'} {count} thing{'s' * (len(scene) > 1)}.",
    )


QUESTIONS: dict[str, Callable[[Scene, random.Random], tuple[str, str]]] = {
    "describe": _describe,
    "what is at a place": _at_place,
    "what colour": _colour,
    "where": _place,
    "how many": _count,
}
SHARES = (4, 2, 2, 2, 1)  # of them in training


def words() -> list[str]:
    """Return all words and punctuation marks of questions and answers, with their capitals."""
    texts = [
        *DESCRIBE,
        *OPENINGS,
        *PLACES,
        *NUMBERS,
        *COLOURS,
        *THINGS,
        "small and nothing thing things",
        "What colour color is the no",
        "Where is the",
        "How many things are there?",
        "There is are",
        "A Small And Nothing",
        ".",
        ",",
        "?",
    ]
    return sorted({word for text in texts for word in split_words(text)})


def split_words(text: str) -> list[str]:
    """Split a text into words and punctuation marks, without spaces."""
    for sign in ".,?":
        text = text.replace(sign, f" {sign}")
    return text.split()


def join_words(written: Sequence[str]) -> str:
    """Join words and punctuation marks to a text; the inverse of ``split_words``."""
    return " ".join(written).replace(" .", ".").replace(" ,", ",").replace(" ?", "?")


# --- what can be known from the text alone ---------------------------------------------------------------------------
THING = "thing"  # slot of a pattern for a shape or letter
COLOUR = "colour"  # slot of a pattern for a colour
SIZE = "size"  # slot of a pattern for a size
SLOTS = {
    slot: f"<{slot}>" for slot in (THING, COLOUR, SIZE)
}  # as written in a pattern: no word of a text is equal to one


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[float, tuple[str, ...]], ...]:
    """Return descriptions with slots for size, colour and thing, each with its probability."""
    found = []
    phrase = f"a {SLOTS[SIZE]} {SLOTS[COLOUR]} {SLOTS[THING]}"
    for count, share in enumerate(COUNTS, 1):
        for cells in itertools.combinations(range(CELLS**2), count):
            *most, last = [f"{phrase} {PLACES[cell]}" for cell in cells]
            text = f"{', '.join(most)}{' and ' if most else ''}{last}."
            weight = share / comb(CELLS**2, count) / len(OPENINGS)
            found += [(weight, tuple(split_words(f"{opening} {text}"))) for opening in OPENINGS]
    return tuple(found)


def blind_probs(written: Sequence[str]) -> dict[str, float]:
    """Return {next word: probability} of a description given the words so far, but not the picture; empty
    at the end of the description."""
    total: dict[str, float] = defaultdict(float)
    for weight, pattern in _patterns():
        _follow(weight, pattern, list(written), total)
    whole = sum(total.values())
    return {word: share / whole for word, share in total.items()} if whole else {}


def _follow(weight: float, pattern: Sequence[str], written: list[str], total: dict[str, float]) -> None:
    """Add the probabilities of the words after ``written`` under one pattern."""
    at, used = 0, []
    for symbol in pattern:
        here = written[at] if at < len(written) else None
        if symbol == SLOTS[SIZE]:
            if here is None:
                total["small"] += weight * SMALL
            weight *= SMALL if here == "small" else 1 - SMALL
            at += here == "small"
            continue
        if here is None:
            for word, share in _choices(symbol, used):
                total[word] += weight * share
            return
        share = dict(_choices(symbol, used)).get(here, 0.0)
        if not share:
            return
        weight *= share
        used += [here] if symbol == SLOTS[THING] else []
        at += 1


def _choices(symbol: str, used: list[str]) -> list[tuple[str, float]]:
    """Return the words of a place in a pattern with their probabilities; used: things that were named."""
    if symbol == SLOTS[THING]:
        left = [thing for thing in THINGS if thing not in used]
        return [(thing, 1 / len(left)) for thing in left]
    return [(colour, 1 / len(COLOURS)) for colour in COLOURS] if symbol == SLOTS[COLOUR] else [(symbol, 1.0)]


def acceptance(written: Sequence[str], word: str) -> float:
    """Return the probability that the next word of a draft is accepted, sum(min(p, q)). The draft model
    reads the text only; the target sees the picture and generates ``word``. At the beginning of an answer
    both have the same distribution."""
    blind = blind_probs(written)
    return 1.0 if not written else blind.get(word, 0.0)


def kind_of(words: Sequence[str], at: int) -> str:
    """Return the kind of the word at index ``at`` of a description: "thing", "colour or size", "place",
    "number of things" or "grammar"."""
    word, before = words[at], words[at - 1] if at else ""
    if word in THINGS:
        return "thing"
    if word in COLOURS or word == "small":
        return "colour or size"
    if (
        before in THINGS
        or before == "the"
        or word in ("left", "right")
        or before in ("top", "bottom")
        and word not in (",", "and", ".")
    ):
        return "place"
    if word in (",", "and", "."):
        return "number of things"
    return "grammar"
