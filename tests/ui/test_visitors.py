"""Past answers stay with the visitor who got them, and no more visitors are remembered than there is room
for."""

from __future__ import annotations

from types import SimpleNamespace

from specviz.engine.engine import run_lanes
from specviz.engine.limits import RunRequest
from specviz.ui.handlers import VISITORS, Handlers

from ..run.fakes import FakeLoaded
from .fake import FakeBackend

LANES = (("suffix_decoding", {"caution": 0.0}), ("autoregressive", {}))


def sources(loaded, shelf):
    """Where the first lane's drafts of one run came from."""
    records = [
        r
        for batch in run_lanes(loaded, RunRequest("the cat sat", LANES, max_new_tokens=12, shelf=shelf), 60.0)
        for r in batch
    ]
    assert not [r for r in records if r["type"] == "error"]
    return {
        r["data"]["source"]
        for r in records
        if r["type"] == "lens" and r["kind"] == "suffix" and r["lane"] == 0
    }


def test_an_answer_helps_the_same_visitor_the_next_time_and_nobody_else():
    loaded, handlers = FakeLoaded(), Handlers(FakeBackend())
    mine, other = handlers._shelf("a"), handlers._shelf("b")
    assert "answers" not in sources(loaded, mine)
    assert "answers" in sources(loaded, handlers._shelf("a"))
    assert "answers" not in sources(loaded, other)
    handlers.leave(SimpleNamespace(session_hash="a"))
    assert handlers._shelf("a") == {}


def test_visitors_are_forgotten_oldest_first():
    handlers = Handlers(FakeBackend())
    for i in range(3 * VISITORS):
        handlers._shelf(str(i))["memory"] = i
        handlers._shelf("0").setdefault("memory", 0)
    assert len(handlers.shelves) == VISITORS and handlers._shelf("0") == {"memory": 0}
    assert set(handlers.shelves) >= {str(3 * VISITORS - 1), "0"} and "1" not in handlers.shelves


def test_a_race_of_classes_has_every_lane_decode_as_many_prompts():
    """The visitor's own and others of the suite, the same for each lane; each lane says how far all of them
    are."""
    ask = RunRequest(
        "the cat sat",
        (("speculative", {}), ("tetris", {}), ("autoregressive", {})),
        max_new_tokens=6,
        prompts=8,
    )
    records = [
        r
        for batch in run_lanes(FakeLoaded(context=1200), ask, 60.0)
        if isinstance(batch, list)
        for r in batch
    ]
    notes = {
        lane: [
            r["data"] for r in records if r["type"] == "lens" and r["kind"] == "class" and r["lane"] == lane
        ]
        for lane in range(3)
    }
    assert not [r for r in records if r["type"] == "error"] and all(notes.values())
    classes = {tuple(data["prompts"]) for told in notes.values() for data in told}
    assert (
        len(classes) == 1 and len(set(next(iter(classes)))) == 8 and next(iter(classes))[0] == "the cat sat"
    )
    assert all(told[-1]["written"][0] == 6 for told in notes.values())
