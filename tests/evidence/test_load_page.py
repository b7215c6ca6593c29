"""The table of docs/load.md: its figures by hand, what is judged and why it fell short, and that the page
says what the file holds."""

from __future__ import annotations

import json

import pytest

from specviz import ROOT
from specviz.cli import commands
from specviz.evidence.bench_page import escape_markdown
from specviz.evidence.load_page import BEGIN, END, NONE, TEXTS, generated_text, read, with_generated_text
from specviz.evidence.simulated_server import Answer, LoadResult, goodput_of_parts
from specviz.run.machine import Machine
from specviz.run.request import SessionError

from ..message_codes import refuses

ENV = {
    "machine": "Some (R) | Processor",
    "device": "cpu",
    "dtype": "float32",
    "threads": 2,
    "torch": "2",
    "target": {"name": "T"},
    "draft": {"name": "D"},
    "requests": 8,
    "max_new_tokens": 64,
    "slots": 16,
    "temperature": 0.0,
    "seed": 0,
    "began": "2026-01-02T03:04",
    "busy": 0.1,
    "users": [1, 4],
    "rates": [],
    "methods": ["autoregressive", "speculative"],
    "interrupted": False,
}


def row(load, method, goodput, rows=400, drafting=0.2, apart=(1.0, 1.0), requests=8):
    """One of 200 tokens."""
    return {
        "load": load,
        "method": method,
        "requests": requests,
        "tokens": 200,
        "seconds": 200 / goodput,
        "goodput": goodput,
        "against_plain": goodput / 100,
        "throughput": rows * goodput / 200,
        "first_token": [0.01, 0.02],
        "token_time": [0.004, 0.0055],
        "latency": [0.5, 1.0],
        "parts": [goodput * one for one in apart],
        "batch": 4.0,
        "rounds": 25,
        "rows": rows,
        "reading": 0.1,
        "drafting": drafting,
        "drafted": 3.0,
        "accepted": 0.5,
    }


def report(*rows, **env):
    return {"environment": ENV | env, "rows": list(rows), "said": ["SmartSpec pays <b>always</b>."]}


def lines(reported, criterion):
    """The lines of one judgement, by its identifier."""
    what = TEXTS[criterion].partition("{method}")[2]
    return next(part for part in reported.split("\n\n**")[1:] if escape_markdown(what) in part).splitlines()


def criteria(reported):
    return reported.count(TEXTS["criterion"].partition("{")[0])


def load_line(load, ratio, other, low, high):
    return (
        TEXTS["load"].format(load=load, ratio=ratio, other=other)
        + TEXTS["quarters"].format(low=low, high=high)
        + "."
    )


def test_the_table_by_hand():
    reported = generated_text(
        report(
            row("1 user", "autoregressive", 100.0),
            row("1 user", "speculative", 125.0),
            row("4 users", "speculative", 9.0, requests=3),
        )
    )
    found = [line for line in reported.splitlines() if line.startswith("| ")]
    assert found[1:] == [
        "| 1 user | Plain decoding | 100.0 | 1.00 | 200.0 | 0.50 | 10 to 20 | 4.0 to 5.5 | 0.50 to 1.00 | 4.0 | 3.00 | 50% | 20% | 10% |",
        "| 1 user | Speculative decoding | 125.0 | 1.25 | 250.0 | 0.50 | 10 to 20 | 4.0 to 5.5 | 0.50 to 1.00 | 4.0 | 3.00 | 50% | 20% | 10% |",
    ]
    assert all(part in reported for part in ("Some (R)   Processor, cpu", "T with D; 2026-01-02", "0.1."))
    assert (
        "    python -m specviz load --users 1,4 --methods autoregressive,speculative --requests 8 --max-new-tokens 64 --slots 16 "
        "--temperature 0 --seed 0 --target T --draft D --out load.json"
    ) in reported
    assert "<b>" not in reported and criteria(reported) == 0, (
        "nothing is judged whose methods were not measured"
    )


def test_smartspec_is_judged_against_the_better_of_two_at_every_load():
    base = [
        row("1 user", "autoregressive", 100.0),
        row("1 user", "speculative", 120.0, apart=(1.0, 1.1)),
        row("4 users", "autoregressive", 300.0),
        row("4 users", "speculative", 200.0),
    ]
    well = lines(
        generated_text(report(*base, row("1 user", "smartspec", 115.0), row("4 users", "smartspec", 310.0))),
        "smartspec",
    )
    assert well[0].endswith(TEXTS["met"].format(ratio=0.96, least="1 user")) and "0.95" in well[0]
    assert well[2:4] == [
        load_line("1 user", 0.96, "Speculative decoding", 0.87, 0.96),
        load_line("4 users", 1.03, "Plain decoding", 1.03, 1.03),
    ]
    ill = lines(
        generated_text(
            report(*base, row("1 user", "smartspec", 119.0), row("4 users", "smartspec", 270.0, drafting=0.3))
        ),
        "smartspec",
    )
    assert ill[0].endswith(TEXTS["not_met"].format(loads="4 users", ratio=0.90, least="4 users")) and ill[
        2
    ].endswith(").")
    mine, other = (
        TEXTS["why.run"].format(tokens=2.0, ms=ms, rows=16.0, drafts=drafts, prompts="10%")
        for ms, drafts in ((29.6, "30%"), (26.7, "20%"))
    )
    assert ill[3].endswith(
        escape_markdown(TEXTS["why"].format(mine=mine, name="Plain decoding", other=other))
    )


def test_tetris_is_judged_by_its_rows_and_by_the_clock():
    reported = generated_text(
        report(
            row("4 users", "speculative", 100.0, rows=500),
            row("4 users", "tetris", 98.0, rows=480, drafting=0.25),
        )
    )
    assert lines(reported, "tetris.tokens")[0].endswith(TEXTS["met"].format(ratio=1.04, least="4 users"))
    assert lines(reported, "tetris.goodput")[0].endswith(
        TEXTS["not_met"].format(loads="4 users", ratio=0.98, least="4 users")
    )


def test_a_part_is_as_long_as_its_answers_take():
    done = [Answer("a", 0.0, 0.5, float(end), 10) for end in (1, 2, 4, 4, 5, 6, 7, 9)]
    assert goodput_of_parts(done) == [20 / 2, 20 / 2, 20 / 2, 20 / 3] and goodput_of_parts(done[:7]) == []
    assert LoadResult(done, [8], rows=80).row()["parts"] == goodput_of_parts(done)


def test_a_page_keeps_its_words_and_one_without_marks_is_reported():
    assert with_generated_text(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\nnew\n{END}\nb"
    for page in ("nothing", f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}"):
        with refuses(SessionError, "load_page.no_place"):
            with_generated_text(page, "new")


def test_what_a_measurement_stores_the_command_shows_and_writes(at_home, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Machine, "observe", lambda *_: [])  # on a busy machine nothing is concluded
    stored, page = tmp_path / "load.json", tmp_path / "page.md"
    assert (
        commands.main(
            [
                "load",
                "--users",
                "1,2",
                "--requests",
                "8",
                "--max-new-tokens",
                "6",
                "--tasks",
                "chat",
                "--out",
                str(stored),
            ]
        )
        == 0
    )
    capsys.readouterr()
    page.write_text(f"# Load\n{BEGIN}\n{END}\n", encoding="utf-8")
    assert commands.main(["load", "--table", str(stored), "--write", str(page)]) == 0
    reported = capsys.readouterr().out
    assert (
        page.read_text(encoding="utf-8") == f"# Load\n{BEGIN}\n{reported.rstrip()}\n{END}\n"
        and criteria(reported) == 3
    )
    assert (
        "--users 1,2 --methods autoregressive,speculative,smartspec,tetris --tasks chat --requests 8"
        in reported
    )
    assert reported.count("- 2 users: ") == 3 and TEXTS["times"] in reported


@pytest.mark.parametrize(
    "words, says",
    [
        (["--write", "docs/load.md"], "--table"),
        (["--table", "nowhere.json"], "nowhere.json"),
    ],
)
def test_a_mistake_is_one_line(capsys, words, says):
    assert commands.main(["load", *words]) != 0
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_a_file_that_is_no_report_is_reported(tmp_path):
    for text in ("[]", "{}", json.dumps({"environment": ENV, "rows": [{}]}), "\x00"):
        (tmp_path / "f.json").write_text(text)
        with refuses(SessionError, "load_page.no_report"):
            read(tmp_path / "f.json")


def test_the_page_shows_what_was_stored_beside_it():
    """docs/load.md is made by `python -m specviz load --table docs/load.json --write docs/load.md`."""
    page, stored = (ROOT / "docs" / name for name in ("load.md", "load.json"))
    text = page.read_text(encoding="utf-8")
    assert (
        with_generated_text(text, generated_text(read(stored) if stored.exists() else None)) == text
        and generated_text(None) == NONE
    )
