"""Runs that the server keeps for links: what is no trace, too large or too much is refused, and no other
file can be named."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import json
import os
import random
import socket
import threading
import time
import tracemalloc
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from specviz.engine.limits import BASELINE, BODY_BYTES, Refused, RunRequest
from specviz.serve import http_guard, http_timeouts, stored_runs
from specviz.serve.stored_runs import DAY, StoredRuns, configured_runs
from specviz.trace import files
from specviz.trace.files import Trace

from ..ui.fake import FakeBackend
from .test_load import get, post

GZIP = {"Content-Type": "application/gzip"}


def run(prompt="tell of the fox", tokens=24) -> bytes:
    asked = RunRequest(prompt, (("chain", {}), (BASELINE, {})), max_new_tokens=tokens)
    records = [r for batch in FakeBackend().run(asked, threading.Event(), 60) for r in batch]
    return "".join(json.dumps(r) + "\n" for r in records).encode()


def names(runs) -> set[str]:
    return {file.name.partition(".")[0] for file in runs.folder.iterdir() if file.name != stored_runs.OWNERS}


def code(action) -> str:
    with pytest.raises(Refused) as refused:
        action()
    return refused.value.code


@pytest.fixture
def runs(server, monkeypatch):
    """The runs of the shared server, without those of other tests and with a budget of their own."""
    own = server.demo.runs
    for file in own.folder.iterdir() if own.folder.exists() else ():
        file.unlink()
    monkeypatch.setattr(own, "_budget", stored_runs.AddressBudget(requests=60))
    return own


def test_a_run_is_stored_once_under_the_hash_of_its_records_and_comes_back_whole(server, runs):
    lines = Trace.load(run()).lines().encode()
    for body in (run(), gzip.compress(run())):
        status, said = post(server.url + "runs", body, **GZIP)
        assert status == 200 and json.loads(said) == {"hash": hashlib.sha256(lines).hexdigest()}
    name = json.loads(said)["hash"]
    assert names(runs) == {name} and len((runs.folder / f"{name}.jsonl.gz").read_bytes()) < len(lines) / 4
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    connection.request("GET", f"/runs/{name}")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Content-Type"), answer.getheader("X-Content-Type-Options")) == (
        200,
        "application/gzip",
        "nosniff",
    )
    assert gzip.decompress(answer.read()) == lines
    connection.close()


@pytest.mark.parametrize(
    "name",
    [
        "0" * 64,
        "0" * 63,
        "0" * 65,
        "A" * 64,
        "0" * 63 + "g",
        "0" * 64 + "%0a",
        "0" * 64 + ".jsonl.gz",
        "..%2fsecret",
        "../secret",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "\u0661" * 64,
        "",
        "0" * 64 + "/x",
        "secret.jsonl.gz",
    ],
)
def test_no_other_file_can_be_named(server, runs, name):
    runs.folder.mkdir(parents=True, exist_ok=True)
    for place in (runs.folder / "secret.jsonl.gz", runs.folder.parent / "secret"):
        place.write_text("a secret")
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    connection.request("GET", "/runs/" + "".join(c if c.isascii() else "%D9%A1" for c in name))
    answer = connection.getresponse()
    body = answer.read()
    assert (
        answer.status == 404
        and json.loads(body)["code"] in ("stored.gone", "http.route")
        and b"secret" not in body
    )
    connection.close()
    assert code(lambda: runs.find(name)) == "stored.gone"


def test_a_stored_run_has_a_picture_for_previews_and_no_text_of_it_is_in_it(server, runs):
    status, said = post(server.url + "runs", run("<b>a secret</b>"), **GZIP)
    name = json.loads(said)["hash"]
    with urllib.request.urlopen(f"{server.url}runs/{name}.png") as answer:
        picture = answer.read()
        assert status == 200 and answer.headers["content-type"] == "image/png"
    assert picture.startswith(b"\x89PNG") and b"secret" not in picture and runs.words(name) is not None
    with urllib.request.urlopen(f"{server.url}?run={name}") as answer:
        page = answer.read().decode()
    title, sentence = runs.words(name)
    assert f'content="specviz: {title}"' in page and f"/runs/{name}.png" in page and sentence in page
    (runs.folder / f"{name}.jsonl.gz").unlink()
    assert runs.words(name) is None
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{server.url}runs/{name}.png")
    os.utime(runs.folder / f"{name}.png", (1, 1))
    runs._remove_old()
    assert not names(runs)


def test_a_run_goes_with_its_picture(runs):
    name = runs.put(run())
    assert {file.suffix for file in runs.folder.iterdir()} >= {".png", ".gz"}
    os.utime(runs.folder / f"{name}.jsonl.gz", (1, 1))
    assert code(lambda: runs.find(name)) == "stored.gone" and not names(runs)


BOMB, NOISE = (
    gzip.compress(b" " * (stored_runs.MOST_BYTES + 1), mtime=0),
    random.Random(0).randbytes(stored_runs.MOST_BYTES + 1),
)


@pytest.mark.parametrize(
    "body, status, expected",
    [
        pytest.param(b"", 400, "stored.trace", id="empty"),
        pytest.param(b"hello", 400, "stored.trace", id="text"),
        pytest.param(b"{}\n", 400, "stored.trace", id="one line"),
        pytest.param(b"[]", 400, "stored.trace", id="list"),
        pytest.param(b"\x1f\x8b\x08broken", 400, "stored.trace", id="broken gzip"),
        pytest.param(gzip.compress(b"hello", mtime=0) + b"more", 400, "stored.trace", id="after gzip"),
        pytest.param(b"[" * 100_000, 400, "stored.trace", id="deep"),
        pytest.param(run().replace(b'"t0": 0.0', b'"t0": 1e999'), 400, "stored.trace", id="infinite"),
        pytest.param(run().replace(b'"depth": 1', b'"depth": 7'), 400, "stored.trace", id="depth"),
        pytest.param(run() + run(), 400, "stored.trace", id="two"),
        pytest.param(BOMB, 413, "size.stored", id="spaces"),
        pytest.param(gzip.compress(b"\n" * 19 * 2**20, mtime=0), 413, "size.stored", id="bomb"),
        pytest.param(NOISE, 413, "size.body", id="noise"),
    ],
)
def test_what_is_no_trace_or_too_large_is_refused_and_nothing_is_written(
    server, runs, body, status, expected
):
    answer, said = post(server.url + "runs", body, **GZIP)
    assert (answer, json.loads(said)["code"]) == (status, expected)
    assert not runs.folder.exists() or names(runs) <= {"secret"}


def test_another_page_cannot_store_a_run_and_no_method_but_two_does_anything(server, runs):
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json",
    ):
        assert (
            json.loads(post(server.url + "runs", run(), **{"Content-Type": kind})[1])["code"]
            == "stored.route"
        )
    assert get(server.url + "runs")[0] == 405
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    for method in ("PUT", "DELETE", "OPTIONS", "POST"):
        connection.request(method, "/runs/" + "0" * 64, headers=GZIP)
        answer = connection.getresponse()
        assert answer.status == 405 and json.loads(answer.read())["code"] == "stored.route"
    connection.close()
    assert not runs.folder.exists() or names(runs) <= {"secret"}


def test_a_run_that_is_larger_than_other_requests_may_be_is_stored(server, runs):
    note = b'"device": "none", "note": "' + os.urandom(2**19).hex().encode() + b'"'
    body = run().replace(b'"device": "none"', note, 1)
    assert len(body) > BODY_BYTES and post(server.url + "runs", body, **GZIP)[0] == 200
    assert post(server.url + "gradio_api/queue/join", body)[0] == 413


def test_an_address_stores_so_many_a_minute(server, runs, monkeypatch):
    monkeypatch.setattr(runs, "_budget", stored_runs.AddressBudget(requests=2))
    assert [post(server.url + "runs", run(), **GZIP)[0] for _ in range(3)] == [200, 200, 429]


def test_runs_are_checked_one_at_a_time_and_few_wait(server, runs, monkeypatch):
    at_once = [0]
    most = [0]
    gate = threading.Event()

    def slow(data, address, put=runs.put):
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        gate.wait(30)
        at_once[0] -= 1
        return put(data, address)

    monkeypatch.setattr(runs, "put", slow)
    with ThreadPoolExecutor(stored_runs.WAITING + 1) as pool:
        answers = [pool.submit(post, server.url + "runs", run(), **GZIP) for _ in range(stored_runs.WAITING)]
        while runs._waiting < stored_runs.WAITING:
            time.sleep(0.01)
        status, said = post(server.url + "runs", run(), **GZIP)
        gate.set()
        assert (status, json.loads(said)["code"]) == (429, "stored.busy") and {
            answer.result()[0] for answer in answers
        } == {200}
    assert most == [1] and runs._waiting == 0


def test_the_owners_bytes_number_and_days_are_kept(tmp_path):
    folder = tmp_path / "runs"
    bodies = [run(f"run {i}") for i in range(4)]
    small = StoredRuns(folder, most_bytes=len(Trace.load(bodies[0]).lines().encode()) - 1)
    assert code(lambda: small.put(bodies[0])) == "size.stored" and not folder.exists()
    kept = StoredRuns(folder, most_runs=3, days=2)
    stored = []
    for i, body in enumerate(bodies[:3]):
        stored.append(kept.put(body))
        os.utime(folder / f"{stored[i]}.jsonl.gz", (time.time() - DAY + i,) * 2)
    other = folder / "notes.txt"
    other.write_text("the owner's own")
    os.utime(other, (0, 0))
    kept.put(bodies[0])  # stored again: it is the newest now
    stored.append(kept.put(bodies[3]))
    assert names(kept) == {stored[0], stored[2], stored[3], "notes"}
    assert code(lambda: kept.find(stored[1])) == "stored.gone"
    os.utime(folder / f"{stored[2]}.jsonl.gz", (time.time() - 2 * DAY - 60,) * 2)
    assert code(lambda: kept.find(stored[2])) == "stored.gone" and names(kept) == {
        stored[0],
        stored[3],
        "notes",
    }
    os.utime(folder / f"{stored[0]}.jsonl.gz", (0, 0))
    kept.sweep()  # also where nobody asks for it
    assert (
        names(kept) == {stored[3], "notes"}
        and gzip.decompress(kept.find(stored[3])[0].read_bytes()) == Trace.load(bodies[3]).lines().encode()
    )
    os.utime(folder / f"{stored[3]}.jsonl.gz", (0, 0))
    assert kept.put(bodies[2]) == stored[2] and names(kept) == {stored[2], "notes"}


def test_a_folder_that_cannot_be_written_is_a_refusal(tmp_path):
    (tmp_path / "file").write_text("")
    assert code(lambda: StoredRuns(tmp_path / "file" / "runs").put(run())) == "stored.folder"


def test_numbers_that_grow_when_they_are_written_out_count_at_their_length(tmp_path):
    body = run().replace(
        b'"device": "none"', b'"device": "none", "x": [' + b",".join([b"1e15"] * 4000) + b"]"
    )
    assert len(StoredRuns(tmp_path).put(body)) == 64
    assert code(lambda: StoredRuns(tmp_path, most_bytes=len(body) + 10).put(body)) == "size.stored"


def test_it_is_off_on_a_space_and_where_the_owner_says_so(monkeypatch, tmp_path):
    for variable in ("SPECVIZ_RUNS", "SPACE_ID"):
        monkeypatch.delenv(variable, raising=False)
    runs = configured_runs()
    assert runs and (runs.most_bytes, runs.most_runs, runs.days) == (
        stored_runs.MOST_BYTES,
        stored_runs.MOST_RUNS,
        stored_runs.DAYS,
    )
    monkeypatch.setenv("SPACE_ID", "a/b")
    assert configured_runs() is None
    monkeypatch.setenv("SPECVIZ_RUNS", str(tmp_path))
    for variable, value in (("BYTES", "99999999999"), ("NUMBER", "7"), ("DAYS", "0")):
        monkeypatch.setenv(f"SPECVIZ_RUNS_{variable}", value)
    runs = configured_runs()
    assert runs and (runs.folder, runs.most_bytes, runs.most_runs, runs.days) == (tmp_path, 20 * 2**20, 7, 1)
    monkeypatch.setenv("SPECVIZ_RUNS", "0")
    monkeypatch.delenv("SPACE_ID")
    assert configured_runs() is None


def test_a_server_that_keeps_none_has_no_such_route(keeps_no_runs):
    assert json.loads(post(keeps_no_runs.url + "runs", run(), **GZIP)[1])["code"] == "http.route"
    assert json.loads(get(keeps_no_runs.url + "runs/" + "0" * 64)[1])["code"] == "http.route"


def large_run() -> bytes:
    """A run of 6 MB that does not get smaller when it is compressed, as gzipped lines."""
    notes = b"".join(
        b'"n%d": "%s", ' % (i, base64.b64encode(random.Random(i).randbytes(720_000))) for i in range(8)
    )
    return gzip.compress(run().replace(b'"device": "none"', notes + b'"device": "none"', 1), mtime=0)


def test_millions_of_lines_are_not_split_before_the_first_is_read(tmp_path):
    body = gzip.compress(b"[]\n" * (8 * 2**20 // 3 - 1))
    tracemalloc.start()
    try:
        with pytest.raises(Refused):
            StoredRuns(tmp_path).put(body)
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20  # all lines at once are above 90 MB
    finally:
        tracemalloc.stop()


@pytest.mark.thorough
def test_an_answer_that_is_not_taken_is_held_in_small_parts_and_its_connection_aborted(
    server, runs, monkeypatch
):
    status, said = post(server.url + "runs", large_run(), **GZIP)
    assert status == 200
    kind = server.demo.server.config.http_protocol_class
    monkeypatch.setattr(http_timeouts, "WATCH", 0.1)
    with ExitStack() as stack:
        held = [
            stack.enter_context(slow_reader(server, f"/runs/{json.loads(said)['hash']}")) for _ in range(8)
        ]
        mine = [one for one in kind._open["127.0.0.1"] if not one._idle()]
        monkeypatch.setattr(http_timeouts, "DRAIN_SECONDS", 1.0)
        until, most = time.monotonic() + 60, 0
        while len({*mine} & {*kind._open.get("127.0.0.1", ())}) == 8 and time.monotonic() < until:
            most = max(most, *(one.transport.unsent for one in mine))
            time.sleep(0.01)
        assert 0 < most <= http_timeouts.BUFFER_BYTES + http_guard.PART_BYTES + 4096
        while {*mine} & {*kind._open.get("127.0.0.1", ())} and time.monotonic() < until:
            time.sleep(0.05)
        assert not {*mine} & {*kind._open.get("127.0.0.1", ())} and len(held) == 8
    monkeypatch.undo()
    assert len(get_bytes(f"{server.url}runs/{json.loads(said)['hash']}")) > 5 * 2**20


def slow_reader(server, path) -> socket.socket:
    """A connection that asks for an answer and reads its first bytes."""
    one = socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=20)
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert one.recv(12) == b"HTTP/1.1 200"
    return one


def get_bytes(url) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


@pytest.mark.parametrize("limit, most", [("CONNECTIONS", 6), ("_most", 6)])
def test_more_connections_than_the_limit_close_the_oldest_idle_ones(server, monkeypatch, limit, most):
    kind = server.demo.server.config.http_protocol_class
    monkeypatch.setattr(*((http_timeouts, limit) if limit.isupper() else (kind, limit)), most)
    with ExitStack() as stack:
        for _ in range(20):
            one = stack.enter_context(slow_reader(server, "/theme.css"))
            while one.recv(65_536)[-1:] not in (b"}", b"\n", b""):
                pass
        assert len(kind._open["127.0.0.1"]) <= most
        assert get(server.url + "theme.css")[0] == 200


def test_runs_of_one_address_do_not_remove_those_of_others(tmp_path):
    kept = StoredRuns(tmp_path, most_runs=5)
    others = [kept.put(run(f"tell {i}"), f"10.0.0.{i}") for i in range(2)]
    for i in range(6):
        kept.put(run(f"flood {i}"), "10.9.9.9")
    kept = StoredRuns(tmp_path, most_runs=5)  # another process
    last = [kept.put(run(f"more {i}"), "10.9.9.9") for i in range(6)]
    assert names(kept) == {*others, *last[3:]}
    owners = (tmp_path / stored_runs.OWNERS).read_text()
    assert "10." not in owners and set(json.loads(owners)["runs"]) == names(kept)


@pytest.mark.parametrize("damaged", [b"", b"[]", b"{}", b'{"salt": 1, "runs": []}', b"\xff"])
def test_a_damaged_list_of_owners_is_written_anew(tmp_path, damaged):
    (tmp_path / stored_runs.OWNERS).write_bytes(damaged)
    kept = StoredRuns(tmp_path, most_runs=2)
    stored = [kept.put(run(f"tell {i}"), "10.0.0.1") for i in range(3)]
    assert names(kept) == {*stored[1:]}


def test_temporary_files_of_a_killed_writer_are_removed(tmp_path):
    for name, age in ((".0123456789abcdef.tmp", 7200), (".fedcba9876543210.tmp", 10), (".mine.tmp", 7200)):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    StoredRuns(tmp_path).put(run())
    assert {file.name for file in tmp_path.iterdir() if file.suffix == ".tmp"} == {
        ".fedcba9876543210.tmp",
        ".mine.tmp",
    }


@pytest.mark.parametrize("line", [b"[]", b"{}", b'{"type":"text"}'])
def test_the_first_wrong_record_ends_the_check(tmp_path, monkeypatch, line):
    """8 MB of such lines are 8 KB of gzip."""
    parsed = []
    parse = files._parse
    monkeypatch.setattr(files, "_parse", lambda *given: parsed.append(1) or parse(*given))
    body = gzip.compress((line + b"\n") * 10_000)
    assert code(lambda: StoredRuns(tmp_path).put(body)) == "stored.trace" and len(parsed) == 1
