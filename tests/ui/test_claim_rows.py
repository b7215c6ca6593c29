"""The claims on the cards: what the page gets of assets/claims.json, and the choice of "Show it"."""

from __future__ import annotations

import json

from specviz.engine.cards import cards
from specviz.evidence import claims as ledger
from specviz.methods import catalogue
from specviz.ui import claim_rows, picker_rows


def write(path, name, **one):
    path.write_text(json.dumps({"claims": {name: one}}), encoding="utf-8")
    return path


def test_a_card_carries_its_claims_and_their_verdicts(tmp_path):
    tried = {
        "verdict": "shown",
        "pairs": 8,
        "ours": 2.5,
        "baseline": 2.0,
        "low": 0.25,
        "high": 0.75,
        "why": "",
    }
    path = write(tmp_path / "a.json", "sequoia/1", **tried, show={"prompt": "Hello", "seed": 5})
    (row,) = claim_rows.claims_of(catalogue()["sequoia"], path)
    claim = catalogue()["sequoia"].claims[0]
    assert (row["text"], row["verdict"], row["why"]) == (claim.text, "shown", "")
    for figure in ("2.5, the baseline 2", "0.25 to 0.75", "8 pairs"):
        assert figure in row["figures"]
    assert claim.figure in row["paper"] and claim.place in row["paper"]
    show = row["show"]
    assert [lane["method"] for lane in show["methods"]] == [claim.baseline, "sequoia"]
    assert show["methods"][1]["knobs"] == claim.knobs
    assert (show["prompt"], show["seed"], show["temperature"]) == ("Hello", 5, claim.temperature)


def test_plain_decoding_is_no_lane_and_the_prompt_may_be_the_prediction(tmp_path):
    shown = {"verdict": "shown", "show": {"prompt": "Copy this", "seed": 0}}
    path = write(tmp_path / "a.json", "predicted_output/1", **shown)
    (row,) = claim_rows.claims_of(catalogue()["predicted_output"], path)
    assert [lane["method"] for lane in row["show"]["methods"]] == ["predicted_output"]
    assert row["show"]["predicted"] == "Copy this" and row["figures"] == ""


def test_what_was_not_tried_is_open_and_a_damaged_file_says_nothing(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text('{"claims": [1]}', encoding="utf-8")
    for place in (path, tmp_path / "absent.json"):
        (row,) = claim_rows.claims_of(catalogue()["sequoia"], place)
        assert row["verdict"] == "open" and row["show"] is None and row["figures"] == ""


def test_every_row_of_the_picker_has_its_claims():
    rows = {row["key"]: row["claims"] for row in picker_rows.rows(cards(), ())}
    assert sum(map(len, rows.values())) == len(ledger.listed()) and rows["autoregressive"] == []
    assert {one["verdict"] for some in rows.values() for one in some} <= {
        *ledger.DECIDED,
        "open",
        ledger.CANNOT,
    }
