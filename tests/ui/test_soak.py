"""Figures of the real page on the real engine, printed; they need a quiet machine.

SPECVIZ_TEST_SOAK=1 python -m pytest tests/ui/test_soak.py -s
"""

from __future__ import annotations

import json
import re

import pytest

from .conftest import Server
from .test_page import begin, open_fields, run

LONG = "Write a long story about a fox, an owl and the river behind the mill."
FOUR = ["speculative", "draft_tree", "prompt_lookup"]
MOTION = """
new PerformanceObserver((list) => { for (const e of list.getEntries()) if (e.name === "first-contentful-paint") window.painted = e.startTime; })
  .observe({ type: "paint", buffered: true });
const look = () => {
  const where = document.querySelector("#board .transport .where")?.textContent;
  if (where && window.first !== undefined && where !== window.first) { window.moved = performance.now(); return; }
  if (where) window.first = where;
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


@pytest.fixture(scope="module")
def real():
    from specviz.engine import Engine

    class Logged(Engine):
        """Keeps what the engine says at the end of each lane."""

        def run(self, ask, cancel, seconds):
            self.log = {}
            for batch in super().run(ask, cancel, seconds):
                self.log |= {
                    r["lane"]: r["totals"] for r in batch if isinstance(batch, list) and r["type"] == "done"
                }
                yield batch

    server = Server(Logged())
    yield server
    server.close()


def speeds(log):
    return {lane: totals["tokens"] / totals["seconds"] for lane, totals in sorted(log.items())}


@pytest.mark.soak
def test_the_page_shows_the_engines_own_speed(visit, real):
    """Four lanes of 512 tokens, the most that a run may ask for; the model may end its answers before."""
    page = visit(url=real.url)
    page.click("#tab-race")
    page.click("#board .p-stage .opens")
    page.evaluate(
        "keys => { SpecVizPage.pending = { methods: keys }; SpecVizPage.send('input'); }", list(FOUR)
    )
    page.wait_for_function(
        "keys => document.querySelector('.pg-pick').dataset.on === keys.join(' ')", arg=list(FOUR)
    )
    open_fields(page)
    page.fill("#length input", "512")
    begin(page, LONG)
    nodes = 0
    while len(getattr(real.backend, "log", {})) < 4:
        nodes = max(nodes, page.evaluate("document.querySelectorAll('#board *').length"))
        page.wait_for_timeout(500)
    ended = "#board .sv[data-state=%s]"  # a slow machine is stopped by the limit of a run
    page.wait_for_selector(", ".join(ended % state for state in ("done", "stopped")))
    shown = [
        float(re.search(r"([\d.]+)\s*tok/s", lane)[1])
        for lane in page.locator("#board .lane").all_inner_texts()
    ]
    log = speeds(real.backend.log)
    tokens = sum(t["tokens"] for t in real.backend.log.values())
    print(
        f"\npage open: {tokens} tokens; shown {shown}, engine {[round(s, 1) for s in log.values()]}; at most {nodes} elements, "
        f"lost {page.get_attribute('#board .sv', 'data-lost')}, gaps {page.get_attribute('#board .sv', 'data-gaps')}"
    )
    assert page.get_attribute("#board .sv", "data-lost") == "0" and 0 < nodes < 8000 and len(log) == 4
    assert sorted(shown) == pytest.approx(sorted(log.values()), rel=0.01)


@pytest.mark.soak
def test_with_no_page_open_the_frames_say_the_same(real):
    from gradio_client import Client

    client = Client(real.url, verbose=False)
    last = json.loads(
        client.submit(prompt=LONG, methods=FOUR, max_new_tokens=512, api_name="/run").result(timeout=300)
    )
    told = {r["lane"]: r["totals"] for r in last["e"] if r["type"] == "done"}
    print(f"\npage closed: engine {[round(s, 1) for s in speeds(real.backend.log).values()]} tokens/s")
    assert speeds(told) == pytest.approx(speeds(real.backend.log), rel=1e-9)


@pytest.mark.soak
def test_the_recording_moves_soon_after_the_first_paint(visit):
    page = visit(moving=True, script=MOTION)
    page.wait_for_function("window.painted && window.moved")
    painted, moved = page.evaluate("[window.painted, window.moved]")
    print(
        f"\nfirst paint {painted:.0f} ms, first motion {moved:.0f} ms after the navigation: {moved - painted:.0f} ms between"
    )
    assert moved > painted > 0
    run(page)
