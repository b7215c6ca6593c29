"""A lane from a server: recorded answers in the engines' documented forms, what is observed of them,
inferred and unknown."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from specviz.core import Sampling
from specviz.servers.dialects import ENGINES
from specviz.servers.figures import by_position
from specviz.servers.http_client import Bounds, error_words
from specviz.servers.merge_lanes import merge_lanes
from specviz.servers.messages import TEXTS
from specviz.servers.stream import Stream
from specviz.trace.events import Checked, Failed, Finished, Received
from specviz.trace.files import Trace, check
from specviz.trace.recorder import Recorder
from specviz.zoo.registry import Server

from ..message_codes import codes
from .fake import HEAD, Fake, said, sse
from .strict import refusal

ASK = [{"role": "user", "content": "Say it."}]
WIDE = Bounds(
    connect=20.0,
    begin=20.0,
    silent=20.0,
    line=2**16,
    stream=2**18,
    page=2**16,
    messages=200,
    pieces=1000,
    lines=5000,
)
TIGHT = replace(WIDE, connect=0.3, begin=0.3, silent=0.3)  # for what hangs
GREEDY = Sampling()

IDS = [(11, 12, 13), (14,), (15, 16)]
WORDS = ["One two three", " four", " five six"]
VLLM_END = {
    "choices": [],
    "model": "m",
    "usage": {"prompt_tokens": 9, "completion_tokens": 6},
    "metrics": {
        "speculative_decoding": {
            "mean_acceptance_length": 2.0,
            "draft_acceptance_rate": 0.5,
            "acceptance_histogram": [1, 1, 1, 0],
            "acceptance_histogram_by_draft_length": {"2": [1, 1, 1]},
            "num_spec_steps": 3,
            "num_accepted_draft_tokens": 3,
            "num_draft_tokens": 6,
            "num_spec_tokens": 3,
            "per_step_accepted": [2, 0, 1],
            "per_step_drafted": [2, 2, 2],
        }
    },
}
SGLANG_END = {
    "choices": [],
    "model": "m",
    "usage": {"prompt_tokens": 9, "completion_tokens": 6},
    "sglext": {
        "spec_tokens_details": {
            "spec_accept_rate": 0.5,
            "spec_accept_length": 2.0,
            "spec_verify_ct": 3,
            "spec_num_correct_drafts": 3,
            "spec_num_proposed_drafts": 6,
            "spec_correct_drafts_histogram": [1, 1, 1],
        }
    },
}
PAGE = """# HELP vllm:spec_decode_num_drafts_total steps
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} %d.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} %d.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} %d.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} %d.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} %d.0
vllm:generation_tokens_total{engine="0"} NaN
"""


def with_ids(*end):
    return (
        HEAD
        + b"\r\n"
        + sse(
            said("", choice_={"delta": {"role": "assistant", "content": ""}}),
            *(
                said(text, "stop" if i == 2 else None, choice_={"token_ids": list(ids)})
                for i, (ids, text) in enumerate(zip(IDS, WORDS))
            ),
            *end,
        )
    )


def timings(text, n, drafted, accepted, finish=None):
    return said(
        text,
        finish,
        timings={
            "prompt_n": 9,
            "prompt_ms": 30.0,
            "predicted_n": n,
            "predicted_ms": 10.0 * n,
            "draft_n": drafted,
            "draft_n_accepted": accepted,
        },
    )


def mlxvlm_end(written, **counts):
    return {
        "choices": [],
        "model": "m",
        "usage": {"prompt_tokens": 9, "completion_tokens": written},
        "timings": {"prompt_n": 9, "predicted_n": written, "draft_kind": "mtp", **counts},
    }


def pages(*counts):
    """A metrics page that shows these counts, the first at the first look."""
    left = list(counts)
    return lambda send, gone: send(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
        + (PAGE % (left.pop(0) if len(left) > 1 else left[0])).encode()
    )


def answers():
    """Anew each time: a metrics page tells other counts at its second look."""
    return {
        "plain": HEAD
        + b"\r\n"
        + sse(
            said("One"),
            said(" two"),
            said("", "length"),
            {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
        ),
        "bursts": HEAD
        + b"\r\n"
        + sse(
            said("One two three"), said(" four", "length"), {"choices": [], "usage": {"completion_tokens": 4}}
        ),
        "vllm": with_ids(VLLM_END),
        "vllm/metrics": pages((10, 20, 5, 4, 1), (13, 26, 8, 6, 2)),
        "quiet": with_ids(),
        "sglang": with_ids(SGLANG_END),
        "sglang/metrics": lambda send, gone: send(
            b'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nsglang:spec_accept_length{tp_rank="0"} 2.5\n'
            b'sglang:spec_accept_rate{tp_rank="0"} 0.7\n'
        ),
        "llamacpp": HEAD
        + b"\r\n"
        + sse(
            timings("One", 1, 0, 0),
            timings(" two", 2, 4, 3),
            timings(" three", 3, 4, 3),
            timings(" four", 4, 4, 3),
            timings(" five", 5, 4, 3),
            timings(" six", 6, 8, 3, "stop"),
        ),
        "mlxvlm": HEAD
        + b"\r\n"
        + sse(
            said("One two three four", timings={"predicted_per_second": 9.5}),
            said(" five six", "stop", timings={"predicted_per_second": 9.5}),
            mlxvlm_end(6, draft_rounds=2, draft_n=6, draft_n_accepted=3),
        ),
        "short": HEAD
        + b"\r\n"
        + sse(
            said("Yes", timings={"predicted_per_second": None}),
            said(".", "stop", timings={"predicted_per_second": 9.5}),
            mlxvlm_end(2, draft_rounds=1, draft_n=7, draft_n_accepted=6),
        ),
        "trtllm": HEAD
        + b"\r\n"
        + sse(
            said("One two three four"),
            said(
                " five six",
                choice_={
                    "finish_reason": "stop",
                    "delta": {"content": " five six"},
                    "avg_decoded_tokens_per_iter": 2.0,
                    "speculative_decoding": {
                        "acceptance_rate": 0.5,
                        "total_accepted_draft_tokens": 3,
                        "total_draft_tokens": 6,
                        "num_spec_steps": 3,
                        "acceptance_histogram": [1, 1, 1],
                        "num_spec_tokens": None,
                    },
                },
            ),
            {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 6}},
        ),
        "mute/models": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"data": [{"id": "its-own"}]}',
        "mute": HEAD + b"\r\n" + sse(said("Hm", "stop", model="its-own")),
        "thinks": HEAD
        + b"\r\n"
        + sse(said("", choice_={"delta": {"reasoning_content": "Let me see. "}}), said("Yes.", "stop")),
    }


@pytest.fixture(scope="module")
def fake():
    one = Fake(answers())
    yield one
    one.close()


def lane(fake, case, engine="openai", most=64, bounds=WIDE, **more):
    fake.engines[case] = engine
    server = Server(case, engine, f"{fake.url}/{case}", **{"model": "m", **more})
    stream = Stream(server, ASK, most, GREEDY, 60.0, bounds)
    recorder = Recorder(0, None)
    events = list(stream.events())
    records = [record for event in events for record in recorder.take(event)]
    check(records)  # what anybody's trace is held to
    assert isinstance(events[-1], (Finished, Failed)) and sum(isinstance(e, Checked) for e in events) == 1
    return (
        events,
        Trace(records),
        {
            f["name"]: (f["badge"], f["value"])
            for f in next(e for e in events if isinstance(e, Checked)).detail["facts"]
        },
    )


def test_a_stream_is_a_lane_on_the_clients_clock(fake):
    events, trace, facts = lane(fake, "plain")
    assert (
        trace.header()["clock"] == "client"
        and trace.header()["method"]["key"] == "server:plain"
        and trace.text() == "One two"
    )
    times = [r["t"] for r in trace.of("commit")]
    assert (
        times == sorted(times)
        and trace.of("prefill")[0]["t1"] == times[0]
        and trace.of("prefill")[0]["n"] == 0
    )
    assert not trace.of("draft") and not trace.of("verify") and not trace.of("judge")  # nobody told of any
    assert (
        facts["tokens"] == ("observed", 2)
        and facts["prompt_tokens"] == ("observed", 9)
        and facts["refused_ids"] == ("unknown", None)
    )
    assert facts["passes"] == facts["accepted_length"] == ("unknown", None) and events[-1].finish == "length"
    asked = fake.asked["plain"]["body"]
    assert (
        asked["model"],
        asked["messages"],
        asked["max_tokens"],
        asked["temperature"],
        asked["stream"],
    ) == ("m", ASK, 64, 0.0, True)
    assert "Authorization" not in fake.asked["plain"]["head"]


def test_vllm_tells_ids_and_steps(fake):
    events, trace, facts = lane(fake, "vllm", "vllm")
    assert [e.tokens for e in events if isinstance(e, Received)] == IDS and trace.text() == "".join(WORDS)
    assert fake.asked["vllm"]["body"]["return_token_ids"] is True
    assert (
        facts["drafted"] == ("observed", 6)
        and facts["accepted"] == ("observed", 3)
        and facts["acceptance_rate"] == ("observed", 0.5)
    )
    assert facts["by_position"] == ("observed", [[3, 2], [2, 1]]) and facts["per_step"] == (
        "observed",
        [[2, 2], [2, 0], [2, 1]],
    )
    assert (
        facts["passes"] == ("observed", 3)
        and facts["accepted_length"] == ("observed", 2.0)
        and facts["token_ids"] == ("observed", None)
    )
    assert facts["server_accepted_length"] == ("observed", 2.0) and facts["server_by_position"] == (
        "observed",
        [2 / 3, 1 / 3],
    )
    assert trace.totals()["by_position"] == [[3, 2], [2, 1]] and trace.totals()["rounds"] == 3


def test_what_is_not_reported_is_inferred_from_the_sizes_or_unknown(fake):
    _, _, facts = lane(fake, "quiet", "vllm")
    assert (
        facts["passes"] == ("inferred", 3)
        and facts["accepted_length"] == ("inferred", 2.0)
        and facts["drafted"] == ("unknown", None)
    )
    for engine in ("openai", "llamacpp"):  # neither says that a message is what one pass wrote
        _, _, facts = lane(fake, "bursts", engine)
        assert facts["tokens"] == ("observed", 4) and facts["passes"] == ("unknown", None)
    assert lane(fake, "bursts", "sglang")[2]["passes"] == ("inferred", 2)


def test_sglang_tells_a_histogram_at_the_end_and_gauges_aside(fake):
    events, _, facts = lane(fake, "sglang", "sglang")
    assert isinstance(events[-1], Finished) and facts["token_ids"] == ("unknown", None)
    assert fake.asked["sglang"]["body"]["return_spec_tokens_details"] is True
    assert facts["drafted"] == ("observed", 6) and facts["by_position"] == (
        "inferred",
        [[3, 2], [2, 1]],
    )  # draft lengths are not told
    assert facts["server_accepted_length"] == ("observed", 2.5) and facts["server_acceptance_rate"] == (
        "observed",
        0.7,
    )


def test_llama_server_tells_its_drafts_while_it_streams(fake):
    _, trace, facts = lane(fake, "llamacpp", "llamacpp")
    assert [r["data"].get("drafted") for r in trace.of("lens")] == [0, 4, 4, 4, 4, 8]
    assert (
        facts["drafted"] == ("observed", 8)
        and facts["passes"] == ("observed", 3)
        and facts["accepted_length"] == ("observed", 2.0)
    )
    assert (
        facts["own_seconds"] == ("observed", 0.06) and "steps" not in facts
    )  # passes without a draft are among them
    asked = fake.asked["llamacpp"]["body"]
    assert asked["timings_per_token"] is True and (
        asked["top_k"],
        asked["min_p"],
        asked["repeat_penalty"],
    ) == (0, 0.0, 1.0)


def test_mlx_vlm_tells_its_rounds(fake):
    _, trace, facts = lane(fake, "mlxvlm", "mlxvlm")
    for name, value in (
        ("drafted", 6),
        ("accepted", 3),
        ("steps", 2),
        ("passes", 3),
        ("accepted_length", 2.0),
    ):
        assert facts[name] == ("observed", value)
    assert not {"repeat_penalty", "timings_per_token"} & set(fake.asked["mlxvlm"]["body"])


def test_what_an_end_cut_off_counts_as_accepted(fake):
    """mlx-vlm #2324: a round is counted before the end of the answer cuts it."""
    events, _, facts = lane(fake, "short", "mlxvlm")
    assert not next(e for e in events if isinstance(e, Checked)).detail["doubts"]
    for name, value in (
        ("drafted", 7),
        ("accepted", 6),
        ("steps", 1),
        ("passes", 2),
        ("accepted_length", 1.0),
    ):
        assert facts[name] == ("observed", value)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_request_is_one_that_the_engine_takes(engine):
    """Whatever a visitor chooses. A real OpenAI server refuses top_k, and its lane says so."""
    server = Server("one", engine, "http://127.0.0.1:1", "m")
    for sampling in (
        GREEDY,
        Sampling(temperature=1.0, top_k=40, top_p=0.5, seed=2**53 - 1),
        Sampling(seed=2**32 - 1),
    ):
        found = refusal(engine, Stream(server, ASK, 8, sampling)._body())
        assert (found is not None) == (engine == "openai" and sampling.top_k > 0), found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "field, value", [("unknown_field", 1), ("top_p", 0.0), ("max_tokens", "8"), ("stream", 1)]
)
def test_a_refused_field_is_named(fake, engine, field, value, monkeypatch):
    monkeypatch.setattr(type(ENGINES[engine]), "ask", lambda self, sampling: {field: value})
    end = lane(fake, "plain", engine)[0][-1]
    assert isinstance(end, Failed) and codes(end.why, TEXTS) == {"status"} and field in end.why


def test_tensorrt_llm_tells_its_drafts_in_the_last_choice(fake):
    _, trace, facts = lane(fake, "trtllm", "trtllm")
    for name, value in (("drafted", 6), ("accepted", 3), ("steps", 3), ("accepted_length", 2.0)):
        assert facts[name] == ("observed", value)
    assert facts["by_position"] == ("inferred", [[3, 2], [2, 1]])


@pytest.mark.parametrize("rounds, doubted", [(0, True), (7, True), (6, False), (None, False), (-1, True)])
def test_an_impossible_number_of_rounds_is_doubted(rounds, doubted):
    timings = {"predicted_n": 6, "draft_n": 6, "draft_n_accepted": 3, "draft_rounds": rounds}
    message = ENGINES["mlxvlm"].read({"choices": [], "timings": timings})
    assert bool(message.doubt) == doubted == (message.drafts is None)


def test_a_step_whose_drafts_were_all_invalid_is_a_step():
    """vLLM 0.32's histogram has a row for drafts of which grammar left nothing."""
    metrics = {
        "acceptance_histogram": [2, 0, 1],
        "acceptance_histogram_by_draft_length": {"0": [1], "2": [1, 0, 1]},
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 2,
        "num_draft_tokens": 4,
    }
    message = ENGINES["vllm"].read({"choices": [], "metrics": {"speculative_decoding": metrics}})
    assert not message.doubt and message.drafts.steps == 3
    assert by_position(message.drafts.histogram) == [[2, 1], [1, 1]]


def test_a_model_that_nobody_named_is_asked_for_and_a_key_is_sent(fake, monkeypatch):
    monkeypatch.setenv("THE_KEY", "secret")
    _, trace, _ = lane(fake, "mute", model="", key="THE_KEY")
    assert (
        fake.asked["mute"]["body"]["model"] == "its-own"
        and "Authorization: Bearer secret" in fake.asked["mute"]["head"]
    )
    assert "secret" not in trace.lines() and fake.url not in trace.lines()


@pytest.mark.parametrize("streamed", [False, True])
def test_a_key_that_a_server_repeats_is_shown_to_nobody(monkeypatch, caplog, capfd, streamed):
    monkeypatch.setenv("THE_KEY", "sk-4711")
    words = json.dumps({"error": {"message": "Wrong key: Bearer sk-4711"}}).encode()
    answer = (
        HEAD + b"\r\n" + sse(said("sk-4711 "), done=False) + b"data: " + words + b"\n\n"
        if streamed
        else b"HTTP/1.1 401 No\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + words
    )
    fake = Fake({"repeats": answer})
    try:
        events, trace, _ = lane(fake, "repeats", key="THE_KEY")
    finally:
        fake.close()
    shown = trace.lines() + trace.text() + str(events) + caplog.text + "".join(capfd.readouterr())
    assert "Wrong key" in shown and "(key)" in shown and "4711" not in shown


def test_thinking_is_text(fake):
    assert lane(fake, "thinks")[1].text() == "Let me see. Yes."


def test_streams_run_beside_local_lanes_and_end_with_them(fake):
    server = Server("plain", "openai", fake.url + "/plain", "m")
    local = (one for one in [(0, "a"), (0, None), (0, "b")])
    found = list(
        merge_lanes(
            local,
            {1: Stream(server, ASK, 8, GREEDY), 2: Stream(replace(server, name="again"), ASK, 8, GREEDY)},
        )
    )
    assert [e for lane_, e in found if lane_ == 0] == ["a", None, "b"]
    assert [type(e).__name__ for lane_, e in found if lane_ == 1] == [
        type(e).__name__ for lane_, e in found if lane_ == 2
    ]
    assert [lane_ for lane_, _ in found] == sorted(
        (lane_ for lane_, _ in found), key=lambda x: (x == 0, x)
    )  # on this machine: first, alone


def test_stop_ends_a_stream_that_waits(fake):
    fake.answers["waits"] = lambda send, gone: (send(HEAD + b"\r\n" + sse(said("One"), done=False)), gone())
    cancel = threading.Event()
    stream = Stream(Server("waits", "openai", fake.url + "/waits", "m"), ASK, 8, GREEDY, 20.0, WIDE)
    seen = []
    for _, event in merge_lanes((one for one in ()), {0: stream}, cancel):
        seen.append(event)
        if isinstance(event, Received):
            cancel.set()
    assert isinstance(seen[-1], Finished) and seen[-1].finish == "stopped"


def test_a_runs_time_ends_a_stream_that_waits(fake):
    fake.answers["late"] = lambda send, gone: (send(HEAD + b"\r\n" + sse(said("One"), done=False)), gone())
    stream = Stream(Server("late", "openai", fake.url + "/late", "m"), ASK, 8, GREEDY, 0.15, WIDE)
    assert list(stream.events())[-1].finish == "deadline"


@pytest.mark.parametrize(
    "detail, words",
    [
        (
            [{"type": "t", "loc": ["body", "top_k"], "msg": "Input should be a valid integer"}],
            "top_k: Input should",
        ),
        ([{"loc": "body", "msg": "Field required"}], "Field required"),
        ("Model not found", "Model not found"),
        ([{"loc": ["body", "top_k"], "msg": 5}], "top_k"),
        ([7], "it does not say why"),
    ],
)
def test_fastapis_own_errors_are_read(detail, words):
    assert words in (error_words({"detail": detail}) or "")
