"""The preview of a link to a stored run: a picture of its passes with its headline, drawn from its records.

No text of the run is drawn or written: method titles are those of the catalogue. The words are kept inside
the picture's file, as PNG text.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ..methods import catalogue
from ..trace.files import Trace
from ..trace.headline import Headline, headline

SIZE = (1200, 630)  # pixels that services show
MARGIN = 64
PAPER = "#fbfbfa"
INK = "#1a1c20"
QUIET = "#5c6068"
DRAFTED = "#56B4E9"  # accepted draft tokens
OWN = "#E69F00"  # tokens of the large model's own
MOST_TOKENS = 512  # of a strip
WORDS = "Description"  # of the PNG's text; "Title" is the other


def preview(trace: Trace) -> bytes | None:
    """Return the picture as PNG, which holds title and sentence, too; None for a run without a headline."""
    from PIL.PngImagePlugin import PngInfo

    found = headline(trace)
    if found is None:
        return None
    title = (
        f"{_title(trace, found.lane)}, beside plain decoding"
        if found.base is not None
        else _title(trace, found.lane)
    )
    words = PngInfo()
    words.add_text("Title", title)
    words.add_text(WORDS, found.sentence)
    data = io.BytesIO()
    _draw(trace, found, title).quantize(64).save(data, "PNG", pnginfo=words, optimize=True)
    return data.getvalue()


def words_of(picture: Path) -> tuple[str, str] | None:
    """Return title and sentence of a picture that ``preview`` made; None if there is none."""
    from PIL import Image

    try:
        with Image.open(picture, formats=["PNG"]) as image:
            text: dict[str, Any] = getattr(image, "text", {})
            return str(text["Title"]), str(text[WORDS])
    except (OSError, SyntaxError, LookupError):
        return None


def _title(trace: Trace, lane: int) -> str:
    method = catalogue().get(trace.header(lane)["method"]["key"])
    return method.title if method is not None else "A method"


def _draw(trace: Trace, found: Headline, title: str) -> Any:
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(image)
    pen.text((MARGIN, MARGIN - 14), "specviz", INK, ImageFont.load_default(30))
    pen.text((MARGIN, MARGIN + 50), title, QUIET, ImageFont.load_default(36))
    y = MARGIN + 110
    for line in _lines(found.sentence, ImageFont.load_default(54), SIZE[0] - 2 * MARGIN):
        pen.text((MARGIN, y), line, INK, ImageFont.load_default(54))
        y += 68
    small = ImageFont.load_default(24)
    lanes = [(found.lane, _title(trace, found.lane))]
    if found.base is not None:
        lanes.append((found.base, "Plain decoding"))
    longest = max(sum(map(sum, _passes(trace, lane))) for lane, _ in lanes)
    y = SIZE[1] - MARGIN - 92 * len(lanes)
    for lane, name in lanes:
        passes = _passes(trace, lane)
        about = "a token a pass" if lane == found.base else "a block a pass; blue: accepted draft tokens"
        pen.text((MARGIN, y), f"{name}: {about}", QUIET, small)
        _strip(pen, passes, y + 38, (SIZE[0] - 2 * MARGIN) / max(1, longest))
        y += 92
    return image


def _passes(trace: Trace, lane: int) -> list[tuple[int, int]]:
    """Return (accepted draft tokens, tokens of the large model's own) of each round."""
    left, found = MOST_TOKENS, []
    for record in trace.of("commit", lane):
        accepted = min(len(record["path"]), record["n_new"])
        found.append((accepted, record["n_new"] - accepted))
        left -= record["n_new"]
        if left <= 0:
            break
    return found


def _strip(pen: Any, passes: list[tuple[int, int]], y: float, scale: float) -> None:
    """Draw the rounds side by side from the left margin; scale: pixels of a token."""
    x = float(MARGIN)
    gap = min(4.0, scale / 4)
    for counts in passes:
        end = x + scale * sum(counts)
        middle = x + scale * counts[0]
        for left, right, colour in ((x, middle, DRAFTED), (middle, end, OWN)):
            right = right - gap if right == end else right
            if right - left >= 1:
                pen.rectangle((left, y, right, y + 36), colour)
        x = end


def _lines(text: str, font: Any, width: float) -> list[str]:
    """Return a text as at most three lines that fit into a width, in pixels."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines[:3]
