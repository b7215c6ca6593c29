"""Panels that ask the engine about a set: one's own prompts, draft length and temperature, many users; and
which method for a server."""

from __future__ import annotations

import gzip
import json
import tarfile
from base64 import b64encode

import pytest

from specviz.lab.recommend import recommend

from ..viewer import sample
from .conftest import ANSWERS, EVIL

RUNS = [
    {
        "prompt": i,
        "seed": 7,
        "method": m,
        "tokens": 40,
        "seconds": 1.0,
        "tokens_per_second": 40.0 * k,
        "block_efficiency": 1 + k,
        "walltime_speedup": k,
    }
    for i in (0, 1)
    for m, k in (("autoregressive", 1.0), ("speculative", 1.5))
]
ROWS = [
    {
        "method": m,
        "title": f"{m} with knobs",
        "prompts": 2,
        "confidence": 0.5,
        "tokens_per_second": [40.0 * k, 39.0, 41.0 * k],
        "walltime_speedup": [k, k, k],
        "block_efficiency": [1 + k, 1.0, 3.0],
    }
    for m, k in (("autoregressive", 1.0), ("speculative", 1.5))
]
CELLS = [
    {
        "draft_length": n,
        "temperature": t,
        "tokens_per_second": 50.0,
        "walltime_speedup": s,
        "predicted_speedup": s + 0.1,
        "block_efficiency": 2.0,
        "acceptance_rate": 0.5,
    }
    for (n, t), s in zip(((1, 0), (4, 0), (1, 1), (4, 1)), (1.2, 1.5, 1.1, 0.8))
]
SETS = {
    "prompt_set": {"rows": ROWS, "runs": RUNS, "done": 2, "of": 2, "machine": "a machine"},
    "grid": {
        "method": "speculative",
        "knob": "gamma",
        "lengths": [1, 4],
        "temperatures": [0, 1],
        "cells": CELLS,
        "done": 16,
        "of": 16,
        "csv": "a,b\n",
    },
}


def ask_for(visit, use, kind="lab"):
    visit(use, kind, answers=ANSWERS | {"prompt_set": SETS["prompt_set"], "heat_map": SETS["grid"]})


def test_own_prompts_are_raced_as_one_with_median_and_interval(visit):
    def use(page):
        page.evaluate(
            "() => { ctx.chosen = () => ['autoregressive', 'prompt_lookup', 'draft_tree']; panel.show('prompts'); }"
        )
        page.locator(".pn-body textarea").fill("one\n\ntwo\n")
        page.click("text=Race them")
        page.wait_for_selector(".pn-body table >> nth=1")
        name, asked = page.evaluate("asked.at(-1)")
        assert (
            name == "prompt_set"
            and asked["prompts"] == ["one", "two"]
            and asked["methods"] == ["prompt_lookup", "draft_tree"]
        )
        first = page.locator(".pn-body table >> nth=0").locator("tbody tr").first.inner_text()
        assert first.startswith("speculative") and "60.0 (39.0 to 61.5)" in first and "1.50" in first
        assert page.locator(".pn-body table >> nth=1").locator("tbody tr").count() == 4
        assert (
            page.get_attribute(".pn-body [data-best]", "data-message") == "prompts.level"
        )  # 39 to 61.5 beside 39 to 41
        page.set_input_files(
            "input[type=file]",
            {
                "name": "p.jsonl",
                "mimeType": "text/plain",
                "buffer": b'{"prompt": "a\\nb"}\n{"x": 1}\n{"prompt": "c"}\n',
            },
        )
        page.wait_for_function("document.querySelector('.pn-body textarea').value === 'a b\\nc'")
        page.click("text=Race them")
        page.wait_for_function("asked.filter(([name]) => name === 'prompt_set').length === 2")
        assert page.evaluate("asked.at(-1)[1].prompts") == ["a\nb", "c"]

    ask_for(visit, use)


def test_the_traces_of_a_set_open_on_the_board_and_are_saved_as_one_archive(visit, tmp_path):
    lines = "".join(json.dumps(r) + "\n" for r in sample.race())
    file = b64encode(gzip.compress(lines.encode())).decode()
    traces = [{"prompt": n, "seed": 0, "file": file} for n in (0, 1)]

    def use(page):
        page.evaluate("panel.show('prompts')")
        page.locator(".pn-body textarea").fill("one\ntwo")
        page.click("text=Race them")
        with page.expect_download() as got:
            page.click("text=All as traces.tar")
        got.value.save_as(tmp_path / "traces.tar")
        page.evaluate("api.load([])")
        page.click(".pn-repeat .pn-btn:text-is('2')")
        page.wait_for_function("api.trace().length > 9 && tabs.length")
        return page.evaluate("asked.find(([name]) => name === 'prompt_set')[1].traces")

    answers = ANSWERS | {"prompt_set": SETS["prompt_set"] | {"traces": traces}}
    assert visit(use, "lab", answers=answers) is True
    with tarfile.open(tmp_path / "traces.tar") as archive:
        assert archive.getnames() == ["prompt-1.jsonl.gz", "prompt-2.jsonl.gz"]
        for name in archive.getnames():
            assert gzip.decompress(archive.extractfile(name).read()).decode() == lines


def test_times_of_own_prompts_that_cannot_be_are_not_named_and_a_fastest_is_named_beyond_the_spread_only(
    visit,
):
    clear = [ROWS[0], ROWS[1] | {"tokens_per_second": [60.0, 58.0, 62.0]}]
    slow = RUNS[1] | {"walltime_speedup": 3.0, "tokens_per_second": 120.0}  # at 2.5 tokens a pass

    def use(page):
        page.evaluate("panel.show('prompts')")
        page.locator(".pn-body textarea").fill("one\ntwo")
        for rows, runs, message, best, struck, first in (
            (clear, RUNS, "prompts.best", "speculative", 0, "speculative"),
            (
                [ROWS[0] | {"block_efficiency": [9, 9, 9]}, ROWS[1]],
                [slow, *RUNS],
                "prompts.doubt",
                "",
                2,
                "autoregressive",
            ),
        ):
            page.evaluate(
                "(part) => { ctx.ask = (name) => Promise.resolve(name === 'prompt_set' ? part : []); }",
                SETS["prompt_set"] | {"rows": rows, "runs": runs},
            )
            page.click("text=Race them")
            page.wait_for_selector(f".pn-body [data-message='{message}'][data-best='{best}']")
            assert page.locator(".pn-body .unnamed").count() == struck
            assert (
                page.locator(".pn-body table >> nth=0")
                .locator("tbody tr")
                .first.inner_text()
                .startswith(first)
            )

    ask_for(visit, use)


def test_what_the_time_for_a_set_left_out_is_asked_for_with_one_press(visit):
    half = [run for run in RUNS if run["prompt"] == 0]
    rest = [run for run in RUNS if run["prompt"] == 1]

    def use(page):
        page.evaluate(
            """(parts) => { ctx.ask = (name, payload, told) => { asked.push([name, payload]); if (name !== "prompt_set") return Promise.resolve([]);
            const part = parts[payload.from ? 1 : 0]; told({ state: "working", part }); return Promise.resolve(part); }; }""",
            [
                SETS["prompt_set"] | {"runs": half, "done": 1},
                SETS["prompt_set"] | {"runs": rest, "done": 2},
            ],
        )
        page.evaluate("panel.show('prompts')")
        page.locator(".pn-body textarea").fill("one\ntwo")
        page.click("text=Race them")
        page.wait_for_selector(".pn-body [data-message='prompts.left']")
        assert page.locator(".pn-body table >> nth=1").locator("tbody tr").count() == 2
        page.click("text=Go on")
        page.wait_for_selector(".pn-body [data-message='prompts.left']", state="detached")
        assert page.evaluate("asked.at(-1)[1].from") == 1
        assert page.locator(".pn-body table >> nth=1").locator("tbody tr").count() == 4

    ask_for(visit, use)


def test_five_methods_with_knobs_temperature_and_seeds_go_with_a_set(visit):
    def use(page):
        page.evaluate("() => { ctx.chosen = () => ['speculative', 'prompt_lookup']; panel.show('prompts'); }")
        page.locator(".pn-body textarea").fill("one")
        page.click(".pn-more summary")
        page.locator(".pn-more input[type=text], .pn-more input:not([type])").first.fill("gamma=2")
        for label, value in (("Temperature", "0.7"), ("Draws of each prompt", "3")):
            page.get_by_label(label).fill(value)
        page.click("text=Race them")
        page.wait_for_function("asked.at(-1)[0] === 'prompt_set'")
        asked = page.evaluate("asked.at(-1)[1]")
        assert asked["methods"] == [{"method": "speculative", "knobs": {"gamma": 2}}, "prompt_lookup"]
        assert (asked["temperature"], asked["seeds"], asked["seed"]) == (0.7, 3, 0)
        page.wait_for_selector(".pn-command")
        named = page.locator(".pn-body table").last.locator("tbody tr").last.inner_text()
        assert "seed 7" in named and "speculative with knobs" in named  # a run as its row above is named
        assert "--temperature 0.7" in page.inner_text(".pn-command")
        assert "--repeats 3 " in page.inner_text(".pn-command") and "--traces traces" in page.inner_text(
            ".pn-command"
        )
        assert "--knob speculative.gamma=2" in page.inner_text(".pn-command")

    ask_for(visit, use)


def test_a_stop_keeps_what_was_measured_and_says_so(visit):
    def use(page):
        page.evaluate(
            """(part) => { ctx.ask = (name, payload, told, signal) => name !== "prompt_set" ? Promise.resolve([]) :
            new Promise((_, fail) => { told({ state: "working", part }); signal.addEventListener("abort", () => fail(new Error("x"))); }); }""",
            SETS["prompt_set"],
        )
        page.evaluate("panel.show('prompts')")
        page.locator(".pn-body textarea").fill("one")
        page.click("text=Race them")
        page.wait_for_selector(".pn-body table >> nth=1")
        page.evaluate("panel.show('cost'); panel.show('prompts')")  # it goes on while one looks elsewhere
        page.click(".pn-body .pn-btn:has-text('Stop')")
        page.wait_for_selector(".pn-status:has-text('Stopped')")
        assert page.locator(".pn-body table").count() == 2 and page.is_enabled("text=Race them")

    ask_for(visit, use)


def test_length_and_temperature_stand_measured_beside_predicted(visit):
    def use(page):
        page.evaluate("panel.show('grid')")
        page.click(".pn-body .pn-btn.primary")
        page.wait_for_selector(".pn-cell")
        assert (
            page.evaluate("asked.at(-1)")[1]["lengths"] == [1, 2, 4, 8]
            and page.locator(".pn-cell").count() == 4
        )
        assert page.locator(".pn-cell.slow").count() == 1
        shown = page.text_content(".pn-plot svg")
        assert "1.50" in shown and "1.60" in shown and "0.80" in shown
        with page.expect_download() as told:
            page.click("text=Save as CSV")
        assert told.value.path().read_text() == "a,b\n"

    ask_for(visit, use)


def test_the_three_sides_of_a_mask_stand_with_their_own_figures(visit):
    sides = (
        ("both", 40, 63, 67, 31, 4, 0.0),
        ("target", 5, 55, 55, 50, 4, 0.0),
        ("draft", 75, 251, 256, 181, 0, 0.9993),
    )
    rows = [
        dict(zip(("side", "accepted", "tried", "tokens", "passes", "valid", "distance"), one), runs=4)
        for one in sides
    ]

    def use(page):
        page.evaluate("panel.show('mask')")
        page.click("text=Run the three ways")
        page.wait_for_selector(".pn-body table")
        shown = [row.split("\t") for row in page.inner_text(".pn-body tbody").splitlines() if row.strip()]
        assert [row[1:] for row in shown] == [
            ["63 %", "2.16", "4 of 4", "0.000"],
            ["9 %", "1.10", "4 of 4", "0.000"],
            ["30 %", "1.41", "0 of 4", "0.999"],
        ]
        assert page.locator(".pn-body .pn-csv").count() == 1

    visit(use, "lab", answers=ANSWERS | {"mask_sides": {"runs": 4, "rows": rows}})


def test_a_first_part_ends_what_was_said_of_loading(visit):
    def use(page):
        page.evaluate(
            """(part) => { ctx.ask = (name, payload, told) => name !== "mask_sides" ? Promise.resolve([]) : new Promise(() => {
            told({ state: "working", text: "Loading the models." }); told({ state: "working", part }); }); }""",
            {"runs": 4, "rows": []},
        )
        page.evaluate("panel.show('mask')")
        page.click("text=Run the three ways")
        page.wait_for_selector(".pn-body table")
        assert page.inner_text(".pn-body .pn-status") == "Running\u2026"

    ask_for(visit, use)


def test_under_load_the_chosen_lanes_come_first_and_totals_are_ranked(visit):
    def use(page):
        page.evaluate("() => { ctx.chosen = () => ['prompt_lookup', 'draft_tree']; panel.show('load'); }")
        assert page.evaluate(
            "[...document.querySelectorAll('.pn-ticks label')].slice(0, 2).map((l) => l.dataset.key)"
        ) == ["prompt_lookup", "draft_tree"]
        page.click(".pn-body .pn-btn.primary")
        page.wait_for_selector(".pn-body table")
        assert page.evaluate("asked.at(-1)[1].methods") == ["autoregressive", "prompt_lookup", "draft_tree"]
        assert page.evaluate(
            "[...document.querySelectorAll('.pn-body table tbody tr')].map((r) => r.children[1].textContent)"
        ) == ["1", "2", "1", "2"]
        # at 4 users speculative decoding has 0.66 times plain decoding's goodput, in passes of 4 prompts
        assert page.get_attribute(".pn-body h3[data-message='load.best']", "data-best") == "autoregressive"
        place = page.evaluate(
            "[...document.querySelectorAll('.pn-body table th')].findIndex((x) => x.textContent.includes('prompts at once'))"
        )
        assert page.evaluate(
            "(i) => [...document.querySelectorAll('.pn-body table tbody tr')].map((r) => r.children[i].textContent)",
            place,
        ) == ["1.0", "1.0", "4.0", "4.0"]

    ask_for(visit, use)


def test_fewer_than_three_methods_for_a_server_have_a_reason(visit):
    few = recommend(engine="sglang", model="none")
    assert len(few["answers"]) == 2 and len(few["few"]) > 20

    def use(page, shown):
        page.evaluate("panel.show('server')")
        page.wait_for_selector(".pn-choiceof")
        assert page.locator("[data-message='server.few']").count() == shown
        if shown:
            assert (
                few["few"] in page.inner_text("[data-message='server.few']")
                and page.locator(".pn-choiceof").count() == 2
            )

    visit(lambda page: use(page, 0), "learn")
    visit(lambda page: use(page, 1), "learn", answers={"recommend": few})


def test_which_one_for_my_server_asks_and_shows_flags_with_sources(visit):
    def use(page):
        page.evaluate("panel.show('server')")
        page.wait_for_selector(".pn-choiceof")
        for one, shown in zip(recommend()["answers"], page.query_selector_all(".pn-choiceof")):
            assert (
                shown.get_attribute("data-method") == one["method"]
                and one["flags"] == shown.query_selector("pre").inner_text()
            )
        assert page.query_selector(".pn-choiceof a[href='https://arxiv.org/abs/2503.01840']")
        page.get_by_label("Which engine?").select_option("llama_cpp")
        page.wait_for_function("asked.filter(([name]) => name === 'recommend').length === 2")
        assert page.evaluate("asked.at(-1)[1]") == {
            "engine": "llama_cpp",
            "name": "",
            "experts": "dense",
            "model": "head",
            "task": "chat",
            "card": "h100",
            "users": 1,
            "temperature": "greedy",
            "structured": "free",
            "tools": "none",
            "rates": "",
        }
        page.get_by_label("Which model?").fill("qwen/qwen3-8b")
        page.wait_for_function("asked.filter(([name]) => name === 'recommend').length === 3")
        assert (
            page.evaluate("asked.at(-1)[1].model") == "head"
            and page.get_by_label("Mixture of experts?").is_disabled()
        )
        page.get_by_label("Which model?").fill("deepseek-ai/deepseek-v3")
        page.wait_for_function("asked.at(-1)[1].experts === 'moe'")
        page.get_by_label("Which model?").fill("mine/dense")  # the answers of a known model end with its name
        page.wait_for_function("asked.at(-1)[1].experts === 'dense' && asked.at(-1)[1].model === 'head'")
        assert page.locator("input[placeholder], textarea[placeholder]").count() == 0
        page.click("text=See its card >> nth=0")
        assert (
            page.get_attribute(".svp", "data-view") == "methods"
            and page.get_attribute(".pn-mrow[aria-pressed=true], .pn-mrow[aria-current=true]", "data-key")
            == "eagle3"
        )

    ask_for(visit, use, "learn")


KILLERS = {
    "draft_length": 4,
    "mistakes": [{"key": "shift_by_one", "part": "token_of", "sentence": EVIL}],
    "runs": [
        {"mistakes": [], "tokens_per_pass": 2.5, "accepted": [2, 1], "equal": True, "text": EVIL},
        {
            "mistakes": ["shift_by_one"],
            "tokens_per_pass": 1.0,
            "accepted": [0] * 5,
            "equal": True,
            "text": EVIL,
        },
    ],
}


def test_an_acceptance_killer_is_put_in_and_compared(visit) -> None:
    def use(page):
        page.evaluate("panel.show('killers')")
        page.locator(".pn-body select").nth(1).select_option("shift_by_one")
        page.click(".pn-btn:text-is('Run it')")
        page.wait_for_selector(".pn-body table")
        rows = page.locator(".pn-body tbody tr")
        cells = [rows.nth(i).locator("td, th").all_text_contents() for i in range(rows.count())]
        assert [one[1:] for one in cells] == [["2", "3 tokens", "2.50"], ["5", "0 tokens", "1.00"]]
        assert page.locator(".pn-body .ln").count() == 2

    visit(use, "lab", answers=ANSWERS | {"acceptance_killers": KILLERS})


def test_rows_in_a_batch_stand_with_their_flips(visit) -> None:
    flip = {"tokens": [EVIL, " the"], "alone": [0.4, 0.39], "batched": [0.39, 0.4]}
    same = {"changed": 0, "flips": 0, "largest": 0.0, "example": None}
    rows = [
        {
            "numbers": "bfloat16",
            "positions": 192,
            "batch": same,
            "draft": {**same, "changed": 107, "flips": 1, "example": flip},
        },
        {"numbers": "int8", "positions": 192, "batch": same, "draft": same},
    ]

    def use(page):
        page.evaluate("panel.show('batched')")
        page.click(".pn-btn:text-is('Compare')")
        page.wait_for_selector(".pn-body table")
        rows = page.locator(".pn-body tbody tr")
        cells = [rows.nth(i).locator("td, th").all_text_contents() for i in range(rows.count())]
        assert [one[2:4] for one in cells] == [
            ["0 of 192", "0 of 192"],
            ["107 of 192", "1 of 192"],
            ["0 of 192", "0 of 192"],
            ["0 of 192", "0 of 192"],
        ]
        assert page.locator(".pn-body q").count() == 2

    visit(use, "lab", answers=ANSWERS | {"batch_effects": {"rows": rows, "machine": EVIL}})


def test_a_late_grammar_stands_in_three_rows(visit) -> None:
    row = {
        "runs": 4,
        "thought": 40,
        "inside": 2,
        "valid": 4,
        "answered": 4,
        "tokens": 60,
        "passes": 30,
        "sample": EVIL,
    }
    rows = [
        {**row, "side": "row"},
        {**row, "side": "round", "valid": 3},
        {**row, "side": "start", "thought": 0},
    ]

    def use(page):
        page.evaluate("panel.show('mask')")
        page.click(".pn-btn:text-is('Run the three beginnings')")
        page.wait_for_selector(".pn-body table")
        rows = page.locator(".pn-body tbody tr")
        cells = [rows.nth(i).locator("td, th").all_text_contents()[1:] for i in range(rows.count())]
        assert cells == [
            ["2 of 4", "4 of 4", "10.0", "2.00"],
            ["2 of 4", "3 of 4", "10.0", "2.00"],
            ["\u2013", "4 of 4", "0.0", "2.00"],
        ]

    visit(use, "lab", answers=ANSWERS | {"late_grammar": {"runs": 4, "rows": rows}})


def test_a_pass_over_named_cards_follows_the_roofline(visit) -> None:
    def use(page):
        dense, routed = page.evaluate(
            """() => { const { pass, MODELS } = SpecVizPanels.roofline, by = (key) => MODELS.find((m) => m[0] === key)[2];
            return [by("qwen3"), by("deepseek")].map((m) => [1, 5, 1000].map((rows) => pass(m, 3350, 989, rows))); }"""
        )
        assert dense[0] == dense[1] == pytest.approx(2 * 7.57e9 / 3350e9)
        assert dense[2] == pytest.approx(2 * 7.57e9 * 1000 / 989e12)
        touched = 1 - (1 - 8 / 256) ** 5
        assert routed[1] == pytest.approx(2 * (16.2e9 + 653.9e9 * touched) / 3350e9)

    visit(use, "lab")
