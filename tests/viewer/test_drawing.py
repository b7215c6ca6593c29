"""The drawings of a round at every width: no label touches another or a box that is not its own, none
leaves the picture."""

from __future__ import annotations

import json

import pytest

from . import sample
from .test_board import LOAD

WIDE = " \u6f22\u5b57\u304b\u306a\u4ea4\u3058\u308a\u6587 \U0001f469\u200d\U0001f680\U0001f44d internationalization \u0627\u0644\u0645\u0633\u062a\u0642\u0628\u0644 \\x \tpneumonoultramicroscopic \u00e9\u00e8 end."
RUNS = {
    "chain": sample.race(("plain", "chain")),
    "chain of 12": sample.race(("plain", "chain"), gamma=12, alpha=0.95),
    "chain of 24": sample.race(("plain", "chain"), gamma=24, alpha=0.98),
    "chain of wide tokens": sample.race(("plain", "chain"), text=WIDE * 3, alpha=0.9, gamma=6),
    "chain of single bytes": sample.race(("plain", "chain"), text=WIDE * 2, split=True, alpha=0.95, gamma=8),
    "tree": sample.race(("plain", "tree")),
    "tree of 48": sample.bushy(sample.race(("plain", "tree")), 48),
    "tree of wide tokens": sample.bushy(sample.race(("plain", "tree"), text=WIDE * 3), 64),
    "tree of 150": sample.bushy(sample.race(("plain", "tree")), 150),
}
ROOMS = (240, 320, 420, 452, 520, 640, 760, 950, 1400)  # of the drawing; the board is up to 1920 wide

# Text boxes as painted, a little shrunk: neighbouring lines may share the air above their letters.
CLASHES = """() => {
  const S = document.querySelector('svg.tree'); if (!S) return [];
  const all = S.getBoundingClientRect(), of = (e) => { const r = e.getBoundingClientRect(); return { l: r.left + 0.5, r: r.right - 0.5, t: r.top + 2.5, b: r.bottom - 2.5, e }; };
  const meet = (a, b) => a.l < b.r && b.l < a.r && a.t < b.b && b.t < a.b, name = (x) => x.e.textContent || 'box of ' + x.e.parentNode.textContent;
  const words = [...S.querySelectorAll('text')].filter((t) => t.textContent.trim()).map(of), boxes = [...S.querySelectorAll('.box')].map(of), out = [];
  words.forEach((a, i) => {
    for (const b of words.slice(i + 1)) if (meet(a, b)) out.push(name(a) + ' | ' + name(b));
    for (const b of boxes) if (a.e.parentNode !== b.e.parentNode && meet(a, b)) out.push(name(a) + ' | ' + name(b));
    if (a.e.parentNode.matches('.node')) { const b = of(a.e.parentNode.querySelector('.box')); if (a.l < b.l || a.r > b.r) out.push(name(a) + ' leaves its box'); }
    if (a.l < all.left - 1 || a.r > all.right + 1) out.push(name(a) + ' leaves the picture');
  });
  return out; }"""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["chain", "tree"])
def test_labels_never_collide(drive, settled, kind) -> None:
    def look(page, name):
        page.evaluate(LOAD, json.dumps(RUNS[name]))
        page.evaluate("board.goto({ lane: 1, round: 1 })")
        settled(page)
        bad = page.evaluate(
            f"""([rooms]) => {{ const {{ inspector, st }} = board.board, lane = st.lanes.get(1), n = lane.committed, clashes = {CLASHES}, bad = [];
              for (const W of rooms) for (let k = 0; k < n; k += Math.max(1, Math.floor(n / 5))) for (const phase of [1, 4]) {{
                const round = lane.rounds[k], v = {{ ...inspector.v, lane, round, phase, sel: 0 }};
                if (!round.nodes.length) continue;
                inspector.tree.replaceChildren(round.kind === 'tree' ? SpecViz.tree.drawTree(v, W, W % 3 ? 376 : 444) : SpecViz.tree.drawChain(v, W));
                for (const what of clashes()) bad.push([W, k, phase, what].join(' '));
              }}
              return bad; }}""",
            [ROOMS],
        )
        assert page.locator("svg.tree text").count() > 8
        assert not bad, name + "\n" + "\n".join(bad[:20])

    drive(lambda page: [look(page, name) for name in RUNS if name.startswith(kind)])


@pytest.mark.parametrize("kind", ["chain", "tree"])
def test_an_accepted_token_that_ends_the_run_is_drawn_once(drive, settled, kind) -> None:
    """Such a token is no longer on the round's path but is one of its nodes: a box for it behind the others
    would be a second one."""
    records = json.loads(json.dumps(sample.race(("plain", kind))))
    commit = next(r for r in records if r["type"] == "commit" and r["lane"] == 1 and len(r["path"]) > 1)
    draft = next(
        r for r in records if r["type"] == "draft" and r["lane"] == 1 and r["round"] == commit["round"]
    )
    last = commit["path"].pop()
    node = next(n for n in draft["nodes"] if n["id"] == last)
    commit["n_new"], commit["tail"] = (
        len(commit["path"]) + 1,
        {**commit["tail"], "why": "accepted", "tok": node["tok"]},
    )
    next(r for r in records if r["type"] == "text" and r["lane"] == 1 and r["round"] == commit["round"])[
        "pieces"
    ].pop()

    def look(page):
        page.evaluate(LOAD, json.dumps(records))
        page.evaluate("(round) => board.goto({ lane: 1, round })", commit["round"])
        settled(page)
        assert page.locator("svg.tree .box").count() == page.evaluate(
            f"board.board.st.lanes.get(1).rounds[{commit['round']}].nodes.length"
        )

    drive(look)
