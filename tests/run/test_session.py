"""Runs: what they tell, how they end, what they refuse, and that nothing is left behind."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace

import pytest

from specviz.core import Method, Sampling
from specviz.core.round import BROKEN
from specviz.methods import catalogue
from specviz.run.cut_at_stop import cut_round
from specviz.run.errors import sentence
from specviz.run.racing import _take_turns, race
from specviz.run.request import read_sampling
from specviz.run.session import Session, SessionError
from specviz.trace.events import (
    Committed,
    Decided,
    Drafted,
    Failed,
    Finished,
    Prefilled,
    Started,
    TextEmitted,
    Verified,
)
from specviz.trace.metrics import Totals

from ..message_codes import refuses
from .fakes import FakeKit, FakeLoaded

PROMPT = "the cat sat on the mat"


def run(key="speculative", n=24, loaded=None, knobs=None, sampling=Sampling(), **options):
    return list(Session(loaded or FakeLoaded(), key, knobs, sampling).run(PROMPT, n, **options))


def tokens(events):
    return [x for e in events if isinstance(e, Committed) for x in e.tokens]


def said(events):
    return b"".join(p[1] for e in events if isinstance(e, TextEmitted) for p in e.pieces)


def kinds(events):
    return [type(e).__name__ for e in events]


@pytest.fixture(scope="module")
def plain():
    return run("autoregressive", 40)


def test_the_order_of_what_is_reported(plain):
    assert kinds(plain)[:2] == ["Started", "Prefilled"] and kinds(plain)[-1] == "Finished"
    assert kinds(plain)[2:-1] == ["Drafted", "Verified", "Decided", "Committed", "TextEmitted"] * 40
    assert plain[-1].finish == "length" and plain[-1].totals["tokens"] == 40 == len(tokens(plain))
    assert plain[-1].totals["text_bytes"] == len(said(plain))
    assert 0 < plain[-1].totals["forward_seconds"] <= plain[-1].totals["seconds"]


@pytest.mark.parametrize(
    "key",
    [
        m.key
        for m in catalogue().values()
        if m.exactness in ("exact", "greedy only") and not FakeLoaded().unsupported_reason(m)
    ],
)
def test_every_exact_method_writes_what_plain_decoding_writes(plain, key):
    events = run(key, 40)
    assert isinstance(events[-1], Finished), events[-1]
    assert tokens(events) == tokens(plain) and said(events) == said(plain)


def test_the_header_says_what_runs():
    header = run("speculative", 2, knobs={"gamma": "3"}, sampling=Sampling(0.5, seed=7))[0].header
    assert (
        header["schema"] == "specviz-trace/1"
        and header["method"]["key"] == "speculative"
        and header["knobs"] == {"gamma": 3}
    )
    assert (
        header["sampling"] == {"temperature": 0.5, "top_k": 0, "top_p": 1.0, "seed": 7, "min_p": 0.0}
        and header["mode"] == "live"
    )
    assert (
        header["prompt"]["text"] == PROMPT
        and header["prompt"]["turns"] == []
        and header["max_new_tokens"] == 2
    )


def test_a_conversation_keeps_its_turns():
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "more"},
    ]
    header = next(Session(FakeLoaded(), "autoregressive").run(turns)).header
    assert header["prompt"]["turns"] == [{"role": "user", "text": "hi"}, {"role": "assistant", "text": "yes"}]
    assert header["prompt"]["text"] == "more"


def test_an_end_token_ends_the_run_and_is_not_text():
    loaded = FakeLoaded()
    first = tokens(run("autoregressive", 12, loaded))
    loaded.end_tokens = frozenset({first[5]})
    at = first.index(first[5])
    for key in ("autoregressive", "speculative", "draft_tree"):
        events = run(key, 12, loaded)
        assert tokens(events) == first[: at + 1] and events[-1].finish == "stop"


@pytest.mark.parametrize("key", ["autoregressive", "speculative", "draft_tree", "prompt_lookup"])
def test_a_stop_string_cuts_text_and_tokens_alike_for_every_method(plain, key):
    whole = said(plain).decode("utf-8", "replace")
    stop = next(whole[i : i + 3] for i in range(8, len(whole) - 3) if "\ufffd" not in whole[i : i + 3])
    events = run(key, 40, stop=[stop])
    count = len(tokens(events))
    assert tokens(events) == tokens(plain)[:count] and events[-1].finish == "stop_string"
    assert events[-1].totals["tokens"] == count
    text = said(events)[: events[-1].totals["text_bytes"]].decode("utf-8", "replace")
    assert text == whole[: whole.index(stop)] and stop in said(events).decode("utf-8", "replace")
    last_piece = [p for e in events if isinstance(e, TextEmitted) for p in e.pieces][-1]
    assert stop not in said(events)[: last_piece[2]].decode("utf-8", "replace")  # the last token completes it


def test_a_cut_round_is_what_the_engine_would_have_cut():
    shape = [(0, -1, 1), (1, 0, 2), (2, 0, 2), (3, 2, 3), (4, -1, 1), (5, 3, 4)]
    nodes = tuple({"id": i, "parent": p, "depth": d} for i, p, d in shape)
    trial = {"rule": "match", "p": 1.0, "q": None, "a": 1.0, "u": 0.5}
    verdicts = {0: "accepted", 1: "rejected", 2: "accepted", 3: "accepted", 4: "skipped", 5: "rejected"}
    events = [
        Drafted(0, 0, 1, nodes),
        Decided(0, tuple({"node": i, **trial, "verdict": v} for i, v in verdicts.items())),
        Committed(
            0,
            2,
            (0, 2, 3),
            (7, 8, 9, 10),
            "correction",
            0.5,
            None,
            {"before": 5, "after": 9, "dropped": 3},
            {},
        ),
    ]
    _, judged, committed = cut_round(events, 2)
    assert (
        committed.path == (0,)
        and committed.tokens == (7, 8)
        and committed.kind == "accepted"
        and committed.accepted == 2
    )
    assert committed.kv == {"before": 5, "after": 7, "dropped": 5}
    assert {t["node"]: t["verdict"] for t in judged.decisions} == {**verdicts, 3: "skipped", 5: "skipped"}
    assert cut_round(events, 4) is events
    totals = Totals()
    for event in cut_round(events, 2):
        totals.fold(event)
    assert (totals.tokens, totals.accepted, totals.tried) == (2, 2, 3)


def test_the_context_ends_a_run_that_asked_for_more(plain):
    loaded = FakeLoaded(context=48)
    events = run("speculative", 10**9, loaded)
    prompt = len(events[0].header["prompt"]["ids"])
    assert len(tokens(events)) == 48 - prompt < 40 and events[-1].finish == "context"
    assert tokens(events) == tokens(plain)[: 48 - prompt]


def test_stop_before_the_first_token():
    cancel = threading.Event()
    cancel.set()
    loaded = FakeLoaded()
    events = run(loaded=loaded, cancel=cancel)
    assert kinds(events) == ["Started", "Finished"] and events[-1].finish == "stopped" and not loaded.kits
    cancel = threading.Event()
    stream = Session(FakeLoaded(), "speculative").run(PROMPT, 20, cancel=cancel)
    assert isinstance(next(stream), Started) and isinstance(next(stream), Prefilled)
    cancel.set()
    assert kinds(stream) == ["Finished"]


def test_stop_ends_within_the_round():
    cancel = threading.Event()
    events = []
    for event in Session(FakeLoaded(), "speculative").run(PROMPT, 60, cancel=cancel):
        events.append(event)
        if isinstance(event, Drafted) and event.round == 2:
            cancel.set()
    assert events[-1].finish == "stopped" and sum(isinstance(e, Committed) for e in events) == 3
    assert list(events[-1].records())[0] == {"type": "stop", "why": "stopped"}


def test_a_deadline_ends_the_run():
    events = run(n=60, deadline=0)
    assert kinds(events) == ["Started", "Finished"] and events[-1].finish == "deadline"


def test_whatever_way_it_ends_the_cache_is_freed():
    def ends(take):
        loaded = FakeLoaded()
        stream = Session(loaded, "speculative").run(PROMPT, 20)
        take(stream)
        refs = [weakref.ref(model) for kit in loaded.kits for model in kit.opened]
        loaded.kits.clear()
        gc.collect()
        return len(refs), [ref() for ref in refs]

    def abandon(stream):
        for event in stream:
            if isinstance(event, Committed):
                break
        stream.close()

    def at_the_end(stream):
        assert any(isinstance(event, Finished) for event in stream)

    assert ends(abandon) == (2, [None, None]) and ends(at_the_end) == (2, [None, None])


def broken(error, after):
    """A method that breaks in a given round."""
    plain = catalogue()["autoregressive"]

    def build(kit):
        parts = plain.build(kit)
        propose = parts.drafter.propose

        def breaking(state, budget):
            if state.round >= after:
                raise error
            return propose(state, budget)

        parts.drafter.propose = breaking
        return parts

    return Method("broken", "Broken method", "", "", build)


@pytest.mark.parametrize(
    "error, says",
    [
        (
            RuntimeError("mat1 and mat2 do not fit\nlong traceback"),
            "Broken method stopped: Mat1 and mat2 do not fit.",
        ),
        (MemoryError(), "The device ran out of memory; try a smaller model, fewer lanes or a shorter run."),
        (KeyError(), "Broken method stopped: KeyError."),
        (
            ImportError("cannot import name 'x' from 'a.b' (/srv/app/a/b.py)"),
            "Broken method stopped: Cannot import name 'x' from 'a.b' (b.py).",
        ),
    ],
)
def test_a_method_that_breaks_says_so_in_one_sentence(error, says):
    loaded = FakeLoaded()
    events = list(Session(loaded, broken(error, 2)).run(PROMPT, 9))
    assert isinstance(events[-1], Failed) and events[-1].why == says and len(tokens(events)) == 2
    assert events[-1].totals["tokens"] == 2


def test_weights_that_are_not_numbers_fail_with_a_sentence():
    loaded = FakeLoaded()
    loaded.net.output[3] = float("nan")
    events = run(loaded=loaded)
    assert isinstance(events[-1], Failed) and sentence(BROKEN) == events[-1].why


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "  \n\t",
        None,
        3,
        [],
        [{"role": "user"}],
        [{"role": "robot", "content": "x"}],
        ["hi"],
        [{"role": "user", "content": " "}],
        [{"role": "system", "content": "hi"}],
        [{"role": "assistant", "content": " "}],
        [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}],
        [1, -1],
        [1, 10**6],
        [1, "a"],
        [1, True],
    ],
)
def test_no_prompt_is_refused_before_anything_starts(prompt):
    with pytest.raises(SessionError) as refused:
        Session(FakeLoaded(), "autoregressive").run(prompt)
    assert refused.value.code in (
        "prompt.empty",
        "prompt.form",
        "prompt.last_role",
        "prompt.ids",
    )


def test_token_ids_are_a_prompt():
    ids = Session(FakeLoaded(), "autoregressive").encode(PROMPT, raw=True)
    by_text, by_ids = (
        list(Session(FakeLoaded(), "speculative").run(prompt, 12, raw=True)) for prompt in (PROMPT, ids)
    )
    assert by_ids[0].header["prompt"] == by_text[0].header["prompt"] and tokens(by_ids) == tokens(by_text)


def test_prompts_longer_than_the_context_are_refused_unread_when_absurd():
    session = Session(FakeLoaded(context=64), "autoregressive")
    with refuses(SessionError, "prompt.context", 64):
        session.run("the cat " * 60)
    with refuses(SessionError, "prompt.long", 4096):
        session.run("x" * 100_000)


@pytest.mark.parametrize("length", [0, -1, float("nan"), float("inf"), "abc", "", 1.5, True, [4], {}])
def test_lengths_that_are_no_lengths(length):
    with pytest.raises(SessionError, match="max_new_tokens") as refused:
        Session(FakeLoaded(), "autoregressive").run(PROMPT, length)
    assert refused.value.code in ("request.number", "request.whole")


@pytest.mark.parametrize("length", [3, 3.0, "3"])
def test_lengths_that_are(length):
    assert len(tokens(run("autoregressive", length))) == 3


@pytest.mark.parametrize(
    "options, says",
    [
        ({"stop": [""]}, "request.stop_length"),
        ({"stop": [3]}, "request.stop_length"),
        ({"stop": ["a"] * 17}, "request.stop_length"),
        ({"deadline": -1}, "request.deadline"),
        ({"deadline": "soon"}, "request.number deadline"),
        ({"top_k_saved": -1}, "request.whole top_k_saved"),
        ({"top_k_saved": 10**6}, "request.whole top_k_saved"),
    ],
)
def test_options_out_of_range(options, says):
    with refuses(SessionError, *says.split()):
        run(**options)


def test_one_stop_string_may_be_given_bare(plain):
    assert run("autoregressive", 40, stop="\x00never")[-1].finish == "length"


@pytest.mark.parametrize(
    "key, knobs, sampling, says",
    [
        ("speculativ", {}, Sampling(), "method.unknown speculativ"),
        ("../../x", {}, Sampling(), "method.unknown ../../x"),
        ("speculative", {"gama": 3}, Sampling(), "knob.unknown gama"),
        ("speculative", {"gamma": 0}, Sampling(), "knob.range"),
        ("speculative", {"gamma": "x"}, Sampling(), "knob.kind"),
        (replace(catalogue()["jacobi"], exactness="greedy only"), {}, Sampling(0.5), "method.greedy_only 0"),
    ],
)
def test_methods_and_knobs_that_do_not_fit(key, knobs, sampling, says):
    with refuses(SessionError, *says.split()):
        Session(FakeLoaded(), key, knobs, sampling)


def test_a_method_that_lacks_something_says_what_would_make_it_work():
    loaded = FakeLoaded()
    loaded.unsupported_reason = lambda method: "Needs a draft model; give one with --draft."
    with refuses(SessionError, "method.missing"):
        Session(loaded, "speculative")


def test_sampling_from_what_people_send():
    assert read_sampling("0.7", "5", 0.9, "3") == Sampling(0.7, 5, 0.9, 3)
    for bad in (
        {"temperature": "hot"},
        {"temperature": 3},
        {"top_p": 0},
        {"top_k": 1.5},
        {"seed": None},
        {"seed": 10**40},
        {"temperature": float("nan")},
    ):
        with pytest.raises(SessionError):
            read_sampling(**bad)


def test_the_saved_distributions_come_with_the_events():
    events = run("speculative", 8, sampling=Sampling(1.0), top_k_saved=3)
    assert all(len(e.tail_top) == 3 for e in events if isinstance(e, Committed) and e.tail_top)
    assert any(node.get("top") for e in events if isinstance(e, Drafted) for node in e.nodes)


def test_a_race_takes_turns_by_the_engines_clock():
    loaded = FakeLoaded()
    keys = ["speculative", "prompt_lookup", "autoregressive"]
    lanes = [Session(loaded, key) for key in keys]
    events = list(race(lanes, PROMPT, 20))
    assert [lane for lane, _ in events[:3]] == [0, 1, 2] and all(
        isinstance(e, Started) for _, e in events[:3]
    )
    alone = tokens(run("autoregressive", 20, loaded))
    for lane in range(3):
        mine = [e for at, e in events if at == lane]
        assert tokens(mine) == alone and isinstance(mine[-1], Finished)
    turns, inside = [], None
    for lane, event in events[3:]:  # nobody is interrupted in a round
        assert inside in (None, lane)
        inside = lane if isinstance(event, (Drafted, Verified, Decided, Committed)) else None
        turns += [lane] if isinstance(event, Committed) else []
    assert len(set(turns[:8])) > 1
    ids = [e.header for _, e in events[:3]]
    assert [h["baseline_run_id"] for h in ids] == [ids[2]["run_id"], ids[2]["run_id"], None]


def test_the_lane_with_the_least_time_goes_next():
    class Lane:
        """A run whose turns cost what the test says."""

        def __init__(self, costs):
            self.left = list(costs)
            self.spent = 0.0
            self.over = False
            self.events = (e for e in ["started"])

        def clock(self):
            return self.spent

        def turn(self):
            self.spent += self.left.pop(0)
            self.over = not self.left
            yield self.spent

    events = list(_take_turns([Lane([3, 3, 3]), Lane([1, 1, 1, 1, 1]), Lane([10])]))
    assert events[:3] == [(0, "started"), (1, "started"), (2, "started")]
    assert events[3:] == [(0, 3), (1, 1), (2, 10), (1, 2), (1, 3), (0, 6), (1, 4), (1, 5), (0, 9)]


def test_a_lane_that_fails_leaves_the_others_alone():
    loaded = FakeLoaded()
    events = list(
        race([Session(loaded, broken(ValueError("no"), 1)), Session(loaded, "autoregressive")], PROMPT, 10)
    )
    assert [type(e) for lane, e in events if lane == 0][-1] is Failed
    assert [e for lane, e in events if lane == 1][-1].finish == "length"


def test_a_race_that_is_abandoned_frees_every_lane():
    loaded = FakeLoaded()
    stream = race([Session(loaded, "autoregressive"), Session(loaded, "speculative")], PROMPT, 30)
    for _, event in stream:
        if isinstance(event, Committed):
            break
    stream.close()
    refs = [weakref.ref(model) for kit in loaded.kits for model in kit.opened]
    loaded.kits.clear()
    gc.collect()
    assert refs and not any(ref() for ref in refs)


def test_notes_belong_to_their_round():
    plain = catalogue()["autoregressive"]

    def build(kit):
        parts = plain.build(kit)
        parts.drafter.observe = lambda state, outcome: [
            state.note("pool", keys=k) for k in range(state.round)
        ]
        return parts

    noting = Method("noting", "Noting", "", "", build)
    lanes = [Session(FakeLoaded(), noting), Session(FakeLoaded(), "autoregressive")]
    events = [event for lane, event in race(lanes, PROMPT, 4) if lane == 0]
    rounds = [[type(e).__name__ for e in events if getattr(e, "round", None) == r] for r in range(4)]
    assert rounds == [
        ["Drafted", "Verified", "Decided", "Committed", "TextEmitted"] + ["Noted"] * (r + 1) for r in range(4)
    ]
    order = [e.round for e in events if hasattr(e, "round")]
    assert order == sorted(order)  # emitted with their round, before another lane's turn


def test_repeats_are_reported_at_the_end_of_each_lane():
    loaded = FakeLoaded()
    events = list(
        race([Session(loaded, key) for key in ("speculative", "autoregressive")], PROMPT, 12, repeats=3)
    )
    again = [lane for lane, event in events if event is None]
    assert sorted(again) == [0, 0, 1, 1]
    ends = {lane: event for lane, event in events if isinstance(event, Finished)}
    for end in ends.values():
        assert [r["tokens"] for r in end.totals["repeats"]] == [12, 12] and all(
            r["seconds"] > 0 for r in end.totals["repeats"]
        )
    assert [event for _, event in events[-2:]] == list(ends.values())
    assert all(model.cached_tokens == [] for kit in loaded.kits for model in kit.opened)
    with refuses(SessionError, "request.whole", "repeats"):
        race([Session(loaded, "autoregressive")], PROMPT, 4, repeats=99)


def test_the_repeats_of_a_race_say_how_many_passes_were_replaced():
    loaded, keys = FakeLoaded(), ("speculative", "autoregressive")
    events = race([Session(loaded, key) for key in keys], PROMPT, 12, repeats=3)
    ends = [event.totals for _, event in events if isinstance(event, Finished)]
    assert [set(run) for end in ends for run in end["repeats"]] == [{"tokens", "seconds", "replaced"}] * 4
    for end in ends:
        assert all(run["tokens"] == end["tokens"] and run["seconds"] > 0 for run in end["repeats"])


def test_repeats_end_with_the_race_they_repeat():
    cancel = threading.Event()
    events = []
    for _, event in race([Session(FakeLoaded(), "autoregressive")], PROMPT, 12, repeats=5, cancel=cancel):
        events.append(event)
        if event is None:
            cancel.set()
    assert events.count(None) == 1 and events[-1].totals["repeats"] == []


def test_a_predicted_text_reaches_the_method_and_changes_no_token(monkeypatch):
    """What plain decoding writes, as the prediction: three rounds at the most, and the same tokens; any
    other text changes none."""
    loaded = FakeLoaded()
    plain, rounds = tokens(run("autoregressive", loaded=loaded)), []
    words = {"what it will write": plain, "nothing of the kind": [5] * 40}
    monkeypatch.setattr(FakeKit, "encode", lambda self, text: words[text])
    for predicted in words:
        events = list(
            Session(loaded, "predicted_output", {"caution": 0}, predicted=predicted).run(PROMPT, 24)
        )
        assert tokens(events) == plain and loaded.kits[-1].predicted == tuple(words[predicted])
        rounds.append(sum(isinstance(e, Committed) for e in events))
    assert rounds[0] <= 3 < rounds[1]
    run("predicted_output", loaded=loaded)
    assert loaded.kits[-1].predicted == (), "a run without one has none"


@pytest.mark.parametrize(
    "predicted, words", [(7, "request.predicted"), ("x" * 64 * 128 + "x", "request.predicted_long 8193")]
)
def test_a_predicted_text_is_refused_with_a_sentence(predicted, words):
    with refuses(SessionError, *words.split()):
        Session(FakeLoaded(), "predicted_output", predicted=predicted)


@pytest.mark.parametrize("part", ["start", "propose", "observe"])
@pytest.mark.parametrize(
    "error",
    [SystemExit(0), SystemExit("bye"), StopIteration(), RecursionError(), MemoryError()],
    ids=lambda e: type(e).__name__,
)
def test_whatever_a_part_raises_ends_its_lane_with_a_sentence_and_no_other(monkeypatch, part, error):
    from specviz.drafters.model.chain import DraftChain

    def broken(*_):
        raise error

    monkeypatch.setattr(DraftChain, part, broken)
    loaded, ends = FakeLoaded(), {}
    for lane, event in race([Session(loaded, "speculative"), Session(loaded, "autoregressive")], PROMPT, 6):
        if isinstance(event, (Finished, Failed)):
            ends[lane] = event
    assert (
        isinstance(ends[0], Failed)
        and ends[0].why
        and isinstance(ends[1], Finished)
        and ends[1].totals["tokens"] == 6
    )
