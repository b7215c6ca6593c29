"""Codecs: how a prompt becomes a target's token ids, and what its output tokens are for a person: text, or
the patches of a picture.

A checkpoint folder may hold ``codec.json``; without it the output is text. A codec declares its
``capabilities``; its ``output`` is the field of the trace's header that a viewer reads. In both cases a
token stands for bytes: of text, or of the pixels of a patch."""

from __future__ import annotations

import base64
import binascii
import codecs
import io
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..trace.output import describe
from .picture_input import KEPT_SIDE
from .registry import ZooError
from .text import TokenBytes, TokenTable, encode_chat, encode_plain
from .tokenizer import read_json

FILE = "codec.json"
SAMPLE = "sample:"  # begins the name of a target's own picture
MOST_PATCHES = 4096  # patches of a picture, of a codec that is read
LARGEST_PATCH = 64  # pixels of a patch's side
MOST_CODES = 65536  # entries of a codebook
MOST_SCALES = 16  # scales of a picture


class Decoder(Protocol):
    """A function (bytes, final=False) -> text that decodes an output piece by piece."""

    def __call__(self, data: bytes, final: bool = False, /) -> str: ...


class Codec(Protocol):
    """Converts a person's messages to token ids, and output bytes to something a person can read.

    capabilities: what methods may require of it; output: a field of the trace's header; most_tokens:
    maximum number of tokens of an answer, None without a limit; media_type: of ``file``; columns: of the
    output's grid, 0 without one; tokens: the ids that an output may contain; prompts: examples that the
    target understands, empty if it understands any text; picture_size: (width, height) of the picture that
    the target reads, None if it reads none; picture_samples: sample pictures; unconditional_ids [vocab]:
    the token that replaces each token in a prompt without words, for classifier-free guidance, None if the
    target was not trained on such prompts."""

    capabilities: frozenset[str]
    output: dict[str, Any]
    most_tokens: int | None
    media_type: str
    columns: int
    tokens: range
    prompts: tuple[str, ...]
    picture_size: tuple[int, int] | None
    picture_samples: tuple[dict[str, str], ...]
    unconditional_ids: tuple[int, ...] | None

    @property
    def table(self) -> TokenTable:
        """The map from token ids to bytes."""
        ...

    def encode(self, messages: Sequence[dict[str, Any]], raw: bool, **options: Any) -> list[int]:
        """Return the prompt's token ids. raw: without a chat template; options: further arguments of the
        template. Raises ZooError if the prompt contains nothing that the target knows."""
        ...

    def describe(self, data: bytes) -> str:
        """Return an output as text: the text itself, or a description of the picture."""
        ...

    def decoder(self) -> Decoder:
        """Return a function that decodes the output's bytes to text piece by piece; its last call has
        ``final=True``."""
        ...

    def file(self, data: bytes) -> bytes:
        """Return an output's bytes as the content of a file of ``media_type``."""
        ...

    @property
    def neighbours(self) -> np.ndarray:
        """For each token of ``tokens``, the most similar other tokens, nearest first, int64 [len(tokens),
        k]."""
        ...


class TextCodec:
    """The codec of text: the checkpoint's tokenizer and its chat template."""

    capabilities = frozenset({"output:text", "sequence"})
    output: dict[str, Any] = {"kind": "text"}
    most_tokens: int | None = None
    media_type = "text/plain"
    columns = 0
    prompts: tuple[str, ...] = ()
    picture_size: tuple[int, int] | None = None
    picture_samples: tuple[dict[str, str], ...] = ()
    unconditional_ids: tuple[int, ...] | None = None

    def __init__(self, open_tokenizer: Callable[[], Any]):
        self._open = open_tokenizer

    @cached_property
    def tokenizer(self) -> Any:
        """The transformers tokenizer of the checkpoint folder."""
        return self._open()

    @cached_property
    def table(self) -> TokenBytes:
        return TokenBytes(self.tokenizer)

    @cached_property
    def tokens(self) -> range:
        return range(len(self.tokenizer))

    def encode(self, messages: Sequence[dict[str, Any]], raw: bool, **options: Any) -> list[int]:
        return (
            encode_plain(self.tokenizer, "\n\n".join(m["content"] for m in messages))
            if raw
            else encode_chat(self.tokenizer, messages, **options)
        )

    def describe(self, data: bytes) -> str:
        return describe(self.output, data)

    def decoder(self) -> Decoder:
        return codecs.getincrementaldecoder("utf-8")("replace").decode

    def file(self, data: bytes) -> bytes:
        return self.describe(data).encode()

    @property
    def neighbours(self) -> np.ndarray:
        raise ZooError("Tokens of text have no codebook.", "codec.no_codebook")


class VisionCodec(TextCodec):
    """The codec of targets that read a picture before the prompt (targets/vision.py) and answer with text."""

    capabilities = TextCodec.capabilities | {"input:picture"}

    def __init__(
        self, tokenizer: Any, size: tuple[int, int], samples: Sequence[dict[str, str]], prompts: Sequence[str]
    ):
        super().__init__(lambda: tokenizer)
        self.picture_size = size
        self.picture_samples = tuple(samples)
        self.prompts = tuple(prompts)

    def encode(self, messages: Sequence[dict[str, Any]], raw: bool, **options: Any) -> list[int]:
        ids = super().encode(messages, raw, **options)
        if ids and set(super().encode(messages[-1:], True)) <= {self.tokenizer.unk_token_id}:
            raise ZooError(
                f"This model answers a few kinds of questions, such as {self.prompts[0]!r}: the prompt holds no word it knows.",
                "prompt.words",
            )
        return ids


class PatchTable:
    """Maps a picture model's token ids to bytes: the pixels of a patch, or the letters of a word. Only
    patches are part of the output."""

    def __init__(self, codes: np.ndarray, first: int, words: TokenBytes):
        self._codes = codes
        self._first = first
        self._words = words
        self.special = words.special

    def __call__(self, token: int) -> bytes:
        return self._codes[token - self._first].tobytes() if self._is_patch(token) else self._words(token)

    def output_bytes(self, token: int, first: bool = False) -> bytes:
        return self(token) if self._is_patch(token) else b""

    def _is_patch(self, token: int) -> bool:
        return self._first <= token < self._first + len(self._codes)


class PatchCodec:
    """The codec of pictures: tokens are square patches in raster order, each an entry of a codebook. The
    prompt consists of the known words in the latest message.

    codes: the codebook, uint8 [entries, patch, patch, 3]; first: token id of entry 0; things: words of
    which a prompt must contain at least one."""

    capabilities = frozenset({"output:patches", "codebook", "grid", "sequence"})
    media_type = "image/png"
    picture_size: tuple[int, int] | None = None
    picture_samples: tuple[dict[str, str], ...] = ()
    unconditional_ids: tuple[int, ...] | None = None

    def __init__(
        self, tokenizer: Any, codes: np.ndarray, first: int, rows: int, columns: int, things: Sequence[str]
    ):
        self.tokenizer = tokenizer
        self.codes = codes
        self.first = first
        self.rows = rows
        self.columns = columns
        self.prompts = tuple(f"a {thing}" for thing in things)
        self.things, self.tokens = tuple(things), range(first, first + len(codes))
        self.output = {"kind": "patches", "rows": rows, "columns": columns, "patch": codes.shape[1]}
        self.most_tokens = rows * columns

    @cached_property
    def table(self) -> TokenTable:
        return PatchTable(self.codes, self.first, TokenBytes(self.tokenizer))

    def encode(self, messages: Sequence[dict[str, Any]], raw: bool, **options: Any) -> list[int]:
        text = str(messages[-1]["content"]) if messages else ""
        ids = [int(i) for i in self.tokenizer.encode(text, split_special_tokens=True)]
        known = {self.tokenizer.convert_tokens_to_ids(thing) for thing in self.things}
        if text.strip() and not known & set(ids):
            raise ZooError(
                f'This model draws one thing at a time, such as {", ".join(self.things[:6])}, "letter g" or "digit 7": '
                "the prompt names none it knows.",
                "prompt.words",
            )
        return ids

    def describe(self, data: bytes) -> str:
        return describe(self.output, data)

    def decoder(self) -> Decoder:
        held = bytearray()

        def decode(data: bytes, final: bool = False) -> str:
            held.extend(data)
            return self.describe(bytes(held)) if final else ""

        return decode

    def pixels(self, data: bytes) -> np.ndarray:
        """Return the picture, uint8 [height, width, 3]; missing patches are grey."""
        size = self.codes.shape[1]
        found = np.frombuffer(data[: self.most_tokens * self.codes[0].nbytes], dtype=np.uint8)
        patches = np.full((self.most_tokens, size, size, 3), 128, np.uint8)
        count = len(found) // self.codes[0].size
        patches[:count] = found[: count * self.codes[0].size].reshape(-1, size, size, 3)
        return (
            patches.reshape(self.rows, self.columns, size, size, 3)
            .swapaxes(1, 2)
            .reshape(self.rows * size, self.columns * size, 3)
        )

    def file(self, data: bytes) -> bytes:
        return encode_png(self.pixels(data))

    @cached_property
    def neighbours(self) -> np.ndarray:
        """For each codebook entry the tokens of the other entries by distance (L2 of pixels), nearest
        first, int64 [entries, entries - 1]. Row i belongs to token ``first + i``."""
        flat = self.codes.reshape(len(self.codes), -1).astype(np.float64)
        squares = (flat**2).sum(1)
        distances = squares[:, None] + squares[None] - 2 * flat @ flat.T
        np.fill_diagonal(distances, np.inf)
        return distances.argsort(1, kind="stable")[:, :-1] + self.first


class ScaleCodec(PatchCodec):
    """The codec of pictures that are generated scale by scale (models/scales.py): a token is a patch of the
    difference between the picture and what the scales before it give, as bytes around 128.

    codes: the codebooks, uint8 [entries of all scales, patch, patch, 3]; grids: number of patches on a side
    of each scale."""

    capabilities = frozenset({"output:scales"})

    def __init__(
        self, tokenizer: Any, codes: np.ndarray, first: int, grids: Sequence[int], things: Sequence[str]
    ):
        super().__init__(tokenizer, codes, first, grids[-1], grids[-1], things)
        self.grids, self.columns = tuple(grids), 0
        self.output = {"kind": "scales", "grids": list(grids), "patch": codes.shape[1]}
        self.most_tokens = sum(grid * grid for grid in grids)

    def pixels(self, data: bytes) -> np.ndarray:
        """Return the picture that the scales so far give, uint8 [side, side, 3]; missing patches change
        nothing."""
        import torch

        from ..models.scales import Scales

        scales = Scales(self.grids, self.codes.shape[1], tuple(1 for _ in self.grids))
        values = np.full(self.most_tokens * self.codes[0].size, 128, np.uint8)
        found = np.frombuffer(data[: values.nbytes], np.uint8)
        values[: len(found)] = found
        patches = torch.from_numpy(values.astype(np.float32) - 128).reshape(1, self.most_tokens, -1)
        picture = scales.blank_pictures()
        for lo, hi in zip(scales.ends, scales.ends[1:]):
            picture = picture + scales.upsample(patches[:, lo:hi])
        return (picture[0] + 128).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()


def encode_png(pixels: np.ndarray) -> bytes:
    """Return pixels, uint8 [height, width, 3], as the bytes of a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


def open_codec(folder: Path, open_tokenizer: Callable[[], Any]) -> TextCodec | PatchCodec:
    """Open the codec of a checkpoint folder. open_tokenizer(): called when text needs the tokenizer. Raises
    ZooError for a codec.json that cannot be read."""
    found = read_json(folder, FILE)
    if not found:
        return TextCodec(open_tokenizer)
    try:
        made = OPENED[found["kind"]][1](found, open_tokenizer())
        made.unconditional_ids = _unconditional_ids(found, made)
        return made
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ZooError(
            f"{FILE} of {folder.name} cannot be read ({type(error).__name__}).", "codec.read"
        ) from None


def _patches(found: dict[str, Any], tokenizer: Any) -> PatchCodec:
    rows, columns, patch, first = _sizes(*(found[name] for name in ("rows", "columns", "patch", "first")))
    if rows * columns > MOST_PATCHES:
        raise ValueError("sizes")
    return PatchCodec(tokenizer, _codes(found, patch), first, rows, columns, _things(found))


def _scales(found: dict[str, Any], tokenizer: Any) -> ScaleCodec:
    patch, first, *grids = _sizes(found["patch"], found["first"], *found["grids"])
    if grids != sorted(set(grids)) or not 0 < len(grids) <= MOST_SCALES or grids[-1] ** 2 > MOST_PATCHES:
        raise ValueError("sizes")
    return ScaleCodec(tokenizer, _codes(found, patch), first, grids, _things(found))


def _vision(found: dict[str, Any], tokenizer: Any) -> VisionCodec:
    picture = found["picture"]
    width, height = _sizes(picture["width"], picture["height"])
    samples = _samples(found)
    prompts = found["prompts"]
    if (
        max(width, height) > KEPT_SIDE
        or not prompts
        or not all(isinstance(prompt, str) for prompt in prompts)
    ):
        raise ValueError("sizes")
    return VisionCodec(tokenizer, (width, height), samples, prompts)


def _samples(found: dict[str, Any]) -> list[dict[str, str]]:
    samples = [
        {"shows": str(one["shows"]), "image": "data:image/png;base64," + one["png"]}
        for one in found["picture"]["samples"]
    ]
    for sample in samples:
        base64.b64decode(sample["image"].partition(",")[2], validate=True)
    return samples


def picture_samples(folder: Path) -> list[dict[str, str]]:
    """Return the sample pictures in a folder's codec.json: {shows, image}; empty if there are none, or if
    they cannot be read."""
    try:
        return _samples(read_json(folder, FILE))
    except (ZooError, KeyError, TypeError, ValueError, binascii.Error):
        return []


def sample_picture(folder: Path | None, name: str) -> str:
    """Return one of a target's own sample pictures as a data URL. name: "sample:0", "sample:1", ... Raises
    ZooError."""
    samples, number = picture_samples(folder) if folder else [], name.removeprefix(SAMPLE)
    if not (number.isascii() and number.isdigit()) or int(number[:9]) >= len(samples):
        raise ZooError(
            f"There is no such sample picture: this target ships {len(samples)}, {SAMPLE}0 the first.",
            "picture.sample",
        )
    return samples[int(number)]["image"]


def _unconditional_ids(found: dict[str, Any], made: TextCodec | PatchCodec) -> tuple[int, ...] | None:
    """Return what stands for each token in a prompt without words, [tokens of the vocabulary]; None if the
    target was not trained on it."""
    if "unconditional" not in found:
        return None
    if not isinstance(made, PatchCodec):
        raise ValueError("unconditional")
    unknown, first = _sizes(found["unconditional"]["unknown"], found["unconditional"]["words_from"])
    return tuple(
        unknown if first <= token < made.first else token for token in range(made.first + len(made.codes))
    )


def _sizes(*numbers: Any) -> list[int]:
    if not all(type(n) is int and n > 0 for n in numbers):
        raise ValueError("sizes")
    return list(numbers)


def _codes(found: dict[str, Any], patch: int) -> np.ndarray:
    codes = np.frombuffer(base64.b64decode(found["codes"], validate=True), np.uint8).reshape(
        -1, patch, patch, 3
    )
    if patch > LARGEST_PATCH or not 1 < len(codes) <= MOST_CODES:
        raise ValueError("sizes")
    return codes


def _things(found: dict[str, Any]) -> list[str]:
    things = found["things"]
    if not isinstance(things, list) or not all(isinstance(thing, str) for thing in things):
        raise TypeError("things")
    return things


OPENED: dict[
    str, tuple[type[TextCodec | PatchCodec], Callable[[dict[str, Any], Any], TextCodec | PatchCodec]]
] = {"patches": (PatchCodec, _patches), "scales": (ScaleCodec, _scales), "text": (VisionCodec, _vision)}


def codec_capabilities(folder: Path) -> frozenset[str]:
    """Return the capabilities of a folder's codec from its files alone."""
    kind = read_json(folder, FILE).get("kind")
    return (OPENED[kind][0] if isinstance(kind, str) and kind in OPENED else TextCodec).capabilities
