"""Another drafter, and how much to verify: what is asked, and what the sentence says of which interval."""

from __future__ import annotations

import pytest

from .conftest import ANSWERS, EVIL

PARTS = {"machine": "a machine", "done": 3, "of": 3, "runs": [], "passes": 9, "replaced": 0}


def row(method: str, speedup, tokens: float = 2.4, **more) -> dict:
    return {
        "method": method,
        "title": EVIL if method == "x" else method,
        "walltime_speedup": speedup,
        "tokens_per_second": [50.0, 49.0, 51.0],
        "block_efficiency": [tokens, tokens, tokens],
        "rows_per_pass": [5.0, 4.0, 6.0],
        "named": speedup is not None,
        "confidence": 0.75,
        **more,
    }


def answered(*rows: dict) -> dict:
    return ANSWERS | {"prompt_set": PARTS | {"rows": [row("autoregressive", [1.0, 1.0, 1.0], 1.0), *rows]}}


@pytest.mark.parametrize(
    "speedup, message",
    [
        ([1.6, 1.5, 1.7], "dial.gain"),
        ([1.1, 0.9, 1.3], "dial.level"),
        ([0.8, 0.7, 0.9], "dial.loss"),
        (None, "dial.unnamed"),
    ],
)
def test_the_sentence_goes_by_the_interval(visit, speedup, message):
    def use(page):
        page.evaluate("panel.show('dial')")
        page.click("text=Try it")
        page.wait_for_selector(f"[data-message='{message}']")
        said = page.inner_text(f"[data-message='{message}']")
        assert "2.40 tokens a pass" in said and ("{" not in said)
        assert "1.30" in page.inner_text("[data-message='dial.draft']")

    visit(use, "lab", answers=answered(row("oracle gamma=4", speedup), row("speculative", [1.3, 1.2, 1.4])))


def test_one_prompt_has_no_interval_and_no_sentence_on_speed(visit):
    def use(page):
        page.evaluate("panel.show('dial')")
        page.click("text=Try it")
        page.wait_for_selector("[data-message='dial.early']")
        assert page.locator("[data-message='dial.draft']").count() == 0
        assert " to " not in page.inner_text(".pn-body table tbody")

    rows = [row(m, [1.6, 1.6, 1.6], confidence=0.0) for m in ("oracle gamma=4", "speculative")]
    parts = PARTS | {"done": 1, "rows": [row("autoregressive", [1.0, 1.0, 1.0], 1.0, confidence=0.0), *rows]}
    visit(use, "lab", answers=ANSWERS | {"prompt_set": parts})


def test_the_dial_asks_for_the_oracle_as_it_is_set(visit):
    def use(page):
        page.evaluate("panel.show('dial')")
        page.get_by_label("How is it said?").select_option("rates")
        assert not page.get_by_label("Draft length").is_visible()
        page.get_by_label("Rates by place").fill("0.9, 0.5")
        page.locator(".pn-body textarea").fill("one\n\ntwo\n")
        page.click("text=Try it")
        page.wait_for_selector(".pn-body table")
        name, asked = page.evaluate("asked.at(-1)")
        assert (
            name == "prompt_set"
            and asked["prompts"] == ["one", "two"]
            and asked["methods"][1] == "speculative"
        )
        oracle = asked["methods"][0]
        assert oracle["method"] == "oracle"
        assert oracle["knobs"] == {"by": "rates", "rates": "0.9, 0.5"}

    visit(use, "lab", answers=answered(row("oracle by=rates", [1.6, 1.5, 1.7])))


def test_how_much_to_verify_shows_what_it_costs(visit):
    def use(page):
        page.evaluate("panel.show('verify')")
        page.click("text=Race them")
        page.wait_for_selector(".pn-body table")
        asked = page.evaluate("asked.at(-1)[1].methods.map((one) => one.method)")
        assert asked == ["speculative", "speculative", "adaptive_verification", "cost_ratio", "smartspec"]
        line = page.locator(".pn-body table tbody tr").nth(1).inner_text()
        assert "1.60" in line and "2.40" in line and "5.0 (4.0 to 6.0)" in line

    visit(use, "lab", answers=answered(row("x", [1.6, 1.5, 1.7]), row("smartspec", None)))
