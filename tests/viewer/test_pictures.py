"""A picture in the viewer: patches as a grid in the order they were written, their verdicts, the picture
beside them, and traces whose header claims nonsense."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from specviz.trace.schema import SCHEMA
from specviz.zoo.codec import ScaleCodec

from ..message_codes import viewer_texts

TEXTS = viewer_texts()
SIDE = 2
COLUMNS = 3
ROWS = 2
FIRST = 10
COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (10, 20, 30)]


def pixels(code: int) -> bytes:
    return bytes(COLOURS[code]) * SIDE * SIDE


def records(output, codes=(0, 1, 2, 3)) -> list[dict]:
    """Plain decoding of one patch, then a round that drafts two patches: one is kept, one refused and
    corrected."""
    rows: list[dict] = []

    def put(type, **fields):
        rows.append({"type": type, "seq": len(rows), "lane": 0, **fields})

    put(
        "header",
        schema="specviz-trace/1",
        run_id="r",
        created="2026-11-01T00:00:00Z",
        mode="recorded",
        clock="engine",
        method=dict(
            key="speculative_jacobi",
            title="Jacobi",
            family="Parallel",
            exactness="exact",
            paper="",
            summary="",
        ),
        knobs={},
        prompt=dict(text="a red heart", ids=[1], turns=[]),
        sampling=dict(temperature=1.0, top_k=0, top_p=1.0, seed=0),
        max_new_tokens=6,
        target=dict(name="pictures"),
        draft=None,
        tokenizer="pictures",
        env={},
        top_k_saved=0,
        baseline_run_id=None,
        output=output,
    )
    put("vocab", tokens={str(FIRST + i): base64.b64encode(pixels(i)).decode() for i in range(4)}, special=[])
    put("prefill", t0=0.0, t1=0.1, n=1)

    def texts(round, tokens):
        put(
            "text",
            round=round,
            pieces=[
                dict(tok=FIRST + t, b=base64.b64encode(pixels(t)).decode(), span=[0, 12]) for t in tokens
            ],
        )
        put("timing", round=round, draft_ns=0, verify_ns=1, judge_ns=0, cache_ns=0, other_ns=0)

    put("draft", round=0, t0=0.1, t1=0.1, kind="none", nodes=[])
    put("verify", round=0, t0=0.1, t1=0.2, n_in=1)
    put("commit", round=0, t=0.2, path=[], tail=dict(tok=FIRST + codes[0], why="plain"), n_new=1)
    texts(0, codes[:1])
    nodes = [
        dict(id=i, parent=i - 1, depth=i + 1, tok=FIRST + codes[i + 1], q=0.5, how="iid") for i in range(2)
    ]
    put("draft", round=1, t0=0.2, t1=0.2, kind="chain", nodes=nodes)
    put("verify", round=1, t0=0.2, t1=0.3, n_in=3)
    put("judge", round=1, node=0, rule="ratio", p=0.5, q=0.5, a=1.0, u=0.2, verdict="accepted")
    put("judge", round=1, node=1, rule="ratio", p=0.1, q=0.5, a=0.2, u=0.9, verdict="rejected")
    put("commit", round=1, t=0.3, path=[0], tail=dict(tok=FIRST + codes[3], why="correction"), n_new=2)
    texts(1, [codes[1], codes[3]])
    put("done", finish="length", totals=dict(tokens=3, rounds=2), peak_mem=None)
    for row in rows:
        SCHEMA[row["type"]](row, row["type"])
    return rows


PATCHES = {"kind": "patches", "rows": ROWS, "columns": COLUMNS, "patch": SIDE}
READ = """() => { const at = (c, x, y) => [...c.getContext("2d").getImageData(x, y, 1, 1).data];
  const cells = [...document.querySelectorAll(".stage .patches .live > .t")], whole = document.querySelector(".stage canvas.whole");
  const all = whole.getContext("2d").getImageData(0, 0, whole.width, whole.height), pick = (x, y) => [...all.data.slice(4 * (y * whole.width + x))].slice(0, 4);
  return {verdicts: cells.map((t) => t.dataset.v), colours: cells.map((t) => at(t.querySelector("canvas"), 1, 1)),
    size: [whole.width, whole.height], third: pick(4, 1), fourth: pick(1, 3), shown: !whole.hidden,
    grid: getComputedStyle(document.querySelector(".stage .text")).gridTemplateColumns.split(" ").length,
    labels: [...document.querySelectorAll("svg.tree [data-node] text.w")].map((t) => t.textContent),
    swatches: document.querySelectorAll("svg.tree [data-node] rect[fill^=rgb]").length}; }"""


def show(page, rows):
    page.evaluate(
        "(rows) => { globalThis.board = SpecVizBoard.mount(document.querySelector('.sv'), {trace: rows}); }",
        rows,
    )
    page.evaluate("board.goto({ round: 1, phase: 4 })")


def test_a_race_of_pictures_shows_them_first_and_a_text_after_it_does_not(drive, settled):
    state = """() => [document.querySelector(".sv").classList.contains("painting"), !document.querySelector(".p-stage").matches(".shut"),
      document.querySelector(".p-stage").getBoundingClientRect().top < document.querySelector(".metrics").getBoundingClientRect().top]"""

    def use(page):
        show(page, records(PATCHES))
        page.evaluate("board.setLayout('race')")
        settled(page)
        assert page.evaluate(state) == [True, True, True]
        page.evaluate(
            "(rows) => board.load(rows.map((r) => JSON.stringify(r)).join('\\n'))", records({"kind": "text"})
        )
        settled(page)
        assert not page.evaluate(state)[0]

    drive(use)


def test_a_picture_grows_patch_by_patch_in_the_colours_of_their_fate(drive, settled):
    """After each round the picture holds the patches written so far, in its place; each patch has a frame
    in the colour of its verdict."""
    fate = """() => [...document.querySelectorAll(".stage .patches .live > .t")].map((t) => [t.dataset.v,
      getComputedStyle(t).backgroundColor])"""
    filled = """() => { const c = document.querySelector(".stage canvas.whole"), copy = Object.assign(document.createElement("canvas"), {
      width: c.width, height: c.height}), g = copy.getContext("2d", {willReadFrequently: true});
      g.drawImage(c, 0, 0);
      return [0, 1].flatMap((y) => [0, 1, 2].map((x) => [...g.getImageData(2 * x, 2 * y, 1, 1).data].slice(0, 3).join())); }"""
    blank = "0,0,0"

    def use(page):
        show(page, records(PATCHES))
        for round, codes in ((0, [0]), (1, [0, 1, 3])):
            page.evaluate("round => board.goto({ round, phase: 4 })", round)
            settled(page)
            want = [",".join(map(str, COLOURS[code])) for code in codes]
            assert page.evaluate(filled) == want + [blank] * (COLUMNS * ROWS - len(codes))
        frames = dict(page.evaluate(fate))
        assert set(frames) == {"plain", "accepted", "correction"} and len(set(frames.values())) == 3, frames

    drive(use)


def test_patches_stand_in_a_grid_with_their_verdicts(drive, settled):
    def use(page):
        show(page, records(PATCHES))
        settled(page)
        seen = page.evaluate(READ)
        assert (
            seen["verdicts"] == ["plain", "accepted", "correction"]
            and seen["grid"] == COLUMNS
            and seen["shown"]
        )
        assert [tuple(c[:3]) for c in seen["colours"]] == [COLOURS[0], COLOURS[1], COLOURS[3]]
        assert seen["size"] == [COLUMNS * SIDE, ROWS * SIDE]
        assert tuple(seen["third"][:3]) == COLOURS[3] and seen["fourth"][3] == 0, (
            "a patch that is not painted yet is blank"
        )
        assert seen["labels"][:2] == ["\u25a6 11", "\u25a6 12"] and seen["swatches"] >= 2 * SIDE * SIDE

    drive(use)


@pytest.mark.parametrize(
    "output", [{"kind": "text"}, {"kind": "sound"}, {"kind": "patches", "rows": 2, "columns": 3}]
)
def test_what_is_no_picture_is_text(drive, settled, output):
    def use(page):
        show(page, records(output))
        settled(page)
        assert page.evaluate("document.querySelectorAll('.stage .patches').length") == 0
        assert page.evaluate("document.querySelector('.stage canvas.whole').hidden")

    drive(use)


GRIDS = {"kind": "scales", "grids": [1, 2, 3], "patch": SIDE}
BOXES = """() => { const copy = (c) => {
  const context = Object.assign(document.createElement("canvas"), {width: c.width, height: c.height}).getContext("2d", {willReadFrequently: true});
  context.drawImage(c, 0, 0);
  return context; };
  return [...document.querySelectorAll(".stage .text.scales .scale")].map((box) => {
  const c = box.querySelector(".sheet > canvas");
  return {small: box.classList.contains("small"), cells: box.querySelectorAll(".cells .t").length, title: box.querySelector(".cap b").textContent,
    rgb: c.width ? [...copy(c).getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 < 3) : []}; }); }"""

PLACES = """() => { const sheet = [...document.querySelectorAll(".stage .text.scales .sheet")].at(-1), a = sheet.getBoundingClientRect();
  return [...sheet.querySelectorAll(".cells .t")].map((t) => { const b = t.getBoundingClientRect();
    return [(b.left + b.width / 2 - a.left) / a.width, (b.top + b.height / 2 - a.top) / a.height].map((x) => Math.floor(3 * x)); }); }"""


def growing(codes: np.ndarray, limit: int = 14) -> list[dict]:
    """A picture of three scales: the large model painted the first two, the small one the last."""
    rows = [row for row in records(GRIDS) if row["type"] in ("header", "prefill")]
    tokens = {str(FIRST + i): base64.b64encode(code.tobytes()).decode() for i, code in enumerate(codes)}
    rows.insert(1, dict(type="vocab", lane=0, tokens=tokens, special=[]))
    at = 0
    for round, grid in enumerate(GRIDS["grids"]):
        ids, small = list(range(at, min(limit, at + grid * grid))), round == 2
        at += grid * grid
        rows.append(
            dict(
                type="draft",
                lane=0,
                round=round,
                t0=round + 0.1,
                t1=round + 0.1 + 0.1 * small,
                kind="none",
                nodes=[],
            )
        )
        if not small:
            rows.append(
                dict(type="verify", lane=0, round=round, t0=round + 0.1, t1=round + 0.2, n_in=grid * grid)
            )
        rows.append(
            dict(
                type="commit",
                lane=0,
                round=round,
                t=round + 0.3,
                path=[],
                n_new=len(ids),
                tail=dict(tok=FIRST + ids[-1], why="small" if small else "plain"),
            )
        )
        rows.append(
            dict(
                type="text",
                lane=0,
                round=round,
                pieces=[dict(tok=FIRST + i, b=tokens[str(FIRST + i)], span=[0, 12]) for i in ids],
            )
        )
        rows.append(
            dict(
                type="timing",
                lane=0,
                round=round,
                draft_ns=0,
                verify_ns=1,
                judge_ns=0,
                cache_ns=0,
                other_ns=0,
            )
        )
    rows.append(dict(type="done", lane=0, finish="stop", totals=dict(tokens=limit, rounds=2), peak_mem=None))
    for seq, row in enumerate(rows):
        row["seq"] = seq
        SCHEMA[row["type"]](row, row["type"])
    return rows


@pytest.mark.parametrize(
    "needs, named",
    [(["draft"], True), (["draft:pard"], True), (["head:medusa", "tree"], False), ([], False), (None, True)],
)
def test_a_draft_is_named_only_where_a_method_asks_for_one(drive, settled, needs, named):
    """A trace that does not say what its methods need names it."""
    rows = records({"kind": "text"})
    for row in rows:
        if row["type"] == "header":
            row["draft"] = {"name": "the-guesser", "parameters": 5}
            row["method"] = {**row["method"]} | ({} if needs is None else {"needs": needs})

    def use(page):
        show(page, rows)
        settled(page)
        assert ("the-guesser" in page.text_content(".notice")) == named

    drive(use)


@pytest.mark.parametrize("limit", [14, 10])
def test_scales_stand_side_by_side_and_show_the_picture_as_python_sums_it(drive, settled, limit):
    codes = np.random.default_rng(0).integers(0, 256, (14, SIDE, SIDE, 3), np.uint8)
    codec = ScaleCodec(None, codes, FIRST, GRIDS["grids"], ())

    def use(page):
        page.evaluate(
            "(rows) => { globalThis.board = SpecVizBoard.mount(document.querySelector('.sv'), {trace: rows}); }",
            growing(codes, limit),
        )
        page.evaluate("board.goto({ round: 2, phase: 4 })")
        settled(page)
        boxes = page.evaluate(BOXES)
        assert [(box["title"], box["cells"], box["small"]) for box in boxes] == [
            ("1 \u00d7 1", 1, False),
            ("2 \u00d7 2", 4, False),
            ("3 \u00d7 3", limit - 5, True),
        ]
        for box, upto in zip(boxes, (1, 5, limit)):
            wanted = codec.pixels(codes[:upto].tobytes()).astype(int).ravel()
            assert np.abs(wanted - np.array(box["rgb"])).max() <= 1
        assert page.text_content(".paxis .mid") == TEXTS["passes.block.small"], (
            "no block is called a pass of the large model"
        )
        page.wait_for_function(  # no verdict that no patch of it can have, once the legend follows the board
            "(keys) => [...document.querySelectorAll('.legend [data-filter], .legend .scalekey')].filter((e) => e.offsetWidth)"
            ".map((e) => e.textContent).join() === keys.join()",
            arg=[TEXTS["scale.large"], TEXTS["scale.small"]],
        )
        if limit == 14:
            assert page.evaluate(PLACES) == [[x, y] for y in range(3) for x in range(3)], (
                "whoever points at a patch selects that one"
            )
        page.evaluate("board.goto({ round: 1, phase: 4 })")
        settled(page)
        assert len(page.evaluate(BOXES)) == 2

    drive(use)
