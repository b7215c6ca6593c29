"""Ledgers of measurements: a writer that was killed, wherever it was, costs the line that it wrote and no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from specviz import ROOT
from specviz.evidence import claims, comparisons
from specviz.evidence.bench_ledger import Ledger
from specviz.evidence.ledger_lines import append_row, rows_of
from specviz.run.request import SessionError

CLAIM = {
    "claim": "sequoia/1", "number": 0, "target": "t", "prompt": 1, "seed": 0, "ours": 3.0, "baseline": 2.0, "when": "now",
    "condition": claims.condition_hash(claims.listed()["sequoia/1"][1]), "suite": 0,
}  # fmt: skip
PLAIN = {"method": "p", "same": None, "failed": ""} | dict.fromkeys(
    ("tokens", "rounds", "drafted", "accepted", "tried", "seconds", "prefill_seconds", "forward_seconds"), 1
)
ASKED = {"methods": [], "prompts": [], "repeats": 1, "suite": "", "tasks": [], "skipped": {}}
SESSION = {"sitting": "a", "began": "now", "settings": {}, "machine": {}, "asked": ASKED}
GROUP = {
    "sitting": "a",
    "leg": {"prompt": 1, "task": "", "repeat": 1, "wall": 1.0, "plain": PLAIN, "runs": []},
}
CELL = {"tokens": 1, "cell": "a", "number": 0}
KINDS = {  # name: (rows of a ledger, number of measurements that are read)
    "claims": ([CLAIM], lambda path: len(claims.read_ledger(path).get("sequoia/1", ()))),
    "comparisons": ([CELL], lambda path: len(comparisons.read(path))),
    "bench": ([SESSION, GROUP], lambda path: sum(len(one.run_groups) for one in Ledger(path).sessions)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_line_that_is_torn_anywhere_costs_itself_only(tmp_path, kind):
    rows, read = KINDS[kind]
    path = tmp_path / "ledger.jsonl"
    for row in rows:
        append_row(path, row)
    whole = path.read_bytes()
    last = json.dumps(rows[-1]).encode() + b"\n"
    assert whole.endswith(last) and read(path) == 1
    for end in range(len(last)):
        path.write_bytes(whole + last[:end])
        assert read(path) == 1 and path.read_bytes() == whole + last[:end]  # reading changes nothing
        append_row(path, rows[-1])
        assert path.read_bytes() == whole + last and read(path) == 2, end


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["my notes", "my notes\n", "[]\n", '{"a": 1}\n', "null\n", "\ud800"])
def test_a_file_of_others_is_refused_and_stays(tmp_path, kind, text):
    path = tmp_path / "notes.txt"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    before = path.read_bytes()
    with pytest.raises(SessionError) as caught:
        KINDS[kind][1](path)
    assert caught.value.code == "ledger.line" and path.read_bytes() == before


WRITER = """
import json, sys, time
from pathlib import Path
from specviz.evidence.ledger_lines import append_row
print("writing", flush=True)
number = 0
while True:
    append_row(Path(sys.argv[1]), {"claim": sys.argv[2], "number": number, "text": "x" * (number % 9000)})
    number += 1
    time.sleep(0.0005)  # the other one's turn
"""


@pytest.mark.thorough
def test_two_writers_that_are_killed_lose_no_line_of_each_other(tmp_path):
    """Two processes with one ledger, each killed with signal 9 while it writes."""
    path = tmp_path / "ledger.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], cwd=ROOT, stdout=subprocess.PIPE)
        for name in "ab"
    ]
    for one in writers:
        assert one.stdout is not None and one.stdout.readline() == b"writing\n"
    begun = [b'{"claim": "%c"' % name for name in b"ab"]
    while not path.exists() or path.stat().st_size < 2**21 or not all(b in path.read_bytes() for b in begun):
        assert all(one.poll() is None for one in writers)
        time.sleep(0.01)
    for one in writers:
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
        assert one.stdout is not None
        one.stdout.close()
    append_row(path, {"claim": "c", "number": 0})
    rows = rows_of(path, b'{"claim": ')
    for name in "abc":
        numbers = [row["number"] for row in rows if row["claim"] == name]
        assert numbers and numbers == list(range(len(numbers))), name
