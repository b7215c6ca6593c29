"""Pictures that attack the decoder: whatever is not a small still PNG, JPEG or WebP is refused by its code
before it costs anything."""

from __future__ import annotations

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from specviz.run.request import GenerationRequest, SessionError
from specviz.zoo import load, picture_input
from specviz.zoo.registry import ZooError

from ..browser import PATIENCE, POOL


def url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64," + base64.b64encode(data).decode()


def encoded(kind: str = "PNG", size=(8, 6), **options) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (200, 30, 30)).save(file, kind, **options)
    return file.getvalue()


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG that claims a size, with compressed data or none."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)] + [
        b"IDAT" + zlib.compress(data)
    ] * bool(data)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


def animated(kind: str) -> bytes:
    file = io.BytesIO()
    first, second = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    first.save(file, kind, save_all=True, append_images=[second], duration=50)
    return file.getvalue()


def animated_png(count: int) -> bytes:
    file = io.BytesIO()
    first, *others = (Image.new("L", (64, 64), i) for i in range(count))
    first.save(file, "PNG", save_all=True, append_images=others)
    return file.getvalue()


def jpeg_of_scans(count: int, side: int = 2048) -> bytes:
    """A grey progressive JPEG that repeats an empty scan: some 18 bytes that cost a walk over all blocks."""

    def segment(marker: int, body: bytes) -> bytes:
        return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body

    blocks = (side // 8) ** 2
    # Two codes: 0 is "no difference" of the DC scan; for AC, 0 is a run of 2^14 + 14 bits empty blocks.
    tables = segment(0xDB, b"\0" + bytes([1] * 64)) + segment(
        0xC2, struct.pack(">BHHB", 8, side, side, 1) + b"\1\x11\0"
    )
    for table, symbol in ((0x00, 0x00), (0x10, 0xE0)):
        tables += segment(0xC4, bytes([table, 1, *[0] * 15, symbol]))
    dc = segment(0xDA, b"\1\1\0\0\0\0") + bytes(blocks // 8)
    runs = "".join("0" + "1" * 14 for _ in range(0, blocks, 2**15 - 1))
    runs += "1" * (-len(runs) % 8)
    packed = int(runs, 2).to_bytes(len(runs) // 8, "big").replace(b"\xff", b"\xff\0")
    ac = segment(0xDA, b"\1\1\0\1\1\0") + packed
    return b"\xff\xd8" + tables + dc + ac * count + b"\xff\xd9"


def many_chunks(kind: bytes, count: int, body: bytes = b"") -> bytes:
    """A PNG with many chunks of one kind before its pixels."""
    whole = encoded(size=(64, 64))
    chunk = struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return whole[:33] + chunk * count + whole[33:]


def with_chunk(kind: bytes, body: bytes) -> bytes:
    """A PNG with one more chunk before its pixels."""
    whole = encoded(size=(64, 64))
    chunk = struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return whole[:33] + chunk + whole[33:]


BOMB = zlib.compress(bytes(50_000_000), 9)  # 50 KB
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
ATTACKS = {
    "no text": (7, "picture.form"),
    "a path": ("/etc/passwd", "picture.form"),
    "a file address": ("file:///etc/passwd", "picture.form"),
    "an address": ("https://example.org/a.png", "picture.form"),
    "no base64": ("data:image/png;base64,%%%", "picture.form"),
    "an SVG by name": ("data:image/svg+xml;base64," + base64.b64encode(SVG).decode(), "picture.form"),
    "an SVG in disguise": (url(SVG), "picture.format"),
    "no picture": (url(b"hello, world " * 40), "picture.format"),
    "nothing": (url(b""), "picture.format"),
    "a GIF": (url(encoded("GIF")), "picture.format"),
    "a BMP": (url(encoded("BMP")), "picture.format"),
    "an EPS": (url(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), "picture.format"),
    "huge sides": (url(encoded(size=(5000, 2))), "picture.pixels"),
    "many pixels": (url(encoded(size=(3000, 2000))), "picture.pixels"),
    "a bomb's header": (url(png(60000, 60000, bytes(10**6))), "picture.pixels"),
    "a header alone": (url(png(40, 40)), "picture.format"),
    "animated PNG": (url(animated("PNG")), "picture.animated"),
    "animated WebP": (url(animated("WEBP"), "webp"), "picture.animated"),
    "an ICC profile that unfolds": (url(with_chunk(b"iCCP", b"x\0\0" + BOMB)), "picture.format"),
    "a text that unfolds": (url(with_chunk(b"zTXt", b"x\0\0" + BOMB)), "picture.format"),
    "a text in Unicode that unfolds": (url(with_chunk(b"iTXt", b"x\0\1\0\0\0" + BOMB)), "picture.format"),
    "many frames": (url(animated_png(200)), "picture.animated"),
    "a WebP of huge sides": (url(encoded("WEBP", (16_000, 20)), "webp"), "picture.pixels"),
    "many scans": (url(jpeg_of_scans(400), "jpeg"), "picture.scans"),
    "cut short": (url(encoded(size=(64, 64), compress_level=0)[:-2000]), "picture.damaged"),
    "a JPEG cut short": (url(encoded("JPEG", (600, 600))[:-1000], "jpeg"), "picture.damaged"),
    "too many bytes": ("data:image/png;base64," + "A" * (picture_input.LONGEST_URL + 4), "picture.bytes"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_no_small_still_picture_is_refused_by_code(name):
    given, code = ATTACKS[name]
    with pytest.raises(ZooError) as error:
        picture_input.read_data_url(given)
    assert error.value.code == code and str(given)[:60] not in str(error.value)
    with pytest.raises(SessionError) as refused:
        GenerationRequest(image=given)
    assert refused.value.code == code


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_only_pixels_go_further(kind):
    options = {}
    if kind == "PNG":
        options["pnginfo"] = PngImagePlugin.PngInfo()
        options["pnginfo"].add_text("Comment", "secret place")
    else:
        exif = Image.Exif()
        exif[0x010E] = "secret place"
        options["exif"] = exif
    data = encoded(kind, (400, 200), **options) + b"secret trailer"
    kept = picture_input.read_data_url(url(data, kind.lower()))
    assert b"secret" in data and b"secret" not in base64.b64decode(kept.partition(",")[2])
    picture = Image.open(io.BytesIO(base64.b64decode(kept.partition(",")[2])))
    assert (picture.format, picture.mode, picture.size) == (
        "PNG",
        "RGB",
        (picture_input.KEPT_SIDE, picture_input.KEPT_SIDE // 2),
    )
    assert not picture.info and kept == picture_input.read_data_url(kept), (
        "a picture that was read is read as it is"
    )


def test_transparent_pixels_become_white_and_the_whole_picture_is_kept():
    file = io.BytesIO()
    Image.new("RGBA", (10, 30), (255, 0, 0, 0)).save(file, "PNG")
    pixels = picture_input.picture_pixels(picture_input.read_data_url(url(file.getvalue())), 24, 24)
    assert pixels.shape == (24, 24, 3) and (pixels == 255).all()
    pixels = picture_input.picture_pixels(picture_input.read_data_url(url(encoded(size=(10, 30)))), 24, 24)
    red = (pixels != 255).any(-1)
    assert red[:, 8:16].all() and not red[:, :7].any() and not red[:, 17:].any(), (
        "scaled as a whole, white beside it"
    )


def test_random_bytes_after_a_good_beginning_are_refused_or_read():
    rng, good = np.random.default_rng(0), encoded(size=(16, 16))
    for _ in range(200):
        data = bytearray(good)
        for at in rng.integers(0, len(data), 4):
            data[at] = rng.integers(256)
        try:
            kept = picture_input.read_data_url(url(bytes(data)))
        except ZooError as error:
            assert error.code in picture_input.TEXTS
        else:
            assert kept.startswith("data:image/png;base64,")


def test_a_file_of_this_machine_is_read_by_the_command_line_alone(tmp_path):
    (tmp_path / "a.png").write_bytes(encoded())
    assert picture_input.read_file(str(tmp_path / "a.png")) == picture_input.read_data_url(url(encoded()))
    for path, code in (
        (tmp_path / "none.png", "picture.file"),
        (tmp_path, "picture.file"),
        ("\0", "picture.file"),
    ):
        with pytest.raises(ZooError) as error:
            picture_input.read_file(str(path))
        assert error.value.code == code
    with pytest.raises(ZooError) as error:
        picture_input.read_data_url(str(tmp_path / "a.png"))
    assert error.value.code == "picture.form"


CORNERS = [(200, 20, 20), (20, 200, 20), (20, 20, 200), (200, 200, 20)]


def corners(picture) -> list[int]:
    """Which of CORNERS stands in each quarter of a picture."""
    w, h = picture.size
    at = [(w // 4, h // 4), (3 * w // 4, h // 4), (w // 4, 3 * h // 4), (3 * w // 4, 3 * h // 4)]
    seen = [picture.convert("RGB").getpixel(place) for place in at]
    return [min(range(4), key=lambda i: sum(abs(a - b) for a, b in zip(CORNERS[i], one))) for one in seen]


def turned_file(kind: str, orientation: int) -> bytes:
    """48 x 32 pixels in four colours, with an EXIF orientation."""
    picture = Image.new("RGB", (48, 32))
    for i, colour in enumerate(CORNERS):
        picture.paste(colour, (i % 2 * 24, i // 2 * 16, i % 2 * 24 + 24, i // 2 * 16 + 16))
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    more = {"save_all": True, "append_images": [picture.copy()]} if kind == "MPO" else {}
    picture.save(file, kind, exif=exif, **more)
    return file.getvalue()


SEEN = {  # what a reader sees, by orientation: the quarters of the upright picture
    1: [0, 1, 2, 3],
    2: [1, 0, 3, 2],
    3: [3, 2, 1, 0],
    4: [2, 3, 0, 1],
    5: [0, 2, 1, 3],
    6: [2, 0, 3, 1],
    7: [3, 1, 2, 0],
    8: [1, 3, 0, 2],
}


@pytest.mark.parametrize("orientation", SEEN)
@pytest.mark.parametrize("kind", ["JPEG", "MPO", "PNG"])
def test_a_picture_is_turned_as_its_exif_says_on_every_surface(kind, orientation, tmp_path):
    data = turned_file(kind, orientation)
    (tmp_path / "photo").write_bytes(data)
    url_ = picture_input.read_data_url(url(data, "png" if kind == "PNG" else "jpeg"))
    assert picture_input.read_file(str(tmp_path / "photo")) == url_ == GenerationRequest(image=url_).image
    kept = picture_input.decode_picture(base64.b64decode(url_.partition(",")[2]))
    assert kept.size == ((48, 32) if orientation < 5 else (32, 48)) and corners(kept) == SEEN[orientation]


def test_the_page_turns_the_same_files(browser):
    sizes = """async ([kind, data]) => {
        const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
        const found = await createImageBitmap(new Blob([bytes], { type: kind }));
        return [found.width, found.height];
    }"""

    def ask(mime: str, data: bytes) -> list[int]:
        page = browser.new_page()
        found = page.evaluate(sizes, [mime, base64.b64encode(data).decode()])
        page.close()
        return found

    for kind, mime in (
        ("JPEG", "image/jpeg"),
        ("MPO", "image/jpeg"),
        ("PNG", "image/png"),
        ("WEBP", "image/webp"),
    ):
        data = turned_file(kind, 6)
        shown = POOL.submit(ask, mime, data).result(timeout=PATIENCE)
        assert tuple(shown) == picture_input.decode_picture(data).size, kind


def test_exif_data_that_cannot_be_read_leave_the_pixels():
    file = io.BytesIO()
    Image.new("RGB", (8, 6)).save(file, "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    assert picture_input.decode_picture(file.getvalue()).size == (8, 6)


@pytest.mark.parametrize(
    "head", ["data:image/jpg;base64,", "DATA:IMAGE/JPEG;BASE64,", " data:image/jpeg;name=a.jpg;base64,"]
)
@pytest.mark.parametrize("line", [0, 64, 76])
def test_a_data_url_is_read_as_programs_write_it(head, line):
    text = base64.b64encode(turned_file("JPEG", 1)).decode()
    if line:
        text = "\r\n".join(text[i : i + line] for i in range(0, len(text), line)) + "\n"
    want = picture_input.read_data_url(url(turned_file("JPEG", 1), "jpeg"))
    assert picture_input.read_data_url(head + text) == want


def test_a_picture_for_a_target_that_reads_none_is_not_decoded(at_home, monkeypatch):
    monkeypatch.setattr(picture_input, "decode_picture", lambda data: pytest.fail("it was decoded"))
    with pytest.raises(SessionError) as refused:
        GenerationRequest.for_model({"image": url(encoded())}, load())
    assert refused.value.code == "picture.target"


def test_a_usual_progressive_jpeg_is_read():
    assert picture_input.read_data_url(url(encoded("JPEG", (600, 600), progressive=True), "jpeg"))
    assert picture_input.read_data_url(url(jpeg_of_scans(9, 64), "jpeg"))
