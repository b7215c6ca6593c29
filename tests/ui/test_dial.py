"""The dial under the headline, on the page with its library: it runs what stands on the board once more."""

from __future__ import annotations

from .test_claim_shown import Library, library  # noqa: F401

ASK = "#board .pays.whatif"
# This server has no engine and not the recording's model: what the page would run is kept instead.
KEEP = """() => { SpecVizPage.run = (config) => (globalThis.kept = config);
  SpecVizPage.lacks = (set) => (globalThis.lacking && JSON.stringify(set.methods).includes("oracle") ? "no" : "");
  SpecVizPage.board().board.later(); }"""
STATE = "(state) => { const { board } = SpecVizPage.board(); board.state = state; board.later(); }"


def test_it_asks_for_the_oracle_at_the_set_rate_beside_the_run_on_the_board(visit, library):  # noqa: F811
    page = visit(url=library.url)
    page.evaluate(KEEP)
    page.click(ASK)
    assert page.get_attribute(ASK, "aria-expanded") == "true"
    page.wait_for_function("document.querySelector('#board .dial span').textContent.includes('0.80')")
    page.fill("#board .dial input", "0.6")
    page.wait_for_function("document.querySelector('#board .dial span').textContent.includes('0.60')")
    page.click("#board .dial .go")
    kept = page.evaluate("kept")
    shown = page.evaluate("SpecVizPage.settings(SpecVizPage.board().trace())")
    gamma = page.evaluate("SpecVizPage.board().board.headline.dial.lane.header.knobs.gamma ?? 4")
    assert kept["methods"] == [
        *shown["methods"],
        {"method": "oracle", "knobs": {"acceptance": 0.6, "gamma": gamma}},
    ]
    assert kept["prompt"] == shown["prompt"] and kept["tab"] == "race"
    page.click(ASK)
    page.wait_for_selector("#board .dial", state="hidden")


def test_a_page_without_the_method_or_a_run_that_is_written_has_no_dial(visit, library):  # noqa: F811
    page = visit(url=library.url)
    page.evaluate(KEEP)
    page.wait_for_selector(ASK)
    page.evaluate(STATE, "live")
    page.wait_for_selector(ASK, state="hidden")
    page.evaluate(STATE, "done")
    page.wait_for_selector(ASK)
    page.evaluate("globalThis.lacking = true")
    page.evaluate(STATE, "done")
    page.wait_for_selector(ASK, state="hidden")
