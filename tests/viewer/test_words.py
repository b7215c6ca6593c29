"""A newcomer's questions answered where they look; and the same board for who wants no motion."""

from __future__ import annotations

import ast
import csv
import gzip
import json
import re

import pytest

from specviz import ROOT
from specviz.engine import limits
from specviz.engine.cards import cards
from specviz.engine.limits import lane_titles
from specviz.trace.page import VIEWER
from specviz.ui.start_content import RECORDED
from specviz.ui.theme import PANELS, STATIC

from ..message_codes import viewer_texts
from . import sample
from .test_board import LOAD, at_end

TEXTS = viewer_texts()


@pytest.mark.parametrize("size", [(1440, 900), (1024, 900), (390, 844), (320, 640)], ids=lambda s: str(s[0]))
def test_the_accepted_length_is_named_and_explained(drive, settled, size) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "chain"))))
        page.evaluate("board.setLayout('watch')")
        at_end(page, settled)
        m = page.evaluate(
            "(() => { const b = board.board, l = b.focus(); return SpecViz.metrics.of(l, l.committed, null); })()"
        )
        said = page.locator(".lane:not(.base) .fin").inner_text()
        assert f"accepted length {m['block_efficiency']:.2f} tokens per target pass" in " ".join(said.split())
        assert not page.is_visible(".term .tip")
        page.click(".lane:not(.base) .term")
        page.wait_for_function(
            "getComputedStyle(document.querySelector('.term .tip')).visibility === 'visible'"
        )
        tip = page.locator(".lane:not(.base) .term .tip")
        assert "block efficiency" in tip.inner_text()
        box = tip.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= size[0]
        head, fin = (
            page.locator(".lane:not(.base) .id").bounding_box(),
            page.locator(".lane:not(.base) .fin").bounding_box(),
        )
        assert (
            head is None
            or head["x"] + head["width"] <= fin["x"]
            or head["y"] + head["height"] <= fin["y"] + 1
        )  # beside or above, never over

    drive(use, size=size)


# Plays by a clock of the test's own, and notes every picture that would be shown.
STILLS = """() => { const b = board.board, seen = []; b.edge(0); b.play(); b.stamp = 0;
  for (let t = 0; t <= 60000 && b.cur.mode === 'play'; t += 16) { b.advance(t); const at = [b.race() ? b.cur.t : b.cur.round, b.cur.phase].join(); if (seen.at(-1) !== at) seen.push(at); }
  return seen; }"""
# Passes in the ledger against those of the round or time that the transport shows.
LEDGER = """() => { const b = board.board; b.paint(); return [[...document.querySelectorAll('.ledger tbody tr')].map((r) => +r.cells[1].textContent),
  b.list().map((l) => SpecViz.metrics.of(l, SpecViz.fold.at(l, b.cursorOf(l)).k, null).passes)]; }"""


def test_with_reduced_motion_playing_is_a_series_of_stills(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "chain", "tree"))))
        settled(page)
        assert page.get_attribute(".sv", "data-mode") == "hold"  # nothing moves by itself
        page.evaluate("board.setLayout('watch')")
        rounds = page.evaluate("board.board.focus().committed")
        stills = page.evaluate(STILLS)
        assert [s.split(",")[1] for s in stills[1:]] == ["4"] * (len(stills) - 1) and len(
            stills
        ) <= rounds + 1
        assert stills[-1].split(",")[0] == str(rounds - 1)
        page.evaluate("board.setLayout('race'); board.board.shut.race.set(true)")
        assert 15 < len(page.evaluate(STILLS)) < 25
        for t in (0.3, 0.55, 1.0):
            page.evaluate("(x) => board.board.seekTime(x * board.board.end())", t)
            shown, true = page.evaluate(LEDGER)
            assert shown == true and sum(true) > 3
        assert page.evaluate("document.getAnimations().length") == 0

    drive(use, reduced_motion="reduce")


def test_the_wish_may_change_while_the_page_is_open(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "chain"))))
        page.evaluate("board.setLayout('race')")
        assert len(page.evaluate(STILLS)) > 200
        page.emulate_media(reduced_motion="reduce")
        assert len(page.evaluate(STILLS)) < 25

    drive(use)


LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`')
JARGON = re.compile(
    r"\blaws?\b|\bdear(er)?\b|\bodds\b|in vain|parts from|as good as level|rows a pass", re.IGNORECASE
)


SAID = ("ui", "lab", "run", "evidence", "servers", "zoo")  # layers whose sentences reach the page


def sentences(file) -> list[str]:
    """Every text with a space in a Python file, but for what is written about the code itself."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    about = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and isinstance(n.body[0], ast.Expr)
    }
    return [
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and " " in n.value and id(n) not in about
    ]


def test_what_people_read_is_plain_english() -> None:
    """A distribution is called one, what differs differs, and what is expensive is not dear."""
    found = []
    for file in [f for folder in (VIEWER, PANELS, STATIC) for f in folder.rglob("*.js")]:
        code = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        found += [
            f"{file.name}: {text}" for text in LITERAL.findall(code) if " " in text and JARGON.search(text)
        ]
    for file in [f for layer in SAID for f in (ROOT / "specviz" / layer).rglob("*.py")]:
        found += [f"{file.name}: {text}" for text in sentences(file) if JARGON.search(text)]
    for card in cards().values():
        said = [
            card.summary,
            card.wins,
            card.loses,
            card.look,
            card.differs,
            *(knob.help for knob in card.knobs),
        ]
        found += [f"{card.key}: {text}" for text in said if JARGON.search(text)]
    assert found == []


# What is no round: a guess is kept, not passed; the steps of a head or of a draft model are no passes of
# the large model.
MIXED = re.compile(
    r"pass(es)? of the (head|draft)|\bpassed\b|\bto pass\b|token passes|accepted per round", re.IGNORECASE
)
NUMBERED = re.compile(r"\bpass (\d|\"\s*\+[^;\n]{0,30}\b(round|r\.i)\b)", re.IGNORECASE)


def test_a_pass_is_one_run_of_the_large_model_and_a_round_one_turn_of_the_loop() -> None:
    found = []
    for file in [f for folder in (VIEWER, PANELS, STATIC) for f in folder.rglob("*.js")]:
        code = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        found += [
            f"{file.name}: {text}" for text in LITERAL.findall(code) if " " in text and MIXED.search(text)
        ]
        found += [f"{file.name}: {m[0]}" for m in NUMBERED.finditer(code)]
    assert found == []


def test_where_a_round_takes_several_passes_both_words_stand(drive, settled) -> None:
    told, seq = [], {}
    for r in sample.race(("plain", "chain")):
        for one in [r, r] if r["type"] == "verify" and r["lane"] == 1 and r["round"] == 2 else [r]:
            told.append(one | {"seq": seq.setdefault(r["lane"], 0)})
            seq[r["lane"]] += 1

    def use(page):
        page.evaluate(LOAD, json.dumps(told))
        page.evaluate("board.setLayout('watch'); board.goto({ lane: 1, round: 2, phase: 4 })")
        settled(page)
        assert page.inner_text(".p-insp h2").startswith("Round 3 of ") and TEXTS["round.passes"].format(
            passes=2
        ) in page.inner_text(".p-insp .phead")
        assert TEXTS["passes.block.several"] in page.text_content(".paxis")
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "chain"))))
        settled(page)
        assert TEXTS["passes.block"] in page.text_content(".paxis")

    drive(use)


def test_values_of_knobs_are_words_that_a_reader_knows(drive) -> None:
    choices = [choice for card in cards().values() for knob in card.knobs for choice in knob.choices]
    assert [
        choice for choice in choices if JARGON.search(limits.VALUE_NAMES.get(choice, choice))
    ] == [] and set(limits.VALUE_NAMES) <= set(choices)
    assert lane_titles(
        [("typical_acceptance", {"last": "distribution"}), ("typical_acceptance", {"last": "argmax"})],
        cards(),
    )[0].endswith("last whole distribution")

    def use(page):
        assert page.evaluate("SpecViz.stage.PLAIN") == limits.VALUE_NAMES
        assert (
            page.evaluate("SpecViz.stage.knobsOf({ knobs: { last: 'distribution', gamma: 4, nodes: 0 } })")
            == "last whole distribution, gamma 4, nodes as trained"
        )

    drive(use)


def test_where_a_draw_decides_nothing_sampling_is_offered_and_run_the_same_lane(drive, settled) -> None:
    hot = sample.race(("plain", "chain"))
    cold = [
        r | {"sampling": r["sampling"] | {"temperature": 0.0}} if r["type"] == "header" else r for r in hot
    ]

    def use(page):
        page.evaluate(LOAD, json.dumps(cold))
        page.evaluate(
            "() => { globalThis.asked = []; globalThis.SpecVizPage = { run: (x) => asked.push(x) }; board.goto({ lane: 1, round: 2, tab: 'why' }); }"
        )
        settled(page)
        page.click(".cold button:has-text('Run it at temperature 1')")
        header = next(r for r in cold if r["type"] == "header" and r["lane"] == 1)
        assert page.evaluate("asked") == [{"prompt": header["prompt"]["text"], "methods": [header["method"]["key"]],
                                           "knobs": {header["method"]["key"]: header["knobs"]}, "temperature": 1, "tab": "watch"}]  # fmt: skip
        page.evaluate(
            "() => { delete globalThis.SpecVizPage; board.goto({ lane: 1, round: 3, tab: 'why' }); }"
        )
        settled(page)
        assert (
            page.locator(".cold").count() == 1 and page.locator(".cold button").count() == 0
        )  # nothing can run there
        page.evaluate(LOAD, json.dumps(hot))
        page.evaluate("board.goto({ lane: 1, round: 2, tab: 'why' })")
        settled(page)
        assert page.locator(".cold").count() == 0

    drive(use)


# Tokens in sight of the open lane after so many seconds, by a clock of the test's own.
AFTER = """(seconds) => { const b = board.board, l = b.focus(); b.edge(0); b.play(); b.stamp = 0;
  for (let t = 0; t <= 1000 * seconds; t += 16) b.advance(t); return SpecViz.fold.sumAt(l, b.cur.round).tokens; }"""


def test_the_page_opens_on_a_case_that_wins_at_a_speed_that_can_be_followed(drive, settled) -> None:
    def use(page):
        page.evaluate(
            LOAD, json.dumps([json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()])
        )
        page.evaluate("board.setLayout('watch')")
        at_end(page, settled)
        said = page.inner_text(".headline")
        times = re.search(r"(\d+\.\d+) times as fast", said)
        assert times and float(times[1]) > 1.1 and "same" in said, said
        assert (
            10 <= page.evaluate(AFTER, 20) <= 120
        )  # half a token to six a second; the engine writes hundreds

    drive(use)


def test_the_legend_shows_the_blocks_of_the_passes_in_their_own_colours(drive, settled) -> None:
    def use(page):
        at_end(page, settled)
        blocks = page.evaluate("""() => [...document.querySelectorAll('.legend [data-filter] .block')].map((b) => [b.className.split(' ')[1],
            getComputedStyle(b).backgroundColor, getComputedStyle(b).borderTopColor, b.closest('button').title.length > 20])""")
        assert [name for name, *_ in blocks] == ["acc", "cor", "bon"] and all(told for *_, told in blocks)
        assert len({tuple(look) for _, *look, _ in blocks}) == 3

    drive(use)


def test_the_last_token_of_a_run_that_ended_on_a_guess_was_guessed(drive, settled) -> None:
    told = [
        json.loads(line)
        for line in gzip.decompress((RECORDED.parent / "edit.jsonl.gz").read_bytes()).splitlines()
    ]
    last = max((r for r in told if r["type"] == "commit" and r["lane"] == 0), key=lambda r: r["round"])
    assert (
        last["path"] and next(r for r in told if r["type"] == "done" and r["lane"] == 0)["finish"] == "stop"
    )

    def use(page):
        page.evaluate(LOAD, json.dumps(told))
        page.evaluate("board.setLayout('watch')")
        at_end(page, settled)
        page.evaluate(
            "r => board.goto({ lane: 0, round: r, phase: 4, node: 'tail', tab: 'token' })", last["round"]
        )
        settled(page)
        assert "Accepted" in page.inner_text(".short") and TEXTS["why.tail.plain"] not in page.inner_text(
            ".short"
        )

    drive(use)


def test_the_log_says_how_many_threads_computed_and_why(drive, settled) -> None:
    told = [
        r | {"env": r["env"] | {"threads": 2, "pass_seconds": 0.014}} if r["type"] == "header" else r
        for r in sample.race(("plain", "chain"))
    ]

    def use(page):
        page.evaluate(LOAD, json.dumps(told))
        page.evaluate("board.goto({ lane: 1, round: 2, tab: 'log' })")
        settled(page)
        said = page.inner_text(".log")
        assert (
            TEXTS["log.threads"].format(threads="2 threads", time="14 ms") + TEXTS["log.threads.why"] in said
        )
        assert page.evaluate("""() => { const lane = board.board.st.lanes.get(1);
            return SpecViz.log.threads({ ...lane, checks: [{ kind: 'threads', detail: { threads: 1, before: 2 } }] }); }""").endswith(
            TEXTS["log.threads.again"].format(threads="1 thread", before=2))  # fmt: skip
        assert page.evaluate("SpecViz.log.threads({ header: { env: {} }, checks: [] })") == ""

    drive(use)


def test_small_probabilities_are_words_and_the_steps_are_explained(drive, settled) -> None:
    def use(page):
        assert page.evaluate("[0, 1e-9, 0.00099, 0.001, 0.25, 1, null].map(SpecViz.dom.f3)") == [
            "0.000", "under 0.001", "under 0.001", "0.001", "0.250", "1.000", "\u2013"]  # fmt: skip
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "chain"))))
        at_end(page, settled)
        key = page.inner_text(".p-time .keyrow")
        assert all(TEXTS[f"ribbon.{part}"] in key for part in ("prefill", "draft", "verify"))
        assert page.evaluate(
            "[...document.querySelectorAll('.steps button')].every((b) => b.title.length > 20)"
        )
        cold = [
            r | {"sampling": r["sampling"] | {"temperature": 0.0}} if r["type"] == "header" else r
            for r in sample.race(("plain", "chain"))
        ]
        page.evaluate(LOAD, json.dumps(cold))
        page.evaluate("board.goto({ lane: 1, round: 2, tab: 'why' })")
        settled(page)
        assert page.is_visible(".cold")

    drive(use)


def test_the_race_table_can_be_taken_away_as_csv(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "chain", "tree"))))
        page.evaluate("board.setLayout('race')")
        at_end(page, settled)
        lines = page.evaluate("board.board.figures.csv()").split("\r\n")
        shown = page.evaluate(
            "[...document.querySelectorAll('.rtable tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
        )
        rows = list(csv.DictReader(lines))
        assert [row["method"] for row in rows] == [row[0] for row in shown] and page.is_visible(".csv")
        assert [f"{float(row['tokens_per_second']):.1f}" for row in rows] == [row[1] for row in shown]
        assert {row["counted"] for row in rows} <= {"yes", "no"}
        for row in rows:
            low, speed, high = (row[f"speedup{part}"] for part in ("_low", "", "_high"))
            assert float(low) <= float(speed) <= float(high) if row["counted"] == "yes" else not speed

    drive(use)


CSV_ROWS = """(where) => [...document.querySelectorAll(where)].map((t) => [
    SpecViz.csv.read(t).map((r) => r.length), t.nextElementSibling?.querySelector("button.csv") ? true : false, SpecViz.csv.lines(SpecViz.csv.read(t)).split("\\r\\n").length])"""


def test_the_tables_of_passes_and_of_the_log_can_be_taken_away_as_csv(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "chain", "tree"))))
        page.evaluate("board.setLayout('race')")
        at_end(page, settled)
        page.click(".p-race.shut .phead")
        page.wait_for_selector(".ledger tbody tr")
        settled(page)
        ((widths, key, count),) = page.evaluate(CSV_ROWS, ".ledger table")
        assert key and count == 4 and widths == [7] * 4, (
            "a head and three lanes, without the hidden column of several prompts"
        )
        page.evaluate("board.setLayout('watch'); board.goto({ lane: 1, round: 2, phase: 4, tab: 'log' })")
        settled(page)
        tables = page.evaluate(CSV_ROWS, ".card.log table")
        assert [set(widths) for widths, _, _ in tables] == [{7}, {6}] and all(key for _, key, _ in tables)

    drive(use)


def test_beside_an_upper_bound_each_lane_has_its_share_of_what_is_possible(drive, settled) -> None:
    race = sample.race(("plain", "chain", "tree"))
    bound = max(record["lane"] for record in race)
    race = [
        {**r, "knobs": {"gamma": 4}, "method": {**r["method"], "bound": r["lane"] == bound}}
        if r["type"] == "header"
        else r
        for r in race
    ]

    def use(page):
        page.evaluate(LOAD, json.dumps(race))
        page.evaluate("board.setLayout('race')")
        at_end(page, settled)
        heads = page.locator(".rtable th .def").all_inner_texts()
        column = heads.index(page.evaluate("SpecViz.metrics.DEFINITIONS.of_possible[0]")) + 2
        shares = page.locator(f".rtable tbody td:nth-child({column})").all_inner_texts()
        assert all(re.match(r"\d", share) for share in shares)
        title = next(r["method"]["title"] for r in race if r["type"] == "header" and r["lane"] == bound)
        row = page.locator(f".rtable tbody tr:has(td:first-child:text-is('{title}'))")
        assert (
            row.locator(f"td:nth-child({column})").inner_text().startswith("100")
            and row.locator(".best").count() == 0
        )

    drive(use)


def test_the_reason_of_the_chosen_token_is_in_sight_at_1440_by_900(drive, settled) -> None:
    def use(page):
        page.evaluate(LOAD, json.dumps(sample.race(("plain", "chain"))))
        page.evaluate("board.setLayout('watch'); board.goto({ lane: 1, round: 2, phase: 4, node: 0 })")
        settled(page)
        box = page.locator(".p-insp .reason").bounding_box()
        assert box["y"] + box["height"] < 900 - 130  # the dock's height
        ids = page.evaluate(
            "[...document.querySelectorAll('.p-insp .reason [data-message]')].map((e) => e.dataset.message)"
        )
        assert ids == ["numbers.p", "numbers.q", "numbers.accept", "numbers.draw"]
        page.evaluate("board.goto({ lane: 0, round: 0, phase: 4 })")
        settled(page)
        assert page.locator(".fin").first.inner_text().replace("\n", " ").startswith("1 token,")
        page.evaluate(
            "document.querySelector('.p-insp .reason bdi').textContent = 'a-token-of-many-letters '.repeat(5)"
        )
        assert (
            page.evaluate("(e => e.scrollWidth - e.clientWidth)(document.querySelector('.p-insp .reason'))")
            == 0
        )  # nothing is cut off

    drive(use, size=(1376, 900))
