"""Read pictures from people and programs: decode them with Pillow within limits, and keep their pixels only.

Nothing but the pixels of a given file is kept: no metadata, no second frame, no text, no name. They are
passed on as the data URL of a PNG, ``data:image/png;base64,...``, as in OpenAI's API; a path or another
address is never opened."""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from .registry import ZooError

FORMATS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
MOST_BYTES = 4 * 2**20  # of a file
MOST_SIDE = 4096  # pixels of a given picture's side
MOST_PIXELS = 4 * 2**20
MOST_SCANS = 100  # of a progressive JPEG: an encoder writes some ten, and each is a walk over all pixels
SCAN = b"\xff\xda"  # begins a scan of a JPEG
KEPT_SIDE = 96  # pixels of the longer side of what is kept; as a PNG at most 37,000 characters
PHONES = "MPO"  # what phones write: a JPEG with further pictures behind it, of which the first is read
TURNED = ("JPEG", PHONES, "PNG")  # where browsers follow the EXIF orientation, as the page's upload does
DATA_URL = re.compile(r"\s*data:image/(?:png|jpe?g|webp)(?:;[\w.=-]+)*;base64,", re.ASCII | re.IGNORECASE)
LONGEST_URL = MOST_BYTES // 3 * 4 + 64  # characters, without spaces and line breaks
WHITE = (255, 255, 255)
TEXTS = {  # ends of sentences, by code
    "picture.form": "it must be given as a data URL, data:image/png;base64,..., and not as an address or a path",
    "picture.bytes": f"it is larger than {MOST_BYTES >> 20} MB",
    "picture.format": f"it is not one of {', '.join(FORMATS)}",
    "picture.pixels": f"it is larger than {MOST_SIDE} pixels to a side or {MOST_PIXELS >> 20} million pixels",
    "picture.scans": f"it has more than {MOST_SCANS} scans",
    "picture.animated": "it is animated",
    "picture.damaged": "it is damaged or cut short",
    "picture.file": "the file cannot be read",
}


def picture_error(code: str) -> ZooError:
    """Return the error for a picture that cannot be used. code: its identifier in TEXTS."""
    return ZooError(f"The picture is refused: {TEXTS[code]}.", code)


def read_data_url(given: Any) -> str:
    """Check a picture given as a data URL; return it as the data URL of a PNG of at most ``KEPT_SIDE``
    pixels to a side. Raises ZooError."""
    if not isinstance(given, str):
        raise picture_error("picture.form")
    if len(given) > LONGEST_URL + LONGEST_URL // 32:  # lines of 64 characters
        raise picture_error("picture.bytes")
    head = DATA_URL.match(given)
    if head is None:
        raise picture_error("picture.form")
    try:
        data = base64.b64decode("".join(given[head.end() :].split()), validate=True)
    except (binascii.Error, ValueError):
        raise picture_error("picture.form") from None
    return data_url(decode_picture(data))


def read_file(path: str) -> str:
    """Read a picture file; return it as a data URL, as ``read_data_url`` does. Raises ZooError."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        raise picture_error("picture.file") from None
    return data_url(decode_picture(data))


def decode_picture(data: bytes) -> Image.Image:
    """Decode a file's bytes to an RGB picture on white, turned as its EXIF orientation says and shrunk to
    ``KEPT_SIDE``. Its size is checked before its pixels are decoded. Raises ZooError."""
    if len(data) > MOST_BYTES:
        raise picture_error("picture.bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about damaged EXIF data
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(data), formats=tuple(FORMATS))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise picture_error("picture.pixels") from None
    except Exception:  # a damaged header may raise anything
        raise picture_error("picture.format") from None
    if max(picture.size) > MOST_SIDE or picture.width * picture.height > MOST_PIXELS:
        raise picture_error("picture.pixels")
    if picture.format not in ("PNG", "WEBP") and data.count(SCAN) > MOST_SCANS:
        raise picture_error("picture.scans")
    if picture.format != PHONES and getattr(picture, "n_frames", 1) != 1:
        raise picture_error("picture.animated")
    try:
        picture.load()
        solid = _turned(picture).convert("RGBA")
        flat = Image.new("RGB", solid.size, WHITE)
        flat.paste(solid, mask=solid.getchannel("A"))
    except Exception:  # damaged data may raise anything
        raise picture_error("picture.damaged") from None
    flat.thumbnail((KEPT_SIDE, KEPT_SIDE), Image.Resampling.LANCZOS)
    return flat


def _turned(picture: Image.Image) -> Image.Image:
    """Return the picture as its EXIF orientation turns it; unchanged if the EXIF data cannot be read."""
    if picture.format not in TURNED:
        return picture
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return ImageOps.exif_transpose(picture)
    except Exception:  # the pixels are good, whatever is written beside them
        return picture


def data_url(picture: Image.Image) -> str:
    """Return a picture's pixels as the data URL of a PNG."""
    file = io.BytesIO()
    Image.fromarray(np.asarray(picture.convert("RGB"))).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def picture_pixels(url: str, width: int, height: int) -> np.ndarray:
    """Return the pixels, uint8 [height, width, 3], of a picture that ``read_data_url`` returned: scaled to
    the given size without distortion, with white margins. Raises ZooError."""
    picture = decode_picture(base64.b64decode(url.partition(",")[2]))
    scale = min(width / picture.width, height / picture.height)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    scaled = picture if picture.size == size else picture.resize(size, Image.Resampling.LANCZOS)
    whole = Image.new("RGB", (width, height), WHITE)
    whole.paste(scaled, ((width - size[0]) // 2, (height - size[1]) // 2))
    return np.asarray(whole)
