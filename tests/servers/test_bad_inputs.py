"""Malformed input from a server: each ends its lane with one message, or leaves a figure out and gives the
reason; never more."""

from __future__ import annotations

import json
import unicodedata

import pytest

from specviz.core import Sampling
from specviz.servers.merge_lanes import merge_lanes
from specviz.servers.messages import DOUBTS, TEXTS, ServerError
from specviz.servers.stream import Stream
from specviz.trace.events import Checked, Failed, Finished
from specviz.zoo.registry import Server

from ..message_codes import codes
from .fake import HEAD, Fake, said, sse
from .test_stream import ASK, TIGHT, WIDE, lane

OPEN = HEAD + b"\r\n"
EVIL = "<img src=x onerror=alert(1)>\u202e\u0007\x1b[31m</script>"


def status(code: str, body: bytes = b"", kind: bytes = b"text/html", more: bytes = b"") -> bytes:
    return (
        b"HTTP/1.1 "
        + code.encode()
        + b"\r\nContent-Type: "
        + kind
        + b"\r\n"
        + more
        + b"Connection: close\r\n\r\n"
        + body
    )


def error(words, code="400 Bad Request") -> bytes:
    return status(code, json.dumps({"error": words}).encode(), b"application/json")


def raw(text: str | bytes) -> bytes:
    return (
        OPEN
        + sse(said("One")).replace(b"data: [DONE]\n\n", b"")
        + b"data: "
        + (text.encode() if isinstance(text, str) else text)
        + b"\n\n"
    )


def flood(send, gone):
    """Text without end; the client hangs up, and no more than it may read was ever on its way."""
    send(OPEN)
    line = sse(said("x" * 1000), done=False)
    while True:
        send(line)


def hose(send, gone):
    send(OPEN + b"data: ")
    while True:
        send(b"x" * 65536)


def continues(send, gone):
    """Informational responses without end."""
    while True:
        send(b"HTTP/1.1 100 Continue\r\n\r\n")


def one_byte_at_a_time(send, gone):
    """Each byte of an endless comment in a chunk of its own."""
    send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        send(b"1\r\n:\r\n")


def without_end(unit: bytes, head: bytes = OPEN):
    """The same bytes for ever."""

    def answer(send, gone):
        send(head)
        while True:
            send(unit * (65536 // len(unit)))

    return answer


def drip(head: bytes):
    def answer(send, gone):
        send(head)
        gone()

    return answer


def hurry(**timings):
    return OPEN + sse(said("One", "stop", timings={"predicted_n": 1, **timings}))


DEEP = "[" * 100_000
END = {"num_draft_tokens": 6, "num_accepted_draft_tokens": 3, "num_spec_steps": 3}


def vllm(**more):
    return OPEN + sse(
        said("One two three", choice_={"token_ids": [1, 2, 3, 4, 5, 6]}),
        said("", "stop"),
        {"choices": [], "metrics": {"speculative_decoding": {**END, **more}}},
    )


# case -> (what the server does, identifiers of the sentence that may end the lane)
ENDS = {
    "hangs before anything": (drip(b""), "silent"),
    "hangs in its head": (drip(b"HTTP/1.1 200 OK\r\nContent-Ty"), "silent"),
    "hangs in its answer": (drip(OPEN + sse(said("One"), done=False)), "silent"),
    "continues without end": (continues, "http"),
    "one byte at a time": (one_byte_at_a_time, "pieces"),
    "blank lines without end": (without_end(b"\n"), "lines"),
    "comments without end": (without_end(b":\n"), "lines"),
    "fields without a message": (without_end(b"event: x\n"), "lines stream_size"),
    "trailers without end": (
        without_end(b"X: y\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n:abc\n\r\n0\r\n"),
        "http",
    ),
    "dies at once": (lambda send, gone: None, "closed"),
    "dies in its answer": (OPEN + sse(said("One"), done=False), "unfinished"),
    "closes inside a message": (OPEN + b'data: {"choices"', "closed_in_message"),
    "closes in mid-chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n40\r\ndata: {", "closed"),
    "a chunk's length that is none": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\ndata: {}\r\n",
        "closed http",
    ),
    "less than it announced": (
        HEAD + b"Content-Length: 9999\r\n\r\n" + sse(said("One", "stop"), done=False),
        "closed",
    ),
    "speaks no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", "http"),
    "a head without end": (
        lambda send, gone: [send(b"HTTP/1.1 200 OK\r\n")] + [send(b"X-%d: y\r\n" % i) for i in range(200)],
        "http",
    ),
    "a redirect": (status("302 Found", more=b"Location: http://127.0.0.1:1/elsewhere\r\n"), "redirect"),
    "a redirect that keeps the request": (
        status("307 Temporary Redirect", more=b"Location: /other\r\n"),
        "redirect",
    ),
    "no such path": (status("404 Not Found", b"<h1>404</h1>"), "status"),
    "a broken gateway": (status("502 Bad Gateway", EVIL.encode()), "status"),
    "a status that is none": (status("799 Whatever"), "status"),
    "a model it does not have": (
        error({"message": "The model `m` does not exist.", "code": 404}, "404 Not Found"),
        "status",
    ),
    "an error as text": (error("no room left"), "status"),
    "an error full of markup": (error({"message": EVIL}), "status"),
    "an error that says nothing": (error({}), "status"),
    "a whole answer instead of a stream": (
        status("200 OK", b'{"choices": []}', b"application/json"),
        "status",
    ),
    "a page instead of a stream": (status("200 OK", b"<html></html>"), "type"),
    "an unnamed kind": (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: {}\r\n\r\n", "type"),
    "packed": (HEAD + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b", "compressed"),
    "an error in the stream": (
        OPEN + sse(said("One"), {"error": {"message": "CUDA out of memory" + EVIL}}),
        "error",
    ),
    "no text at all": (OPEN + sse(said("", "stop")), "empty"),
    "nothing at all": (OPEN, "unfinished"),
    "done at once": (OPEN + sse(), "unfinished"),
    "no JSON": (raw("{'a': 1}"), "json"),
    "NaN": (raw('{"choices": [], "usage": {"completion_tokens": NaN}}'), "json"),
    "a number of ten thousand digits": (raw('{"a": ' + "9" * 10_000 + "}"), "json"),
    "nested without end": (raw('{"a": ' + DEEP[:20_000]), "json"),
    "nested deeply": (raw('{"a": ' + "[" * 200 + "]" * 200 + "}"), "shape"),
    "a list": (raw("[1, 2]"), "shape"),
    "a text": (raw('"done"'), "shape"),
    "another encoding": (raw('{"choices": []}'.encode("utf-16")), "utf8 json"),
    "broken bytes": (raw(b'{"a": "\xff\xfe"}'), "utf8"),
    "100 MB": (flood, "stream_size messages too_much"),
    "a line without end": (hose, "line_size"),
    "messages without end": (OPEN + sse(*[{"choices": []}] * 300), "messages"),
    "more than was asked for": (OPEN + sse(*[said("x")] * 190, done=False), "too_much"),
}
# case -> (engine, what it sends, identifier of the doubt, figures that are then unknown)
DOUBTED = {
    "a negative count": (
        "openai",
        OPEN + sse(said("One", "stop"), {"choices": [], "usage": {"completion_tokens": -5}}),
        "count",
        (),
    ),
    "a fraction of a token": (
        "openai",
        OPEN + sse(said("One", "stop"), {"choices": [], "usage": {"completion_tokens": 1.5}}),
        "count",
        (),
    ),
    "a truth for a count": (
        "openai",
        OPEN + sse(said("One", "stop"), {"choices": [], "usage": {"completion_tokens": True}}),
        "count",
        (),
    ),
    "more tokens than there are": (
        "openai",
        OPEN + sse(said("One", "stop"), {"choices": [], "usage": {"prompt_tokens": 10**30}}),
        "count",
        ("prompt_tokens",),
    ),
    "tokens without text": (
        "openai",
        OPEN + sse(said("One", "stop"), {"choices": [], "usage": {"completion_tokens": 0}}),
        "written_text",
        (),
    ),
    "ids that are none": (
        "vllm",
        OPEN + sse(said("One", "stop", choice_={"token_ids": [-1, 2**40]})),
        "ids",
        ("token_ids",),
    ),
    "ids of another length than told": (
        "vllm",
        OPEN
        + sse(
            said("One", "stop", choice_={"token_ids": [1, 2]}),
            {"choices": [], "usage": {"completion_tokens": 900}},
        ),
        "written_ids",
        (),
    ),
    "more accepted than drafted": (
        "llamacpp",
        hurry(draft_n=3, draft_n_accepted=4),
        "accepted",
        ("drafted", "accepted"),
    ),
    "more accepted than written": (
        "llamacpp",
        hurry(draft_n=900, draft_n_accepted=800),
        "accepted_text",
        ("drafted",),
    ),
    "half of its counts": ("llamacpp", hurry(draft_n=3), "missing", ("drafted",)),
    "an endless number": (
        "llamacpp",
        OPEN
        + b'data: {"choices": [{"delta": {"content": "One"}, "finish_reason": "stop"}], "timings": {"draft_n": 1e999, "draft_n_accepted": 1}}\n\n',
        "count",
        ("drafted",),
    ),
    "a histogram of other steps": (
        "vllm",
        vllm(acceptance_histogram_by_draft_length={"2": [9, 9, 9]}),
        "histogram_steps",
        ("by_position", "drafted"),
    ),
    "a histogram of words": (
        "vllm",
        vllm(acceptance_histogram_by_draft_length={"two": [1]}),
        "histogram",
        ("by_position",),
    ),
    "a histogram past its drafts": (
        "vllm",
        vllm(acceptance_histogram_by_draft_length={"1": [0, 0, 3]}),
        "histogram_drafted",
        ("by_position",),
    ),
    "a histogram of other lengths": (
        "vllm",
        vllm(acceptance_histogram_by_draft_length={"3": [1, 1, 1]}),
        "histogram_lengths",
        ("by_position", "drafted"),
    ),
    "two histograms": (
        "vllm",
        vllm(acceptance_histogram=[2, 0, 0, 1], acceptance_histogram_by_draft_length={"2": [1, 1, 1]}),
        "histograms",
        ("by_position",),
    ),
    "steps of another sum": (
        "vllm",
        vllm(per_step_accepted=[1, 1, 9], per_step_drafted=[2, 2, 9]),
        "totals",
        ("per_step",),
    ),
    "another model": ("openai", OPEN + sse(said("One", "stop", model="somebody" + EVIL)), "model", ()),
}
# case -> what it sends; odd, and no fault
FINE = {
    "done twice": OPEN + sse(said("One", "stop")) + b"data: [DONE]\n\n",
    "no [DONE], but an end": OPEN + sse(said("One", "stop"), done=False),
    "pings and other fields": OPEN + b": ping\n\nevent: x\nid: 7\nretry: 1\n" + sse(said("One", "stop")),
    "lines of Windows": OPEN + sse(said("One", "stop")).replace(b"\n", b"\r\n"),
    "a message in two lines": OPEN
    + b'data: {"choices": [{"delta":\ndata: {"content": "One"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n',
    "fields of odd kinds": OPEN
    + sse(
        {"choices": "x", "usage": [], "metrics": 3, "timings": "t", "sglext": [1], "model": 7},
        said("One", "stop"),
    ),
    "control and direction characters": OPEN + sse(said("One" + EVIL, "stop")),
    "half a pair": OPEN
    + b'data: {"choices": [{"delta": {"content": "One \\ud83e"}, "finish_reason": "stop"}]}\n\n',
    "a large piece": OPEN + sse(said("One " + "\u00e9" * 9000, "stop")),
}


@pytest.fixture(scope="module")
def fake():
    one = Fake(
        {
            name.replace(" ", "_"): answer
            for table in (ENDS, DOUBTED)
            for name, row in table.items()
            for answer in row
            if isinstance(answer, bytes) or callable(answer)
        }
        | {k.replace(" ", "_"): v for k, v in FINE.items()}
    )
    yield one
    one.close()


def sentence(words: str) -> bool:
    """One line for a person, of a length that fits, without anything that a page or a terminal would obey."""
    return (
        10 < len(words) < 300
        and words.endswith(".")
        and not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in words)
    )


@pytest.mark.parametrize("case", ENDS)
def test_it_ends_its_lane_with_a_sentence(fake, case):
    end = lane(fake, case.replace(" ", "_"), bounds=TIGHT if case.startswith("hangs") else WIDE)[0][-1]
    assert (
        isinstance(end, Failed) and codes(end.why, TEXTS) & set(ENDS[case][1].split()) and sentence(end.why)
    ), end
    assert fake.to_device.get(case.replace(" ", "_"), 0) < 50 * 2**20


@pytest.mark.parametrize("case", DOUBTED)
def test_what_cannot_be_true_is_left_out_and_said(fake, case):
    engine, _, code, unknown = DOUBTED[case]
    events, _, facts = lane(fake, case.replace(" ", "_"), engine)
    doubts = next(e.detail["doubts"] for e in events if isinstance(e, Checked))
    assert (
        isinstance(events[-1], Finished)
        and any(code in codes(doubt, DOUBTS) for doubt in doubts)
        and all(sentence(d + ".") for d in doubts)
    ), doubts
    assert all(facts.get(name, ("unknown", None)) == ("unknown", None) for name in unknown)
    assert facts["tokens"][1] and facts["refused_ids"] == ("unknown", None)


@pytest.mark.parametrize("case", FINE)
def test_what_is_odd_and_no_fault_is_read(fake, case):
    events, trace, _ = lane(fake, case.replace(" ", "_"))
    assert (
        isinstance(events[-1], Finished)
        and trace.text().startswith("One")
        and not next(e.detail["doubts"] for e in events if isinstance(e, Checked))
    )


@pytest.mark.parametrize(
    "code", ["301 Moved Permanently", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
)
def test_no_redirect_is_followed_wherever_it_comes(code):
    """Neither for an answer, nor for the list of models, nor for the counters: what lies at the other end
    would be good, and is not asked."""
    asked = []
    good = HEAD + b"\r\n" + sse(said("One", "stop"))
    there = Fake(
        {
            "good": lambda send, gone: asked.append("answer") or send(good),
            "good/models": lambda send, gone: (
                asked.append("models")
                or send(status("200 OK", b'{"data": [{"id": "m"}]}', b"application/json"))
            ),
            "good/metrics": lambda send, gone: (
                asked.append("metrics")
                or send(status("200 OK", b"vllm:spec_decode_num_drafts_total 5\n", b"text/plain"))
            ),
        }
    )
    moved = status(code, more=f"Location: {there.url}/good/metrics\r\n".encode())
    here = Fake(
        {
            "moved": status(code, more=f"Location: {there.url}/good\r\n".encode()),
            "moved/metrics": moved,
            "counts": good,
            "counts/metrics": moved,
            "list": good,
            "list/models": status(code, more=f"Location: {there.url}/good/models\r\n".encode()),
        }
    )
    try:
        assert isinstance(lane(there, "good", "vllm")[0][-1], Finished) and asked == [
            "metrics",
            "answer",
            "metrics",
        ]
        asked.clear()
        end = lane(here, "moved", "vllm")[0][-1]
        assert isinstance(end, Failed) and codes(end.why, TEXTS) == {"redirect"} and code[:3] in end.why
        events, _, facts = lane(here, "counts", "vllm")
        assert isinstance(events[-1], Finished) and not [name for name in facts if name.startswith("server_")]
        end = lane(here, "list", "openai", model="")[0][-1]
        assert isinstance(end, Failed) and codes(end.why, TEXTS) == {"redirect"} and asked == []
    finally:
        here.close()
        there.close()


def test_nobody_is_there():
    end = list(
        Stream(Server("gone", "openai", "http://127.0.0.1:1", "m"), ASK, 8, Sampling(), 60.0, WIDE).events()
    )[-1]
    assert codes(end.why, TEXTS) == {"refused"} and end.why.startswith("gone ")


def test_the_others_go_on(fake):
    """A lane that fails beside one that does not, and beside local ones."""
    made = {
        n: Stream(Server(name, "openai", f"{fake.url}/{name}", "m"), ASK, 8, Sampling(), 60.0, WIDE)
        for n, name in ((1, "dies_in_its_answer"), (2, "done_twice"))
    }
    found = list(merge_lanes(((0, i) for i in range(3)), made))
    assert [e for n, e in found if n == 0] == [0, 1, 2]
    assert [type([e for n, e in found if n == lane_][-1]) for lane_ in (1, 2)] == [Failed, Finished]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "http://",
        "//x",
        "http://me:secret@x",
        "http://x/?a=1",
        "http://x:99999",
        "x",
        "file:///etc/passwd",
        "http://x\n.y",
        None,
    ],
)
def test_an_address_is_one_or_a_sentence(url):
    from specviz.servers.http_client import read_url

    with pytest.raises(ServerError) as refused:
        read_url(url)
    assert refused.value.code == "server.url"
