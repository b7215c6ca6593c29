"""What breaks around the engine: clocks, laws that are none, an earlier answer that crowns a false winner,
a kill."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
import torch

from specviz import zoo
from specviz.cli import commands as cli
from specviz.core import FixedCosts, InvalidDistribution, RandomStreams, Sampling
from specviz.indexes.earlier_answers import Memory
from specviz.methods import catalogue
from specviz.models import linear
from specviz.run import Session, collect, race
from specviz.trace.events import Failed, Finished, Noted, Started
from specviz.training.runner import KEPT

from ..run.fakes import FakeLoaded
from ..training.test_runner import trial

PROMPT = "the cat sat on the mat and the cat sat on the hat and the cat"


# --- clocks ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "tick", [lambda n: 0.0, lambda n: -float(n), lambda n: float(n), lambda n: float(n % 2)]
)
def test_whatever_a_clock_says_a_model_loads(monkeypatch, tick):
    calls = iter(range(10**9))
    monkeypatch.setattr(linear.time, "thread_time", lambda: tick(next(calls)))
    monkeypatch.setattr(linear.time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(linear, "MOST_ROUNDS", 6)
    weights = [torch.randn(8, 4), torch.randn(4, 8)]
    layout = linear.fastest_layout(weights, 256)
    assert torch.allclose(layout(weights[0])(torch.ones(5, 4)), torch.ones(5, 4) @ weights[0].T, atol=1e-5)


# --- laws --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("top_p", [1e-300, 5e-324, 1e-45, 1e-9])
def test_the_nucleus_always_holds_the_best_token(top_p):
    for dtype in (torch.float32, torch.float64):
        logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 2.0, -torch.inf]], dtype=dtype)
        p = Sampling(1.0, top_p=top_p).probs(logits)
        assert p.sum(-1).tolist() == [1.0, 1.0] and p.argmax(-1).tolist() == [1, 0]
    first = collect(Session(FakeLoaded(), "autoregressive").run(PROMPT, 9)).token_ids
    assert (
        collect(
            Session(FakeLoaded(), "speculative", None, Sampling(1.0, top_p=top_p)).run(PROMPT, 9)
        ).token_ids
        == first
    )


@pytest.mark.parametrize("row", [[float("nan"), 1.0], [float("inf"), 1.0], [-float("inf")] * 2])
def test_logits_that_give_no_distribution_are_refused(row):
    with pytest.raises(InvalidDistribution):
        Sampling(0.7).probs(torch.tensor([[0.0, 1.0], row]))
    if row[0] != row[0]:
        with pytest.raises(InvalidDistribution):
            Sampling(0.0).probs(torch.tensor([[0.0, 1.0], row]))


@pytest.mark.parametrize(
    "probs", [[float("nan"), 0.5], [0.0, 0.0], [0.2, 0.2], [float("inf"), 0.0], [2.0, 2.0], [-0.5, 0.5]]
)
def test_nothing_is_drawn_from_what_is_no_distribution(probs):
    with pytest.raises(InvalidDistribution):
        RandomStreams(0).pick("verify", torch.tensor(probs))
    with pytest.raises(InvalidDistribution):
        RandomStreams(0).flip("verify", float("nan"))


def sampling_methods():
    return [
        key
        for key, method in catalogue().items()
        if method.exactness != "greedy only" and not FakeLoaded().unsupported_reason(method)
    ]


@pytest.mark.parametrize("key", sampling_methods())
def test_a_broken_distribution_ends_every_method_with_a_sentence(key, monkeypatch):
    """The fourth call gives no distribution: no method may write on from it."""
    calls, whole = iter(range(10**6)), Sampling.probs

    def broken(self, logits):
        p = whole(self, logits)
        return p * float("nan") if next(calls) >= 3 and self.temperature == 0.8 else p

    monkeypatch.setattr(Sampling, "probs", broken)
    *_, end = Session(FakeLoaded(), key, None, Sampling(0.8, seed=3)).run(PROMPT, 30)
    if isinstance(end, Finished):  # it never asked for that many laws
        assert next(calls) <= 3
    else:
        assert isinstance(end, Failed) and end.why.endswith(".") and "\n" not in end.why


@pytest.mark.parametrize("who", ["net", "draft"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_weights_that_become_infinite_end_the_run_with_a_sentence(who, temperature):
    loaded = FakeLoaded()
    whole = collect(Session(loaded, "autoregressive").run(PROMPT, 9)).token_ids
    getattr(loaded, who).output[:] = float("nan")
    *told, end = Session(loaded, "speculative", None, Sampling(temperature)).run(PROMPT, 9)
    if (
        who == "draft" and not temperature
    ):  # nothing is drawn: every guess is wrong, and what is written is right
        assert (
            isinstance(end, Finished)
            and [p[0] for e in told if hasattr(e, "pieces") for p in e.pieces] == whole
        )
    else:
        assert isinstance(end, Failed) and "not" in end.why and end.why.endswith(".")


# --- what a visitor's earlier runs left ------------------------------------------------------------------------------------
def played(session, length=24):
    events = list(session.run(PROMPT, length))
    return events[0].header, events[-1].totals


def test_repeats_see_the_memory_as_it_was_when_the_run_began():
    loaded, memory = FakeLoaded(), Memory()
    lanes = [
        Session(loaded, key, memory=memory, deterministic=True)
        for key in ("autoregressive", "suffix_decoding", "rasd")
    ]
    alone = {i: played(Session(loaded, lane.method, deterministic=True))[1] for i, lane in enumerate(lanes)}
    seen = []
    whole = Session.open

    def watched(session, *args, **options):
        run = whole(session, *args, **options)
        seen.append(run)
        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "open", watched)
        told = list(race(lanes, PROMPT, 24, repeats=2))
    ends = {lane: event for lane, event in told if isinstance(event, Finished)}
    for lane, end in ends.items():
        assert end.totals["remembered"] == 0 and len(end.totals["repeats"]) == 1
        assert end.totals["rounds"] == alone[lane]["rounds"]
    assert len(seen) == 3 + 3 + 3  # lanes, warm-ups, repeats
    assert all(run.remembered.tokens == 0 for run in seen)
    assert len(memory.answers) == 1  # all three wrote the same; the unseen runs left no mark


def test_what_is_copied_from_earlier_answers_is_reported():
    loaded, memory = FakeLoaded(), Memory()
    first = played(Session(loaded, "suffix_decoding", memory=memory, deterministic=True))[1]
    again = played(Session(loaded, "suffix_decoding", memory=memory, deterministic=True))[1]
    assert first["remembered"] == 0 and 0 < again["remembered"] <= again["accepted"] <= again["tokens"] == 24
    told = list(
        race([Session(loaded, "suffix_decoding", memory=memory, deterministic=True)], PROMPT, 24, repeats=2)
    )
    assert told[-1][1].totals["remembered"] == again["remembered"]  # a chat remembers, in a race too


def test_a_copy_of_a_memory_is_a_copy():
    memory = Memory(capacity=20)
    memory.add([1, 2, 3])
    memory.table("t", dict)[1] = [2]
    frozen = memory.snapshot()
    memory.table("t", dict)[1].append(9)
    memory.add([4])
    first, second = frozen.copy(), frozen.copy()
    first.table("t", dict)[1].append(5)
    first.add([7])
    assert (
        second.table("t", dict) == {1: [2]}
        and second.since(0) == [(1, 2, 3)]
        and memory.table("t", dict) == {1: [2, 9]}
    )
    assert first.since(1) == [(7,)] and memory.taken == 2
    second.clear_unless_mark("another")
    assert second.table("t", dict) == {}


# --- the seed alone --------------------------------------------------------------------------------------------------------
CLOCKED = [
    "cost_ratio",
    "banditspec",
    "sequoia",
    "prompt_lookup",
    "suffix_decoding",
    "copyspec",
    "token_recycling",
    "staged_models",
    "pearl",
]


def one(key, loaded, seed, jitter, monkeypatch, deterministic):
    rng = random.Random(jitter)
    passed = [0.0]

    def clock():
        passed[0] += rng.choice([1e-6, 1e-4, 0.3])
        return passed[0]

    monkeypatch.setattr("specviz.run.session.State", lambda *a, **k: patched_state(clock, *a, **k))
    events = list(
        Session(loaded, key, None, Sampling(1.0, seed=seed), deterministic=deterministic).run(PROMPT, 40)
    )
    assert isinstance(events[-1], Finished), events[-1]
    told = [
        e.data for e in events if isinstance(e, Noted) and e.kind in ("gate", "arms", "length", "sequoia")
    ]
    return (
        [p[0] for e in events if hasattr(e, "pieces") for p in e.pieces],
        told,
        [e.kind for e in events if isinstance(e, Noted)],
        events,
    )


def patched_state(clock, *args, **options):
    from specviz.core import Clock, State

    return State(*args, **options, clock=Clock(clock))


@pytest.mark.parametrize(
    "key",
    [key for key in CLOCKED if key in catalogue() and not FakeLoaded().unsupported_reason(catalogue()[key])],
)
def test_deterministic_runs_are_the_seeds_alone(key, monkeypatch):
    loaded = FakeLoaded()
    for seed in (1, 2):
        first, second = (one(key, loaded, seed, jitter, monkeypatch, True) for jitter in (5, 77))
        assert first[:3] == second[:3] and not any("rest" in data for data in first[1])
        assert next(e for e in first[3] if isinstance(e, Started)).header["deterministic"] is True
        assert (
            first[3][-1].totals["seconds"] != second[3][-1].totals["seconds"]
        )  # what is told is still what was measured


@pytest.mark.parametrize("best", [linear.PlainLinear, linear.TransposedLinear])
def test_what_a_clock_says_of_layouts_changes_no_bit_of_a_deterministic_run(at_home, monkeypatch, best):
    """A measured layout is another one in another process, and rounds differently; the fixed one is not
    measured at all."""

    def measure(weights, budget):
        return {
            tuple(w.shape): {
                kind: {1: 1.0 + (kind is not best), 8: 1.0 + (kind is not best)}
                for kind in (linear.PlainLinear, linear.TransposedLinear)
            }
            for w in weights
        }

    monkeypatch.setattr(linear, "_measure", measure)
    measured = zoo.load()
    monkeypatch.setattr(linear, "_measure", lambda *_: pytest.fail("a layout was measured"))
    fixed = zoo.load(deterministic=True)
    assert measured.model.kernel == best.kernel and {fixed.model.kernel, fixed.draft.kernel} == {"transposed"}
    assert zoo.load("tiny", deterministic=True).model is fixed.model is not measured.model is zoo.load().model
    first = collect(Session(measured, "speculative", deterministic=True).run("the cat", 12)).token_ids
    assert collect(Session(fixed, "speculative", deterministic=True).run("the cat", 12)).token_ids == first


@pytest.mark.parametrize("argv", [["run", "--method", "speculative", "--prompt", "x"], ["bench"], ["load"]])
def test_the_commands_load_what_they_promise(monkeypatch, argv):
    asked = []
    monkeypatch.setattr(zoo, "load", lambda *_, **how: asked.append(how["deterministic"]) or 1 / 0)
    for more in ([], ["--deterministic"]):
        assert cli.main([*argv, *more]) == 1
    assert asked == [False, True]


def test_the_clock_decides_where_it_may_and_the_trace_says_so(monkeypatch):
    runs = [one("cost_ratio", FakeLoaded(), 1, jitter, monkeypatch, False) for jitter in (5, 77)]
    assert runs[0][1] != runs[1][1]
    assert next(e for e in runs[0][3] if isinstance(e, Started)).header["deterministic"] is False


def test_fixed_costs_are_in_units_of_a_pass():
    costs = FixedCosts(0.1)
    costs.learn(4, 9.0, 2, 9.0)
    assert (
        costs.verify(0) == 1.0
        and costs.verify(10) == pytest.approx(1.7)
        and costs.draft(3) == pytest.approx(0.3)
    )
    assert costs.charged(2, 1, {"plan": 5.0, "verify": 5.0}) == {
        "plan": 0.0,
        "verify": costs.verify(2),
        "draft": 0.1,
    }
    assert costs.new_empty().draft(1) == 0.1 and costs.decided(3.0) == 0.0


# --- training ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "argv, says",
    [
        (["--steps", "0"], "whole number from 1"),
        (["--steps", "-5"], "whole number from 1"),
        (["--steps", "x"], "whole number"),
        (["--threads", "-1"], "whole number from 1"),
        (["--threads", "0"], "whole number"),
        (["--device", "tpu9"], "no device 'tpu9'"),
        (["--device", "meta"], "no device 'meta'"),
        (["--minutes", "0"], "above zero"),
        (["--minutes", "x"], "above zero"),
        (["--minutes", "nan"], "above zero"),
    ],
)
def test_training_arguments_that_make_no_sense_get_a_sentence(argv, says, capsys):
    from specviz.training.__main__ import parser

    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["target", *argv])
    said = capsys.readouterr().err
    assert caught.value.code == 2 and says in said and "Traceback" not in said


def test_a_kill_costs_at_most_a_minute_of_training(tmp_path, monkeypatch):
    """Steps of twelve seconds: between two checkpoints there is never more than a minute of them."""
    runner, _, loss_at = trial(tmp_path, 12)
    clock, saves = [0.0], [0.0]
    monkeypatch.setattr("specviz.training.runner.time.monotonic", lambda: clock[0])
    update, save = runner.update, runner.save

    def slow(loss_at):
        clock[0] += 12.0
        return update(loss_at)

    def noted():
        saves.append(clock[0])
        save()

    runner.update, runner.save = slow, noted
    runner.hparams = runner.hparams | {"save_minutes": 60}
    runner.train(loss_at)
    assert max(b - a for a, b in zip(saves, saves[1:])) <= KEPT == 60.0


# --- the page's start --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name, value",
    [
        ("GRADIO_SERVER_PORT", "abc"),
        ("GRADIO_SERVER_PORT", "-1"),
        ("GRADIO_SERVER_PORT", "99999"),
        ("GRADIO_NUM_PORTS", "x"),
        ("GRADIO_SERVER_PORT", ""),
    ],
)
def test_a_port_that_is_none_is_one_sentence(name, value):
    done = subprocess.run(
        [sys.executable, "app.py"],
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (
        done.returncode == 1
        and done.stderr.startswith(name)
        and "65535" in done.stderr
        and done.stderr.count("\n") == 1
    )
