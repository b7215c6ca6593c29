"""A lane is known by itself, not by its number, name or length: what takes its place is drawn anew
everywhere."""

from __future__ import annotations

import json

import pytest

from . import sample

ROUNDS = 6
# Every canvas and drawing of the board, once no part of it owes a painting any more.
DRAWN = """async (text) => {
  const b = board.board, frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  if (text) { board.load(JSON.parse(text)); b.edge(1); }
  do await frame(); while (b.frame || b.beat || [b.transport, b.ribbon, b.chart, b.ledger, b.inspector].some((part) => part.timer));
  const out = {};
  for (const c of b.root.querySelectorAll('canvas')) if (c.offsetParent) out[(c.closest('.lane')?.dataset.lane ?? '') + (c.closest('section').className || '') + c.className] = c.toDataURL();
  return { ...out, chart: b.chart.box.innerHTML, ledger: b.ledger.table ? b.ledger.table.textContent : '', tree: b.inspector.tree.textContent };
}"""
FRESH = "() => { board.destroy(); globalThis.board = SpecVizBoard.mount(document.querySelector('.sv'), { options: { layout: LAYOUT } }); }"


def first_rounds(methods: tuple[str, ...], seeds: tuple[int, ...]) -> list[dict]:
    """The first rounds of each method, all named alike: only what is inside tells one from another."""
    out = []
    for lane, (method, seed) in enumerate(zip(methods, seeds, strict=True)):
        for r in sample.trace(method, lane=lane, seed=seed):
            if r["type"] == "done" or r.get("round", 0) >= ROUNDS:
                continue
            out.append({**r, "run_id": "the same"} if r["type"] == "header" else r)
    return out


BEFORE = first_rounds(("plain", "chain", "tree"), (1, 2, 3))
AFTER = {
    "another run": first_rounds(("plain", "chain", "tree"), (1, 22, 33)),
    "lanes changed places": first_rounds(("plain", "tree", "chain"), (1, 3, 2)),
}


@pytest.mark.parametrize("layout", ["watch", "race"])
@pytest.mark.parametrize("what", AFTER)
def test_what_takes_a_lanes_place_is_drawn_anew(drive, settled, what, layout) -> None:
    fresh = FRESH.replace("LAYOUT", json.dumps(layout))

    def use(page):
        page.evaluate(fresh)
        first = page.evaluate(DRAWN, json.dumps(BEFORE))
        over = page.evaluate(DRAWN, json.dumps(AFTER[what]))
        page.evaluate(fresh)
        anew = page.evaluate(DRAWN, json.dumps(AFTER[what]))
        assert set(over) == set(anew) and len(anew) > 4
        assert [k for k in anew if over[k] != anew[k]] == []
        assert sum(first[k] != anew[k] for k in anew) > 3  # the two would not be mistaken for each other

    drive(use)


def test_a_listener_hears_of_another_run_of_the_same_name_and_length(drive, settled) -> None:
    def use(page):
        page.evaluate("() => { globalThis.heard = 0; board.on('change', () => heard++); }")
        page.evaluate(DRAWN, json.dumps(BEFORE))
        was = page.evaluate("heard")
        page.evaluate(DRAWN, json.dumps(BEFORE))
        assert was > 0 and page.evaluate("heard") > was

    drive(use)
