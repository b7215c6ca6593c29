"""The memory of a method: weights of what it opened, its caches as used, its indexes; and what has none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specviz.core import Sampling, State, open_run, play
from specviz.engine.cards import cards
from specviz.evidence.bench_figures import memory_figures
from specviz.evidence.bench_ledger import Run
from specviz.methods import catalogue
from specviz.run.session import Session
from specviz.ui.picker_rows import rows
from specviz.zoo.draft_memory import kv_bytes, run_memory, stored_bytes

from ..evidence.test_bench_page import bench_session
from ..exactness.toys import toy
from ..run.fakes import FakeLoaded


def memory_of(key, **knobs):
    """The memory of a method on the toys, after a few rounds, and the toys."""
    kit, method = toy(12, layers=4), catalogue()[key]
    kit.weight_folders = []
    parts = method.build(kit, **method.read_knobs(knobs))
    state = State([3, 1, 4, 1, 5, 9, 2, 6], Sampling(0.0), limit=16)
    open_run(parts, kit.target, state)
    while not state.done:
        play(parts, kit.target, state)
    return run_memory(kit, parts.drafter), kit


def test_a_draft_model_has_a_cache_of_its_own():
    found, kit = memory_of("speculative")
    layer = kit.opened[1].kv(0)
    assert found["cache"] == sum(part.nbytes for part in layer) * kit.opened[1].layers > 0
    assert found["target_cache"] == kv_bytes(kit.target) > 0


def test_a_head_counts_the_rows_of_its_cache():
    found, _ = memory_of("eagle2")
    assert 0 < found["cache"] < found["target_cache"]


@pytest.mark.parametrize("key", ["kv_assistant", "medusa", "autoregressive", "prompt_lookup"])
def test_what_keeps_no_keys_and_values_has_no_cache(key):
    assert memory_of(key)[0]["cache"] == 0


def test_a_lookup_has_an_index():
    assert memory_of("sam_decoding")[0]["index"] > 0 == memory_of("medusa")[0]["index"]


def test_folders_count_once_and_configs_do_not_count(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    (tmp_path / "config.json").write_text("{}")
    assert stored_bytes([tmp_path, tmp_path]) == 100 and stored_bytes([]) == 0


def test_the_trace_the_result_and_the_picker_say_it(tmp_path):
    *_, last = Session(FakeLoaded(), "speculative").run("the cat", 6)
    assert set(last.totals["memory"]) == {"weights", "cache", "index", "target_cache"}
    assert last.totals["memory"]["cache"] > 0
    path = tmp_path / "bench.json"
    figures = {"schema": "specviz-bench/1", "where": "", "target": "t", "draft": "d", "speedups": {}}
    path.write_text(json.dumps(figures | {"memory": {"speculative": [7, 9]}}))
    found = {row["key"]: row["memory"] for row in rows(cards(), (), path)}
    assert found["speculative"] == [7, 9] and found["medusa"] is None


def test_a_ledger_keeps_it_and_an_old_one_has_none():
    session = bench_session(0.0, {"speculative": {"story": [2.0] * 4}})
    assert memory_figures([session]) == {}
    runs = (Run("speculative", draft_weight_bytes=5, draft_cache_bytes=cache) for cache in (40, 60, 50))
    groups = [replace(group, runs=(run,)) for group, run in zip(session.run_groups, runs)]
    assert memory_figures([replace(session, run_groups=groups)]) == {"speculative": [5, 60]}
