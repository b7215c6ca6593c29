"""A bare page with the viewer's files, in the one browser of this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..browser import PATIENCE, POOL

SHELL = '<!doctype html><html><head><meta charset="utf-8"></head><body style="margin:0"><div class="sv"></div></body></html>'
# A second look at anything that would run code or ask for something, whatever the console says.
GUARD = """
globalThis.ran = [];
globalThis.alert = (x) => globalThis.ran.push("alert " + x);
addEventListener("securitypolicyviolation", (e) => globalThis.ran.push("policy " + e.blockedURI + " " + e.violatedDirective));
"""


class Driver:
    """`drive(use, ...)` opens a fresh page, hands it to `use` in the browser's thread, and fails on any
    console error, page error, or request to anything but the page itself."""

    def __init__(self, browser) -> None:
        self._browser = browser

    def __call__(
        self, use, *, html: Path | None = None, size=(1400, 1000), limit: float = 2 * PATIENCE, **context
    ):
        return POOL.submit(self._run, use, html, size, context).result(timeout=limit)

    def _run(self, use, html, size, context):
        with self._browser.new_context(viewport={"width": size[0], "height": size[1]}, **context) as ctx:
            page, seen = ctx.new_page(), []
            page.set_default_timeout(1000 * PATIENCE)
            page.on(
                "console",
                lambda m: (
                    seen.append(f"console {m.type}: {m.text}") if m.type in ("error", "warning") else None
                ),
            )
            page.on("pageerror", lambda e: seen.append(f"page error: {e}"))
            page.on(
                "request",
                lambda r: (
                    seen.append(f"request: {r.url}")
                    if not r.url.startswith(("file:", "about:", "data:"))
                    else None
                ),
            )
            page.on("dialog", lambda d: (seen.append(f"dialog: {d.message}"), d.dismiss()))
            page.add_init_script(GUARD)
            if html:
                page.goto(html.as_uri())
            else:
                self._board(page)
            result = use(page)
            assert seen == [], seen
            assert page.evaluate("globalThis.ran") == []
            return result

    @staticmethod
    def _board(page) -> None:
        """A bare page with the viewer's assets and a board that waits for frames, as Gradio mounts it."""
        from specviz.trace.page import viewer_assets

        js, css = viewer_assets()
        page.goto("about:blank")
        page.evaluate(GUARD)
        page.set_content(SHELL)
        page.add_style_tag(content=css)
        page.add_script_tag(content=js)
        page.evaluate("globalThis.board = SpecVizBoard.mount(document.querySelector('.sv'))")


@pytest.fixture
def drive(browser):
    return Driver(browser)


# A run in flight is painted on a beat: two frames, and then until no beat is owed.
FRAME = """async () => { const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))));
  await frame(); while (globalThis.board?.board?.beat) await frame(); return frame(); }"""


@pytest.fixture(scope="session")
def settled():
    """Waits until the board has painted what it knows."""
    return lambda page: page.evaluate(FRAME)
