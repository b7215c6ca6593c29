"""``bench --csv`` and ``--parquet``: the same rows as the report, and every run of a ledger."""

from __future__ import annotations

import gzip
import json

import pytest

from specviz.cli import commands as cli
from specviz.evidence.bench_files import ledger_rows, write_rows
from specviz.run.request import SessionError

pandas = pytest.importorskip("pandas")


def test_bench_writes_its_rows_as_csv_and_parquet(at_home, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    suite = tmp_path / "s.jsonl"
    suite.write_text('{"task": "t", "prompt": "the cat"}\n')
    csv, parquet = tmp_path / "b.csv", tmp_path / "b.parquet"
    status = cli.main(
        [
            "bench",
            "--methods",
            "prompt_lookup",
            "--suite",
            str(suite),
            "--repeats",
            "2",
            "--max-new-tokens",
            "6",
            "--json",
            "--csv",
            str(csv),
            "--parquet",
            str(parquet),
        ]
    )
    rows, frame = json.loads(capsys.readouterr().out)["rows"], pandas.read_csv(csv)
    assert status == 0 and list(frame.method) == [row["method"] for row in rows]
    assert list(frame.spread_low) == pytest.approx([row["spread"][0] for row in rows], nan_ok=True)
    assert list(pandas.read_parquet(parquet).tokens) == [row["tokens"] for row in rows]


def test_a_ledger_gives_a_row_for_each_run_also_where_it_is_compressed(at_home, tmp_path, capsys):
    suite = tmp_path / "s.jsonl"
    path = tmp_path / "l.jsonl"
    packed = tmp_path / "l.jsonl.gz"
    suite.write_text('{"task": "t", "prompt": "the cat"}\n')
    asked = [
        "bench",
        "--methods",
        "prompt_lookup",
        "--suite",
        str(suite),
        "--repeats",
        "1",
        "--max-new-tokens",
        "4",
    ]
    assert cli.main([*asked, "--into", str(path)]) == 0
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, packed):
        assert sorted((row["method"], row["task"], row["repeat"]) for row in ledger_rows(file)) == [
            ("autoregressive", "t", 1),
            ("prompt_lookup", "t", 1),
        ]
    assert cli.main(["bench", "--table", str(packed)]) == 0 and cli.main([*asked, "--into", str(packed)]) == 1
    packed.write_bytes(packed.read_bytes()[:40])
    assert cli.main(["bench", "--table", str(packed)]) == 1


def test_what_holds_no_runs_or_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "no.jsonl").write_text("[1]\n")
    for path in (tmp_path / "no.jsonl", tmp_path / "nowhere.jsonl"):
        with pytest.raises(SessionError):
            ledger_rows(path)
    with pytest.raises(SessionError):
        write_rows([{"a": 1}], csv=str(tmp_path / "nowhere" / "b.csv"))
