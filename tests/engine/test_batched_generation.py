"""The shared batch of the endpoint: what one request can do to the others."""

from __future__ import annotations

import queue
import threading
import time
from types import SimpleNamespace

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


def test_time_in_which_the_process_stood_still_is_no_silence_of_the_batch():
    """Then a wait of the whole length ends at once, and one of a moment does, too."""
    waits = []

    class Output:
        def get(self, timeout):
            waits.append(timeout)
            if len(waits) == 1:
                raise queue.Empty
            return "part"

    batch = BatchedGeneration(None)
    assert batch._next(SimpleNamespace(output=Output())) == "part"
    assert len(waits) == 2 and max(waits) < batched_generation.SILENCE / 10


def test_an_address_with_many_requests_does_not_slow_the_round_of_another(monkeypatch):
    """Each address advances as many answers a round; those of one address take turns, and alone all advance."""
    rounds, together = [], threading.Barrier(9)

    class Session:
        batch = None

    def answers(sessions, asked, seconds, cancel, caches):
        def one():
            for i in range(1, 5):
                rounds.append((asked.address, asked.prompt))
                yield [{"index": 0, "text": str(i)}]

        return [one()]

    def prepare(loaded, asked, batch):
        together.wait(60)
        return [Session()]

    monkeypatch.setattr(batched_generation, "prepare", prepare)
    monkeypatch.setattr(batched_generation, "answers", answers)
    batch = BatchedGeneration(None)
    batch._thread = threading.current_thread()  # no batch begins before all requests are there
    asked = [Generation(str(i), True, "speculative", {}, {}, address="greedy") for i in range(8)]
    asked.append(Generation("modest", True, "speculative", {}, {}, address="modest"))
    waiting = [
        threading.Thread(target=lambda one=one: list(batch.generate(one, 60, threading.Event())))
        for one in asked
    ]
    [thread.start() for thread in waiting]
    while len(batch._new) < 9:
        time.sleep(0.01)
    batch._work()
    [thread.join(60) for thread in waiting]
    modest = [i for i, (address, _) in enumerate(rounds) if address == "modest"]
    assert len(rounds) == 36 and modest[-1] < 8  # beside each of its four rounds one of the other address
    beside = [prompt for address, prompt in rounds[: modest[-1]] if address == "greedy"]
    assert len(set(beside)) == len(beside)
    alone = [prompt for _, prompt in rounds[12:]]  # the modest one is over: all others advance every round
    assert max(alone.count(prompt) for prompt in alone) <= 4


def test_a_request_that_arrives_waits_for_one_answer_and_not_for_all_of_another_address():
    advanced = []

    def one(i):
        while True:
            advanced.append(i)
            yield []

    job = SimpleNamespace(runs=[one(i) for i in range(4)], output=queue.SimpleQueue())
    lines = {"greedy": [(job, run) for run in job.runs]}
    arrived = iter([True, True, False, False, False])
    for _ in range(3):
        batched_generation._advance_in_turn(lines, lambda job, work: work() or True, lambda: next(arrived))
    assert advanced == [0, 1, 2, 3, 0, 1]


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
