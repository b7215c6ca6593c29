"""The shared batch of the endpoint: what one request can do to the others."""

from __future__ import annotations

import threading
import time

import pytest

from specviz.engine import batched_generation
from specviz.engine import engine as engine_module
from specviz.engine.batched_generation import BatchedGeneration
from specviz.engine.engine import Engine
from specviz.engine.generation import Generation
from specviz.engine.messages import Refused

ASKED = Generation("x", True, "speculative", {}, {})


def test_a_batch_that_hangs_is_given_up_and_the_next_request_is_answered(monkeypatch):
    hangs = threading.Event()

    def answers(sessions, asked, seconds, cancel, caches):
        def one():
            if asked is ASKED:
                hangs.wait(60)
            yield [{"index": 0, "text": "done"}]

        return [one()]

    class Session:
        batch = None

    monkeypatch.setattr(batched_generation, "SILENCE", 0.3)
    monkeypatch.setattr(batched_generation, "prepare", lambda loaded, asked, batch: [Session()])
    monkeypatch.setattr(batched_generation, "answers", answers)
    batch = BatchedGeneration(None)
    with pytest.raises(Refused) as why:
        list(batch.generate(ASKED, 60, threading.Event()))
    assert why.value.code == "run.silent"
    monkeypatch.setattr(batched_generation, "SILENCE", 60.0)
    asked = Generation("y", True, "speculative", {}, {})
    assert list(batch.generate(asked, 60, threading.Event())) == [[{"index": 0, "text": "done"}]]
    hangs.set()


def test_a_slow_check_of_one_request_does_not_hold_the_batch(monkeypatch):
    """Pictures are decoded and grammars compiled in the request's own thread."""
    gate, threads = threading.Event(), []

    class Session:
        batch = None

    def prepare(loaded, asked, batch):
        threads.append(threading.current_thread().name)
        if asked is ASKED:
            gate.wait(60)
        return [Session()]

    monkeypatch.setattr(batched_generation, "prepare", prepare)
    monkeypatch.setattr(
        batched_generation, "answers", lambda *given: [iter([[{"index": 0, "text": "done"}]])]
    )
    batch = BatchedGeneration(None)
    slow = threading.Thread(target=lambda: list(batch.generate(ASKED, 60, threading.Event())), name="slow")
    slow.start()
    while not threads:
        time.sleep(0.01)
    asked = Generation("y", True, "speculative", {}, {})
    assert list(batch.generate(asked, 60, threading.Event())) == [[{"index": 0, "text": "done"}]]
    gate.set()
    slow.join(60)
    assert threads[0] == "slow" and "specviz-batch" not in threads


@pytest.mark.parametrize("kind", ["lark", "regex"])
def test_a_request_whose_masks_may_be_slow_joins_no_batch(kind):
    engine = Engine.__new__(Engine)
    engine._lock = threading.Lock()
    engine._batchable = {(None, "speculative", "{}"): "any"}
    fields = {"response_format": {"type": kind, kind: "start: x"}}
    assert Engine.batch_name(engine, None, Generation("x", True, "speculative", {}, fields)) == ""
    assert Engine.batch_name(engine, None, ASKED) == "batch:"


def test_a_method_is_built_by_a_request_that_has_its_turn_and_few_are_remembered(monkeypatch):
    built = []
    monkeypatch.setattr(engine_module, "KEPT_SHARING", 3)
    monkeypatch.setattr(engine_module, "batch_sharing", lambda *given: built.append(given[1:]) or "any")
    monkeypatch.setattr("specviz.engine.generation.generate", lambda *given, **named: iter(["answer"]))
    engine = Engine()
    engine._loaded[None] = object()
    for i in range(9):
        asked = Generation("x", True, "speculative", {"depth": i}, {})
        assert engine.batch_name(None, asked) == "" and len(built) == i
        assert list(engine.generate(None, asked, threading.Event(), 9)) == ["answer"]
        assert engine.batch_name(None, asked) == "batch:" and len(built) == i + 1
    assert len(engine._batchable) == 3
