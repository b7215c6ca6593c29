"""The page that sets the trained drafters side by side is read from the cards that the report writes, and
from nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specviz import ROOT
from specviz.training import compare, drafters, report
from specviz.training.__main__ import main
from specviz.training.job import TARGET, Job

NAMES = {
    "eagle2": "Llama-specviz-eagle",
    "eagle": "Llama-specviz-eagle",
    "kangaroo": "Llama-specviz-kangaroo",
    "speculative": "Llama-specviz-draft",
}


def figures(efficiency, speedup=None):
    return {
        "block_efficiency": efficiency,
        "acceptance_rate": 0.5,
        "nodes": 3.25,
        "speedup": speedup,
        "by_position": [0.5, 0.25],
    }


@pytest.fixture
def job(tmp_path):
    """A work folder whose cards were written by the report's own functions, of figures that are told
    apart."""
    work = Job(work=tmp_path, size="tiny", quiet=True)
    chosen = {
        method.key: method
        for method in drafters.methods_to_measure(work.hparams("report"))
        if method.key in NAMES
    }
    assert chosen.keys() == NAMES.keys()
    found = {"methods": {}, "skipped": {}, "equal_nodes": 4, "machine": {"machine": "a toy"}}
    for i, (key, method) in enumerate(chosen.items()):
        tables = {
            mode: {
                "story": figures(9.0),
                "mean": figures(1.5 + i + (mode == "sampled") / 2, 1.25 if key != "eagle" else None),
            }
            for mode in drafters.MODES
        }
        found["methods"][key] = {"title": method.title, "model": NAMES[key], **tables} | (
            {"equal": figures(3.75)} if key == "eagle2" else {}
        )
    work.log("kangaroo", steps=7, tokens=1_850_000, minutes=12.4, loss=1.5)
    for name in (TARGET, *sorted({*NAMES.values()}), "Llama-specviz-medusa"):
        place = work.folder("models", name)
        (place / "config.json").write_text("{}")
        (place / "model.safetensors").write_bytes(b"x")
        (place / "README.md").write_text(
            f"# {name}\n\n**Built with Llama.** 0.39 million parameters that draft.\n"
        )
        text = (
            drafters.summary(found)
            if name == TARGET
            else drafters.table(found, name) + report.training_text(work, name)
        )
        report.write_into_card(place / "README.md", name, text)
    return work


def test_the_rows_are_the_cards_figures(job, capsys):
    assert main(["compare", "--size", "tiny", "--work", str(job.work), "--quiet"]) == 0
    assert str(job.work / "trained.md") in capsys.readouterr().out
    text = (job.work / "trained.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.split("\n") if line.startswith("| ")][1:]
    titles = {method.key: method.title for method in drafters.methods_to_measure(job.hparams("report"))}
    assert {row[0] for row in rows} == {titles[key] for key in NAMES} and all(
        len(row) == len(compare.COLUMNS) for row in rows
    )
    told = [float(row[5]) for row in rows]
    assert told == sorted(told, reverse=True) == [4.5, 3.5, 2.5, 1.5]
    by = {row[0]: row for row in rows}
    kangaroo = by[titles["kangaroo"]]
    assert kangaroo[1:5] == ["`Llama-specviz-kangaroo`", "0.39", "12.4", "1.9"] and kangaroo[6:9] == [
        "0.50 0.25",
        "3.2",
        "1.25x",
    ]
    assert float(kangaroo[9]) == float(kangaroo[5]) + 0.5 and kangaroo[-1] == "no tree"
    assert (
        by[titles["eagle2"]][-1] == "3.75"
        and by[titles["eagle"]][8] == "not measured"
        and by[titles["eagle"]][3] == "-"
    )
    silent, _, absent = text.partition("no figures in the card yet: ")[2].partition("No weights yet: ")
    assert (
        "Medusa (`Llama-specviz-medusa`)" in silent
        and "M2R2" not in silent
        and "M2R2 (`Llama-specviz-m2r2`)" in absent
        and "Kangaroo" not in silent + absent
        and "Medusa" not in absent
    )


def test_what_a_card_says_of_its_training_outlives_the_log(job):
    """Cards are made anew on other machines than the weights were."""
    told, before = report.training_text(job, "Llama-specviz-kangaroo"), job.last_log("kangaroo")["time"][:10]
    assert (
        told
        == f"\nLast training run: 7 steps, 1.9 M answer tokens, 12.4 minutes, last loss 1.50 (log line of {before}).\n"
    )
    (job.work / "log.jsonl").unlink()
    assert (
        report.training_text(job, "Llama-specviz-kangaroo") == told
        and report.training_text(job, "Llama-specviz-medusa") == ""
    )


def test_the_report_of_one_kind_writes_its_card_alone(job, monkeypatch):
    """Neither target nor draft model is measured anew, and every other card stays as it is."""
    cards = {path: path.read_text() for path in job.work.rglob("README.md")}
    row = {"title": "EAGLE", "model": "Llama-specviz-eagle"} | {
        mode: {"mean": figures(4.25)} for mode in drafters.MODES
    }
    monkeypatch.setattr(
        drafters,
        "run",
        lambda told, hparams: {"methods": {"eagle": row}} if told.report_kinds == ("eagle",) else None,
    )
    report.run(replace(job, report_kinds=("eagle",)))
    changed = [path for path, text in cards.items() if path.read_text() != text]
    assert [path.parent.name for path in changed] == ["Llama-specviz-eagle"] and "4.25" in changed[
        0
    ].read_text()
    assert not (job.work / "report.json").exists()


def test_the_card_of_a_model_in_parts_lies_beside_them(job, monkeypatch):
    """Weights in parts are read elsewhere, in one piece; what is written there nobody sees."""
    place = job.model_folder("Llama-specviz-eagle")
    (place / "model.safetensors").rename(place / "model.safetensors.part-01-of-01")
    assert job.model("Llama-specviz-eagle") != place
    row = {"title": "EAGLE", "model": "Llama-specviz-eagle"} | {
        mode: {"mean": figures(4.25)} for mode in drafters.MODES
    }
    monkeypatch.setattr(drafters, "run", lambda told, hparams: {"methods": {"eagle": row}})
    report.run(replace(job, report_kinds=("eagle",)))
    assert "4.25" in (place / "README.md").read_text()


def test_the_report_of_the_draft_model_writes_its_replay_and_its_card_alone(job, monkeypatch):
    cards = {path: path.read_text() for path in job.work.rglob("README.md")}
    row = {"title": "Speculative decoding", "model": "Llama-specviz-draft"} | {
        mode: {"mean": figures(4.25)} for mode in drafters.MODES
    }
    monkeypatch.setattr(drafters, "run", lambda told, hparams: {"methods": {"speculative": row}})
    replay = {"greedy": {"mean": {"block_efficiency": 3.625, "acceptance_rate": 0.5, "by_position": [0.5]}}}
    monkeypatch.setattr(report, "draft_figures", lambda told, hparams: replay)
    report.run(replace(job, report_kinds=("draft",)))
    changed = [path for path, text in cards.items() if path.read_text() != text]
    assert [path.parent.name for path in changed] == ["Llama-specviz-draft"]
    assert "4.25" in changed[0].read_text() and "| mean | 3.62 |" in changed[0].read_text()


def test_the_kind_draft_stands_for_the_methods_that_show_the_draft_model(job, monkeypatch):
    """Of one kind, the methods of that kind alone are run."""

    class Loaded:
        heads = type("Heads", (), {"folders": {}})
        more = {}
        draft_folder = job.work / "the draft"
        facts = {"env": {}}
        unsupported_reason = staticmethod(lambda method: None)

    monkeypatch.setattr(drafters.zoo, "load", lambda *_, **__: Loaded)
    monkeypatch.setattr(drafters, "prompts", lambda *_: [])
    monkeypatch.setattr(drafters, "run_methods", lambda *_: {})
    monkeypatch.setattr(drafters, "figures_by_task", lambda *_: {"mean": {}})
    monkeypatch.setattr(drafters, "model_of", lambda _, method: method.key)
    run = {
        kind: set(drafters.run(replace(job, report_kinds=(kind,)), job.hparams("report"))["methods"])
        for kind in ("draft", "medusa")
    }
    assert (
        run["draft"] == set(job.hparams("report")["with_draft"])
        and "medusa" in run["medusa"]
        and not run["medusa"] & run["draft"]
    )


def test_without_a_model_there_is_no_table(tmp_path):
    job = Job(work=tmp_path, size="tiny")
    rows = compare.drafters_of(job, job.hparams("report"))
    assert len(rows) > 30 and not any(row.has_weights or row.cells for row in rows)
    lines = compare.table(rows)
    assert len(lines) == 1 and lines[0].startswith("No weights yet: ")


def test_docs_trained_is_what_the_shipped_cards_say():
    job = Job(ship=True)
    page = (ROOT / "docs" / "trained.md").read_text(encoding="utf-8")
    assert page == compare.page(job, job.hparams("report")), (
        "write it anew: python -m specviz.training compare --ship"
    )
    assert f"## {TARGET}\n" in page and "| EAGLE-2 |" in page
