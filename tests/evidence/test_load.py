"""Methods under load: arrivals, figures on a scripted clock, and the measurement on the tiny pair."""

from __future__ import annotations

import json
import threading

import pytest

from specviz import load
from specviz.cli import commands
from specviz.core import Sampling
from specviz.evidence.load_test import (
    break_even_sentences,
    load_test,
    measuring,
    timed_requests,
    with_arrival_times,
    with_plain_ratio,
)
from specviz.evidence.prompt_suites import Item
from specviz.evidence.simulated_server import Answer, LoadResult, Server, TimedRequest, median_and_p95
from specviz.run import machine
from specviz.run.request import SessionError
from specviz.run.result import collect
from specviz.run.session import Session

from ..message_codes import refuses


@pytest.fixture
def pair(at_home):
    return load()


def test_arrivals_are_the_same_for_everybody_and_come_at_the_rate():
    asks = [TimedRequest("a", [1], 4, i) for i in range(2000)]
    times = [ask.arrival for ask in with_arrival_times(asks, 5.0, 3)]
    assert (
        times == [ask.arrival for ask in with_arrival_times(asks, 5.0, 3)]
        and times[0] == 0
        and times == sorted(times)
    )
    assert times[-1] / 1999 == pytest.approx(1 / 5, rel=0.1) and times != [
        ask.arrival for ask in with_arrival_times(asks, 5.0, 4)
    ]


def test_requests_take_the_prompts_in_turn_with_lengths_of_their_own(pair):
    session = Session(pair, "autoregressive")
    asks = timed_requests(session, [Item("a", "the cat"), Item("b", "the sea"), Item("c", "x" * 900)], 40, 20)
    assert {ask.task for ask in asks} == {"a", "b"} and len({ask.seed for ask in asks}) == 40
    assert {ask.length for ask in asks} <= set(range(10, 21)) and len({ask.length for ask in asks}) > 5
    assert asks == timed_requests(
        session, [Item("a", "the cat"), Item("b", "the sea"), Item("c", "x" * 900)], 40, 20
    )
    with refuses(SessionError, "suite.too_long"):
        timed_requests(session, [Item("c", "x" * 900)], 4, 20)


def test_figures_by_hand():
    assert (
        median_and_p95([]) is None
        and median_and_p95([3.0]) == [3.0, 3.0]
        and median_and_p95([float(i) for i in range(21)]) == [10, 19]
    )
    row = LoadResult(
        [Answer("a", 0.0, 1.0, 5.0, 9), Answer("a", 2.0, 2.5, 6.0, 8), Answer("a", 7.0)],
        [1, 2, 1],
        rows=34,
        drafted=20,
        accepted=5,
    ).row()
    assert (
        row["requests"] == 2
        and row["seconds"] == 6
        and row["goodput"] == 17 / 6
        and row["throughput"] == 34 / 6
    )
    assert row["first_token"][0] == 0.75 and row["token_time"] == [0.5, 0.5] and row["latency"][0] == 4.5
    assert row["batch"] == 4 / 3 and row["drafted"] == 5 and row["accepted"] == 0.25
    assert LoadResult().row() == {"requests": 0, "tokens": 0}
    rows = with_plain_ratio(
        [
            {"load": "1", "method": "autoregressive", "goodput": 10.0},
            {"load": "1", "method": "x", "goodput": 5.0},
            {"load": "2", "method": "x", "goodput": 5.0},
        ]
    )
    assert [r["against_plain"] for r in rows] == [1, 0.5, None]


def served(pair, method, asks, users=0, slots=16, reported=lambda _: None):
    """On a clock that goes on by a millisecond whenever it is read."""
    ticks = iter(range(10**7))
    server = Server(Session(pair, method, None, Sampling(1.0)), slots, lambda: next(ticks) / 1000)
    for out in server.serve(asks, users):
        reported(out)
    return out


def asks_of(pair, count: int, length: int = 9) -> list[TimedRequest]:
    ids = Session(pair, "autoregressive").encode("the cat sat")
    return [TimedRequest("a", ids, length, i) for i in range(count)]


@pytest.mark.parametrize("method", ["autoregressive", "speculative", "tetris", "smartspec"])
def test_everybody_is_answered_and_never_more_at_once_than_there_are(pair, method):
    out = served(pair, method, asks_of(pair, 7), users=3)
    assert len(out.answers) == 7 and all(1 <= answer.tokens <= 9 for answer in out.answers)
    assert (
        all(answer.arrival <= answer.first <= answer.done for answer in out.answers) and max(out.rounds) == 3
    )
    ends = sorted(answer.done for answer in out.answers)
    assert sorted(answer.arrival for answer in out.answers) == [0, 0, 0, *ends[:4]], (
        "who is answered asks anew"
    )
    assert max(served(pair, method, asks_of(pair, 7), users=7, slots=2).rounds) == 2


def test_what_a_policy_of_a_batch_learns_lasts_as_long_as_its_server(pair):
    ticks = iter(range(10**7))
    server, other = (Server(Session(pair, "smartspec"), 4, lambda: next(ticks) / 1000) for _ in range(2))
    learned = []
    for one in (server, server, other):
        for played in one.serve(asks_of(pair, 2), 2):
            if len(played.rounds) == 1:
                policy = one.batch.requests[0].parts.policy
        learned.append((policy, policy.rounds))
    assert (
        learned[0][0] is learned[1][0] is not learned[2][0]
        and learned[1][1] > learned[0][1] >= learned[2][1] > 0
    )


def test_as_many_requests_as_the_largest_load_come_first_and_count_nowhere(pair, monkeypatch):
    seen, serve = [], Server.serve

    def counted(self, asks, users):
        seen.append((len(asks), users, max(ask.length for ask in asks)))
        return serve(self, asks, users)

    monkeypatch.setattr(Server, "serve", counted)
    *_, last = measuring(
        pair, ["autoregressive"], users=[1, 5], requests=2, slots=4, max_new_tokens=40, tasks=["chat"]
    )
    assert (
        seen[0] == (4, 4, 16)
        and [users for _, users, _ in seen] == [4, 1, 5]
        and [row["requests"] for row in last["rows"]] == [2, 2]
    )


def test_an_idle_server_jumps_to_the_next_arrival(pair):
    asks = [
        TimedRequest("a", ask.ids, ask.length, ask.seed, at)
        for ask, at in zip(asks_of(pair, 3), (0.0, 500.0, 500.0))
    ]
    out = served(pair, "autoregressive", asks)
    assert out.answers[1].first >= 500 and out.answers[1].first - 500 < 1 and set(out.rounds) == {1, 2}


def test_under_load_a_request_writes_what_it_writes_alone(pair):
    texts, reported = {}, []

    def keep(served):
        reported.append(sum(answer.tokens for answer in served.answers))

    out = served(pair, "speculative", asks_of(pair, 4), users=4, reported=keep)
    for ask, answer in zip(asks_of(pair, 4), out.answers):
        session = Session(pair, "speculative", None, Sampling(1.0, seed=ask.seed))
        texts[ask.seed] = len(collect(session.run("the cat sat", ask.length)).token_ids)
        assert answer.tokens == texts[ask.seed]
    assert reported == sorted(reported) and reported[-1] == sum(texts.values())


def test_a_stop_ends_it_after_the_round_and_gives_every_cache_back(pair, monkeypatch):
    kits, made = [], pair.kit
    monkeypatch.setattr(type(pair), "kit", lambda self: kits.append(made()) or kits[-1])
    serving = Server(Session(pair, "speculative"), 16).serve(asks_of(pair, 5, 40), 5)
    out = next(serving)
    serving.close()
    assert len(out.rounds) == 1 and not any(answer.done for answer in out.answers)
    assert len(kits) == 5 and all(
        kit.target.cached_tokens == [] and kit.target._cache is None for kit in kits
    )


def test_the_command_prints_and_stores_the_same(at_home, capsys, tmp_path):
    status = commands.main(
        [
            "load",
            "--users",
            "1,3",
            "--requests",
            "4",
            "--max-new-tokens",
            "8",
            "--tasks",
            "chat",
            "--json",
            "--methods",
            "autoregressive,smartspec,pearl",
            "--out",
            str(tmp_path / "load.json"),
        ]
    )
    found = json.loads(capsys.readouterr().out)
    assert status == 0 and json.loads((tmp_path / "load.json").read_text()) == found
    assert [(row["load"], row["method"]) for row in found["rows"]] == [
        ("1 user", "autoregressive"),
        ("1 user", "smartspec"),
        ("3 users", "autoregressive"),
        ("3 users", "smartspec"),
    ]
    assert all(
        row["requests"] == 4 and row["goodput"] > 0 and row["against_plain"] > 0 for row in found["rows"]
    )
    assert found["environment"]["skipped"].keys() == {"pearl"} and found["environment"]["packed"]
    assert (
        commands.main(
            ["load", "--rate", "50", "--requests", "3", "--max-new-tokens", "6", "--methods", "tetris"]
        )
        == 0
    )
    assert "50 requests/s  tetris" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong, says",
    [
        (["--users", "0"], "users must be a whole number, 1 to 64"),
        (["--users", "many"], "users must be a number"),
        (["--rate", "-1"], "requests a second above 0"),
        (["--methods", "pearl"], "its own decoding loop"),
        (["--methods", "speculativ"], "did you mean speculative"),
        (["--requests", "0"], "requests must be"),
        (["--tasks", "songs"], "no task 'songs'"),
        (["--slots", "1e9"], "slots must be"),
    ],
)
def test_a_mistake_is_one_line(at_home, capsys, wrong, says):
    assert commands.main(["load", *wrong]) != 0
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_progress_is_reported_and_a_stop_reports_what_there_is(pair):
    cancel, seen = threading.Event(), []

    def progress(at):
        seen.append(at)
        if at["users"] == 4:  # in the second load; how often progress is told depends on the machine
            cancel.set()

    report = load_test(
        pair, users=[2, 4], requests=3, max_new_tokens=6, tasks=["chat"], progress=progress, cancel=cancel
    )
    assert report["environment"]["interrupted"] and len(report["rows"]) == 8
    assert seen[0].keys() == {"method", "users", "done", "of", "tokens"} and seen[0]["of"] == 3


def test_the_clock_of_a_method_stands_while_others_are_measured(pair):
    ticks = [0.0]
    server = Server(Session(pair, "autoregressive"), 4, lambda: ticks[0])
    rounds = server.serve(asks_of(pair, 2), 2)
    for _ in rounds:
        ticks[0] += 1000.0
    assert server.clock.now() == 0


def test_a_load_says_that_the_machine_was_busy(pair, monkeypatch):
    monkeypatch.setattr(machine, "fit_threads", lambda measure, compiled: (1, 1.0))

    def report():
        return [
            *measuring(
                pair,
                ["autoregressive", "speculative"],
                users=[1],
                requests=2,
                max_new_tokens=4,
                tasks=["chat"],
            )
        ][-1]

    at_rest = report()
    assert [row["busy"] for row in at_rest["rows"]] == [False] * 2 and len(at_rest["said"]) == 1
    pair.pass_seconds = 1e-9  # the usual time of a pass: every pass takes longer than that
    busy = report()
    assert [row["busy"] for row in busy["rows"]] == [True] * 2
    assert (
        len(busy["said"]) == 1 and "1 user" in busy["said"][0] and busy["said"] != at_rest["said"]
    )  # nothing is concluded, and why


def test_a_report_grows_and_ends_with_a_sentence_for_each_method(pair, monkeypatch):
    monkeypatch.setattr(
        machine, "fit_threads", lambda measure, compiled: (1, 1.0)
    )  # no pass is slow beside that: a busy machine concludes nothing
    *growing, last = measuring(
        pair, ["autoregressive", "speculative"], users=[2, 1], requests=2, max_new_tokens=4, tasks=["chat"]
    )
    assert [at["at"]["users"] for at in growing] == sorted(at["at"]["users"] for at in growing)
    assert growing[0]["said"] == [] and growing[-1]["said"], "of the loads that are over"
    assert [row["load"] for row in last["rows"]] == ["1 user"] * 2 + ["2 users"] * 2 and not last[
        "environment"
    ]["interrupted"]
    assert len(last["said"]) == 1 and last["said"][0].startswith("Speculative decoding")


@pytest.mark.parametrize(
    "ratios, says",
    [
        (
            (1.4, 1.2, 0.8),
            "pays up to 2 users (1.20 times plain decoding) and no longer with 4 users (0.80 times)",
        ),
        ((1.4, 1.2, 1.1), "pays at every load measured, up to 4 users (1.10 times"),
        ((0.7, 0.9, 0.8), "pays at no load measured: at best 0.90 times plain decoding, with 2 users"),
        (
            (0.9, 1.2, 0.8),
            "at some loads and not at others, times plain decoding: 1 user 0.90, 2 users 1.20, 4 users 0.80",
        ),
        ((1.4, 0.9, None), "up to 1 user (1.40 times plain decoding) and no longer with 2 users"),
    ],
)
def test_where_speculation_stops_paying_is_named(ratios, says):
    loads = [f"{n} user{'s' * (n > 1)}" for n in (1, 2, 4)]
    rows = [
        {
            "load": load,
            "method": method,
            "requests": 9,
            "against_plain": 1.0 if method == "autoregressive" else ratio,
        }
        for load, ratio in zip(loads, ratios)
        if ratio
        for method in ("autoregressive", "speculative")
    ]
    rows.append({"load": "8 users", "method": "speculative", "requests": 3, "against_plain": 9.0})
    assert says in break_even_sentences(rows, 9)[0] and break_even_sentences(rows, 8) == []
    rows.append(
        {"load": "16 users", "method": "speculative", "requests": 9, "against_plain": 0.1, "busy": True}
    )
    kept, left_out = break_even_sentences(rows, 9)
    assert says in kept and "16 users" in left_out
