"""Many visitors at once, and readers that do not read: one visitor's share of the server.
SPECVIZ_TEST_SOAK=1 for the long ones."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from specviz.core.method import Method
from specviz.engine import engine_job as job
from specviz.engine.limits import (
    BASELINE,
    LANES,
    OPEN_RUNS,
    SENTENCE,
    Refused,
    RunQueue,
    RunRequest,
    Visitor,
    read_request,
)
from specviz.engine.loading import Loader
from specviz.engine.messages import TEXTS
from specviz.engine.stream import LiveRun
from specviz.serve import http_timeouts
from specviz.ui.handlers import VISITORS, Handlers, lanes_picked

from ..ui.fake import CARDS, FakeBackend

ASK = RunRequest("tell of the fox", (("chain", {}), (BASELINE, {})), max_new_tokens=40)
KNOWN = {card.key: card for card in CARDS}


def alone(work):
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result(timeout=120)


def post(url, body, **headers):
    """Status and what was said."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (
        urllib.error.URLError
    ) as error:  # a server that refuses a body may hang up before all of it was sent
        if not isinstance(error.reason, (BrokenPipeError, ConnectionError)):
            raise
        return 413, json.dumps({"detail": "hung up", "code": "size.body"})


def get(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


# Readers


class Mailbox:
    """What Gradio keeps for a session: ``reads`` says whether somebody takes it."""

    def __init__(self, reads):
        self.reads = reads
        self.held = 0
        self.most = 0
        self.visitor = Visitor("", self.unread, self.forget)

    def unread(self):
        self.held = 0 if self.reads else self.held
        return self.held

    def forget(self):
        self.held = 0

    def put(self):
        self.held += 1
        self.most = max(self.most, self.held)


async def told(live, box):
    out = []
    async for frame in live.stream():
        out.append(frame)
        box.put()
    return out


def test_a_run_that_nobody_reads_is_stopped_and_keeps_a_few_messages(monkeypatch):
    monkeypatch.setattr(job, "PATIENCE", 0.3)
    backend = FakeBackend()
    line = RunQueue()
    box = Mailbox(reads=False)
    backend.loaded.add(None)
    backend.hold(3)
    live = LiveRun(backend, line, ASK, 0, box.visitor)
    frames = alone(told(live, box))
    assert (
        live.gone
        and live.stop.is_set()
        and frames[-1]["status"]["state"] == "stopped"
        and not frames[-1]["e"]
    )
    assert frames[-1]["status"]["code"] == "run.unread" and box.most <= job.UNREAD and box.held == 1
    assert backend.idle() and line.ahead(line.enter()) == 0


def test_time_in_which_the_server_stood_still_is_not_the_readers(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(job, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    reader = job.Reader(Visitor("", lambda: 1, lambda: None))
    clock[0] += 60  # a model loads, or the process is suspended, before the first look
    assert not reader.behind()
    clock[0] += 60
    assert not reader.behind()
    with pytest.raises(job.ReaderGone):
        for _ in range(int(job.PATIENCE / job.LOOK)):
            clock[0] += job.LOOK
            reader.behind()


def test_a_reader_that_falls_behind_gets_everything_in_fewer_frames():
    class Slow(Mailbox):
        def unread(self):
            self.held = max(0, self.held - (self.asked % 8 == 0))
            self.asked += 1
            return self.held

    backend, box = FakeBackend(), Slow(reads=True)
    box.asked = 0
    backend.loaded.add(None)
    frames = alone(told(LiveRun(backend, RunQueue(), ASK, 0, box.visitor), box))
    assert box.most <= job.UNREAD + 1 and frames[-1]["snap"]
    assert [r for f in frames[:-1] for r in f["e"]] == frames[-1]["e"]


def test_a_place_in_the_line_is_not_kept_for_somebody_who_does_not_read(monkeypatch):
    monkeypatch.setattr(job, "PATIENCE", 0.3)
    line, box = RunQueue(), Mailbox(reads=False)
    first = line.enter()
    backend = FakeBackend()
    backend.loaded.add(None)
    live = LiveRun(backend, line, ASK, 0, box.visitor)
    assert alone(told(live, box))[-1]["status"]["state"] == "stopped" and not backend.runs
    line.leave(first)
    assert line.ahead(line.enter()) == 0


def test_streams_that_were_ordered_and_never_fetched_end_by_themselves(server, backend, monkeypatch):
    monkeypatch.setattr(job, "PATIENCE", 0.5)
    backend.loaded.add(None)
    backend.hold(4)
    url = server.url.rstrip("/") + "/gradio_api/call/run"
    status, said = post(url, {"data": ["x", ["chain"], 40, 0, 1, 0, {}, "", [], "", 1, False, "", "", 1, {}]})
    assert status == 200 and backend.held() and backend.idle(20)
    queue = server.demo._queue.pending_messages_per_session[json.loads(said)["event_id"]]
    assert queue.qsize() <= job.UNREAD


def test_an_address_has_so_many_open_runs_and_no_more():
    line = RunQueue(open_runs=2)
    with line.open_run("a"), line.open_run("b"), line.open_run("a"):
        with pytest.raises(Refused) as refused:
            line.open_run("a").__enter__()
        assert refused.value.code == "queue.open_runs"
    with line.open_run("a"), line.open_run("a"):
        pass
    assert not line._open and RunQueue().open_runs == OPEN_RUNS < RunQueue().waiting


def test_runs_that_are_begun_and_never_watched_are_let_go():
    from types import SimpleNamespace

    from specviz.ui.chat import Chat
    from specviz.ui.page import BEGIN_OUTPUTS, FINISH_OUTPUTS

    hands = Handlers(FakeBackend())
    hands.ui |= {name: name for name in {*BEGIN_OUTPUTS, *FINISH_OUTPUTS, "board"}}

    async def flood():
        for i in range(2 * VISITORS):
            await hands.begin(
                "x",
                '["chain"]',
                {},
                0,
                1,
                9,
                0,
                1,
                1,
                "",
                "",
                "",
                "",
                None,
                None,
                Chat(),
                SimpleNamespace(session_hash=str(i)),
            )

    alone(flood())
    assert len(hands.live) == VISITORS and str(2 * VISITORS - 1) in hands.live


# Loading


async def until_told(loader, target, enough):
    async for text in loader.wait(target):
        if enough(text):
            return text


def test_a_model_that_loads_holds_nobody_who_has_theirs():
    backend, line = FakeBackend(), RunQueue()
    backend.loaded.add(None)
    backend.slow.add("other")
    loader = Loader(backend)

    async def both():
        box = Mailbox(reads=True)
        waiting = LiveRun(backend, line, RunRequest("x", ASK.lanes, target="other"), 0, Visitor(), loader)
        first = asyncio.ensure_future(told(waiting, Mailbox(reads=True)))
        while not loader._lanes:
            await asyncio.sleep(0.01)
        frames = await told(LiveRun(backend, line, ASK, 0, Visitor(), loader), box)
        assert frames[-1]["status"]["state"] == "done" and not first.done()
        backend.slow.clear()
        return await first

    frames = alone(both())
    assert frames[-1]["status"]["state"] == "done" and "3 MB here" in frames[0]["status"]["text"]


def test_one_model_loads_at_a_time_and_a_failure_is_everybodys_sentence():
    backend = FakeBackend()
    most = [0]
    now = [0]
    lock = threading.Lock()
    load = backend.load

    def counted(target):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        try:
            return load(target)
        finally:
            with lock:
                now[0] -= 1

    backend.load = counted
    loader = Loader(backend)

    async def one(target):
        try:
            return [text async for text in loader.wait(target)]
        except Refused as why:
            return str(why)

    async def all_of_them():
        return await asyncio.gather(*(one(target) for target in (None, "other", "nope", "nope", None)))

    answers = alone(all_of_them())
    assert most == [1] and backend.ready(None) and backend.ready("other")
    assert "'nope'" in answers[2] == answers[3] and TEXTS["models.another"] in answers[1][0]


# What is sent


def test_six_thousand_methods_are_as_many_as_there_are_lanes():
    cards = {f"m{i}": Method(f"m{i}", "", "", "") for i in range(6000)} | KNOWN
    for picked in ([*cards], ["chain"] * 6000, [[1], {}, None, 7, "chain", "tree", "lookup", "heads"]):
        keys = lanes_picked(json.dumps(picked), cards)
        assert len(keys) <= LANES - 1 and len(set(keys)) == len(keys) and set(keys) <= set(cards) - {BASELINE}
    for odd in ("", "{", "null", "7", '{"a": 1}', "[" * 100_000, None, 7, {"a": 1}):
        assert lanes_picked(odd, cards) == []


@pytest.mark.parametrize("hard", [256, 1024, 4096, 2**20, resource.RLIM_INFINITY])
def test_all_connections_with_a_file_each_leave_files_for_the_rest(monkeypatch, hard):
    """A connection that reads a stored run holds its socket and the run's file."""
    limits = [(256, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    most = http_timeouts.connections_in_all()
    assert 8 <= most and 2 * most + http_timeouts.SPARE_FILES <= limits[-1][0]


def test_a_long_value_is_not_echoed():
    from specviz import catalogue

    with pytest.raises(Refused) as why:
        read_request(
            catalogue(), prompt="x", methods=["speculative"], knobs={"speculative": {"gamma": "9" * 900_000}}
        )
    assert len(str(why.value)) < SENTENCE + 100


def test_a_refusal_leaves_no_traceback_in_the_log(server, backend, capfd):
    url = server.url.rstrip("/") + "/gradio_api"
    for body in (
        {"data": ["", ["chain"], 5, 0, 1, 0, {}, "", [], "", 1, False, "", "", 1, {}]},
        {"data": ["x", ["nope"], 5, 0, 1, 0, {}, "", [], "", 1, False, "", "", 1, {}]},
    ):
        status, said = post(url + "/call/run", body)
        assert status == 200 and "error" in get(f"{url}/call/run/{json.loads(said)['event_id']}")[1]
    for path, body in (
        ("/call/nope", {"data": []}),
        ("/call/run", {"data": []}),
        ("/call/run", b"{"),
        ("/call/run", b"[" * 100_000),
        ("/queue/join", {"data": [], "fn_index": 10**6, "session_hash": "x"}),
        ("/run/nope", {"data": []}),
    ):
        status, said = post(url + path, body)
        assert 400 <= status < 500 and "detail" in said, (path, status, said)
    assert get(url + "/call/run/nope")[0] in (200, 404)
    assert "Traceback" not in "".join(capfd.readouterr())


# The door


@pytest.mark.parametrize(
    "path",
    [
        "upload",
        "upload_progress?upload_id=1",
        "proxy=http://127.0.0.1:1/",
        "file=/etc/passwd",
        "process_recording",
        "runs",
        "vibe-edit",
        "stream/x",
        "component_server",
        "deep_link",
        "custom_component/a/client/b/c",
        "../monitoring/x",
        "nothing",
    ],
)
def test_what_the_page_does_not_use_is_shut(server, path):
    for answer in (get(f"{server.url}gradio_api/{path}"), post(f"{server.url}gradio_api/{path}", b"x")):
        assert answer[0] == 404 and json.loads(answer[1])["detail"].endswith(".")


def test_every_answer_says_what_it_is_and_who_may_frame_it(server):
    for path, status in (
        ("", 200),
        ("config", 200),
        ("own/plotly.js", 200),
        ("own/../app.py", 404),
        ("nothing", 404),
    ):
        code, _, headers = get(server.url + path)
        assert (
            code == status
            and headers["X-Content-Type-Options"] == "nosniff"
            and headers["Referrer-Policy"] == "no-referrer"
        )
        assert (
            headers["X-Frame-Options"] == "SAMEORIGIN"
            and "frame-ancestors 'self'" in headers["Content-Security-Policy"]
        )
    framed = get(server.url + "?embed=1")[2]
    assert (
        framed["X-Frame-Options"] is None and "frame-ancestors * file:" in framed["Content-Security-Policy"]
    )


def raw_answer(server, data: bytes) -> bytes:
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as one:
        one.sendall(data)
        return b"".join(iter(lambda: one.recv(65536), b""))


REFUSED = {  # by each layer of the server: a request -> its status
    "OPTIONS / HTTP/1.1\r\nHost: localhost": 405,
    "BREW / HTTP/1.1\r\nHost: localhost": 405,
    "HEAD /nothing HTTP/1.1\r\nHost: localhost": 404,
    "GET / HTTP/1.1\r\nHost: evil.example": 421,
    "GET /static/..%2f..%2fapp.py HTTP/1.1\r\nHost: localhost": 403,
    "GET http://evil.example/nothing HTTP/1.1\r\nHost: localhost": 404,
    "POST /gradio_api/call/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000": 413,
    "POST /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0": 422,
}


@pytest.mark.parametrize("request_head", REFUSED)
def test_a_refusal_carries_the_same_headers(server, request_head):
    found = raw_answer(server, f"{request_head}\r\nConnection: close\r\n\r\n".encode()).lower()
    assert found.startswith(f"http/1.1 {REFUSED[request_head]} ".encode())
    for header in (
        b"x-content-type-options: nosniff",
        b"referrer-policy: no-referrer",
        b"connect-src 'self'",
    ):
        assert header in found


@pytest.mark.parametrize(
    "data", [b"XYZ\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n"]
)
def test_what_is_no_request_is_answered_with_a_line(server, data):
    head, _, body = raw_answer(server, data).partition(b"\r\n\r\n")
    assert (
        head.startswith(b"HTTP/1.1 400 ")
        and b"text/plain" in head
        and body.count(b"\n") == 0
        and len(body) < 80
    )


@pytest.mark.parametrize(
    "host, status",
    [
        ("evil.example", 421),
        ("evil.example:80", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("[", 421),
        ("[::1].evil.example", 421),
        ("evil.example:80@localhost", 421),
        ("localhost:7860", 200),
        ("LOCALHOST:", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("demo.localhost", 200),
    ],
)
def test_it_answers_under_its_own_names(server, host, status):
    assert get(server.url + "theme.css", Host=host)[0] == status


def test_other_names_are_the_owners_to_give(monkeypatch):
    from specviz.serve.http_guard import allowed_hosts

    monkeypatch.setenv("SPECVIZ_HOSTS", "Demo.example, other.example")
    assert {"demo.example", "other.example", "localhost"} <= allowed_hosts() and "*" not in allowed_hosts()
    monkeypatch.setenv("SPACE_ID", "a/b")
    assert allowed_hosts() == {"*"}


def test_no_path_of_this_machine_is_in_the_page(server):
    from pathlib import Path

    import gradio

    import specviz

    told_paths = {
        str(Path(specviz.__file__).parents[1]),
        str(Path(gradio.__file__).parents[1]),
        str(Path.home()),
    } - {"/"}
    for path in ("", "config", "gradio_api/info"):
        said = get(server.url + path)[1]
        assert not [p for p in told_paths if p in said]


def test_a_request_has_a_size(server):
    status, said = post(f"{server.url}gradio_api/queue/join", b" " * (3 * 2**20))
    assert status == 413 and json.loads(said)["code"] == "size.body"


def test_the_page_satisfies_its_own_policy(visit):
    page = visit()
    page.evaluate(
        "globalThis.broken = []; addEventListener('securitypolicyviolation', (e) => broken.push(e.violatedDirective + ' ' + e.blockedURI))"
    )
    for tab in ("race", "lab", "learn", "traces", "watch"):
        page.click(f"#tab-{tab}")
    page.wait_for_function("window.SpecVizPanels")
    assert page.evaluate("broken") == []


# Long


@pytest.mark.soak
def test_twenty_clients_and_five_hundred_runs_leave_nothing_behind(proxied):
    """Twenty at once from as many addresses, five hundred runs in all; memory after the last quarter is
    that after the second."""
    url, sizes = proxied.url.rstrip("/") + "/gradio_api/call/run", []

    def one(i):
        status, said = post(
            url,
            {"data": ["fox", ["chain", "tree"], 40, 0, 1, i, {}, "", [], "", 1, False, "", "", 1, {}]},
            **{"X-Forwarded-For": f"10.0.0.{i % 20 + 1}"},
        )
        assert status == 200, said
        lines = get(f"{url}/{json.loads(said)['event_id']}")[1].splitlines()
        return sum('\\"state\\":\\"done\\"' in line for line in lines) > 0

    for _ in range(4):
        with ThreadPoolExecutor(20) as clients:
            assert all(clients.map(one, range(125)))
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(f"\n500 runs; most memory after each quarter: {[f'{s:.0f} MB' for s in sizes]}")
    assert proxied.backend.most_active == 1 and sizes[3] - sizes[1] < 100
