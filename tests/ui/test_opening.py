"""The page opens on the first scenes of the story, and with a place for a recording of a large model."""

from __future__ import annotations

import gzip
import json

import pytest

from specviz.lab.recordings import FOLDER, large_recording

from .test_claim_shown import Library, library  # noqa: F401

CAPTION = "document.querySelector('#board .about.caption:not([hidden]) b')?.textContent ?? ''"
# The page's clock runs faster, so that the scenes pass.
FAST = "(() => { const now = performance.now.bind(performance); performance.now = () => 20 * now(); })();"


def test_the_first_scenes_play_with_their_words_and_then_the_recording(visit, library):  # noqa: F811
    page = visit(url=library.url, moving=True, script=FAST)
    page.wait_for_function(f"{CAPTION} !== ''")
    titles = page.evaluate(
        """async (caption) => { const seen = [], look = new Function("return " + caption);
        while (look()) { if (seen.at(-1) !== look()) seen.push(look()); await new Promise(requestAnimationFrame); }
        return seen; }""",
        CAPTION,
    )
    scenes = page.evaluate("SpecVizPanels.story.scenes.map((scene) => scene.title)")
    titles = [title.rstrip(".") for title in titles]
    assert len(titles) > 3 and titles == [title for title in scenes if title in titles]
    page.wait_for_selector("#board .sv[data-mode=play]")
    assert page.evaluate("SpecVizPage.board().where().lane") == 0


@pytest.mark.parametrize(
    "press, mode", [("#tab-race", None), ("#board .headline", "hold"), ("#title", "play")]
)
def test_a_press_ends_the_scenes(visit, library, press, mode):  # noqa: F811
    page = visit(url=library.url, moving=True)
    page.wait_for_function(f"{CAPTION} !== ''")
    page.click(press)
    page.wait_for_function(f"{CAPTION} === ''")
    assert mode is None or page.get_attribute("#board .sv", "data-mode") == mode


@pytest.mark.parametrize("where, still", [("#page=watch&m=chain", False), ("", True)])
def test_a_link_and_a_visitor_who_wants_no_motion_get_no_scenes(visit, library, where, still):  # noqa: F811
    page = visit(url=library.url + where, moving=not still)
    page.evaluate("SpecVizPage.opening(SpecVizPage.board())")
    assert page.evaluate(CAPTION) == ""


def test_the_place_of_a_large_model_hides_until_there_is_its_recording(visit, library, tmp_path):  # noqa: F811
    assert (large_recording() is None) == (not [*FOLDER.glob("large.jsonl*")])
    assert large_recording(tmp_path) is None
    (tmp_path / "large.jsonl.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "index.yaml").write_text(json.dumps({"large": {"title": "The same with 8 B on a card"}}))
    assert large_recording(tmp_path) == {"name": "large", "title": "The same with 8 B on a card"}
    page = visit(url=library.url)
    assert not page.is_visible("#board .pays.large")
    page.evaluate(
        "(x) => { SpecVizPage.large = x; SpecVizPage.board().board.later(); }", large_recording(tmp_path)
    )
    page.wait_for_selector("#board .pays.large:has-text('8 B on a card')")
    page.evaluate("SpecVizPage.trace = 'large'; SpecVizPage.board().board.later()")
    page.wait_for_selector("#board .pays.large", state="hidden")
