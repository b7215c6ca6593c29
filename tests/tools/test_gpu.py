"""The table of a day with a card, rehearsed on the processor at tiny sizes."""

from __future__ import annotations

import json
import math

from tools import gpu_profile as gpu


def test_every_row_of_the_table_is_measured(tmp_path, capsys):
    assert gpu.main(["--device", "cpu", "--tiny", "--out", str(tmp_path / "rows.jsonl")]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows == printed
    by = {}
    for row in rows:
        by.setdefault(row["what"], []).append(row)
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, float))
    assert [row["rows"] for row in by["pass"]] == [1, 2, 4, 8, 16, 32, 64]
    assert by["pass"][0]["eager_to_one"] == by["pass"][0]["static_to_one"] == 1
    assert [row["forward"] for row in by["plain"]] == ["eager", "static"] and all(
        row["share"] > 0 for row in by["plain"]
    )
    assert [row["method"] for row in by["round"]] == ["autoregressive", "speculative"] and all(
        0 <= row["outside"] < 1 for row in by["round"]
    )
    assert [row["way"] for row in by["transformers"]] == ["generate", "assisted"]
    assert by["environment"][0]["device"] == "cpu" and by["environment"][0]["parameters"] > 0


def test_a_model_that_drafts_for_itself_is_always_right(tmp_path):
    """What the share of a round is measured on: full rounds."""
    place = gpu.write_checkpoint(tmp_path / "tiny", gpu.SHAPES["tiny"], 128, gpu.torch.device("cpu"))
    model = gpu.StaticModel(place)
    plain, *_ = gpu.greedy_run(model, "autoregressive", 16, 8)
    ours, _, inside = gpu.greedy_run(model, gpu.KEY, 16, 8)
    assert ours == plain and inside > 0
