"""All loops from outside: limits, end tokens, Stop, deadlines, stop strings, what is recorded, and knobs
that do not fit."""

from __future__ import annotations

import threading

import pytest

from specviz.core import Sampling
from specviz.evidence import certificate as certify
from specviz.evidence.statistics import ACCEPTANCE
from specviz.methods import catalogue
from specviz.run.request import SessionError
from specviz.run.session import Session
from specviz.trace.events import Committed, Decided, Finished, Started, TextEmitted
from specviz.trace.files import Trace, check
from specviz.trace.recorder import Recorder

from ..exactness.toys import any_knobs
from ..message_codes import begins, refuses
from ..run import fakes
from .toys import MINE, cores

PROMPT = "the cat sat on the mat and the"


class FakeLoaded(fakes.FakeLoaded):
    def open_target(self):
        return self.kit().target


def stream(key, length=24, loaded=None, knobs=None, sampling=Sampling(), **options):
    return Session(loaded or FakeLoaded(), key, knobs, sampling).run(PROMPT, length, **options)


def tokens(events):
    return [token for event in events if isinstance(event, Committed) for token in event.tokens]


@pytest.mark.parametrize("key", MINE)
def test_the_records_are_a_trace_and_every_verdict_can_be_recomputed(key):
    for seed in range(2):
        loaded, lane = FakeLoaded(), []
        knobs = any_knobs(catalogue()[key], seed) if seed else {}
        recorder = Recorder(0, loaded.token_bytes)
        with cores(1 + seed):
            for event in stream(key, 24, loaded, knobs, Sampling(float(seed)), top_k_saved=3):
                lane += recorder.take(event)
                if isinstance(event, Decided):
                    assert all(
                        t["u"] is None or (t["u"] < t["a"]) == (t["verdict"] == "accepted")
                        for t in event.decisions
                    )
        check(lane)
        trace = Trace(lane)
        assert trace.totals()["tokens"] == 24 and trace.totals()["seconds"] > 0
        assert trace.of("lens")
        for drafted, verified in zip(trace.of("draft"), trace.of("verify")):
            assert drafted["t0"] <= drafted["t1"] and verified["t0"] <= verified["t1"]


@pytest.mark.parametrize("key", MINE)
def test_limits_and_end_tokens_hold(key):
    for length in (1, 2, 5):
        events = list(stream(key, length))
        assert len(tokens(events)) == length and events[-1].finish == "length"
    whole, loaded = tokens(stream(key, 12)), FakeLoaded()
    loaded.end_tokens = frozenset({whole[4]})
    events = list(stream(key, 12, loaded))
    assert tokens(events) == whole[: whole.index(whole[4]) + 1] and events[-1].finish == "stop"


@pytest.mark.parametrize("key", MINE)
def test_stop_deadline_and_walking_away_end_it_and_free_the_caches(key):
    with cores(2):
        cancel = threading.Event()
        loaded = FakeLoaded()
        seen = []
        for event in stream(key, 100, loaded, cancel=cancel):
            seen.append(event)
            if isinstance(event, Committed):
                cancel.set()
        assert seen[-1].finish == "stopped" and sum(isinstance(e, Committed) for e in seen) == 1
        assert list(stream(key, 100, loaded, deadline=0))[-1].finish == "deadline"
        walk = stream(key, 100, loaded)
        assert isinstance(next(walk), Started) and next(e for e in walk if isinstance(e, Committed))
        walk.close()
    assert all(model.root is None and not model.cached_tokens for kit in loaded.kits for model in kit.opened)
    assert not [t for t in threading.enumerate() if t.name.startswith("draft")]


@pytest.mark.parametrize("key", MINE)
def test_a_stop_string_cuts_a_round_and_its_rows_add_up(key):
    loaded = FakeLoaded()
    reported = list(stream(key, 24, loaded))
    whole, text = (
        tokens(reported),
        b"".join(piece[1] for e in reported if isinstance(e, TextEmitted) for piece in e.pieces),
    )
    stop = next(chr(byte) for byte in reversed(text) if 32 < byte < 127)
    events = list(stream(key, 24, loaded, stop=[stop]))
    last = [e for e in events if isinstance(e, Committed)][-1]
    assert events[-1].finish == "stop_string" and tokens(events) == whole[: len(tokens(events))]
    assert last.kv["dropped"] >= 0 and (
        last.kind == "small" or last.kv["after"] - last.kv["before"] >= len(last.tokens)
    )


@pytest.mark.parametrize(
    "key, knobs, says",
    [
        ("pearl", {"gamma": 0}, "knob.range"),
        ("pearl", {"parallel": 1}, "knob.unknown parallel"),
        ("specdec", {"beta": 0}, "knob.range"),
        ("specdec", {"tau": "far"}, "knob.kind"),
        ("bild", {"fallback": 1.2}, "knob.range"),
        ("bild", {"rollback": float("nan")}, "knob.kind"),
        ("entropy_adaptive", {"window": 1.5}, "knob.kind"),
        ("entropy_adaptive", {"dwell": 0}, "knob.range"),
        ("contrastive_decoding", {"router": "svm"}, "knob.choice"),
        ("contrastive_decoding", {"alpha": 0}, "knob.range"),
        ("proxy_decoding", {"beta": 1}, "knob.unknown beta"),
        ("specreason", {"step": "word"}, "knob.choice"),
        ("specreason", {"least": 10}, "knob.range"),
    ],
)
def test_knobs_that_do_not_fit_are_refused_in_words(key, knobs, says):
    with refuses(SessionError, *says.split()):
        Session(FakeLoaded(), key, knobs)


def test_certificates_know_what_each_promises():
    for key in MINE:
        greedy, exact = (
            certify.greedy(FakeLoaded(), key, [[1, 2, 3, 4]], 12),
            catalogue()[key].exactness == "exact",
        )
        probs = (
            certify.distribution(FakeLoaded(), key, [1, 2, 3, 4], 40)
            if not exact
            else {"status": "not applicable"}
        )
        assert probs["status"] == "not applicable"
        if exact:
            assert greedy["status"] == "identical"
        elif greedy["status"] == "diverged":
            assert greedy["detail"].endswith(certify.TEXTS["lossy"].format(exactness="approximate"))
    assert [key for key in MINE if catalogue()[key].exactness == "exact"] == ["pearl"]


def test_the_first_token_of_pearl_is_accepted_as_often_as_the_closed_form_says():
    answer = certify.distribution(FakeLoaded(), "pearl", [1, 2, 3, 4], 120)
    assert answer["status"] == "pass" and begins({"a": ACCEPTANCE}, "a") in answer["detail"], answer["detail"]


def test_each_runs_to_the_end_at_any_temperature_and_knobs():
    for key in MINE:
        for seed in range(3):
            events = list(
                stream(
                    key,
                    16,
                    knobs=any_knobs(catalogue()[key], seed),
                    sampling=Sampling(0.8, top_p=0.9, seed=seed),
                )
            )
            assert isinstance(events[-1], Finished) and len(tokens(events)) == 16, events[-1]
