"""Starters, and the exercises on prompt lookup, draft length and wiring."""

from __future__ import annotations

import json

import pytest

from specviz.cli import main
from specviz.coursework import acceptance_killers, catalogue, draft_lengths, lookup, own_head
from specviz.coursework import starter_files as files
from specviz.coursework.exercise import Report
from specviz.coursework.submission import TrustedCode

from . import submissions as s

DETERMINISTIC = {"prompt_lookup": (lookup, s.LOOKUP), "draft_length": (draft_lengths, s.LENGTHS)}
MISTAKES = [(key, one.key) for key, (module, _) in DETERMINISTIC.items() for one in module.MISTAKES]
STYLES = [(key, name) for key, (_, some) in DETERMINISTIC.items() for name in some]


def compared(key: str, code: TrustedCode, report: Report):
    return (
        lookup.drafts_check(code, report)
        if key == "prompt_lookup"
        else draft_lengths.predictions_check(code, report)
    )


@pytest.mark.parametrize("key, name", STYLES)
def test_a_right_part_passes_in_every_style(key, name):
    code, report = TrustedCode(DETERMINISTIC[key][1][name]), Report(key, "")
    assert compared(key, code, report).ok and report.behaves_like is None
    if key == "draft_length":
        assert draft_lengths.choice_check(code).ok


@pytest.mark.parametrize("key, name", MISTAKES)
def test_a_mistake_is_recognised(key, name):
    source = next(one.source for one in DETERMINISTIC[key][0].MISTAKES if one.key == name)
    report = Report(key, "")
    assert not compared(key, TrustedCode(source), report).ok and report.behaves_like == name


@pytest.mark.parametrize(
    "key, old, new",
    [("prompt_lookup", "(3, ", "(4, "), ("draft_length", "1 + sum(survive)", "0.9 + sum(survive)")],
)
def test_another_mistake_gets_no_name(key, old, new):
    source = DETERMINISTIC[key][1]["solution"].replace(old, new).replace("min(3,", "min(2,")
    report = Report(key, "")
    assert not compared(key, TrustedCode(source), report).ok and report.behaves_like is None


def test_the_whole_check_of_prompt_lookup_passes_the_solution():
    report = Report("prompt_lookup", "ada")
    source = s.LOOKUP["one_pass"] + f"\nANSWER = {lookup._answers('ada')}"
    lookup.check(TrustedCode(source), "ada", report)
    assert report.passed and [check.name for check in report.checks] == [
        "numbers",
        "drafts",
        "greedy text",
        "small target",
    ]


@pytest.mark.thorough
def test_the_whole_check_of_the_draft_length_measures():
    report = Report("draft_length", "ada")
    source = s.LENGTHS["numpy"] + f"\nANSWER = {draft_lengths._answers('ada')}"
    draft_lengths.check(TrustedCode(source), "ada", report)
    assert report.passed, [check.sentence for check in report.checks]
    rows = report.checks[-1].figures["rows"]
    assert len(rows) == draft_lengths.LONGEST and all(row["low"] < row["high"] for row in rows)


def test_the_wiring_is_recognised_by_its_answers():
    right = acceptance_killers.probe(TrustedCode(acceptance_killers.wired()))
    assert all(acceptance_killers.probe(TrustedCode(source)) == right for source in s.WIRING.values())
    wrong = [acceptance_killers.probe(TrustedCode(one.source)) for one in acceptance_killers.MISTAKES]
    assert all(wrong.count(one) == 1 for one in wrong) and right not in wrong and len(wrong) >= 6


@pytest.mark.thorough
@pytest.mark.parametrize("key", ["right", "shift_by_one", "wrong_layer"])
def test_a_wrong_wiring_costs_acceptance_and_not_the_text(key):
    source = {one.key: one.source for one in acceptance_killers.MISTAKES}.get(key, s.WIRING["format"])
    report = Report("silent_killer", "ada")
    acceptance_killers.check(TrustedCode(source), "ada", report)
    assert report.checks[0].ok and report.checks[1].ok == (key == "right")
    assert report.behaves_like == (None if key == "right" else key)
    figures = report.checks[1].figures
    assert key == "right" or figures["tokens_per_pass"] < 0.75 * figures["right"]


def test_every_lab_starts_with_the_same_cells_in_all_files(tmp_path):
    assert len(catalogue.EXERCISES) == 7
    for key, exercise in catalogue.EXERCISES.items():
        starter, readme, notebook = files.start(exercise, "ada", tmp_path / key)
        text = starter.read_text(encoding="utf-8")
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        assert "@@" not in text + readme.read_text(encoding="utf-8")
        assert all(source in text for source in code[:-1]) and f"labs check {key}.ipynb" in code[-1]
        assert all(cell["metadata"]["nbgrader"]["schema_version"] == 3 for cell in cells)
        assert catalogue.exercise_of(text, starter) is exercise and catalogue.student_of(text) == "ada"
        assert catalogue.student_of(files.read_submission(notebook)) == "ada"
        names = TrustedCode(files.read_submission(starter))._names
        assert all(callable(names.get(function)) for function in exercise.functions)
    with pytest.raises(files.CourseworkError) as error:
        files.start(catalogue.find("own_head"), "ada", tmp_path / "own_head")
    assert error.value.code == "start.exists"


@pytest.mark.parametrize("name", ["", '"; import os', "a" * 61, "x\ny", "${HOME}"])
def test_a_name_becomes_no_code(name, tmp_path):
    with pytest.raises(files.CourseworkError) as error:
        files.start(catalogue.find("token_rejection"), name, tmp_path / "x")
    assert error.value.code == "start.name" and not (tmp_path / "x").exists()


def test_students_find_different_mistakes():
    planted = {acceptance_killers.planted(f"student {i}").key for i in range(40)}
    assert len(planted) >= 4 and not any(key.startswith("positions") for key in planted)


@pytest.mark.thorough
def test_the_command_lists_starts_and_checks(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["labs", "list", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(catalogue.EXERCISES)
    assert main(["labs", "start", "prompt_lookup", "--student", "ada"]) == 0
    capsys.readouterr()
    assert main(["labs", "check", "prompt_lookup/starter.py", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["student"] == "ada" and report["exercise"] == "prompt_lookup" and not report["passed"]
    assert "process" in report["isolation"] and {check["name"] for check in report["checks"]} >= {
        "numbers",
        "drafts",
    }
    assert main(["labs", "check", "nowhere.py"]) == 1 and main(["labs", "start", "no_such"]) == 1
    assert main(["labs", "start"]) == 2


def test_heads_are_recognised_by_their_guesses():
    import torch

    source = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 50, (40, own_head.LENGTH), generator=source)
    matrix = torch.eye(50)
    states = torch.nn.functional.one_hot(tokens.roll(-1, 1), 50).float()  # the target is always right
    new = own_head.Texts(states, tokens)

    def guess(*ahead: int):
        return torch.stack([tokens.roll(-n, 1) for n in ahead], -1).flatten(0, 1)

    cases = {
        "one_early": (0 + 1, 2, 3),
        "one_late": (3, 4, 5),
        "repeats": (0, 0, 0),
        "untrained": (1, 1, 1),
        "all_alike": (2, 2, 2),
    }
    for key, ahead in cases.items():
        given = guess(*ahead)
        assert own_head.behaves_like(given, given, new, new, matrix) == key
    constant = torch.full_like(guess(1, 2, 3), 7)
    assert own_head.behaves_like(constant, constant, new, new, matrix) == "one_token"
    noise = torch.randint(0, 50, constant.shape, generator=source)
    assert own_head.behaves_like(noise, guess(2, 3, 4), new, new, matrix) == "by_heart"
    assert own_head.behaves_like(noise, noise, new, new, matrix) is None
    first = torch.stack([guess(2, 2, 2)[:, 0], noise[:, 1], noise[:, 2]], -1)
    assert own_head.behaves_like(first, noise, new, new, matrix) == "first_only"
