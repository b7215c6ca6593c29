"""``watch``, ``compare``, ``Trace.frame`` and ``Trace.plot`` on the tiny pair; both notebooks from start to
end."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from specviz import ROOT, compare, watch
from specviz.notebook.live_output import LiveOutput
from specviz.notebook.table import lane_rows
from specviz.trace.files import Trace
from specviz.trace.page import to_html

from ..message_codes import refuses
from .outputs import Outputs

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_what_a_notebook_calls_exists(file):
    """Both run whole in ``make thorough``; a name that is gone is found here."""
    import specviz
    from specviz.zoo import Loaded

    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    named = {
        name
        for line in re.findall(r"^from specviz import (.+)$", code, re.M)
        for name in re.split(r"\W+", line)
        if name
    }
    assert named and all(hasattr(specviz, name) for name in named)
    assert set(re.findall(r"\bloaded\.(\w+)", code)) <= {*dir(Loaded), *Loaded.__dataclass_fields__}


@pytest.fixture
def board(at_home):
    return watch("the cat", ["speculative", "prompt_lookup"], max_new_tokens=8)


def test_watch_records_a_lane_per_method_and_plain_decoding_last(board):
    assert [board.trace.header(lane)["method"]["key"] for lane in board.trace.lanes] == [
        "speculative",
        "prompt_lookup",
        "autoregressive",
    ]
    assert len({board.trace.text(lane) for lane in board.trace.lanes}) == 1
    Trace.load(board.trace.lines())  # a valid trace


def test_the_board_is_a_sandboxed_frame_with_the_viewer_inside(board):
    html = board._repr_html_()
    assert html.startswith('<iframe sandbox="allow-scripts"') and "srcdoc=" in html
    stored = board.bundle()
    assert stored["text/html"] == html and "<details>" in html
    assert stored["text/plain"] == repr(board) and len(repr(board).splitlines()) >= len(board.trace.lanes)
    assert all(board.trace.header(lane)["method"]["title"] in repr(board) for lane in board.trace.lanes)
    assert "autoplay: false" in to_html(board.trace, autoplay=False) and "autoplay: true" in to_html(
        board.trace
    )


def test_a_run_sends_the_viewer_once_and_its_records_once(board, monkeypatch):
    """Five lanes of 200 tokens, an event every 5 ms."""
    outputs = Outputs(monkeypatch)
    live = LiveOutput(500)
    rounds = [record for record in board.trace.records if record["lane"] == 0 and record.get("round") == 0]
    live.add([dict(record, lane=lane) for lane in range(5) for record in board.trace.of("header", 0)])
    for turn in range(2000):
        outputs.now += 0.005
        live.add([dict(record, lane=turn % 5, turn=turn) for record in rounds])
    frames = [page for number, _, page in outputs.sent if number == 0]
    updates = [(now, page) for number, now, page in outputs.sent if number == 1 and page]
    assert len(frames) == 1 and "srcdoc=" in frames[0] and len(frames[0]) < 400_000
    assert len(updates) > 10 and not any("srcdoc=" in page for _, page in updates)
    assert all(len(page) < 300_000 for _, page in updates)
    for (now, page), (then, _) in zip(updates, updates[1:]):
        assert len(page.encode()) / (then - now) <= 250_000
    numbers = [int(turn) for _, page in updates for turn in re.findall(r'turn\\":(\d+)', page)]
    times = Counter(numbers)
    assert {times[turn] for turn in range(max(times))} == {len(rounds)}  # each record once
    live.finish(board.bundle())
    assert outputs.sent[-2][2] == board.bundle()["text/html"] and outputs.sent[-1][2] == ""


def test_a_frame_has_a_row_for_each_round_and_adds_up_to_the_totals(board):
    frame = board.trace.frame()
    for lane in board.trace.lanes:
        mine, totals = frame[frame.lane == lane], board.trace.totals(lane)
        assert mine.tokens.sum() == totals["tokens"] and mine.accepted.sum() == totals["accepted"]
        assert mine.drafted.sum() == totals["drafted"] and len(mine) == totals["rounds"]
        assert "".join(mine.text)  # texts of rounds may split a character: compared as a whole below
    pieces = [piece for record in board.trace.of("text", 0) for piece in record["pieces"]]
    assert b"".join(base64.b64decode(piece["b"]) for piece in pieces).decode(
        "utf-8", "replace"
    ) == board.trace.text(0)


def test_a_plot_has_a_line_per_lane_that_ends_at_all_tokens(board):
    figure = board.trace.plot()
    assert [line.y[-1] for line in figure.data] == [
        board.trace.totals(lane)["tokens"] for lane in board.trace.lanes
    ]


def test_compare_gives_a_row_per_prompt_and_method_with_the_baseline_at_one(at_home):
    frame = compare(["the cat", "a dog"], "prompt_lookup", max_new_tokens=6, repeats=2)
    assert list(frame.method) == ["prompt_lookup", "autoregressive"] * 2 and frame.same_text.all()
    assert (
        set(frame[frame.method == "autoregressive"].speed_up) <= {1.0} and (frame.tokens_per_second > 0).all()
    )
    assert (frame[frame.method == "autoregressive"].tokens_per_pass == 1).all()


def test_a_speed_up_beyond_the_tokens_per_pass_is_not_named(board):
    def rows(factor):
        records = [dict(record) for record in board.trace.records]
        for record in records:
            if record["type"] == "timing":
                each = 1e6 * (factor if record["lane"] == 0 else 1)
                record |= {"draft_ns": 0, "judge_ns": 0, "cache_ns": 0, "other_ns": 0, "verify_ns": each}
            elif record["type"] == "done":
                record["totals"] = record["totals"] | {"repeats": []}
        return lane_rows(Trace(records))

    first, *_, plain = rows(0.9)
    assert (plain["speed_up"], plain["replaced"]) == (1.0, 0)
    assert first["speed_up"] == pytest.approx(first["tokens_per_pass"] / 0.9, rel=0.05)
    assert rows(1e-3)[0]["speed_up"] is None and rows(1e-3)[0]["tokens_per_second"] > 0


def test_knobs_reach_their_method_and_a_mistake_is_one_sentence(at_home):
    found = watch(
        "the cat", "speculative", knobs={"speculative": {"gamma": 2}}, max_new_tokens=4, plain=False
    )
    assert found.trace.header(0)["knobs"]["gamma"] == 2 and found.trace.lanes == [0]
    given = {"logit_bias": {"40": 100}, "max_tokens": 3}
    assert (
        watch("the cat", "speculative", request=given, plain=False).trace.header(0)["request"]["max_tokens"]
        == 3
    )
    with refuses(ValueError, "request.field", "top_k"):
        watch("the cat", "speculative", request={"topk": 3})
    with refuses(ValueError, "method.unknown", "nothing_of_this_name"):
        watch("the cat", "nothing_of_this_name")


def test_there_are_two_notebooks_without_stored_outputs_that_install_what_they_need():
    assert [path.stem for path in NOTEBOOKS] == ["choose_a_method", "tour"]
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert all(not cell.get("outputs") for cell in cells) and "[notebook]" in "".join(cells[1]["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_cell_installs_the_checkout_around_the_notebook_or_else_the_published_package(
    path, tmp_path, monkeypatch
):
    cell = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][1]["source"])
    asked = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command[-1]))
    for folder in (ROOT, path.parent, tmp_path):
        monkeypatch.chdir(folder)
        exec(cell, {})
    assert asked == [f"{ROOT}[notebook]", f"{ROOT}[notebook]", "specviz[notebook]"]


@pytest.mark.thorough
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_start_to_end(path, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path[1:]]))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        book, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    if keep := os.environ.get("SPECVIZ_TEST_KEEP"):
        nbformat.write(book, Path(keep) / path.name)
    html = [
        out["data"]["text/html"]
        for cell in book.cells
        for out in cell.get("outputs", [])
        if "text/html" in out.get("data", {})
    ]
    assert any("srcdoc=" in page for page in html) and any("<table" in page for page in html)
    boards = [page for page in html if "srcdoc=" in page]
    shown = sum("watch(" in cell["source"] for cell in book.cells if cell["cell_type"] == "code")
    assert len(boards) == shown  # once each, although a cell also ends with the board
