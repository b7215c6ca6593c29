"""What each attack costs a real server, and what an honest client of another address waits meanwhile.

    SPECVIZ_TEST_SOAK=1 python -m pytest -q -s tests/attack/test_costs.py

SPECVIZ_ATTACK_ROOT=FOLDER attacks another checkout, for figures before a change.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest

from .real_server import HonestClient, RealServer, report, usual_waits
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
