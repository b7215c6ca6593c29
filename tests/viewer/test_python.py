"""The Python side of the viewer: assets, the stand-alone page, the notebook display."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import subprocess
import sys

import pytest

from specviz import ROOT
from specviz.trace.files import Trace
from specviz.trace.page import VIEWER as ASSETS
from specviz.trace.page import gradio_parts, records_of, scripts, show, to_html, viewer_assets

from ..message_codes import refuses
from . import sample

RECORDS = sample.trace("chain")


def test_the_assets_hold_every_file_and_no_dangerous_call() -> None:
    js, css = viewer_assets()
    assert {str(p.relative_to(ASSETS).with_suffix("")) for p in ASSETS.rglob("*.js")} == {
        *scripts(),
        "gradio",
    }
    assert "SpecVizBoard" in js and ".sv" in css
    code = re.sub(r"/\*.*?\*/", "", js, flags=re.S)
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "import(",
        "fetch(",
        "XMLHttpRequest",
        "WebSocket",
        "http://",
        "https://",
        "sessionStorage",
        "indexedDB",
        "cookie",
    ):
        assert word not in code.replace("http://www.w3.org/2000/svg", ""), word
    assert [p.stem for p in ASSETS.rglob("*.js") if "localStorage" in p.read_text(encoding="utf-8")] == [
        "colours"
    ]


def test_every_rule_is_under_sv_and_no_shorthand_carries_a_variable() -> None:
    css = re.sub(r"/\*.*?\*/", "", viewer_assets()[1], flags=re.S)
    css = re.sub(r"@keyframes[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", css)
    for selectors, body in re.findall(
        r"([^{}]+)\{([^{}]*)\}",
        css.replace("@media (prefers-color-scheme: dark) {", "").replace(
            "@media (prefers-reduced-motion: reduce) {", ""
        ),
    ):
        for one in selectors.strip("} \n").split(","):
            assert re.match(r"(\.dark )?\.sv\b", one.strip()), one
        assert not re.search(r":(where|is|not|has)\([^)]*,", selectors)
        for name, value in re.findall(r"([a-z-]+)\s*:\s*([^;]+)", body):
            assert not (
                name
                in (
                    "font",
                    "background",
                    "border",
                    "outline",
                    "text-decoration",
                    "border-top",
                    "border-bottom",
                    "border-left",
                    "border-right",
                    "animation",
                    "transition",
                    "flex",
                )
                and "var(" in value
            ), (name, value)


def test_the_page_is_inert_data_and_named_scripts() -> None:
    evil = sample.trace(
        "chain", text="</script><script>alert(1)</script><!-- \u2028 ${x}", prompt="</script><!--"
    )
    page = to_html(evil, title="<b>&")
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert "<title>&lt;b&gt;&amp;</title>" in page
    data = re.search(r'<script type="application/json" id="trace">(.*?)</script>', page, re.S)[1]
    assert "<" not in data and json.loads(data) == evil
    assert "default-src 'none'" in page and "unsafe" not in page


def test_a_page_from_a_path_an_object_and_a_list_is_the_same(tmp_path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, RECORDS)) + "\n", encoding="utf-8")
    trace = type("Trace", (), {"records": RECORDS})()
    assert to_html(path) == to_html(str(path)) == to_html(trace) == to_html(RECORDS)
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert to_html(packed) == to_html(path) and show(packed).page == show(path).page


@pytest.mark.parametrize(
    "content, code",
    [("", "trace.empty"), ("not json\n", "trace.json"), ("[]\n", "trace.record"), ("7\n", "trace.record")],
)
def test_a_broken_file_is_refused_with_its_name(tmp_path, content, code) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content, encoding="utf-8")
    with refuses(ValueError, code, "bad.jsonl"):
        records_of(path)


@pytest.mark.parametrize("thing", [7, None, {}, b"x"])
def test_what_is_no_trace_is_refused(thing) -> None:
    with pytest.raises((TypeError, ValueError)):
        to_html(thing)


def test_a_number_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError):
        to_html([{**RECORDS[0], "created": float("nan")}])


def test_a_lone_surrogate_can_still_be_written(tmp_path) -> None:
    page = to_html([{**RECORDS[0], "run_id": "\ud800"}])
    (tmp_path / "p.html").write_text(page, encoding="utf-8")


def unpacked(shown: str) -> dict[str, str]:
    packed = re.search(r'id="packed">([A-Za-z0-9+/=]+)<', html.unescape(shown))[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_the_notebook_display_is_a_sandboxed_frame_and_a_table() -> None:
    evil = sample.trace("chain", text="</iframe><script>alert(1)</script>", prompt="<b>")
    for records in (RECORDS, evil):
        shown = show(records)._repr_html_()
        assert shown.startswith('<iframe sandbox="allow-scripts"') and shown.count("<iframe") == 1
        assert "<script" not in shown and "<b>" not in shown and "unsafe" not in shown
        parts = unpacked(shown)
        assert json.loads(parts["trace"]) == records and "SpecVizBoard" in parts["script"]
        assert f"<td>{html.escape(Trace(records).text(0))}</td>" in shown
        assert Trace(records).text(0) in repr(show(records))
    assert len(show(RECORDS)._repr_html_()) < len(html.escape(to_html(RECORDS))) / 3


def test_a_packed_frame_shows_the_board(drive, tmp_path) -> None:
    (tmp_path / "cell.html").write_text(f"<!doctype html>{show(RECORDS)._repr_html_()}", encoding="utf-8")

    def use(page):
        inside = page.frames[-1]
        inside.wait_for_selector(".sv .lane")
        assert inside.evaluate("document.querySelector('.sv').svApi !== undefined")
        return inside.locator(".sv .lane").count()

    assert drive(use, html=tmp_path / "cell.html") == len(Trace(RECORDS).lanes)


def test_gradio_gets_a_constant_template() -> None:
    parts = gradio_parts(layout="watch")
    assert parts["html_template"] == '<div class="sv"></div>'
    assert 'SpecVizBoard.attach(element, watch, props, {"layout":"watch"})' in parts["js_on_load"]


def test_no_heavy_import() -> None:
    code = "import sys; sys.modules['torch'] = sys.modules['gradio'] = sys.modules['transformers'] = None; from specviz.trace.page import viewer_assets as v; v()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
