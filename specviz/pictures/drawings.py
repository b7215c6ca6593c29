"""Small pictures with the words that ask for them, drawn by a program: shapes, letters and digits in a few
colours.

Letters and digits use the font inside Pillow (Aileron, CC0), so that the same pictures come out on every
machine.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFont

SIDE = 32  # pixels
SCALE = 4  # drawn this many times larger, then averaged
COLOURS = {
    "red": (214, 40, 40),
    "orange": (245, 140, 30),
    "yellow": (242, 204, 40),
    "green": (46, 150, 70),
    "blue": (40, 96, 214),
    "purple": (128, 56, 176),
    "pink": (240, 120, 170),
    "brown": (134, 84, 44),
    "black": (24, 24, 28),
}
DAY = (250, 249, 244)  # colour of the sky, RGB
NIGHT = (22, 26, 58)
SHAPES = (
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
    "arrow",
    "house",
    "tree",
    "face",
    "flower",
    "cloud",
    "fish",
    "cup",
    "flag",
    "drop",
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"
STYLES = ("bold", "tilted")
SIZES = {"small": 0.7, "big": 1.0}
USUAL_SIZE = 0.85
FILLERS = ("a", "an", "the", "on", "at", "in", "please", "draw", "paint", "picture", "of", "with")
GROUPS = ("letter", "capital", "digit", "number")
WORDS = (
    *COLOURS,
    *SHAPES,
    *LETTERS[1:],
    *DIGITS,
    *STYLES,
    *SIZES,
    "night",
    *GROUPS,
    *FILLERS,
)  # "a" is among the fillers


@dataclass(frozen=True)
class Wish:
    """What a picture shows: a thing in a colour, style and size, on a light or dark ground (``night``).
    Attributes that the prompt does not mention are drawn at random."""

    thing: str  # one of SHAPES, a letter (capitals as such), a digit
    colour: str
    style: str = ""
    size: str = ""
    night: bool = False


def draw_wish(rng: random.Random) -> Wish:
    """Return random content for a picture; half of the things are shapes."""
    thing = rng.choice(SHAPES) if rng.random() < 0.5 else rng.choice(LETTERS + LETTERS.upper() + DIGITS)
    style = rng.choice(("", "", *STYLES)) if len(thing) == 1 else rng.choice(("", "", "", "tilted"))
    night = rng.random() < 0.2
    colours = [name for name in COLOURS if not (night and name in ("black", "brown", "blue", "purple"))]
    return Wish(thing, rng.choice(colours), style, rng.choice(("", "", *SIZES)), night)


def words_of(wish: Wish, rng: random.Random) -> str:
    """Return a prompt that asks for this content, in one of several word orders; some attributes are left
    out."""
    noun = wish.thing
    if noun in SHAPES:
        noun = noun if rng.random() < 0.9 else f"picture of a {noun}"
    elif noun in DIGITS:
        noun = rng.choice((noun, f"digit {noun}", f"number {noun}"))
    else:
        noun = f"capital {noun}" if noun.isupper() else f"letter {noun}"
    adjectives = [
        word
        for word, share in ((wish.size, 1.0), (wish.style, 1.0), (wish.colour, 0.85))
        if word and rng.random() < share
    ]
    rng.shuffle(adjectives)
    night = [rng.choice(("at night", "on night", "in the night"))] if wish.night else []
    if rng.random() < 0.3:  # letter g, bold, red
        return ", ".join([noun, *adjectives, *night])
    opening = rng.choice(("", "a", "a", "the", "draw a", "paint a", "please draw a"))
    return " ".join(filter(None, [opening, *adjectives, noun, *night]))


def paint(wish: Wish, rng: random.Random) -> np.ndarray:
    """Return a picture of this content, uint8 [SIDE, SIDE, 3]. Position, size and shade vary a little."""
    covered = cover(wish, rng, SIDE, SIZES.get(wish.size, USUAL_SIZE))
    return coloured(covered, COLOURS[wish.colour], NIGHT if wish.night else DAY, rng.uniform(0.9, 1.08))


def cover(wish: Wish, rng: random.Random, side: int, size: float) -> np.ndarray:
    """Return the share of each pixel that the thing covers, float32 [side, side]. size: its share of the
    side, varied a little."""
    large = side * SCALE
    mask = _mask(wish, large)
    factor = size * rng.uniform(0.94, 1.04)
    angle = rng.uniform(-4, 4) + (rng.choice((-1, 1)) * rng.uniform(18, 26) if wish.style == "tilted" else 0)
    mask = mask.rotate(angle, Image.Resampling.BILINEAR)
    small = max(8, round(large * factor))
    free = large - small
    most = max(1.5 * SCALE, free / 2)
    at = [round(free / 2 + rng.uniform(-most, most) * 0.7) for _ in range(2)]
    whole = Image.new("L", (large, large))
    whole.paste(mask.resize((small, small), Image.Resampling.BILINEAR), (at[0], at[1]))
    return np.asarray(whole.resize((side, side), Image.Resampling.BOX), dtype=np.float32) / 255


def coloured(
    covered: np.ndarray, colour: tuple[int, int, int], ground: tuple[int, int, int], shade: float
) -> np.ndarray:
    """Return a picture, uint8 [side, side, 3], of a shape on a background. covered [side, side]: share of
    each pixel inside the shape; shade: factor on the colour's brightness."""
    ink = np.clip(np.array(colour, np.float32) * shade, 0, 255)
    return (
        (covered[..., None] * ink + (1 - covered[..., None]) * np.array(ground, np.float32))
        .round()
        .astype(np.uint8)
    )


def _mask(wish: Wish, side: int) -> Image.Image:
    """Return the unplaced outline, white on black, filling about the whole square."""
    image = Image.new("L", (side, side))
    pen = ImageDraw.Draw(image)
    if wish.thing in SHAPES:
        globals()[f"_{wish.thing}"](image, pen, side)
        return image
    font = ImageFont.load_default(side * 1.02)
    stroke = round(side * 0.035) if wish.style == "bold" else 0
    if wish.thing in DIGITS or wish.thing.isalpha():
        box = pen.textbbox((0, 0), wish.thing, font=font, stroke_width=stroke)
        at = ((side - box[0] - box[2]) / 2, (side - box[1] - box[3]) / 2)
        pen.text(at, wish.thing, fill=255, font=font, stroke_width=stroke, stroke_fill=255)
    return image


def _scaled(points, side: int) -> list[tuple[float, float]]:
    return [(x * side, y * side) for x, y in points]


def _turn(count: int, radii, start: float = -90.0) -> list[tuple[float, float]]:
    """Return corners around the middle, with radii in turn."""
    return [
        (
            0.5 + radii[i % len(radii)] * math.cos(math.radians(start + 360 * i / count)),
            0.5 + radii[i % len(radii)] * math.sin(math.radians(start + 360 * i / count)),
        )
        for i in range(count)
    ]


def _heart(image, pen, side):
    points = []
    for i in range(60):
        t = 2 * math.pi * i / 60
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((0.5 + x / 37, 0.47 - y / 37))
    pen.polygon(_scaled(points, side), 255)


def _star(image, pen, side):
    pen.polygon(_scaled(_turn(10, (0.48, 0.2)), side), 255)


def _circle(image, pen, side):
    pen.ellipse([0.1 * side, 0.1 * side, 0.9 * side, 0.9 * side], 255)


def _square(image, pen, side):
    pen.rectangle([0.14 * side, 0.14 * side, 0.86 * side, 0.86 * side], 255)


def _triangle(image, pen, side):
    pen.polygon(_scaled([(0.5, 0.08), (0.95, 0.88), (0.05, 0.88)], side), 255)


def _diamond(image, pen, side):
    pen.polygon(_scaled([(0.5, 0.04), (0.85, 0.5), (0.5, 0.96), (0.15, 0.5)], side), 255)


def _ring(image, pen, side):
    _circle(image, pen, side)
    pen.ellipse([0.31 * side, 0.31 * side, 0.69 * side, 0.69 * side], 0)


def _moon(image, pen, side):
    _circle(image, pen, side)
    pen.ellipse([0.32 * side, 0.0, 1.06 * side, 0.76 * side], 0)


def _sun(image, pen, side):
    for i in range(8):
        at = math.radians(45 * i)
        far = (0.5 + 0.48 * math.cos(at), 0.5 + 0.48 * math.sin(at))
        pen.line(_scaled([(0.5, 0.5), far], side), 255, round(0.09 * side))
    pen.ellipse([0.24 * side, 0.24 * side, 0.76 * side, 0.76 * side], 0)
    pen.ellipse([0.29 * side, 0.29 * side, 0.71 * side, 0.71 * side], 255)


def _cross(image, pen, side):
    pen.rectangle([0.36 * side, 0.08 * side, 0.64 * side, 0.92 * side], 255)
    pen.rectangle([0.08 * side, 0.36 * side, 0.92 * side, 0.64 * side], 255)


def _arrow(image, pen, side):
    pen.polygon(
        _scaled(
            [(0.05, 0.36), (0.52, 0.36), (0.52, 0.12), (0.96, 0.5), (0.52, 0.88), (0.52, 0.64), (0.05, 0.64)],
            side,
        ),
        255,
    )


def _house(image, pen, side):
    pen.polygon(_scaled([(0.5, 0.05), (0.95, 0.47), (0.05, 0.47)], side), 255)
    pen.rectangle([0.16 * side, 0.47 * side, 0.84 * side, 0.93 * side], 255)
    pen.rectangle([0.42 * side, 0.64 * side, 0.6 * side, 0.93 * side], 0)


def _tree(image, pen, side):
    for top, low, half in ((0.03, 0.36, 0.24), (0.22, 0.58, 0.33), (0.42, 0.8, 0.42)):
        pen.polygon(_scaled([(0.5, top), (0.5 + half, low), (0.5 - half, low)], side), 255)
    pen.rectangle([0.43 * side, 0.8 * side, 0.57 * side, 0.97 * side], 255)


def _face(image, pen, side):
    _circle(image, pen, side)
    for x in (0.36, 0.64):
        pen.ellipse([(x - 0.06) * side, 0.32 * side, (x + 0.06) * side, 0.46 * side], 0)
    pen.chord([0.28 * side, 0.38 * side, 0.72 * side, 0.78 * side], 15, 165, 0)


def _flower(image, pen, side):
    for x, y in _turn(6, (0.29,)):
        pen.ellipse([(x - 0.18) * side, (y - 0.18) * side, (x + 0.18) * side, (y + 0.18) * side], 255)
    pen.ellipse([0.37 * side, 0.37 * side, 0.63 * side, 0.63 * side], 0)
    pen.ellipse([0.43 * side, 0.43 * side, 0.57 * side, 0.57 * side], 255)


def _cloud(image, pen, side):
    for x, y, r in (
        (0.24, 0.58, 0.2),
        (0.45, 0.42, 0.25),
        (0.7, 0.5, 0.21),
        (0.8, 0.62, 0.16),
        (0.5, 0.62, 0.19),
    ):
        pen.ellipse([(x - r) * side, (y - r) * side, (x + r) * side, (y + r) * side], 255)


def _fish(image, pen, side):
    pen.ellipse([0.04 * side, 0.24 * side, 0.72 * side, 0.76 * side], 255)
    pen.polygon(_scaled([(0.62, 0.5), (0.96, 0.22), (0.96, 0.78)], side), 255)
    pen.ellipse([0.18 * side, 0.38 * side, 0.28 * side, 0.48 * side], 0)


def _cup(image, pen, side):
    pen.ellipse([0.55 * side, 0.3 * side, 0.95 * side, 0.72 * side], 255)
    pen.ellipse([0.64 * side, 0.39 * side, 0.86 * side, 0.63 * side], 0)
    pen.polygon(_scaled([(0.1, 0.18), (0.74, 0.18), (0.68, 0.88), (0.16, 0.88)], side), 255)


def _flag(image, pen, side):
    pen.rectangle([0.14 * side, 0.04 * side, 0.23 * side, 0.97 * side], 255)
    pen.polygon(_scaled([(0.23, 0.08), (0.92, 0.08), (0.76, 0.31), (0.92, 0.56), (0.23, 0.56)], side), 255)


def _drop(image, pen, side):
    pen.ellipse([0.2 * side, 0.36 * side, 0.8 * side, 0.96 * side], 255)
    part = Image.new("L", (side, side))
    ImageDraw.Draw(part).polygon(_scaled([(0.5, 0.03), (0.77, 0.55), (0.23, 0.55)], side), 255)
    image.paste(ImageChops.lighter(image, part))
