"""What a hostile visitor costs the service, in figures: oversized requests, answers that nobody reads, one
address against the others.

    SPECVIZ_TEST_SOAK=1 python -m pytest tests/ui/test_service_soak.py -s

``make test`` has the rules themselves (test_http_guard.py, test_limits.py).
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from specviz.serve import address_budget

from ..attack.test_load import get, post
from ..engine.test_limits import LARGE
from ..serve.test_http_guard import RUN

pytestmark = pytest.mark.soak


def call(server, name, body, address):
    return post(f"{server.url}gradio_api/call/{name}", body, **{"X-Forwarded-For": address})


def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def test_a_hundred_thousand_of_anything_costs_little(proxied):
    shapes = {name: value for name, value in LARGE.items() if name not in ("digits", "lists", "nested")}
    for name, value in shapes.items():
        began, count = time.process_time(), 0
        for endpoint, places in (("run", len(RUN["data"])), ("compare", 7), ("ask", 2)):
            for place in range(places):
                data = ["x"] * places
                data[place] = value
                status, _ = call(proxied, endpoint, {"data": data}, f"10.1.0.{count}")
                assert status == 413
                count += 1
        spent = 1000 * (time.process_time() - began) / count
        print(f"\n100,000 of {name}: {spent:.0f} ms of the processor a request, both ends together", end="")
    assert not proxied.demo._queue.event_ids_to_events and not proxied.backend.runs


def test_answers_that_nobody_reads(proxied, monkeypatch):
    """Twice as many addresses as one, each in turn: what is kept is thrown away, and its memory used
    again."""
    grown = []
    for part in range(3):
        monkeypatch.setattr(address_budget, "PATIENCE", 600.0)
        before, statuses = memory(), Counter()
        for i in range(200):
            address = f"10.3.0.{part}" if i % 2 else f"10.4.{part}.{i}"
            statuses[call(proxied, "methods", {"data": []}, address)[0]] += 1
        kept = len(proxied.demo._queue.pending_messages_per_session)
        monkeypatch.setattr(address_budget, "PATIENCE", 0.3)
        time.sleep(4)
        left = len(proxied.demo._queue.pending_messages_per_session)
        grown.append(memory() - before)
        print(
            f"\n200 unread answers: {dict(statuses)}, {kept} kept, {left} after the patience, {grown[-1]:+.1f} MB",
            end="",
        )
        assert statuses[429] and left == 0 and set(statuses) == {200, 429}
    assert max(grown[1:]) < 0.02 * memory()  # what came with the first is not repeated


def test_one_address_in_a_loop_and_twenty_five_honest_ones(proxied):
    over, flood = threading.Event(), Counter()

    def post_without_end():
        while not over.is_set():
            flood[call(proxied, "run", RUN, "10.5.0.1")[0]] += 1

    threads = [threading.Thread(target=post_without_end) for _ in range(2)]
    for one in threads:
        one.start()
    honest = Counter()
    for i in range(25):
        status, said = call(proxied, "run", RUN, f"10.6.0.{i}")
        answer = (
            get(f"{proxied.url}gradio_api/call/run/{json.loads(said)['event_id']}")[1]
            if status == 200
            else ""
        )
        honest["served" if '"state":"done"' in answer.replace('\\"', '"') else f"{status}, not served"] += 1
    over.set()
    for one in threads:
        one.join()
    print(f"\none address posted {sum(flood.values())} runs ({dict(flood)}); of 25 others {dict(honest)}")
    assert honest["served"] == 25
