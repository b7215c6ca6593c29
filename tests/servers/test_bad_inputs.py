"""What a server may send: each ends its lane with one sentence, or leaves a figure out and says why; never more than that."""
from __future__ import annotations

import json
import unicodedata

import pytest

from specviz.core import Sampling
from specviz.servers.merge_lanes import merge_lanes
from specviz.servers.stream import Stream
from specviz.trace.events import Checked, Failed, Finished
from specviz.zoo.registry import Server

from .fake import HEAD, Fake, said, sse
from .test_stream import ASK, TIGHT, WIDE, lane

OPEN = HEAD + b"\r\n"
EVIL = "<img src=x onerror=alert(1)>\u202e\u0007\x1b[31m</script>"


def status(code: str, body: bytes = b"", kind: bytes = b"text/html", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 " + code.encode() + b"\r\nContent-Type: " + kind + b"\r\n" + more + b"Connection: close\r\n\r\n" + body


def error(words, code="400 Bad Request") -> bytes:
    return status(code, json.dumps({"error": words}).encode(), b"application/json")


def raw(text: str | bytes) -> bytes:
    return OPEN + sse(said("One")) .replace(b"data: [DONE]\n\n", b"") + b"data: " + (text.encode() if isinstance(text, str) else text) + b"\n\n"


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
    return OPEN + sse(said("One two three", choice_={"token_ids": [1, 2, 3, 4, 5, 6]}), said("", "stop"),
                      {"choices": [], "metrics": {"speculative_decoding": {**END, **more}}})


# case -> (what the server does, words of the sentence that ends the lane)
ENDS = {
    "hangs before anything": (drip(b""), "silent for too long"),
    "hangs in its head": (drip(b"HTTP/1.1 200 OK\r\nContent-Ty"), "silent for too long"),
    "hangs in its answer": (drip(OPEN + sse(said("One"), done=False)), "silent for too long"),
    "dies at once": (lambda send, gone: None, "closed the connection"),
    "dies in its answer": (OPEN + sse(said("One"), done=False), "without saying that the answer was whole"),
    "closes inside a message": (OPEN + b"data: {\"choices\"", "closed the connection inside a message"),
    "closes in mid-chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n40\r\ndata: {", "closed the connection before"),
    "a chunk's length that is none": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\ndata: {}\r\n", "connection before|HTTP as it should"),
    "less than it announced": (HEAD + b"Content-Length: 9999\r\n\r\n" + sse(said("One", "stop"), done=False), "closed the connection before"),
    "speaks no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak HTTP"),
    "a head without end": (lambda send, gone: [send(b"HTTP/1.1 200 OK\r\n")] + [send(b"X-%d: y\r\n" % i) for i in range(200)], "HTTP as it should"),
    "a redirect": (status("302 Found", more=b"Location: http://127.0.0.1:1/elsewhere\r\n"), "elsewhere .302.; that is not followed"),
    "a redirect that keeps the request": (status("307 Temporary Redirect", more=b"Location: /other\r\n"), "307"),
    "no such path": (status("404 Not Found", b"<h1>404</h1>"), "refused with status 404 .Not Found."),
    "a broken gateway": (status("502 Bad Gateway", EVIL.encode()), "refused with status 502"),
    "a status that is none": (status("799 Whatever"), "refused with status 799"),
    "a model it does not have": (error({"message": "The model `m` does not exist.", "code": 404}, "404 Not Found"), "The model `m` does not exist"),
    "an error as text": (error("no room left"), "no room left"),
    "an error full of markup": (error({"message": EVIL}), "refused with status 400: <img"),
    "an error that says nothing": (error({}), "refused with status 400"),
    "a whole answer instead of a stream": (status("200 OK", b'{"choices": []}', b"application/json"), "refused with status 200"),
    "a page instead of a stream": (status("200 OK", b"<html></html>"), "sent text/html instead of a stream"),
    "an unnamed kind": (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: {}\r\n\r\n", "something unnamed instead"),
    "packed": (HEAD + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b", "packed answer"),
    "an error in the stream": (OPEN + sse(said("One"), {"error": {"message": "CUDA out of memory" + EVIL}}), "ended with an error: CUDA out of memory"),
    "no text at all": (OPEN + sse(said("", "stop")), "without any text"),
    "nothing at all": (OPEN, "without saying"),
    "done at once": (OPEN + sse(), "without saying"),
    "no JSON": (raw("{'a': 1}"), "not JSON"),
    "NaN": (raw('{"choices": [], "usage": {"completion_tokens": NaN}}'), "not JSON"),
    "a number of ten thousand digits": (raw('{"a": ' + "9" * 10_000 + "}"), "not JSON"),
    "nested without end": (raw('{"a": ' + DEEP[:20_000]), "not JSON"),
    "nested deeply": (raw('{"a": ' + "[" * 200 + "]" * 200 + "}"), "a form that is not known"),
    "a list": (raw("[1, 2]"), "a form that is not known"),
    "a text": (raw('"done"'), "a form that is not known"),
    "another encoding": (raw('{"choices": []}'.encode("utf-16")), "no UTF-8|not JSON"),
    "broken bytes": (raw(b'{"a": "\xff\xfe"}'), "no UTF-8"),
    "100 MB": (flood, "more than"),
    "a line without end": (hose, "a line of more than 64 kB"),
    "messages without end": (OPEN + sse(*[{"choices": []}] * 300), "more than 200 messages"),
    "more than was asked for": (OPEN + sse(*[said("x")] * 190, done=False), "more than it was asked for"),
}
# case -> (engine, what it sends, words of what is not believed, figures that are then unknown)
DOUBTED = {
    "a negative count": ("openai", OPEN + sse(said("One", "stop"), {"choices": [], "usage": {"completion_tokens": -5}}), "no count", ()),
    "a fraction of a token": ("openai", OPEN + sse(said("One", "stop"), {"choices": [], "usage": {"completion_tokens": 1.5}}), "no count", ()),
    "a truth for a count": ("openai", OPEN + sse(said("One", "stop"), {"choices": [], "usage": {"completion_tokens": True}}), "no count", ()),
    "more tokens than there are": ("openai", OPEN + sse(said("One", "stop"), {"choices": [], "usage": {"prompt_tokens": 10**30}}), "no count", ("prompt_tokens",)),
    "tokens without text": ("openai", OPEN + sse(said("One", "stop"), {"choices": [], "usage": {"completion_tokens": 0}}), "tells 0 written tokens", ()),
    "ids that are none": ("vllm", OPEN + sse(said("One", "stop", choice_={"token_ids": [-1, 2**40]})), "token ids are none", ("token_ids",)),
    "ids of another length than told": ("vllm", OPEN + sse(said("One", "stop", choice_={"token_ids": [1, 2]}), {"choices": [], "usage": {"completion_tokens": 900}}), "tells 900 written tokens", ()),
    "more accepted than drafted": ("llamacpp", hurry(draft_n=3, draft_n_accepted=4), "more accepted tokens than drafted", ("drafted", "accepted")),
    "more accepted than written": ("llamacpp", hurry(draft_n=900, draft_n_accepted=800), "800 accepted tokens in an answer of 1", ("drafted",)),
    "half of its counts": ("llamacpp", hurry(draft_n=3), "leaves out draft_n_accepted", ("drafted",)),
    "an endless number": ("llamacpp", OPEN + b'data: {"choices": [{"delta": {"content": "One"}, "finish_reason": "stop"}], "timings": {"draft_n": 1e999, "draft_n_accepted": 1}}\n\n', "no count", ("drafted",)),
    "a histogram of other steps": ("vllm", vllm(acceptance_histogram_by_draft_length={"2": [9, 9, 9]}), "count of steps differ", ("by_position", "drafted")),
    "a histogram of words": ("vllm", vllm(acceptance_histogram_by_draft_length={"two": [1]}), "histogram is none", ("by_position",)),
    "a histogram past its drafts": ("vllm", vllm(acceptance_histogram_by_draft_length={"1": [0, 0, 3]}), "more accepted tokens than were drafted", ("by_position",)),
    "steps of another sum": ("vllm", vllm(per_step_accepted=[1, 1, 9], per_step_drafted=[2, 2, 9]), "steps and its totals differ", ("per_step",)),
    "another model": ("openai", OPEN + sse(said("One", "stop", model="somebody" + EVIL)), "somebody<img src=x onerror=alert(1)> [31m</script> answers where m", ()),
}
# case -> what it sends; odd, and no fault
FINE = {
    "done twice": OPEN + sse(said("One", "stop")) + b"data: [DONE]\n\n",
    "no [DONE], but an end": OPEN + sse(said("One", "stop"), done=False),
    "pings and other fields": OPEN + b": ping\n\nevent: x\nid: 7\nretry: 1\n" + sse(said("One", "stop")),
    "lines of Windows": OPEN + sse(said("One", "stop")).replace(b"\n", b"\r\n"),
    "a message in two lines": OPEN + b'data: {"choices": [{"delta":\ndata: {"content": "One"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n',
    "fields of odd kinds": OPEN + sse({"choices": "x", "usage": [], "metrics": 3, "timings": "t", "sglext": [1], "model": 7}, said("One", "stop")),
    "control and direction characters": OPEN + sse(said("One" + EVIL, "stop")),
    "half a pair": OPEN + b'data: {"choices": [{"delta": {"content": "One \\ud83e"}, "finish_reason": "stop"}]}\n\n',
    "a large piece": OPEN + sse(said("One " + "\u00e9" * 9000, "stop")),
}


@pytest.fixture(scope="module")
def fake():
    one = Fake({name.replace(" ", "_"): answer for table in (ENDS, DOUBTED) for name, row in table.items()
                for answer in row if isinstance(answer, bytes) or callable(answer)} | {k.replace(" ", "_"): v for k, v in FINE.items()})
    yield one
    one.close()


def sentence(words: str) -> bool:
    """One line for a person, of a length that fits, without anything that a page or a terminal would obey."""
    return 10 < len(words) < 300 and words.endswith(".") and not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in words)


@pytest.mark.parametrize("case", ENDS)
def test_it_ends_its_lane_with_a_sentence(fake, case):
    import re

    end = lane(fake, case.replace(" ", "_"), bounds=TIGHT if case.startswith("hangs") else WIDE)[0][-1]
    assert isinstance(end, Failed) and re.search(ENDS[case][1], end.why) and sentence(end.why), end
    assert fake.to_device.get(case.replace(" ", "_"), 0) < 50 * 2**20


@pytest.mark.parametrize("case", DOUBTED)
def test_what_cannot_be_true_is_left_out_and_said(fake, case):
    engine, _, words, unknown = DOUBTED[case]
    events, _, facts = lane(fake, case.replace(" ", "_"), engine)
    doubts = next(e.detail["doubts"] for e in events if isinstance(e, Checked))
    assert isinstance(events[-1], Finished) and any(words in doubt for doubt in doubts) and all(sentence(d + ".") for d in doubts), doubts
    assert all(facts.get(name, ("unknown", None)) == ("unknown", None) for name in unknown)
    assert facts["tokens"][1] and facts["refused_ids"] == ("unknown", None)


@pytest.mark.parametrize("case", FINE)
def test_what_is_odd_and_no_fault_is_read(fake, case):
    events, trace, _ = lane(fake, case.replace(" ", "_"))
    assert isinstance(events[-1], Finished) and trace.text().startswith("One") and not next(e.detail["doubts"] for e in events if isinstance(e, Checked))


@pytest.mark.parametrize("code", ["301 Moved Permanently", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_no_redirect_is_followed_wherever_it_comes(code):
    """Neither for an answer, nor for the list of models, nor for the counters: what lies at the other end would be good, and is not asked."""
    asked = []
    good = HEAD + b"\r\n" + sse(said("One", "stop"))
    there = Fake({"good": lambda send, gone: asked.append("answer") or send(good),
                  "good/models": lambda send, gone: asked.append("models") or send(status("200 OK", b'{"data": [{"id": "m"}]}', b"application/json")),
                  "good/metrics": lambda send, gone: asked.append("metrics") or send(status("200 OK", b"vllm:spec_decode_num_drafts_total 5\n", b"text/plain"))})
    moved = status(code, more=f"Location: {there.url}/good/metrics\r\n".encode())
    here = Fake({"moved": status(code, more=f"Location: {there.url}/good\r\n".encode()), "moved/metrics": moved, "counts": good, "counts/metrics": moved,
                 "list": good, "list/models": status(code, more=f"Location: {there.url}/good/models\r\n".encode())})
    try:
        assert isinstance(lane(there, "good", "vllm")[0][-1], Finished) and asked == ["metrics", "answer", "metrics"]
        asked.clear()
        end = lane(here, "moved", "vllm")[0][-1]
        assert isinstance(end, Failed) and f"elsewhere ({code[:3]}); that is not followed" in end.why
        events, _, facts = lane(here, "counts", "vllm")
        assert isinstance(events[-1], Finished) and not [name for name in facts if name.startswith("server_")]
        end = lane(here, "list", "openai", model="")[0][-1]
        assert isinstance(end, Failed) and "not followed" in end.why and asked == []
    finally:
        here.close()
        there.close()


def test_nobody_is_there():
    end = list(Stream(Server("gone", "openai", "http://127.0.0.1:1", "m"), ASK, 8, Sampling(), 60.0, WIDE).events())[-1]
    assert end.why == "gone cannot be reached: nothing listens at its address."


def test_the_others_go_on(fake):
    """A lane that fails beside one that does not, and beside local ones."""
    made = {n: Stream(Server(name, "openai", f"{fake.url}/{name}", "m"), ASK, 8, Sampling(), 60.0, WIDE)
            for n, name in ((1, "dies_in_its_answer"), (2, "done_twice"))}
    found = list(merge_lanes(((0, i) for i in range(3)), made))
    assert [e for n, e in found if n == 0] == [0, 1, 2]
    assert [type([e for n, e in found if n == lane_][-1]) for lane_ in (1, 2)] == [Failed, Finished]


@pytest.mark.parametrize("url", ["ftp://x", "http://", "//x", "http://me:secret@x", "http://x/?a=1", "http://x:99999", "x", "file:///etc/passwd", "http://x\n.y", None])
def test_an_address_is_one_or_a_sentence(url):
    from specviz.servers.http_client import ServerError, read_url

    with pytest.raises(ServerError, match="address is http"):
        read_url(url)
