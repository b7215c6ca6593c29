"""What the page costs while the engine computes on the same cores: nothing is copied that need not be,
nothing moves at rest, and a browser that paints seldom is told seldom, without losing anything."""

from __future__ import annotations

import re
import threading
from urllib.request import Request, urlopen

import pytest

from specviz.engine.engine_job import BEAT
from specviz.engine.limits import RunQueue
from specviz.engine.stream import CORES, LONGEST_BEAT, LiveRun
from specviz.ui.board import own_files
from specviz.ui.head_script import HeadScript, link_card
from specviz.ui.theme import STATIC

from ..engine.test_stream import ASK, alone, collect, straight
from .fake import FakeBackend
from .test_page import begin, finish, state

# Before the page's own scripts: counts what reaches the browser's own functions.
COUNTS = """globalThis.counted = { copies: 0, frames: 0 };
(() => { const copy = globalThis.structuredClone, frame = globalThis.requestAnimationFrame;
  globalThis.structuredClone = function (...given) { counted.copies++; return copy.apply(globalThis, given); };
  globalThis.requestAnimationFrame = function (f) { counted.frames++; return frame.call(globalThis, f); }; })();"""
# Copies as the page makes them and as the browser's own function does: [kind of error, or the copy's words,
# and whether it is the very same].
COPIES = """() => {
  const loop = { name: "loop" }; loop.self = loop;
  const cases = ["text", "", 0, -0, NaN, 1.5, true, false, null, undefined, 10n, [1, [2, "x"]], { a: { b: null }, c: undefined }, new Date(5),
    new Map([[1, { x: 2 }]]), new Set(["y"]), /z/gi, new Uint8Array([1, 2]), new Error("no"), loop, () => 1, Symbol("s"), document.body];
  const shown = (x) => x === loop ? "itself" : x instanceof Map || x instanceof Set ? [...x].map(shown).join() : x && typeof x === "object" && !(x instanceof Date)
    && !(x instanceof RegExp) && !(x instanceof Error) ? Object.keys(x).map((k) => k + ":" + (x[k] === x ? "itself" : shown(x[k]))).join() : Object.is(x, -0) ? "-0" : String(x);
  const one = (make, x) => { try { const y = make(x); return [typeof y, Object.prototype.toString.call(y), shown(y), typeof x === "object" && x !== null && x === y]; } catch (e) { return [e.name]; } };
  const bare = (make) => { try { return String(make()); } catch (e) { return e.name; } };
  const moved = (make) => { const room = new ArrayBuffer(8), there = make(room, { transfer: [room] }); return [room.byteLength, there.byteLength]; };
  return [structuredClone, structuredClone.plain].map((make) => JSON.stringify([cases.map((x) => one(make, x)), bare(make), moved(make)])); }"""


def test_copies_are_what_the_browsers_own_are(page):
    ours, own = page.evaluate(COPIES)
    assert ours == own and "DataCloneError" in own and "TypeError" in own


@pytest.mark.thorough
def test_what_is_its_own_copy_is_not_copied(visit, backend):
    """Gradio's client copies what all components hold with every frame, value by value."""
    page = visit(script=COUNTS)
    begin(page)
    finish(page)
    before = page.evaluate("counted.copies")
    page.evaluate("['a', 1, true, null, undefined].forEach((x) => structuredClone(x))")
    assert page.evaluate("counted.copies") == before
    page.evaluate("structuredClone({ a: 1 })")
    assert page.evaluate("counted.copies") == before + 1


@pytest.mark.thorough
def test_at_rest_the_page_asks_for_no_frames(visit):
    """Gradio's hidden mark of loading asked for one after another for as long as the page was open."""
    page = visit(script=COUNTS)
    quiet = page.evaluate("""async () => { for (let i = 0; i < 40; i++) {
        const was = counted.frames; await new Promise((done) => setTimeout(done, 500)); if (counted.frames === was) return true; } return false; }""")
    assert quiet
    assert page.evaluate("new Promise((done) => requestAnimationFrame((t) => done(t > 0)))")
    clock = "new Promise((done) => { const t0 = performance.now(), say = done; const f = () => { say((performance.now() - t0) / 1e3) }; requestAnimationFrame(f); })"
    was = page.evaluate("counted.frames")
    assert page.evaluate(clock) > 0 and page.evaluate("counted.frames") == was


def test_the_script_stands_first_in_the_page_and_nowhere_else(server):
    script = (STATIC / "limit_animation_frames.js").read_text()
    with urlopen(server.url) as page:
        text = page.read().decode()
        assert int(page.headers["content-length"]) == len(text.encode())
    assert text.count(script) == 1
    assert text.index("<script") + len("<script>") == text.index(script)
    with urlopen(server.url + "config") as config:
        assert script not in config.read().decode() and config.headers["content-type"] == "application/json"
    with urlopen(Request(server.url, method="HEAD")) as head:
        assert head.status == 200 and head.read() == b""

    def answer(headers, *bodies):
        out = []

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for i, body in enumerate(bodies, 1):
                await send({"type": "http.response.body", "body": body, "more_body": i < len(bodies)})

        async def send(message):
            out.append(message)

        alone(HeadScript(app, "x")({"type": "http", "path": "/", "method": "GET"}, None, send))
        return dict(out[0]["headers"]), b"".join(m["body"] for m in out[1:])

    html = (b"content-type", b"text/html; charset=utf-8")
    assert (
        answer([html, (b"content-length", b"13")], b"<p><he", b"ad><b>")[1]
        == b"<p><head><script>x</script><b>"
    )
    assert answer([html, (b"content-length", b"3")], b"<p>") == (
        {b"content-type": html[1], b"content-length": b"3"},
        b"<p>",
    )
    for other in ([html, (b"content-encoding", b"gzip")], [(b"content-type", b"text/plain")]):
        assert answer(other, b"<head>") == (dict(other), b"<head>")


def test_a_link_to_a_stored_run_has_a_preview_of_its_own():
    card = '<meta property="og:type" content="website"><meta property="og:title" content="page">'
    words = {"a" * 64: ('<b>"x"', "The same 3 tokens.")}

    async def app(scope, receive, send):
        html = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": html})
        await send({"type": "http.response.body", "body": b"<head>"})

    def page(query: bytes) -> str:
        out = []

        async def send(message):
            out.append(message)

        scope = {"type": "http", "path": "/", "method": "GET", "query_string": query}
        scope["headers"] = [(b"host", b"me.org")]
        alone(HeadScript(app, "s", card, words.get)(scope, None, send))
        return out[1]["body"].decode()

    own = page(b"embed=1&run=" + b"a" * 64)
    assert 'og:title" content="specviz: &lt;b&gt;&quot;x&quot;"' in own and "The same 3 tokens." in own
    assert f"http://me.org/runs/{'a' * 64}.png" in own and 'content="page"' not in own and "website" in own
    for query in (b"", b"run=" + b"b" * 64, b"run=" + b"a" * 65, b"xrun=" + b"a" * 64, b"run=A"):
        assert 'content="page"' in page(query) and "/own/link_card.png" in page(query)


def test_a_reader_that_paints_seldom_is_updated_seldom_and_loses_nothing():
    live = LiveRun(FakeBackend(), RunQueue(), ASK)
    least = BEAT * CORES
    for every, beat in [
        (None, least),
        (1, least),
        (300, 0.3),
        (10**9, LONGEST_BEAT),
        (-5, LONGEST_BEAT),
        ("x", LONGEST_BEAT),
        (0, least),
    ]:
        live.painted(0, every)
        assert live.beat() == max(least, beat), every
    frames, _ = collect(FakeBackend(), at=lambda live, frame: live.painted(frame["s"], 400))
    assert [r for f in frames[:-1] for r in f["e"]] == straight() == frames[-1]["e"]


@pytest.mark.thorough
def test_the_page_says_how_often_it_paints(page, backend, monkeypatch):
    reports, painted_at_450 = [], threading.Event()

    def seen(live, number, every=None):
        reports.append((number, every))
        if every == 450:
            painted_at_450.set()

    monkeypatch.setattr(LiveRun, "painted", seen)
    backend.hold(9)
    begin(page)
    state(page, "live")
    page.evaluate("document.querySelector('#board .sv').svBoard.board.paintRate.beat = () => 450")
    page.wait_for_timeout(50)  # Playwright's own events go on
    assert painted_at_450.wait(60), reports
    backend.hold(None)
    finish(page)


def test_the_preview_of_a_link_names_this_page_and_not_gradio(server):
    with urlopen(server.url) as answer:
        page = answer.read().decode()
    found = re.findall(r'<meta (?:property|name)="((?:og|twitter):[a-z:]+)" content="([^"]*)"', page)
    assert len({name for name, _ in found}) == len(found) >= 7
    assert not [value for _, value in found if "gradio" in value.lower() or not value]


def test_a_link_to_the_page_has_a_picture_at_a_whole_address():
    assert b'content="http://a.example:7860/own/link_card.png"' in link_card(
        {"headers": [(b"host", b"a.example:7860")], "scheme": "http"}
    )
    assert b"/sub/own/link_card.png" in link_card(
        {"headers": [(b"host", b"a.example")], "root_path": "/sub/"}
    )
    for host in (b"", b'a"><script>', b"a b", b"a/b"):
        assert link_card({"headers": [(b"host", host)]}) == b""
    assert own_files()["link_card.png"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
