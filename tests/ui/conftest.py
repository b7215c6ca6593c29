"""One server with a scripted backend and one browser for the page's tests.

The bodies of the tests that use a page run in the browser's thread. A test fails on any console error, page
error, dialog, or request to anybody else.
"""

from __future__ import annotations

import socket

import pytest

from specviz.ui import build_app, launch

from ..browser import PATIENCE, POOL
from .fake import FakeBackend

GUARD = "globalThis.ran = []; globalThis.alert = (x) => globalThis.ran.push('alert ' + x);"
# Gradio mounts the parts of a page one by one and in no fixed order: the board can stand before the tabs
# know the models.
WHOLE = ("#board .sv[data-state]", "#page[data-tab]", "#run")
OPEN = []  # the pages of the running test
UNDER_WAY = {}  # page: its requests for events that have not ended
STANDS = """() => { const root = document.querySelector("#board .sv"), b = root?.svBoard?.board;
  return b ? { ...root.dataset, text: b.statusText, lanes: b.list().map((l) => [l.id, l.committed, l.seen]), frame: b.frame, beat: b.beat,
    box: [b.box.last, b.box.lost, b.box.jump], notice: document.querySelector("#notice")?.textContent,
    run: document.querySelector("#run")?.disabled, prompt: document.querySelector("#prompt textarea")?.value,
    sight: [...b.seenNow].map((e) => e.className) } : {}; }"""


def reload(page):
    """Reload the page when no event of it is under way: gradio reports an interrupted one on the console.
    An event is a request that joins the queue and the stream of its results, so it is over when neither is
    open."""
    under_way = UNDER_WAY[page]
    quiet = 0
    while quiet < 4:  # four looks in a row: a change is sent a moment after it was made
        page.wait_for_timeout(50)
        quiet = quiet + 1 if not under_way else 0
    page.reload()


def _count_events(page):
    under_way = UNDER_WAY[page] = set()
    page.on(
        "request",
        lambda r: under_way.add(r) if "/gradio_api/queue/" in r.url or "/gradio_api/run/" in r.url else None,
    )
    for end in ("requestfinished", "requestfailed"):
        page.on(end, lambda r: under_way.discard(r))


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
def _server(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECVIZ_RUNS", str(tmp_path_factory.mktemp("runs")))
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
def keeps_no_runs(monkeypatch):
    """A page whose server keeps no runs for links."""
    monkeypatch.setenv("SPECVIZ_RUNS", "0")
    server = Server(FakeBackend())
    yield server
    server.close()


@pytest.fixture
def proxied(monkeypatch):
    """A page behind a named proxy, so that a request may come from any address."""
    monkeypatch.setenv("SPECVIZ_PROXY", "127.0.0.1")
    server = Server(FakeBackend())
    server.backend.loaded.add(None)
    yield server
    server.close()


@pytest.fixture
def backend(server):
    return server.backend


@pytest.fixture
def visit(browser, server):
    """``visit(url=..., width=..., **context)`` opens one more visitor's page; call it in the test's body.
    Pages rest, because a trace that plays by itself keeps a core busy; ``moving=True`` lets it play.
    script: runs before the page's own."""
    contexts, seen = [], []

    def open_page(url=None, width=1400, height=1000, moving=False, script="", **context):
        motion = "no-preference" if moving else "reduce"
        own = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion=motion, **context
        )
        contexts.append(own)
        page = own.new_page()
        OPEN.append(page)
        _count_events(page)
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda m: seen.append(f"console: {m.text}") if m.type == "error" else None)
        page.on("pageerror", lambda e: seen.append(f"page error: {e}"))
        page.on("dialog", lambda d: (seen.append(f"dialog: {d.message}"), d.dismiss()))
        page.on("request", lambda r: seen.append(f"request: {r.url}") if not _own(r.url) else None)
        page.add_init_script(GUARD + script)
        page.goto(url or server.url)
        for part in WHOLE:
            page.wait_for_selector(part, state="attached")
        return page

    def close():
        ran = [
            x for c in contexts for p in c.pages if not p.is_closed() for x in p.evaluate("globalThis.ran")
        ]
        for own in contexts:
            own.close()
        OPEN.clear()
        UNDER_WAY.clear()
        return ran

    yield open_page
    ran = POOL.submit(close).result(timeout=PATIENCE)
    assert seen == [] and ran == [], (seen, ran)


@pytest.fixture
def page(visit):
    return POOL.submit(visit).result(timeout=2 * PATIENCE)


def _own(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "http://localhost:", "data:", "blob:", "about:"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A test that uses a page runs in the browser's thread; where it fails, it says how the boards stood."""
    if not {"page", "visit"} & set(pyfuncitem.fixturenames):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    limit = (4 if pyfuncitem.get_closest_marker("soak") else 2) * PATIENCE
    POOL.submit(_told, pyfuncitem.obj, arguments).result(timeout=limit)
    return True


def _told(test, arguments):
    try:
        test(**arguments)
    except Exception as error:
        for page in OPEN:
            if not page.is_closed():
                error.add_note(f"{page.url}: {page.evaluate(STANDS)}")
        raise
