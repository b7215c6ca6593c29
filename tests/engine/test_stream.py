"""Frames, the run's thread, the conversation, and the cards: without a browser."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from specviz.engine import engine_job
from specviz.engine.cards import cards
from specviz.engine.engine_job import EngineJob
from specviz.engine.limits import BASELINE, RunQueue, RunRequest, Visitor
from specviz.engine.stream import BEAT, CORES, WINDOW_CHARACTERS, Frames, LiveRun, json_for_html
from specviz.ui.chat import KEPT_RUNS, Chat, lane_answers
from specviz.ui.start_content import recorded_board, start_content

from ..message_codes import refuses
from ..ui.fake import FakeBackend

ASK = RunRequest("tell of the fox", (("chain", {}), (BASELINE, {})), max_new_tokens=40)


def alone(work):
    """Run a coroutine in a thread of its own, whatever loops other tests have left in this one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result(timeout=60)


def collect(backend, ask=ASK, run_queue=None, at=None):
    """All frames of a run; ``at(live, frame)`` is called with each."""
    live = LiveRun(backend, run_queue or RunQueue(), ask)

    async def go():
        out = []
        async for frame in live.stream():
            out.append(frame)
            if at:
                at(live, frame)
        return out

    return alone(go()), live


def straight(ask=ASK):
    return [r for batch in FakeBackend().run(ask, threading.Event(), 60) for r in batch]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_long_run_lets_one_of_another_address_go_between_two_outputs(monkeypatch, stopped):
    """It begins only when the long one waits, which then goes on or, if its client has left meanwhile, ends."""
    monkeypatch.setattr(engine_job, "SLICE", 0.0)
    line, begun, order = RunQueue(), threading.Event(), []
    short_may_end = threading.Event()

    def long_work(stop):
        for i in range(50):
            order.append(i)
            begun.set()
            while not any(ticket.address == "other" for ticket in line._tickets) and "short" not in order:
                threading.Event().wait(0.001)
            yield i

    def short_work(stop):
        order.append("short")
        assert short_may_end.wait(60)
        order.append("over")
        yield "short"

    async def output_of(job):
        return [one async for part in job.stream() if isinstance(part, list) for one in part]

    async def both():
        long = EngineJob(line, long_work, Visitor("one"), gives_way=True)
        first = asyncio.ensure_future(output_of(long))
        await asyncio.to_thread(begun.wait, 60)
        second = asyncio.ensure_future(output_of(EngineJob(line, short_work, Visitor("other"))))
        while "short" not in order:
            await asyncio.sleep(0.001)
        if stopped:
            long.stop.set()
        short_may_end.set()
        return await first, await second

    long, short = alone(both())
    at = order.index("short")
    assert at <= 2 and order[at + 1] == "over" and short == ["short"] and not line._tickets
    assert long == [*range(at if stopped else 50)]


def test_time_in_which_the_process_stood_still_is_no_silence_of_a_run(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(engine_job, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    stands, goes_on = threading.Event(), threading.Event()

    def work(stop):
        stands.set()
        assert goes_on.wait(60)
        yield "done"

    async def output():
        job = EngineJob(RunQueue(), work)
        parts = asyncio.ensure_future(anext(job.stream()))
        await asyncio.to_thread(stands.wait, 60)
        for _ in range(3):
            clock[0] += 600.0
            await asyncio.sleep(3 * BEAT)
        goes_on.set()
        return await parts

    assert alone(output()) == ["done"]


def test_the_frames_carry_every_record_once_and_the_last_one_all():
    frames, _ = collect(FakeBackend())
    assert [f["s"] for f in frames] == list(range(len(frames)))
    assert [r for f in frames[:-1] for r in f["e"]] == straight() == frames[-1]["e"]
    assert frames[-1]["snap"] and frames[-1]["status"]["state"] == "done"
    assert [bool(f.get("new")) for f in frames].count(True) == 1
    first = next(f for f in frames if f.get("new"))
    assert first["e"] and all(not f["e"] for f in frames[: frames.index(first)])


def test_a_format_that_is_tried_holds_nobody_else(monkeypatch):
    """While it is tried whether a format compiles, its run has no place in the queue and others are served."""
    pytest.importorskip("llguidance")
    started, release = threading.Event(), threading.Event()

    def slow(source):
        started.set()
        return release.wait(60)

    monkeypatch.setattr("specviz.run.structured.compiles_in_time", slow)
    form = {"type": "lark", "lark": "start: X\nX: /[a-z]*/ & /a.*/"}
    backend, line = FakeBackend(), RunQueue()
    asked = replace(ASK, generation={"response_format": form})
    with ThreadPoolExecutor(max_workers=1) as pool:
        held = pool.submit(collect, backend, asked, line)
        assert started.wait(60) and not line._tickets
        assert collect(backend, ASK, line)[0][-1]["status"]["state"] == "done" and not held.done()
        release.set()
        assert held.result(60)[0][-1]["status"]["state"] == "done"


def test_the_window_is_short_and_ends_with_the_newest_frame():
    frames = Frames(5)
    for i in range(30):
        frame = frames.add([{"type": "x", "i": i}])
        lines = frames.window().splitlines()
        assert json.loads(lines[-1]) == frame and len(lines) <= 8
    frames.add([{"big": "x" * WINDOW_CHARACTERS}])
    frames.add([{"big": "x" * WINDOW_CHARACTERS}])
    frames.add([{"small": 1}])
    assert len(frames.window().splitlines()) == 2  # the newest and the one before it, whatever their size


def test_packed_text_cannot_leave_its_place():
    text = json_for_html({"a": "</script><img>\u2028\u2029"})
    assert "<" not in text and "\u2028" not in text and json.loads(text)["a"].startswith("</script>")


def test_stop_ends_within_a_round_and_keeps_what_was_said():
    backend = FakeBackend()
    backend.hold(6)

    def at(live, frame):
        if frame["e"]:
            live.stop.set()

    frames, _ = collect(backend, at=at)
    assert frames[-1]["status"]["state"] == "stopped" and backend.rounds <= 6 and backend.active == 0
    assert {r["finish"] for r in frames[-1]["e"] if r["type"] == "done"} == {"stopped"}


@pytest.mark.parametrize(
    "fault, state, says",
    [
        ("crash", "error", "RuntimeError"),
        ("lane", "done", "Draft chain failed"),
        ("nan", "error", "not finite"),
        ("oom", "error", "memory"),
    ],
)
def test_a_fault_is_a_sentence_and_gives_the_place_back(fault, state, says):
    backend, line = FakeBackend(), RunQueue()
    backend.fault = fault
    frames, _ = collect(backend, run_queue=line)
    assert frames[-1]["status"]["state"] == state and says in frames[-1]["status"]["text"]
    assert "secret" not in json.dumps(frames[-1])
    backend.fault = ""
    frames, _ = collect(backend, run_queue=line)
    assert frames[-1]["status"]["state"] == "done"


def test_leaving_ends_the_run():
    backend, line = FakeBackend(), RunQueue()
    backend.hold(4)
    live = LiveRun(backend, line, ASK)

    async def go():
        frames = live.stream()
        async for frame in frames:
            if frame["e"]:
                break
        await frames.aclose()

    alone(go())
    assert live.stop.is_set()
    backend.hold(None)
    frames, _ = collect(backend, run_queue=line)
    assert frames[-1]["status"]["state"] == "done"


def test_a_full_queue_is_refused_at_once():
    line = RunQueue(waiting=0)
    line.enter()
    frames, _ = collect(FakeBackend(), run_queue=line)
    assert frames[-1]["status"]["state"] == "error" and frames[-1]["status"]["code"] == "queue.full"


def test_the_conversation_has_the_words_and_the_colours_of_the_trace():
    chat = Chat()
    turn = chat.add("tell of the fox", straight())
    assert turn.agree and [s.key for s in turn.answers] == ["chain", BASELINE]
    assert turn.answers[0].text == turn.answers[1].text == "".join(text for text, _ in turn.answers[0].pieces)
    assert {v for _, v in turn.answers[0].pieces} == {"accepted", "correction", "bonus"}
    assert {v for _, v in turn.answers[1].pieces} == {"plain"}
    turn.chosen = 1
    assert chat.messages() == [
        {"role": "user", "content": "tell of the fox"},
        {"role": "assistant", "content": turn.answers[1].text},
    ]
    assert chat.add("nothing", []) is None and len(chat.turns) == 1


def test_a_character_spread_over_tokens_is_whole_again():
    raw = "\U0001f98a".encode()
    row = {"lane": 0, "round": 0}
    records = [
        {"type": "header", "lane": 0, "method": {"key": "chain", "title": "Draft chain"}},
        row | {"type": "commit", "path": [0], "tail": {"tok": 2, "why": "bonus"}},
        row
        | {
            "type": "text",
            "pieces": [
                {"tok": 1, "b": b64encode(raw[:2]).decode(), "span": [0, 2]},
                {"tok": 2, "b": b64encode(raw[2:]).decode(), "span": [2, 4]},
            ],
        },
    ]
    (said_,) = lane_answers(records)
    assert said_.text == "\U0001f98a" and said_.pieces == (("\U0001f98a", "bonus"),)


def test_old_records_are_let_go_and_their_words_kept():
    chat, records = Chat(), straight()
    for i in range(KEPT_RUNS + 2):
        chat.add(f"question {i}", records)
    assert [t.records is None for t in chat.turns] == [True] * 2 + [False] * KEPT_RUNS
    assert [row["open"] for row in chat.view(3)] == [False, False, True] and all(
        row["pieces"] for row in chat.view(3)
    )


def test_what_is_offered_names_methods_that_exist():
    known = cards()
    offered = start_content(known)
    assert offered.examples and set(offered.chosen) | set(offered.first) <= set(known)
    assert len(offered.chosen) >= 1 and all(example["methods"] for example in offered.examples)


def test_a_broken_offer_or_recording_is_an_empty_one(tmp_path):
    broken = tmp_path / "x"
    broken.write_text("{:::")
    assert start_content(FakeBackend().cards, broken).examples == () and start_content(
        FakeBackend().cards, broken
    ).chosen == ("chain", "lookup")
    assert json.loads(recorded_board(broken))["status"]["state"] == "idle"
    assert json.loads(recorded_board(tmp_path / "nowhere"))["e"] == []


def test_the_recording_is_a_whole_trace():
    from specviz import Trace
    from specviz.ui.start_content import RECORDED

    trace = Trace.load(RECORDED)
    assert trace.lanes == list(range(len(trace.lanes))) and len(trace.lanes) >= 3
    assert [trace.header(i)["method"]["key"] for i in trace.lanes][-1] == BASELINE
    assert all(trace.text(i) and trace.totals(i)["tokens"] for i in trace.lanes)


def test_a_lent_accelerator_is_used_by_the_call(monkeypatch):
    """On a ZeroGPU Space the run is one decorated generator, given plain data, ended by closing it."""
    import pickle
    import sys
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from specviz.engine import engine

    seconds, closed = [], []

    def lend(duration):
        def decorate(work):
            def call(*given):
                pickle.dumps(given)
                seconds.append(duration(*given))
                return work(*given)

            return call

        return decorate

    def play(loaded, ask, limit):
        try:
            for i in range(100):
                yield [{"type": loaded, "i": i}]
        finally:
            closed.append(i)

    spaces = ModuleType("spaces")
    spaces.GPU, spaces.__spec__ = lend, ModuleSpec("spaces", None)
    monkeypatch.setitem(sys.modules, "spaces", spaces)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setattr(engine, "run_lanes", play)
    monkeypatch.setattr(
        engine.Engine, "load", lambda self, target: self._loaded.setdefault(target, "weights")
    )
    mine, cancel = engine.Engine(), threading.Event()
    run = mine.run(ASK, cancel, 60.0)
    assert mine.ready(None) and next(run) == [{"type": "weights", "i": 0}]
    cancel.set()
    assert list(run) == [] and closed == [0] and 10 <= seconds[0] <= 60

    monkeypatch.setattr(
        engine.lab,
        "answer",
        lambda name, payload, loaded, stop: iter([f"{name} on {loaded}, {payload}", stop()]),
    )
    asked = list(mine.answer("cost_curve", {"a": 1}, threading.Event(), 60.0))
    assert (
        asked == ["cost_curve on weights, {'a': 1}", False] and len(seconds) == 2 and seconds[1] < 60
    )  # the Lab borrows it too

    def refuse(*given):
        raise engine.lab.LabError("Not on this model.")
        yield

    for broken, code in ((refuse, "run.engine"), (lambda *given: _quota(), "models.accelerator")):
        monkeypatch.setattr(engine, "run_lanes", broken)
        with refuses(engine.Refused, code):
            list(mine.run(ASK, threading.Event(), 60.0))


def _quota():
    import gradio

    raise gradio.Error("quota exceeded")
    yield


def test_a_reader_that_falls_behind_is_updated_less_often():
    live = LiveRun(FakeBackend(), RunQueue(), ASK)
    live.frames.first = 100
    assert live.beat() == BEAT  # a program that never says what it has seen
    for seen, slower in [(99, 1), (81, 1), (80, 2), (60, 4), (-5, 4), (10**9, 1)]:
        live.painted(seen)
        assert live.beat() == BEAT * CORES * slower
    backend = FakeBackend()

    def at(live, frame):
        live.painted(frame["s"] - 50)

    slow, _ = collect(backend, at=at)
    assert [r for f in slow[:-1] for r in f["e"]] == straight() == slow[-1]["e"]
