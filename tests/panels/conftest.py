"""One bare page in one browser for all tests: the viewer's files, the panels' files in their order, a
hand-made trace on the board, and a server that is a table of answers. A test fails on any console error,
page error, request or dialog."""

from __future__ import annotations

import json

import pytest

from specviz import ASSETS
from specviz.engine.cards import card_data, cards
from specviz.evidence.scaling import FIGURES, report
from specviz.lab import recommend
from specviz.lab.chip import chip_model
from specviz.trace.page import viewer_assets
from specviz.ui.board import panel_files

from ..browser import PATIENCE, POOL
from ..viewer import sample
from ..viewer.conftest import GUARD

PANELS = ASSETS / "panels"
EVIL = "<img src=x onerror=alert(1)>${alert(2)}{{7*7}}</script><script>alert(3)</script>\u202e\u0007"


def panel_assets() -> tuple[str, str]:
    """The panels' JavaScript in its order, and their style sheet."""
    return "\n".join((PANELS / f"{name}.js").read_text(encoding="utf-8") for name in panel_files()), (
        PANELS / "panels.css"
    ).read_text(encoding="utf-8")


def catalogue() -> list[dict]:
    return [card_data(card) for card in cards().values()]


DRAFTS = [
    {
        "name": f"Llama-{name}",
        "target": "t",
        "parameters": size,
        "from": began,
        "answers": 9,
        "points": [
            {
                "tokens": n,
                "acceptance_rate_greedy": 0.1 * i + 0.05 * k + 0.1,
                "acceptance_rate_sampled": 0.06 * i + 0.1,
            }
            for i, n in enumerate((60_000, 120_000, 250_000, 500_000, 1_000_000))
        ],
    }
    for k, (name, size, began) in enumerate(
        (("draft-small", 600_000, None), ("draft", 1_200_000, None), ("draft-wide", 1_900_000, "Llama-draft"))
    )
]
ANSWERS = {
    "cost_curve": {
        "rows": [1, 2, 4, 8, 16, 32, 64],
        "seconds": [0.024, 0.025, 0.026, 0.029, 0.036, 0.055, 0.1],
        "draft_seconds": 0.003,
        "one": 0.024,
        "machine": "a machine",
        "turns": 9,
    },
    "context_costs": {
        "lengths": [64, 1000, 2000],
        "seconds": [0.016, 0.017, 0.018],
        "base": 0.016,
        "token": 1e-6,
        "longest": 2000,
        "extrapolated": [512, 8192, 131072],
        "machine": "a machine",
        "methods": [
            {
                "method": "magicdec",
                "title": "MagicDec",
                "knobs": {"window": 512},
                "tokens": 2.5,
                "measured": 0.6,
                "extrapolated": [0.5, 1.1, 2.1],
            },
            {
                "method": "quantspec",
                "title": "QuantSpec",
                "knobs": {},
                "tokens": 3.0,
                "measured": 0.8,
                "extrapolated": [0.7, 1.3, 2.4],
            },
        ],
    },
    "distribution": {
        "samples": 200,
        "tokens": [" the", " a", " one", "everything else"],
        "plain_law": [0.5, 0.25, 0.15, 0.1],
        "method_counts": [104, 47, 29, 20],
        "chi_square": 0.8,
        "freedom": 3,
        "p_value": 0.85,
        "verdict": "pass",
    },
    "unavailable": {"medusa": "Medusa needs trained heads, which this target has not."},
    "mistakes": [
        {"key": k, "title": t, "why": "because", "watch": "both"}
        for k, t in (("argmax", "The best token as a draw"), ("cache", "No rollback"))
    ],
    "break_it": {
        "mistake": "argmax",
        "title": "The best token as a draw",
        "why": "It comes too often.",
        "caught": True,
        "greedy": {
            "status": "identical",
            "equal": True,
            "tokens": 96,
            "detail": "96 tokens equal plain decoding's.",
        },
        "distribution": {"p_value": 1e-9, "verdict": "fail", "samples": 400},
        "verdict": "Caught. Greedy text alone would have missed it.",
    },
    "sweep": {
        "knob": "gamma",
        "turns": 3,
        "rows": [
            {
                "value": v,
                "tokens_per_second": 100 + 30 * v - 5 * v * v,
                "low": 98 + 30 * v - 5 * v * v,
                "high": 102 + 30 * v - 5 * v * v,
                "block_efficiency": 1 + v / 2,
                "plain_tokens_per_second": 100,
            }
            for v in (1, 2, 3, 4)
        ],
    },
    "load": {
        "rows": [
            {
                "load": f"{n} user{'s' * (n > 1)}",
                "users": n,
                "method": method,
                "requests": 9,
                "tokens": 90,
                "goodput": 100 * n**power,
                "against_plain": n ** (power - 0.9),
                "throughput": 300,
                "first_token": [0.02, 0.04],
                "token_time": [0.002, 0.004],
                "latency": [0.1, 0.2],
                "batch": n,
                "drafted": 3.5,
                "accepted": 0.6,
            }
            for n in (1, 4)
            for method, power in (("autoregressive", 0.9), ("speculative", 0.6))
        ],
        "machine": "a machine",
        "said": [
            "Speculative decoding pays up to 1 user (1.20 times plain decoding) and no longer with 4 users (0.66 times)."
        ],
        "environment": {"requests": 9, "max_new_tokens": 32, "interrupted": False},
    },
    "scaling": {"figures": FIGURES, "targets": [report("t", DRAFTS), report("bare", [])]},
    "tasks": [{"task": "story", "prompts": 6}],
    "chip_model": chip_model(
        measured={
            "rows": [1, 2, 4, 8, 16, 32],
            "seconds": [0.024, 0.025, 0.026, 0.029, 0.036, 0.055],
            "draft_seconds": 0.003,
        }
    ),
    "questions": recommend.questions(),
    "recommend": recommend.recommend(),
    "library": [
        {"name": "story", "title": "A story", "about": "Three lanes.", "temperature": 0.0, "bytes": 188_000}
    ],
    "library_trace": "".join(json.dumps(r) + "\n" for r in sample.race()),
}
PAGE = """<!doctype html><html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><style>{css}</style></head>
<body><main class="gradio-container"><div id="board"><div class="sv"></div></div><div id="host"></div></main><script>{js}</script><script>
let data, panel, asked, tried, tabs, ctx;
const api = SpecVizBoard.mount(document.querySelector("#board .sv"), {{ options: {{ autoplay: false }} }});
function begin(text) {{
  panel?.destroy();
  SpecVizPanels.lessons.close();
  SpecVizPanels.present.stop();
  localStorage.clear();
  document.documentElement.className = "";
  data = JSON.parse(text), asked = [], tried = [], tabs = [];
  api.load(data.records);
  ctx = {{ board: api, catalogue: data.catalogue, run: (x) => tried.push(x), go: (t) => tabs.push(t), ask: async (name, payload, told) => {{
    asked.push([name, payload]);
    if (!(name in data.answers)) throw new Error("There is no such question.");
    told?.({{ state: "working", text: "Working." }});
    return data.answers[name];
  }} }};
  panel = SpecVizPanels.mount(document.getElementById("host"), data.kind, ctx);
}}
</script></body></html>"""


@pytest.fixture(scope="session")
def _page(browser, tmp_path_factory):
    """One page for all tests: what costs time is opening one."""

    def open_page():
        page, seen = browser.new_page(), []
        page.set_default_timeout(1000 * PATIENCE)
        page.emulate_media(reduced_motion="reduce")
        page.on(
            "console",
            lambda m: seen.append(f"console {m.type}: {m.text}") if m.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda e: seen.append(f"page error: {e}"))
        page.on(
            "request",
            lambda r: (
                seen.append(f"request: {r.url}")
                if not r.url.startswith(("file:", "about:", "data:", "blob:"))
                else None
            ),
        )
        page.on("dialog", lambda d: (seen.append(f"dialog: {d.message}"), d.dismiss()))
        page.add_init_script(GUARD)
        file = tmp_path_factory.mktemp("panels") / "panel.html"
        css = "\n".join((viewer_assets()[1], panel_assets()[1]))
        file.write_text(
            PAGE.format(css=css, js=viewer_assets()[0] + "\n" + panel_assets()[0]), encoding="utf-8"
        )
        page.goto(file.as_uri())
        return page, seen

    page, seen = POOL.submit(open_page).result(timeout=2 * PATIENCE)
    yield page, seen
    POOL.submit(page.close).result(timeout=PATIENCE)


@pytest.fixture
def visit(_page):
    """`visit(use, kind, records=..., size=..., answers=...)`: the panel, fresh, with this trace on the
    board; `use(page)` in its thread."""
    page, seen = _page

    def run(use, kind, records, size, answers):
        seen.clear()
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.evaluate(
            "(t) => begin(t)",
            json.dumps(
                {
                    "records": records,
                    "catalogue": catalogue(),
                    "kind": kind,
                    "answers": ANSWERS | (answers or {}),
                }
            ),
        )
        result = use(page)
        assert seen == [], seen
        assert page.evaluate("globalThis.ran") == []
        return result

    def visit(use, kind="lab", *, records=None, size=(1280, 900), answers=None):
        return POOL.submit(
            run, use, kind, sample.race() if records is None else records, size, answers
        ).result(timeout=2 * PATIENCE)

    return visit
