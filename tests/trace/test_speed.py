"""The statistic of speeds (trace/speed.py): the cases that JavaScript shares, recorded runs of a busy machine,
and live runs beside processes that burn cores."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from specviz import ROOT
from specviz.trace.files import Trace
from specviz.trace.speed import LaneTimes, RunTime, TimedRound, lane_times, speedup, steady, step

VECTORS = Path(__file__).parents[1] / "vectors"
SHARED = json.loads((VECTORS / "speed.json").read_text(encoding="utf-8"))["cases"]
BUSY = json.loads((VECTORS / "busy_runs.json").read_text(encoding="utf-8"))
ENOUGH = 0.9  # share of busy runs whose interval holds the quiet machine's value


def lane(side: dict) -> LaneTimes:
    rounds = tuple(TimedRound(*row) for row in side["rounds"])
    passes = sum(r.passes for r in rounds)
    each = sum(r.tokens for r in rounds) / passes if passes else None
    return LaneTimes(rounds, tuple(RunTime(*run) for run in side["repeats"]), each)


@pytest.mark.parametrize("case", SHARED, ids=[case["name"] for case in SHARED])
def test_shared_cases(case: dict) -> None:
    found = speedup(lane(case["plain"]), lane(case["ours"]))._asdict()
    assert found == {
        name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
        for name, value in case["speed"].items()
    }


def test_an_interrupted_pass_counts_as_a_usual_one_and_a_wider_pass_as_itself() -> None:
    rounds = [TimedRound(1, 1, 1, 0.01, 0, 0, 0.0, 0.0)] * 9
    slow = TimedRound(1, 1, 1, 0.05, 0, 0, 0.0, 0.0)
    wide = TimedRound(1, 1, 64, 0.05, 0, 0, 0.0, 0.0)
    assert steady([*rounds, slow]).replaced == 1 and sum(steady([*rounds, slow]).seconds) == pytest.approx(
        0.1
    )
    assert steady([*rounds, wide]).replaced == 0


def test_the_interval_of_recorded_busy_runs_holds_the_quiet_value() -> None:
    held = []
    for run in BUSY["runs"]:
        found = speedup(*(lane({"rounds": run[side], "repeats": []}) for side in ("plain", "ours")))
        assert found.named and found.low is not None and found.high is not None
        held.append(found.low <= BUSY["quiet"] <= found.high)
    assert sum(held) >= ENOUGH * len(held)


TRACES = ROOT / "assets" / "traces"
RECORDINGS = sorted(path.relative_to(TRACES).as_posix() for path in TRACES.rglob("*.jsonl*"))


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_shipped_recording_is_of_a_steady_machine(name: str) -> None:
    from tools.make_recordings import unsteady_lanes

    assert not unsteady_lanes(Trace.load(TRACES / name).records)


def test_a_machine_that_changes_its_speed_is_seen() -> None:
    passes = [TimedRound(1, 1, 1, 0.01, 0, 0, 0.0, 0.0)] * 8
    slower = [r._replace(verify=0.016) for r in passes]
    assert step(passes) == 1.0 and step(passes + slower) == pytest.approx(1.6)
    assert step(passes[:3] + slower[:3]) == 1.0  # too few to tell


def _burn() -> None:
    while True:
        pass


def _race(loaded) -> list[LaneTimes]:
    from specviz.run.racing import race
    from specviz.run.session import Session, find_method

    sessions = [Session(loaded, find_method(key)) for key in ("autoregressive", "speculative")]
    seq = iter(range(10**6))
    records = [
        record
        for number, event in race(sessions, "Tell me a story about a turtle.", 96)
        if event is not None
        for record in ({"seq": next(seq), "lane": number} | one for one in event.records())
    ]
    return [lane_times(records, number) for number in (0, 1)]


@pytest.mark.soak
@pytest.mark.parametrize("target", ["Llama-specviz-16M", "SmolLM2-135M-Instruct"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("burners", [1, 2])
def test_the_interval_holds_beside_processes_that_burn_cores(burners: int, threads: int, target: str) -> None:
    """Ten races beside one and two busy processes; the reference is the median of five quiet ones with the
    same number of threads, of torch or of the compiled pass. Needs a machine on which nothing else runs."""
    from specviz import load
    from specviz.core.threads import set_thread_count, thread_count

    loaded = load(target)
    before = thread_count()
    processes = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(burners)]
    set_thread_count(threads, loaded.compiled)
    try:
        _race(loaded)
        quiet = sorted(speedup(*_race(loaded)).value or 0.0 for _ in range(5))[2]
        for process in processes:
            process.start()
        found = [speedup(*_race(loaded)) for _ in range(10)]
    finally:
        set_thread_count(before, loaded.compiled)
        for process in processes:
            if process.is_alive():
                process.terminate()
    held = sum(one.named and one.low <= quiet <= one.high for one in found)
    print(f"{target}, threads {threads}, burners {burners}: quiet {quiet:.2f}, {held} of {len(found)}", found)
    assert held >= ENOUGH * len(found)
