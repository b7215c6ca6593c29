"""Answers of the page that are kept for a short time, and what a request costs its address."""

from __future__ import annotations

import asyncio

import pytest

from specviz.engine.engine import FRESH, Engine
from specviz.engine.messages import Refused
from specviz.serve.address_budget import AddressBudget
from specviz.serve.http_guard import PRICE
from specviz.serve.page_cache import KEPT, SECONDS, PageCache

from ..attack.test_load import get


def scope(path="/", query=b"", host=b"localhost", method="GET"):
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": [(b"host", host)],
        "root_path": "",
    }


def counting():
    """An app that counts its requests, and a clock."""
    made, clock = [], [100.0]

    async def app(scope, receive, send):
        made.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % len(made)})

    cache = PageCache(app, lambda: clock[0])

    def ask(*given, **named):
        sent = []

        async def send(message):
            sent.append(message)

        asyncio.run(cache(scope(*given, **named), None, send))
        return sent[-1]["body"]

    return made, clock, cache, ask


def test_an_answer_is_kept_for_its_address_name_and_query():
    made, clock, cache, ask = counting()
    assert [ask(), ask(), ask(query=b"embed=1"), ask(host=b"other"), ask("/config")] == [
        b"1",
        b"1",
        b"2",
        b"3",
        b"4",
    ]
    assert ask("/theme.css") == b"5" and ask("/theme.css") == b"6" and ask(method="HEAD") == b"7"
    clock[0] += SECONDS
    assert not cache.has(scope()) and ask() == b"8"
    for i in range(3 * KEPT):
        ask(host=b"%d.localhost" % i)
    assert len(cache._kept) == KEPT
    ask(host=b"x" * 2000)
    assert len(cache._kept) == KEPT and len(made) == 9 + 3 * KEPT


def test_many_at_once_have_one_answer_written_and_wait_for_no_slow_reader():
    """The page is 1.7 MB: six requests at once were six times the work."""
    made, clock = [], [100.0]

    async def run(status):
        begun, go = asyncio.Event(), asyncio.Event()

        async def app(scope, receive, send):
            made.append(1)
            begun.set()
            await go.wait()
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"%d" % len(made)})

        cache = PageCache(app, lambda: clock[0])
        stuck = asyncio.Event()  # a reader that takes nothing

        async def slow(message):
            await stuck.wait()

        async def ask():
            sent = []

            async def send(message):
                sent.append(message)

            await cache(scope(), None, send)
            return sent[-1]["body"]

        first = asyncio.create_task(cache(scope(), None, slow))
        await begun.wait()
        others = [asyncio.create_task(ask()) for _ in range(5)]
        await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(*others)
        assert not first.done() and not cache._under_way
        stuck.set()
        await first
        return found

    assert asyncio.run(run(200)) == [b"1"] * 5 and len(made) == 1
    made.clear()
    assert len(asyncio.run(run(500))) == 5 and len(made) == 6  # what is not kept is written for each


def test_a_page_that_is_not_in_memory_counts_as_several_requests(server, monkeypatch):
    budget = AddressBudget(requests=3 * PRICE)
    budget.request("a", PRICE)
    budget.request("a", PRICE)
    for _ in range(PRICE):
        budget.request("a")
    with pytest.raises(Refused):
        budget.request("a", PRICE)
    assert get(server.url)[1] == get(server.url)[1]


def test_what_models_are_offered_is_not_computed_for_every_request(monkeypatch):
    engine, made = Engine(), []
    monkeypatch.setattr(engine, "_find_targets", lambda: made.append(1) or [{"name": "", "model": "x"}])
    assert engine.targets() == engine.targets() and len(made) == 1
    engine._kept[("targets",)] = (engine._kept[("targets",)][0] - 2 * FRESH, None)
    assert engine.targets() and len(made) == 2
