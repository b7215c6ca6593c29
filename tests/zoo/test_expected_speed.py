"""What can be expected of a model without a GPU: its weights read once a token, at this machine's memory
speed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specviz.engine import choices
from specviz.zoo import expected_speed, machine_memory
from specviz.zoo.registry import register


def test_a_model_of_the_hub_says_what_to_expect_before_it_is_fetched(monkeypatch):
    entry = next(
        e for e in register().entries.values() if e.role == "target" and e.hub and e.memory and not e.quantise
    )
    monkeypatch.setattr(expected_speed, "memory_bandwidth", lambda: 10e9)
    monkeypatch.setattr(expected_speed, "gpu_memory", tuple)
    monkeypatch.setattr("specviz.zoo.machine_memory.gpu_memory", tuple)
    rate = expected_speed.tokens_per_second(entry)
    assert rate == pytest.approx(
        10e9 / (2e9 * float(entry.memory))
    )  # 32 bits on a processor, twice what models.yaml says
    monkeypatch.setattr("specviz.zoo.machine_memory.main_memory", lambda: None)
    assert expected_speed.round_speed(rate) in choices.target_choice(entry, "another")["title"]
    for place in (expected_speed, machine_memory):
        monkeypatch.setattr(place, "gpus", lambda: (("Card A", 24 * 10**9), ("Card B", 12 * 10**9)))
        monkeypatch.setattr(place, "gpu_memory", lambda: (24 * 10**9, 12 * 10**9))
    title = choices.target_choice(entry, "another")["title"]
    assert (
        expected_speed.tokens_per_second(entry) is None and "Card A, 24 GB" in title and "Card B" not in title
    )
    title = choices.target_choice(replace(entry, memory="90", device_map=""), "another")["title"]
    assert "Card A" not in title and "too large" in title


def test_rounding_and_measurement():
    assert [expected_speed.round_speed(x) for x in (0.62, 1.44, 9.4, 12.0, 43.0)] == [
        "0.6",
        "1",
        "9",
        "10",
        "45",
    ]
    assert 1e8 < expected_speed.memory_bandwidth() < 1e12
