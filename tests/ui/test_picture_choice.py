"""The picture that a target reads before the prompt, chosen on the page: samples, a file of one's own, and
hiding it from the target."""

from __future__ import annotations

from base64 import b64decode

import numpy as np
import pytest

from specviz.zoo.codec import encode_png
from specviz.zoo.picture_input import data_url, decode_picture

from .conftest import Server
from .fake import FakeBackend
from .test_page import run as press_run


def picture(shade: int, height: int = 4, width: int = 4) -> bytes:
    return encode_png(np.full((height, width, 3), shade, np.uint8))


SAMPLES = [
    {"shows": f"shade {shade}", "image": data_url(decode_picture(picture(shade)))} for shade in (40, 90, 200)
]
SHOWN = """() => ({ hidden: document.querySelector(".pg-picture").hidden, image: document.querySelector(".pg-picwhole").src,
  unseen: document.querySelector(".pg-picwhole").classList.contains("unseen"),
  chosen: [...document.querySelectorAll(".pg-pic")].map((b) => b.getAttribute("aria-checked") === "true") })"""


class Seeing(FakeBackend):
    def targets(self):
        plain, other = super().targets()
        return [plain, other | {"pictures": SAMPLES}]


@pytest.fixture(scope="module")
def picture_server():
    server = Server(Seeing())
    yield server
    server.close()


def choose(page, title):
    page.click("#open-settings")
    page.click("#target input")
    page.click(f"[role=option]:has-text('{title}')")
    page.keyboard.press("Escape")


def run(page, backend):
    """Run, and return the fields that the run got beside the prompt."""
    before = len(backend.runs)
    press_run(page, "What is it?")
    assert backend.idle() and len(backend.runs) == before + 1
    return backend.runs[-1].generation


@pytest.mark.thorough
def test_a_picture_is_chosen_uploaded_hidden_and_sent(visit, picture_server):
    page, backend = visit(picture_server.url), picture_server.backend
    assert page.evaluate(SHOWN)["hidden"]
    choose(page, "Other, 9 M")
    page.wait_for_function(
        "(image) => document.querySelector('.pg-picwhole').src === image", arg=SAMPLES[0]["image"]
    )
    assert page.evaluate(SHOWN)["chosen"] == [True, False, False]

    page.click(".pg-pic[aria-label='shade 90']")
    page.check("#hide-image")
    page.wait_for_function(f"() => ({SHOWN})().unseen")
    assert page.evaluate(SHOWN) == {
        "hidden": False,
        "image": SAMPLES[1]["image"],
        "unseen": True,
        "chosen": [False, True, False],
    }

    page.set_input_files(
        ".pg-picture input[type=file]",
        {"name": "a.png", "mimeType": "image/png", "buffer": picture(7, 100, 200)},
    )
    page.wait_for_function(f"() => !({SHOWN})().chosen.includes(true)")
    sent = run(page, backend)
    kept = np.asarray(decode_picture(b64decode(sent["image"].partition(",")[2])))
    assert kept.shape[:2] == (48, 96) and int(kept.max()) <= 9 and sent["hide_image"] is True

    page.set_input_files(
        ".pg-picture input[type=file]", {"name": "b.png", "mimeType": "image/png", "buffer": b"no picture"}
    )
    page.wait_for_selector(".pg-picnote[data-message='picture.unreadable']")
    assert page.evaluate(SHOWN)["image"] == sent["image"], "a file that cannot be read changes nothing"

    choose(page, "fake")
    page.wait_for_function(f"() => ({SHOWN})().hidden")
    assert "image" not in run(page, backend)
