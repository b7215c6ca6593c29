"""What each attack costs a real server, and what an honest client of another address waits meanwhile.

    SPECVIZ_TEST_SOAK=1 python -m pytest -q -s -n0 tests/attack/test_costs.py

Each prints one line. SPECVIZ_ATTACK_ROOT=FOLDER attacks another checkout, for figures before a change, where
some tests fail after they have printed. SPECVIZ_ATTACK_PART=0.1 shortens the attacks, to try the scripts.
Needs a machine on which nothing else runs.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
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
from .test_stored_runs import run as small_run

pytestmark = pytest.mark.soak

PART = float(os.environ.get("SPECVIZ_ATTACK_PART", "1"))  # of the durations and numbers below
GZIP = {"content-type": "application/gzip"}
FAIR = 3.0  # times its usual wait that an honest client may wait
BLINK = 1.0  # seconds that it may wait in any case


def served(client: HonestClient, usual: HonestClient) -> bool:
    """Whether an honest client got all of its answers, and none after more than FAIR times its usual wait."""
    return not client.failed and client.longest < max(FAIR * usual.longest, BLINK)


def store(server: RealServer, body: bytes, address: str = ATTACKER) -> str:
    """Store a run; return its address."""
    status, answer, _ = server.request("POST", "/runs", body, address, **GZIP)
    assert status == 200, answer
    return "/runs/" + json.loads(answer)["hash"]


@pytest.mark.parametrize("descriptors", [0, 256])
def test_answers_that_are_written_and_not_taken(descriptors):
    """26. Hundreds of connections of one address ask for a stored run of 6 MB and read nothing."""
    with RealServer(descriptors) as server:
        path = store(server, stored_run())
        usual, before, cpu = usual_waits(server), server.memory(), server.processor()
        held = []
        with HonestClient(server) as client:
            for _ in range(round(PART * (400 if descriptors else 236))):
                with suppress(OSError):
                    one = server.connect(timeout=5)
                    one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                    held.append(one)
                    one.recv(20)  # the answer has begun
            time.sleep(5 * PART)
            during, open_files = server.memory(), server.descriptors()
            time.sleep(32 * PART)  # longer than a client may take nothing
            after = server.memory()
        for one in held:
            one.close()
        time.sleep(2)
        report(
            f"26 unread answers, {descriptors or 'many'} descriptors",
            memory_MB=during - before,
            held_MB=after - before,
            left_MB=server.memory() - before,
            processor_s=server.processor() - cpu,
            descriptors=open_files,
            log_bytes=server.log.stat().st_size,
            usual=str(usual),
            honest=str(client),
        )
        assert during - before < 120 and after - before < 60
        assert server.log.stat().st_size < 20_000
        assert served(client, usual)


SLOW_GRAMMAR = "start: s\ns: s s s s | /[a-z ]/ | s s"
NO_END = "start: X\nX: /.*a.{20}/ & /.*b.{19}/ & ~/.*c.{18}/"  # an intersection that never compiles
PICTURE = url(jpeg_of_scans(26_000), "jpeg")
PARTS = [{"type": "image_url", "image_url": {"url": PICTURE}}, {"type": "text", "text": "x"}]


def grammar(lark: str):
    form = {"type": "lark", "lark": lark}
    return lambda server, address: server.chat(
        address, "x", 30 if lark == NO_END else 120, response_format=form, max_tokens=200
    )


def picture(server: RealServer, address: str):
    return server.request(
        "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": PARTS}]}, address
    )


WRONG = {"model": "nope", "messages": [{"role": "user", "content": "x"}]}
ASKED = {
    "wrong model": lambda server, address: server.request("POST", "/v1/chat/completions", WRONG, address),
    "/v1/models": lambda server, address: server.request("GET", "/v1/models", None, address),
    "/": lambda server, address: server.request("GET", "/", None, address),
    "/config": lambda server, address: server.request("GET", "/config", None, address),
}
FLOODS = {  # name: (attack, seconds, clients side by side)
    "27 slow grammar": (grammar(SLOW_GRAMMAR), 25, 6),
    "27 endless compilation": (grammar(NO_END), 12, 2),
    "28 many scans": (picture, 12, 6),
    **{f"29 {name}": (ask, 6, 6) for name, ask in ASKED.items()},
    "34 greedy client": (lambda server, address: server.chat(address, "x", max_tokens=64), 12, 12),
}


def repeated(server: RealServer, attack, seconds: float, together: int, answers) -> None:
    """Repeat ``attack(server, address)`` in threads, in a process of its own: an attacker's threads would slow
    the honest client's. Put how many answers of each kind there were."""
    over = threading.Event()
    counted: Counter = Counter()

    def repeat() -> None:
        while not over.is_set():
            try:
                counted[attack(server, ATTACKER)[0]] += 1
            except OSError as error:
                counted[type(error).__name__] += 1

    for _ in range(together):
        threading.Thread(target=repeat, daemon=True).start()
    time.sleep(seconds)
    over.set()
    answers.put(dict(counted))


def attacked(server: RealServer, attack, seconds: float, together: int):
    """An honest client's waits, and the figures of a server while threads of one address repeat
    ``attack(server, address)``."""
    apart = multiprocessing.get_context("fork")
    answers = apart.SimpleQueue()
    before, cpu = server.memory(), server.processor()
    attacker = apart.Process(target=repeated, args=(server, attack, seconds, together, answers), daemon=True)
    with HonestClient(server) as client:
        attacker.start()
        counted = answers.get()
    attacker.kill()
    spent, requests = server.processor() - cpu, sum(counted.values())
    figures = {
        "requests": requests,
        "processor_s": spent,
        "each_ms": 1000 * spent / max(1, requests),
        "memory_MB": server.memory() - before,
        "answers": counted,
    }
    return client, figures


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_one_address(name):
    """27, 28, 29, and one greedy client: the same request again and again."""
    attack, seconds, together = FLOODS[name]
    with RealServer() as server:
        usual = usual_waits(server, 4 * PART)
        client, figures = attacked(server, attack, seconds * PART, together)
        report(name, **figures, usual=str(usual), honest=str(client))
        assert served(client, usual)


def test_ten_modest_clients_beside_a_greedy_one():
    """34. Each of ten addresses asks once a second; one asks with twelve connections at once."""
    attack, seconds, together = FLOODS["34 greedy client"]
    with RealServer() as server:
        modest = [HonestClient(server, f"127.0.0.{20 + i}", pause=1.0) for i in range(10)]
        alone = usual_waits(server, 4 * PART)
        for one in modest:
            one.__enter__()
        usual = usual_waits(server, 4 * PART)  # beside the ten, before the greedy one comes
        client, figures = attacked(server, attack, seconds * PART, together)
        for one in modest:
            one.__exit__()
        waits = sorted(one.usual for one in modest)
        report(
            "34 ten modest clients",
            **figures,
            alone=str(alone),
            usual=str(usual),
            honest=str(client),
            modest=f"medians {waits[0]:.2f} to {waits[-1]:.2f} s, longest {max(one.longest for one in modest):.2f} s",
        )
        assert not any(one.failed for one in modest) and waits[-1] < FAIR * max(waits[0], BLINK)
        assert client.usual < max(FAIR * usual.usual, BLINK)


def test_the_price_of_small_requests():
    """29. Processor time of a request, one after another."""
    with RealServer() as server:
        prices = {}
        for name, ask in ASKED.items():
            ask(server, ATTACKER)
            cpu = server.processor()
            for _ in range(round(50 * PART)):
                ask(server, ATTACKER)
            prices[f"{name} ms"] = 1000 * (server.processor() - cpu) / round(50 * PART)
        report("29 one after another", **prices)
        assert max(prices.values()) < 20


def test_a_guess_learns_nothing_of_anothers_prompt():
    """30. cached_tokens of prompts that share more and more of another one's, from the same address."""
    secret = "the password of the old house by the sea is seven green cats and one blue dog on the roof"
    words = secret.split()
    with RealServer() as server:
        usual = usual_waits(server, 4 * PART)
        server.chat(ATTACKER, secret)
        found = []
        with HonestClient(server) as client:
            for count in range(4, len(words), 3):
                _, body, _ = server.chat(ATTACKER, " ".join(words[:count]) + " zzz")
                usage = json.loads(body)["usage"]
                found.append(usage.get("prompt_tokens_details", {}).get("cached_tokens", 0))
        report("30 cached tokens of guesses", found=found, usual=str(usual), honest=str(client))
        assert not any(found) and served(client, usual)


def test_a_small_gzip_of_many_lines():
    """31. 8 KB of gzip, posted as often as an address may."""
    with RealServer() as server:
        usual = usual_waits(server, 4 * PART)
        for line in (b"[]", b'{"type":"text"}'):
            body = gzip.compress((line + b"\n") * (8 * 2**20 // (len(line) + 1) - 1))
            cpu = server.processor()
            with HonestClient(server) as client:
                waits = [server.request("POST", "/runs", body, **GZIP)[2] for _ in range(2)]
            report(
                f"31 lines of {line.decode()}",
                bytes=len(body),
                processor_s=(server.processor() - cpu) / 2,
                longest_s=max(waits),
                usual=str(usual),
                honest=str(client),
            )
            assert served(client, usual)


def test_runs_of_many_addresses_do_not_remove_an_honest_one():
    """31. 240 tiny runs of 40 addresses, where 200 are kept."""
    with RealServer() as server:
        mine, usual = store(server, small_run("mine"), HONEST), usual_waits(server, 4 * PART)
        answers: Counter = Counter()
        with HonestClient(server) as client:
            for i in range(round(240 * PART)):
                body = small_run(f"run {i}", tokens=2)
                answers[server.request("POST", "/runs", body, f"127.0.0.{30 + i // 6}", **GZIP)[0]] += 1
        status = server.request("GET", mine)[0]
        report("31 tiny runs", answers=dict(answers), honest_run=status, usual=str(usual), honest=str(client))
        assert status == 200 and served(client, usual)


def test_a_hub_that_dribbles():
    """32. A hub that answers a byte a second: what is on disc still loads, and the fetch ends with its asker."""
    with (
        dribbling_hub() as address,
        RealServer(
            HF_ENDPOINT=address, HF_HUB_OFFLINE="0", HF_HOME=tempfile.mkdtemp(), HF_HUB_DISABLE_XET="1"
        ) as server,
    ):
        usual = usual_waits(server, 4 * PART)
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
        with HonestClient(server) as client:
            try:
                status = server.chat("127.0.0.3", "x", timeout=30, model=other)[0]
            except OSError:
                status = "no answer in 30 s"
        waited = time.monotonic() - began
        waits.join(30)
        time.sleep(2)
        left = sum("specviz.zoo.registry" in line for line in server.children())
        report(
            "32 dribbling hub",
            other=other,
            status=status,
            waited_for_another_model=waited,
            fetches_left=left,
            usual=str(usual),
            honest=str(client),
        )
        assert status == 200 and not left and served(client, usual)


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
