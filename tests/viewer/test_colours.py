"""The sets of colours: contrast, how far the states lie apart for every kind of colour vision, and what
stays without colour.

Colour vision is simulated as by Machado, Oliveira and Fernandes (2009) at full severity, distances are
Oklab's, times 100.
"""

from __future__ import annotations

import itertools
import json
import math
import re

import pytest

from specviz.trace.page import to_html, viewer_assets

from . import sample
from .test_access import _contrast as contrast
from .test_access import _theme as theme
from .test_board import LOAD, at_end

STATES = ("acc", "rej", "cor", "bon")
SETS = ("", "safe", "classic", "mono")
VISION = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# The least distance of any two states that a set promises: to full vision, and to every other kind.
PROMISED = {"": (12, 2.5), "safe": (12, 12), "classic": (12, 2), "mono": (9, 9)}


def colours(name: str, dark: bool) -> dict[str, str]:
    """The variables in force, as the sheet gives them."""
    css = viewer_assets()[1]
    base = theme(css, ".sv") | (theme(css, ".dark .sv") if dark else {})
    if not name:
        return base
    own = re.search(rf"^{'[.]dark ' if dark else ''}\.sv\[data-colours={name}\] \{{(.*?)\}}", css, re.M)[1]
    return base | dict(re.findall(r"--sv-([a-z]+): (#[0-9a-f]{6});", own))


def oklab(colour: str, vision: str) -> tuple[float, float, float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    r, g, b = (
        min(1.0, max(0.0, sum(m * x for m, x in zip(row, linear, strict=True)))) for row in VISION[vision]
    )
    lms = (
        0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b,
        0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
        0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b,
    )
    x, y, z = (math.cbrt(v) for v in lms)
    return (
        0.2104542553 * x + 0.7936177850 * y - 0.0040720468 * z,
        1.9779984951 * x - 2.4285922050 * y + 0.4505937099 * z,
        0.0259040371 * x + 0.7827717662 * y - 0.8086757660 * z,
    )


def apart(a: str, b: str, vision: str) -> float:
    return 100 * math.dist(oklab(a, vision), oklab(b, vision))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", SETS)
def test_lines_and_words_stand_out_from_every_ground(name, dark) -> None:
    t = colours(name, dark)
    for ground in ("surface", "sunken", "bg"):
        assert contrast(t["rejtext"], t[ground]) >= 4.5
        for state in STATES:
            assert contrast(t[state], t[ground]) >= 3, (state, ground)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", SETS)
def test_states_lie_apart_as_the_set_promises(name, dark) -> None:
    t, (full, other) = colours(name, dark), PROMISED[name]
    for vision in VISION:
        for a, b in itertools.combinations(STATES, 2):
            assert apart(t[a], t[b], vision) >= (full if vision == "full" else other), (vision, a, b)
        if name in ("", "safe"):  # kept or not is the question that everybody has
            assert apart(t["acc"], t["rej"], vision) >= 12, vision


def test_the_simulation_itself_mixes_up_what_such_eyes_mix_up() -> None:
    red, green, blue, violet = "#b00000", "#5c6b00", "#2020ff", "#7020ff"
    assert (
        apart(red, green, "full") > 18
        and min(apart(red, green, v) for v in ("protanopia", "deuteranopia")) < 7
    )
    assert apart("#00a0a0", "#3a9ad0", "tritanopia") < apart("#00a0a0", "#3a9ad0", "full") / 2
    assert apart(blue, violet, "protanopia") < apart(blue, violet, "full")


# How each state is drawn, but for its colours: in the text and on the rail, and in the tree.
SHAPES = """() => {
  const probe = document.createElement('div'), states = ['acc', 'rej', 'cor', 'bon', 'ski', 'dra', 'pla'], out = { text: {}, tree: {} };
  document.querySelector('.sv').append(probe);
  for (const s of states) {
    const t = SpecViz.dom.el('span', { class: 't ' + s }, 'word'); probe.append(t);
    const c = getComputedStyle(t), b = getComputedStyle(t, '::before');
    out.text[s] = [c.textDecorationLine, c.textDecorationLine === 'none' ? '' : c.textDecorationStyle, c.outlineStyle, b.content, b.borderTopWidth].join();
    const box = SpecViz.dom.svg('rect', { class: 'box' }), ring = SpecViz.dom.svg('rect', { class: 'ring' }), w = SpecViz.dom.svg('text', { class: 'w' }, 'word');
    probe.append(SpecViz.dom.svg('svg', { class: 'tree' }, SpecViz.dom.svg('g', { class: 'node ' + s }, ring, box, w)));
    out.tree[s] = [getComputedStyle(box).strokeDasharray, getComputedStyle(box).strokeWidth, getComputedStyle(ring).stroke !== 'none', getComputedStyle(w).textDecorationLine].join();
  }
  probe.remove();
  return out; }"""


def test_every_state_has_a_shape_of_its_own_in_every_set(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "chain"))))
        for name in SETS:
            page.evaluate("(n) => SpecViz.colours.choose(n)", name)
            shapes = page.evaluate(SHAPES)
            text = [shapes["text"][s] for s in ("acc", "rej", "cor", "bon", "ski", "dra", "pla")]
            assert len(set(text)) == 7, text
            tree = [shapes["tree"][s] for s in ("acc", "rej", "cor", "bon", "dra")]
            assert len(set(tree)) == 5, tree

    drive(use)


def test_the_choice_reaches_every_drawing_and_is_kept(drive, settled, tmp_path) -> None:
    """In the exported page: its origin has a storage, as a served page has."""
    path = tmp_path / "trace.html"
    path.write_text(to_html(sample.race(("plain", "chain"))), encoding="utf-8")
    ink = "document.querySelector('.scrub canvas').toDataURL()"

    def use(page):
        page.keyboard.press("End")
        settled(page)
        before = page.evaluate(ink)
        page.select_option(".colours select", "safe")
        page.locator(".sv[data-colours=safe]").wait_for()
        settled(page)
        assert (
            page.evaluate("document.querySelector('.sv').svApi.board.colors.acc")
            == colours("safe", False)["acc"]
        )
        assert page.evaluate(ink) != before
        page.emulate_media(color_scheme="dark")
        assert (
            page.evaluate(
                "getComputedStyle(document.querySelector('.sv')).getPropertyValue('--sv-bon').trim()"
            )
            == colours("safe", True)["bon"]
        )
        page.reload()
        page.locator(".sv[data-colours=safe]").wait_for()
        assert page.evaluate("document.querySelector('.colours select').value") == "safe"

    drive(use, html=path)


def test_a_page_without_storage_still_changes(drive, settled) -> None:
    def use(page):
        page.evaluate(
            "Object.defineProperty(globalThis, 'localStorage', { get() { throw new Error('closed'); } })"
        )
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "chain"))))
        at_end(page, settled)
        page.select_option(".colours select", "mono")
        assert page.get_attribute(".sv", "data-colours") == "mono"

    drive(use)
