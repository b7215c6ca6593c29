"""Codecs: text stays what its tokenizer makes of it; a picture's patches come back as pixels; damaged files
are refused."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from specviz.training.pictures import make_tokenizer
from specviz.zoo.codec import FILE, PatchCodec, TextCodec, open_codec
from specviz.zoo.registry import ZooError

from ..run.fakes import byte_level

CODES = np.random.default_rng(0).integers(0, 256, (6, 2, 2, 3), np.uint8)
RED_HEART = [{"role": "user", "content": "A red heart, please!"}]


def codec() -> PatchCodec:
    words = make_tokenizer(len(CODES))
    return PatchCodec(words, CODES, words.convert_tokens_to_ids("patch 0"), 2, 3, ("heart", "star"))


def test_a_folder_without_a_codec_is_text(tmp_path):
    found = open_codec(tmp_path, byte_level)
    assert isinstance(found, TextCodec) and found.output == {"kind": "text"} and found.most_tokens is None
    ids = found.encode(RED_HEART, True)
    assert b"".join(found.table.output_bytes(i) for i in ids) == RED_HEART[0]["content"].encode()
    assert found.describe(b"caf\xc3\xa9") == "caf\u00e9" == found.file(b"caf\xc3\xa9").decode()


def test_words_become_known_tokens_and_typed_control_tokens_do_not():
    made = codec()
    ids = made.encode([{"role": "user", "content": "a RED heart <end> patch 3"}], False)
    names = made.tokenizer.convert_ids_to_tokens(ids)
    assert names == ["<words>", "a", "red", "heart", "<unknown>", "<unknown>", "3", "<picture>"]
    with pytest.raises(ZooError) as error:
        made.encode([{"role": "user", "content": "a red elephant"}], False)
    assert error.value.code == "prompt.words"


def test_patches_come_back_as_pixels_in_raster_order():
    made = codec()
    order = [3, 0, 5, 1, 1]
    data = b"".join(made.table.output_bytes(made.first + i) for i in order)
    pixels = made.pixels(data)
    assert pixels.shape == (4, 6, 3)
    for place, code in enumerate(order):
        row, column = divmod(place, 3)
        assert (pixels[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] == CODES[code]).all()
    assert (pixels[2:, 4:] == 128).all(), "a missing patch is grey"
    assert (np.asarray(Image.open(io.BytesIO(made.file(data))).convert("RGB")) == pixels).all()
    assert made.table.output_bytes(2) == b"" and made.table(made.first) == CODES[0].tobytes()


def test_streams_of_text_get_text_as_it_grows_and_one_line_about_a_picture():
    text = TextCodec(byte_level).decoder()
    assert [text(b"caf\xc3"), text(b"\xa9"), text(b"\xe2", True)] == ["caf", "\u00e9", "\ufffd"]
    made = codec()
    paint = made.decoder()
    patch = made.table.output_bytes(made.first)
    assert (
        paint(patch) == paint(patch) == ""
        and paint(b"", True) == made.describe(2 * patch)
        and "2 of 6" in made.describe(2 * patch)
    )


def test_neighbours_are_the_nearest_other_entries():
    made = codec()
    flat = CODES.reshape(6, -1).astype(float)
    for code in range(6):
        away = np.linalg.norm(flat - flat[code], axis=1)
        order = [int(i) - made.first for i in made.neighbours[code]]
        assert code not in order and order == sorted(set(range(6)) - {code}, key=lambda i: away[i])


def written(tmp_path, **changes):
    good = {
        "kind": "patches",
        "rows": 2,
        "columns": 3,
        "patch": 2,
        "first": 5,
        "things": ["heart"],
        "codes": base64.b64encode(CODES.tobytes()).decode(),
    }
    (tmp_path / FILE).write_text(json.dumps({**good, **changes}), encoding="utf-8")
    return tmp_path


def test_a_codec_is_read_from_its_file(tmp_path):
    assert (open_codec(written(tmp_path), lambda: make_tokenizer(6)).codes == CODES).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "sound"},
        {"rows": 0},
        {"columns": 10**6},
        {"patch": "2"},
        {"first": -1},
        {"codes": "???"},
        {"codes": base64.b64encode(b"12345").decode()},
        {"things": "heart"},
        {"things": [1]},
    ],
)
def test_a_damaged_codec_is_refused_by_code(tmp_path, changes):
    with pytest.raises(ZooError) as error:
        open_codec(written(tmp_path, **changes), lambda: make_tokenizer(6))
    assert error.value.code == "codec.read"
