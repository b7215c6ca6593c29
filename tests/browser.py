"""The one browser of a test process. It lives in a thread of its own, and so does whatever is done with its
pages: Playwright's synchronous interface may not share a thread with an asyncio loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Chromium without its windows opens a page in two thirds of the time.
CHROMIUM = next(
    (path for path in map(Path, ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium")) if path.exists()),
    None,
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
PATIENCE = 180  # seconds that a page may need on a busy machine for what it does in one
POOL = ThreadPoolExecutor(max_workers=1, thread_name_prefix="browser")


def start(player):
    """A Chromium: the distribution's, or Playwright's own where there is none."""
    return player.chromium.launch(executable_path=str(CHROMIUM) if CHROMIUM else None, args=FLAGS)


def running():
    """The browser, started in its thread, and how to end it."""
    from playwright.sync_api import sync_playwright

    def begin():
        player = sync_playwright().start()
        return player, start(player)

    player, browser = POOL.submit(begin).result(timeout=PATIENCE)

    def end():
        browser.close()
        player.stop()

    return browser, lambda: POOL.submit(end).result(timeout=PATIENCE)
