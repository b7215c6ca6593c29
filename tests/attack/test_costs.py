"""What each attack costs a real server, and what an honest client of another address waits meanwhile.

    SPECVIZ_TEST_SOAK=1 python -m pytest -q -s tests/attack/test_costs.py

SPECVIZ_ATTACK_ROOT=FOLDER attacks another checkout, for figures before a change.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress

import pytest

from .real_server import ATTACKER, HONEST, HonestClient, RealServer, report, usual_waits
from .test_pictures import jpeg_of_scans, url
from .test_stored_runs import large_run as stored_run

pytestmark = pytest.mark.soak


def large_run(server: RealServer) -> str:
    """Store a run whose answer is 6 MB; return its address."""
    status, body, _ = server.request("POST", "/runs", stored_run(), **{"content-type": "application/gzip"})
    assert status == 200, body
    return "/runs/" + json.loads(body)["hash"]


@pytest.mark.parametrize("descriptors", [0, 256])
def test_answers_that_are_written_and_not_taken(descriptors):
    """236 connections of one address ask for a stored run of 6 MB and read nothing."""
    with RealServer(descriptors) as server:
        path = large_run(server)
        usual, before, cpu = usual_waits(server), server.memory(), server.processor()
        held = []
        with HonestClient(server) as client:
            for _ in range(236 if not descriptors else 400):
                with suppress(OSError):
                    one = server.connect(timeout=5)
                    one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                    held.append(one)
                    one.recv(20)  # the answer has begun
            time.sleep(5)
            during, open_files = server.memory(), server.descriptors()
            time.sleep(45)
            after = server.memory()
        for one in held:
            one.close()
        time.sleep(2)
        report(
            f"26 unread answers, {descriptors or 'many'} descriptors",
            memory_MB=during - before,
            after_a_minute_MB=after - before,
            left_MB=server.memory() - before,
            processor_s=server.processor() - cpu,
            descriptors=open_files,
            log_bytes=server.log.stat().st_size,
            usual=str(usual),
            honest=str(client),
        )
        assert during - before < 120 and after - before < 60
        assert server.log.stat().st_size < 20_000 and not client.failed
        assert client.longest < max(3 * usual.longest, 1.0)


SLOW_GRAMMAR = "start: s\ns: s s s s | /[a-z ]/ | s s"


def attacked(server: RealServer, attack, seconds: float, addresses: int = 1, together: int = 6):
    """An honest client's waits and the server's processor seconds while threads repeat ``attack(address)``."""
    over = threading.Event()
    answers: Counter = Counter()

    def repeat(address):
        while not over.is_set():
            try:
                answers[attack(address)[0]] += 1
            except OSError as error:
                answers[type(error).__name__] += 1

    before, cpu = server.memory(), server.processor()
    threads = [
        threading.Thread(target=repeat, args=(f"127.0.0.{7 + i % addresses}",), daemon=True)
        for i in range(together)
    ]
    with HonestClient(server) as client:
        for one in threads:
            one.start()
        time.sleep(seconds)
    over.set()
    figures = {"processor_s": server.processor() - cpu, "memory_MB": server.memory() - before}
    return client, figures | {"answers": dict(answers), "honest": str(client)}


def test_one_mask_of_one_grammar():
    """27. A grammar of 65 bytes, asked for again and again by six clients of one address."""
    with RealServer() as server:
        usual = usual_waits(server)
        form = {"type": "lark", "lark": SLOW_GRAMMAR}
        began = time.monotonic()
        client, figures = attacked(
            server, lambda address: server.chat(address, "x", response_format=form, max_tokens=200), 60
        )
        report("27 slow grammar", took=time.monotonic() - began, usual=str(usual), **figures)
        assert not client.failed and client.longest < 10


def test_a_format_that_never_compiles():
    """27. An intersection of 50 bytes whose compilation has no end."""
    lark = "start: X\nX: /.*a.{20}/ & /.*b.{19}/ & ~/.*c.{18}/"
    with RealServer() as server:
        usual = usual_waits(server)
        form = {"type": "lark", "lark": lark}
        client, figures = attacked(
            server,
            lambda address: server.chat(address, "x", timeout=20, response_format=form),
            40,
            together=2,
        )
        report("27 endless compilation", usual=str(usual), **figures)
        assert not client.failed


def test_a_jpeg_of_many_scans():
    """28. Six clients of one address send a JPEG of 28,427 scans to a target that reads no picture."""
    picture = url(jpeg_of_scans(26_000), "jpeg")
    parts = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": "x"}]
    with RealServer() as server:
        usual = usual_waits(server)
        client, figures = attacked(
            server,
            lambda address: server.request(
                "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": parts}]}, address
            ),
            20,
        )
        report("28 many scans", picture_KB=len(picture) >> 10, usual=str(usual), **figures)
        assert not client.failed


@pytest.mark.parametrize("path", ["wrong model", "/v1/models", "/", "/config"])
def test_requests_that_cost_the_event_loop(path):
    """29. Processor time of a request, one after another."""
    wrong = {"model": "nope", "messages": [{"role": "user", "content": "x"}]}
    with RealServer() as server:
        ask = {
            "wrong model": lambda: server.request("POST", "/v1/chat/completions", wrong),
        }.get(path, lambda: server.request("GET", path))
        ask()
        cpu = server.processor()
        for _ in range(50):
            ask()
        report(f"29 {path}", ms=1000 * (server.processor() - cpu) / 50)
        assert server.processor() - cpu < 50 * 0.02


def test_a_guess_learns_nothing_of_anothers_prompt():
    """30. cached_tokens of prompts that share more and more of another one's, from the same address."""
    secret = "the password of the old house by the sea is seven green cats and one blue dog on the roof"
    words = secret.split()
    with RealServer() as server:
        server.chat(ATTACKER, secret)
        found = []
        for count in range(4, len(words), 3):
            _, body, _ = server.chat(ATTACKER, " ".join(words[:count]) + " zzz")
            found.append(json.loads(body)["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0))
        report("30 cached tokens of guesses", found=found)
        assert not any(found)


@pytest.mark.parametrize("line", [b"[]", b'{"type":"text"}'])
def test_a_small_gzip_of_many_lines(line):
    """31. 8 KB of gzip, posted as often as an address may."""
    body = gzip.compress((line + b"\n") * (8 * 2**20 // (len(line) + 1) - 1))
    with RealServer() as server:
        usual, cpu = usual_waits(server), server.processor()
        with HonestClient(server) as client:
            waits = [
                server.request("POST", "/runs", body, **{"content-type": "application/gzip"})[2]
                for _ in range(3)
            ]
        report(
            f"31 lines of {line.decode()}",
            bytes=len(body),
            processor_s=(server.processor() - cpu) / 3,
            longest_s=max(waits),
            usual=str(usual),
            honest=str(client),
        )
        assert max(waits) < 5


def test_a_hub_that_dribbles():
    """32. A hub that answers a byte a second: what is on disc still loads, and the fetch ends with its asker."""
    with (
        dribbling_hub() as address,
        RealServer(
            HF_ENDPOINT=address, HF_HUB_OFFLINE="0", HF_HOME=tempfile.mkdtemp(), HF_HUB_DISABLE_XET="1"
        ) as server,
    ):
        names = [one["id"] for one in json.loads(server.request("GET", "/v1/models")[1])["data"]]
        far = os.environ.get("SPECVIZ_ATTACK_FAR", "SmolLM2-360M-Instruct")
        waits = threading.Thread(
            target=lambda: suppress_os(lambda: server.chat("127.0.0.8", "x", timeout=25, model=far)),
            daemon=True,
        )
        waits.start()
        time.sleep(4)
        other = next(name for name in names if name.startswith("Llama-specviz") and name != names[0])
        began = time.monotonic()
        try:
            status = server.chat(HONEST, "x", timeout=40, model=other)[0]
        except OSError:
            status = "no answer in 40 s"
        report(
            "32 dribbling hub",
            models=len(names),
            other=other,
            status=status,
            waited=time.monotonic() - began,
        )
        assert status == 200


def suppress_os(work) -> None:
    with suppress(OSError):
        work()


@contextmanager
def dribbling_hub():
    """The address of an HTTP server that answers every request with a byte a second."""
    listening = socket.create_server(("127.0.0.1", 0))

    def dribble(one):
        with suppress(OSError):
            one.recv(4096)
            one.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n"
            )
            while True:
                one.sendall(b" ")
                time.sleep(1)

    def serve():
        with suppress(OSError):
            while True:
                threading.Thread(target=dribble, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()
