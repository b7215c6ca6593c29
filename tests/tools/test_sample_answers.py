"""The forty answers: what the writer makes of a run, and that the shipped card has them all."""

from __future__ import annotations

from specviz import ROOT
from tools import sample_answers as forty


def test_the_card_of_the_default_target_has_every_prompt_at_both_temperatures():
    card = (ROOT / "assets" / "models" / "SmolLM2-135M-Instruct" / "README.md").read_text(encoding="utf-8")
    section = card.split(forty.HEADING)[1]
    assert len(forty.PROMPTS) * len(forty.TEMPERATURES) == 40
    assert [line[4:] for line in section.splitlines() if line.startswith("### ")] == list(forty.PROMPTS)
    for temperature in forty.TEMPERATURES:
        assert (
            sum(
                line.startswith((f"Temperature {temperature:g}:", f"Temperature {temperature:g},"))
                for line in section.splitlines()
            )
            == 20
        )


def test_the_section_is_replaced_and_the_rest_of_the_card_stays(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text(f"Head.\n\n{forty.HEADING}\n\nold\n", encoding="utf-8")
    loaded = type("Loaded", (), {"folder": tmp_path})
    monkeypatch.setattr(
        forty,
        "generate_answers",
        lambda _: iter([("Why?", 0.0, "Because.", ["cut after 3 tokens"]), ("Why?", 0.7, "So.", [])]),
    )
    card = forty.write(loaded).read_text(encoding="utf-8")
    assert card.startswith("Head.\n\n") and "old" not in card and card.count("### Why?") == 1
    assert (
        "Temperature 0, cut after 3 tokens:" in card
        and "Temperature 0.7:" in card
        and card.index("Because.") < card.index("So.")
    )
