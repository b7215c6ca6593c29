"""Settings show what machine answers, in the figures of ``specviz doctor``."""

from __future__ import annotations

import json

import pytest

from specviz.evidence import doctor


@pytest.mark.thorough
def test_settings_measure_the_machine_when_asked_and_show_names_as_text(visit, server):
    page = visit()
    found = {
        "machine": doctor.machine(),
        "memory": doctor.memory(),
        "gpu": [],
        "kernels": {"folder": "/somewhere", "cached": True},
        "libraries": doctor.libraries(),
        "missing": [{"name": "<b>x</b>", "needed_for": "y", "get": "pip install x"}],
        "to_fetch": [],
        "in_repository": [],
        "target": {
            "name": "t",
            "draft": None,
            "backend": "int8",
            "forward": "eager",
            "numbers": "int8",
            "device": "cpu",
            "passes": [{"tokens": 1, "ms": 2.5, "relative": 1.0}, {"tokens": 8, "ms": 5.0, "relative": 2.0}],
        },
    }
    page.evaluate(
        "(found) => { SpecVizPage.ask = async (name, details) => { window.asked = [name, details]; return found; }; }",
        found,
    )
    page.click("#open-settings")
    assert page.locator("#doctor dt").count() == 0  # nothing is measured before it is asked for
    page.click("#doctor button")
    page.wait_for_selector("#doctor dt")
    names, values = page.locator("#doctor dt").all_inner_texts(), page.locator("#doctor dd").all_inner_texts()
    rows = dict(zip(names, values))
    assert page.evaluate("asked[0]") == "doctor" and len(names) == len(values) == 10
    assert (
        found["machine"]["processor"] in rows["processor"]
        and rows["target"].startswith("t;")
        and page.locator("#doctor b").count() == 0
    )
    assert any("8: 5 ms (2x)" in value for value in values) and json.dumps(names).count("<b>x</b>") == 1
    page.evaluate("() => { SpecVizPage.ask = async () => { throw new Error('busy here'); }; }")
    page.click("#doctor button")
    page.wait_for_function("document.querySelector('#doctor [role=status]').textContent === 'busy here'")
    assert page.is_enabled("#doctor button")
