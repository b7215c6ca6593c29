"""The page's question about the machine: the same report as the command's, bounded in time."""

from __future__ import annotations

from specviz import lab
from specviz.evidence import doctor
from specviz.zoo import load


def test_the_question_answers_with_the_report_of_the_command_and_ignores_a_longer_measurement(
    at_home, monkeypatch
):
    asked = []
    monkeypatch.setattr(doctor, "_milliseconds", lambda model, tokens, seconds: asked.append(seconds) or 1.0)
    (found,) = lab.answer("doctor", {"seconds": 1e9}, load(None), lambda: False)
    assert found.keys() == doctor.report(seconds=0).keys()
    assert [row["tokens"] for row in found["target"]["passes"]] == list(doctor.PASS_TOKENS) and found[
        "target"
    ]["draft_pass_ms"] == 1.0
    assert abs(sum(asked) - doctor.SECONDS) < 1e-9
