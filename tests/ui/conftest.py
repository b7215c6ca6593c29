"""One server with a scripted backend and one browser for the page's tests.

The browser lives in a thread of its own, and so do the bodies of the tests that use it: Playwright's synchronous interface may
not share a thread with an asyncio loop. A test fails on any console error, page error, dialog, or request to anybody else.
"""
from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specviz.ui import build_app, launch

from .fake import FakeBackend

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
GUARD = "globalThis.ran = []; globalThis.alert = (x) => globalThis.ran.push('alert ' + x);"
POOL = ThreadPoolExecutor(max_workers=1, thread_name_prefix="browser")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A page on its own port, with the backend behind it."""

    def __init__(self, backend):
        self.backend = backend
        self.demo = build_app(backend)
        _, self.url, _ = launch(self.demo, server_port=free_port(), prevent_thread_lock=True, quiet=True)

    def close(self):
        self.demo.close(verbose=False)


@pytest.fixture(scope="session")
def _server():
    server = Server(FakeBackend())
    yield server
    server.close()


@pytest.fixture
def server(_server):
    """The shared server; its backend is as new."""
    _server.backend.renew()
    yield _server
    _server.backend.hold(None)


@pytest.fixture
def backend(server):
    return server.backend


RUNNING = []  # the one browser of this process, while somebody uses it: several folders of tests have this fixture


@pytest.fixture(scope="session")
def _browser():
    def start():
        from playwright.sync_api import sync_playwright

        player = sync_playwright().start()
        RUNNING.extend([player.chromium.launch(executable_path=str(CHROMIUM) if CHROMIUM.exists() else None, args=FLAGS), player])

    def stop():
        browser, player = RUNNING
        RUNNING.clear()
        browser.close()
        player.stop()

    if not RUNNING:
        POOL.submit(start).result(timeout=60)
    yield RUNNING[0]
    if RUNNING:
        POOL.submit(stop).result(timeout=60)


@pytest.fixture
def visit(_browser, server):
    """``visit(url=..., width=..., **context)`` opens one more visitor's page; call it in the test's body. Pages rest, because a
    trace that plays by itself keeps a core busy; ``moving=True`` lets it play."""
    contexts, seen = [], []

    def open_page(url=None, width=1400, height=1000, moving=False, **context):
        motion = "no-preference" if moving else "reduce"
        own = _browser.new_context(viewport={"width": width, "height": height}, reduced_motion=motion, **context)
        contexts.append(own)
        page = own.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda m: seen.append(f"console: {m.text}") if m.type == "error" else None)
        page.on("pageerror", lambda e: seen.append(f"page error: {e}"))
        page.on("dialog", lambda d: (seen.append(f"dialog: {d.message}"), d.dismiss()))
        page.on("request", lambda r: seen.append(f"request: {r.url}") if not _own(r.url) else None)
        page.add_init_script(GUARD)
        page.goto(url or server.url)
        page.wait_for_selector("#board .sv[data-state]", state="attached")
        return page

    def close():
        ran = [x for c in contexts for p in c.pages if not p.is_closed() for x in p.evaluate("globalThis.ran")]
        for own in contexts:
            own.close()
        return ran

    yield open_page
    ran = POOL.submit(close).result(timeout=60)
    assert seen == [] and ran == [], (seen, ran)


@pytest.fixture
def page(visit):
    return POOL.submit(visit).result(timeout=60)


def _own(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "http://localhost:", "data:", "blob:", "about:"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that uses a page runs in the browser's thread."""
    if not {"page", "visit"} & set(pyfuncitem.fixturenames):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    POOL.submit(pyfuncitem.obj, **arguments).result(timeout=120)
    return True
