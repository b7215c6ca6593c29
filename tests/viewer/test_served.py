"""A server's lane on the board: each badge, no token that nobody told, no place in the ranking; and facts
of any shape."""

from __future__ import annotations

import json

import pytest

from ..message_codes import viewer_texts
from . import sample
from .test_board import LOAD, at_end

TEXTS = viewer_texts()

FACTS = [
    ("tokens", "observed", 6),
    ("token_ids", "observed", None),
    ("refused_ids", "unknown", None),
    ("passes", "inferred", 3),
    ("accepted_length", "inferred", 2.0),
    ("drafted", "unknown", None),
    ("by_position", "observed", [[3, 2], [2, 1]]),
    ("per_step", "observed", [[2, 2], [2, 0], [2, 1]]),
    ("server_accepted_length", "observed", 2.5),
]
ODD = [None, 3, "x", [], [[]], {"a": 1}, 1e308, -5, "<img src=x onerror=alert(1)>", True, [[1, "a"], None]]


def served(lane: int, facts=FACTS, doubts=(), why: str = "", seconds: float = 0.01) -> list[dict]:
    """The records of a lane of three messages."""
    like = sample.race(("plain",), tokens=8)[0]
    header = {
        **like,
        "clock": "client",
        "method": {
            **like["method"],
            "key": "server:house",
            "title": "house",
            "family": "Servers",
            "exactness": "",
        },
    }
    out = [header, {"type": "prefill", "t0": 0.0, "t1": 0.5, "n": 0}]
    at = 0
    for i, (ids, text) in enumerate([((1, 2, 3), "One two three"), ((4,), " four"), ((5, 6), " five six")]):
        pieces = [{"tok": t, "b": "", "span": [at, at]} for t in ids[:-1]]
        raw = text.encode()
        pieces.append(
            {"tok": ids[-1], "b": __import__("base64").b64encode(raw).decode(), "span": [at, at + len(raw)]}
        )
        at += len(raw)
        out += [
            {
                "type": "commit",
                "round": i,
                "t": 0.5 + seconds * i,
                "path": [],
                "tail": {"tok": ids[-1], "why": "received"},
                "n_new": len(ids),
            },
            {"type": "text", "round": i, "pieces": pieces},
            {"type": "lens", "round": i, "kind": "message", "data": {"tokens": len(ids), "bytes": len(raw)}},
        ]
    told = [{"name": n, "badge": b, "value": v} for n, b, v in facts]
    out += [{"type": "check", "kind": "told", "detail": {"facts": told, "doubts": list(doubts)}}]
    out += [{"type": "error", "why": why}] if why else []
    out.append(
        {"type": "done", "finish": "error" if why else "stop", "totals": {"tokens": 6}, "peak_mem": None}
    )
    return [{**r, "lane": lane, "seq": i} for i, r in enumerate(out)]


def texts(page, selector: str) -> list[str]:
    return page.evaluate("(s) => [...document.querySelectorAll(s)].map((e) => e.textContent)", selector)


def test_each_badge_says_what_is_known(drive, settled) -> None:
    records = [
        *sample.race(("plain", "chain"), tokens=40),
        *served(2, doubts=["its <b>histogram</b> is none"]),
    ]

    def use(page):
        page.evaluate(LOAD, json.dumps(records))
        page.evaluate("board.goto({ layout: 'watch', lane: 2, round: 2, tab: 'token' })")
        settled(page)
        assert texts(page, ".lane .badges .badge") == ["observed 6", "inferred 2", "unknown 2"]
        rows = {
            name: (badge, value)
            for name, badge, _, value in page.evaluate(
                "[...document.querySelectorAll('.short .facts tr')].map((r) => [r.dataset.fact, ...[...r.cells].map((c) => c.textContent)])"
            )
        }
        assert rows["accepted_length"] == ("inferred", "2.00") and rows["passes"] == ("inferred", "3")
        assert rows["refused_ids"] == ("unknown", "") and rows["drafted"] == ("unknown", "")
        assert rows["tokens"] == ("observed", "6") and rows["by_position"] == ("observed", "67 %, 50 %")
        assert rows["server_accepted_length"] == ("observed", "2.50") and TEXTS["server.doubts"].format(
            doubts="its <b>histogram</b> is none"
        ) in page.text_content(".short")
        assert page.text_content(".headline") == TEXTS["headline.server"].format(
            tokens="6 tokens", passes=TEXTS["headline.server.passes"].format(each="2.00", badge="inferred")
        )
        assert not page.query_selector(
            ".stage .t.rej, .rail .t, .treebox .t, .short b b"
        )  # nobody told of a refused token
        assert "unknown" in page.text_content(".treebox") and "unknown" in page.text_content(".rail")
        assert page.evaluate(
            "SpecViz.metrics.of(board.board.focus(), 3, null).tokens_per_second"
        ) == pytest.approx(3 / 0.02)  # after the first message
        page.evaluate("board.goto({ tab: 'lens' })")
        settled(page)
        assert (
            TEXTS["lens.message.tokens"].format(tokens="2 tokens") in page.text_content(".lens")
            and page.evaluate("document.querySelectorAll('.lens .bar').length") == 3
        )

    drive(use)


def test_it_is_not_ranked_and_compared_by_its_letters(drive, settled) -> None:
    local = sample.race(("plain", "chain"), tokens=40)

    def use(page):
        page.evaluate(LOAD, json.dumps([*local, *served(2, seconds=1e-6)]))
        page.evaluate("board.setLayout('race')")
        at_end(page, settled)
        page.wait_for_function("document.querySelector('.won:not(.wait)')")
        won = page.text_content(".won")
        assert "house" not in won and won.endswith(TEXTS["verdict.servers"])
        page.wait_for_function("document.querySelector('.parts').textContent.includes('house')")
        assert "house" + TEXTS["race.server.differs"].format(at=3) in page.text_content(".parts")
        assert TEXTS["notice.server.clock"] in page.text_content(".notice")
        page.evaluate(LOAD, json.dumps([*local, *served(2, why="house closed the connection.")]))
        page.evaluate("board.setLayout('race')")
        at_end(page, settled)
        assert "house closed the connection." in texts(page, ".lane .fault")

    drive(use)


def test_facts_of_any_shape_are_drawn_or_left_out(drive, settled) -> None:
    def use(page):
        for i, value in enumerate(ODD):
            facts = [
                (name, badge if i % 2 else ODD[(i + 1) % len(ODD)], value) for name, badge, _ in FACTS
            ] + [("<b>new</b>", "observed", 1)]
            page.evaluate(LOAD, json.dumps(served(0, facts, [value])))
            page.evaluate("board.goto({ layout: 'watch', lane: 0, round: 1, tab: 'lens' })")
            settled(page)
            assert "<b>new</b>" in page.text_content(".lens .facts") and not page.query_selector(
                ".facts img, .facts b"
            )

    drive(use)
