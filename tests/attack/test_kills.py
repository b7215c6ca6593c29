"""A kill in each of ten places and more leaves a whole file, and a run that ends as if there had been
none."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from specviz import ROOT


@pytest.mark.soak
def test_a_kill_in_each_place_loses_nothing(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.attack.kills", str(work)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["traces"] >= 10 and told["training"] == 10
