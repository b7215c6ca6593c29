"""The static site: what is in it, that it opens from a file, below any path and in a sandboxed frame, and the custom
element on a bare page."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from specviz import ASSETS, ROOT
from specviz.cli import main
from specviz.lab.recordings import library
from specviz.methods import catalogue
from specviz.site import build

from .. import browser

FAR = 60_000  # ms that a page may need on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("site") / "some" / "sub" / "path"
    build.write_site(place)
    return place


def test_it_holds_everything_in_few_bytes(folder):
    sizes = {path: (folder / path).stat().st_size for path in build.files()}
    assert sum(sizes.values()) < build.LARGEST and len(sizes) == 9 + len(library())
    found = json.loads((folder / "content.js").read_text(encoding="utf-8").split(" = ", 1)[1].rstrip(";\n"))
    assert {card["key"] for card in found["catalogue"]} == set(catalogue())
    assert [run["name"] for run in found["library"]] == [run["name"] for run in library()]
    head = (folder / "README.md").read_text(encoding="utf-8").split("---")[1]
    assert "sdk: static" in head and "app_file: index.html" in head


def test_the_readmes_link_the_papers_that_can_be_watched(folder):
    for path, keys in (
        (folder / "README.md", build.recorded_methods(library())),
        (ROOT / "README.md", build.PAPERS),
    ):
        linked = set(re.findall(r"https://arxiv\.org/abs/(\d{4}\.\d{5})", path.read_text(encoding="utf-8")))
        assert linked == {number for key in keys for number in build.ARXIV.findall(catalogue()[key].paper)}
        assert len(linked) >= 8
    assert len(set(build.PAPERS)) == 12
    assert all(catalogue()[key].exactness == "exact" for key in build.PAPERS)


def test_every_link_is_relative_and_exists(folder):
    page = (folder / "index.html").read_text(encoding="utf-8")
    links = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(links) >= 5
    assert all(link == "data:," or (folder / link).is_file() and not link.startswith("/") for link in links)
    assert "connect-src 'none'" in page and "unsafe" not in page


def test_a_recording_cannot_end_its_script(folder):
    for path in [*folder.glob("traces/*.js"), folder / "content.js"]:
        assert not re.search(r"[<>&\u2028\u2029]", path.read_text(encoding="utf-8"))


def test_the_command_writes_it(tmp_path, capsys):
    assert main(["site", str(tmp_path / "out"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["bytes"] < build.LARGEST and (tmp_path / "out" / "index.html").is_file()
    (tmp_path / "file").write_text("")
    assert main(["site", str(tmp_path / "file")]) == 2


def test_a_card_is_one_sheet_for_each_of_ten_methods(folder):
    page = (folder / "cards.html").read_text(encoding="utf-8")
    assert page.count("<article>") == len(set(build.CARDS)) == 10
    assert all(catalogue()[key].title in page for key in build.CARDS) and "<script" not in page


@pytest.mark.thorough
def test_the_cards_print_on_ten_sheets(folder):
    def work():
        with opened((folder / "cards.html").as_uri()) as (page, errors):
            assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) == 10 and not errors

    in_browser(work)


@contextmanager
def opened(address: str, width: int = 1280, dark: bool = False):
    """A page of the browser, and what its console complains about; runs in the browser's thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        chromium = browser.start(player)
        try:
            page = chromium.new_page(
                viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
            )
            page.set_default_timeout(FAR)
            errors: list[str] = []
            page.on(
                "console", lambda message: errors.append(message.text) if message.type == "error" else None
            )
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(address)
            yield page, errors
        finally:
            chromium.close()


def in_browser(work):
    return browser.POOL.submit(work).result(timeout=2 * browser.PATIENCE)


@contextmanager
def served(root):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


READY = "#recordings button[aria-pressed=true]"
WHERE = "document.querySelector('#host-board .sv').svBoard.where()"


@pytest.mark.thorough
def test_it_opens_from_a_file_with_every_tab_and_a_link_to_a_round(folder):
    def work():
        with opened((folder / "index.html").as_uri() + "#run=sampled&layout=watch&lane=0&round=3") as (
            page,
            errors,
        ):
            page.wait_for_selector(READY)
            page.wait_for_function(f"{WHERE}.round === 3")
            assert page.get_attribute(READY, "data-name") == "sampled"
            for tab in ("learn", "lab", "traces"):
                page.click(f"#tab-{tab}")
                assert page.locator(f"#host-{tab} .pn-rail button").count() >= 2
            page.keyboard.press("ArrowRight")
            assert page.get_attribute("#tab-board", "aria-selected") == "true"
            assert not errors, errors

    in_browser(work)


@pytest.mark.thorough
@pytest.mark.parametrize("width, dark", [(390, True), (820, False), (1440, True)])
def test_it_opens_below_any_path(folder, width, dark):
    def work(base):
        with opened(f"{base}/some/sub/path/#run=edit", width, dark) as (page, errors):
            page.wait_for_selector(READY)
            assert page.get_attribute(READY, "data-name") == "edit"
            assert page.evaluate("document.documentElement.scrollWidth") <= width and not errors, errors
            surface = (
                "getComputedStyle(document.querySelector('.sv')).getPropertyValue('--sv-surface').trim()"
            )
            assert (page.evaluate(surface) in ("#fff", "#ffffff")) is not dark

    with served(folder.parents[2]) as base:
        in_browser(lambda: work(base))


@pytest.mark.thorough
def test_axe_finds_nothing_serious(folder):
    import axe_playwright_python

    axe = Path(axe_playwright_python.__file__).parent / "axe.min.js"

    def work():
        for dark in (False, True):
            # the page's own policy allows no further script
            text = re.sub(r"<meta http-equiv[^>]*>", "", (folder / "index.html").read_text(encoding="utf-8"))
            (folder / "open.html").write_text(text, encoding="utf-8")
            with opened((folder / "open.html").as_uri() + "#page=watch&trace=first&round=2", 1280, dark) as (
                page,
                _,
            ):
                page.wait_for_selector(READY)
                page.add_script_tag(content=axe.read_text(encoding="utf-8"))
                for tab in ("board", "learn", "lab", "traces"):
                    page.click(f"#tab-{tab}")
                    page.wait_for_timeout(300)
                    found = page.evaluate(
                        "axe.run(document).then((r) => r.violations.map((v) => [v.impact, v.id, v.nodes[0].html]))"
                    )
                    assert [v for v in found if v[0] in ("serious", "critical")] == [], (tab, dark)

    in_browser(work)


@pytest.mark.thorough
def test_it_opens_in_a_sandboxed_frame(folder):
    (folder.parents[2] / "frame.html").write_text(
        '<iframe sandbox="allow-scripts" src="some/sub/path/index.html" style="width:900px;height:800px"></iframe>'
    )

    def work(base):
        with opened(f"{base}/frame.html") as (page, errors):
            page.frames[1].wait_for_selector(READY)
            assert not errors, errors

    with served(folder.parents[2]) as base:
        in_browser(lambda: work(base))


@pytest.mark.thorough
def test_the_element_shows_a_trace_on_a_bare_page(folder):
    shutil.copy(ASSETS / "traces" / "sampled.jsonl.gz", folder.parents[2] / "run.jsonl.gz")
    (folder.parents[2] / "bare.html").write_text(
        '<!doctype html><title>Mine</title><script src="some/sub/path/specviz-trace.js"></script>'
        '<specviz-trace src="run.jsonl.gz" height="700" round="3" title="A run"></specviz-trace>'
        '<specviz-trace id="wrong"><script type="application/jsonl">no trace</script></specviz-trace>'
    )

    def work(base):
        with opened(f"{base}/bare.html") as (page, errors):
            page.wait_for_selector("#wrong [role=alert]")
            frame = page.wait_for_selector("specviz-trace iframe")
            assert (
                frame.get_attribute("sandbox") == "allow-scripts" and frame.get_attribute("title") == "A run"
            )
            assert round(frame.bounding_box()["height"]) == 700
            inside = frame.content_frame()
            inside.wait_for_selector(".sv .lane", state="attached")
            inside.wait_for_function("document.querySelector('.sv').svApi.where().round === 3")
            page.evaluate("document.querySelector('specviz-trace').setAttribute('round', '5')")
            page.wait_for_function(
                "document.querySelector('specviz-trace iframe').srcdoc.includes('round=5')"
            )
            inside = page.query_selector("specviz-trace iframe").content_frame()
            inside.wait_for_function("document.querySelector('.sv').svApi.where().round === 5")
            page.evaluate("document.querySelector('specviz-trace').setAttribute('round', '\"><b>')")
            page.wait_for_function(
                "!document.querySelector('specviz-trace iframe').srcdoc.includes('round=5')"
            )
            assert "<b>" not in page.evaluate(
                "document.querySelector('specviz-trace iframe').srcdoc.split('id=\"trace\"')[0]"
            )
            assert not errors, errors

    with served(folder.parents[2]) as base:
        in_browser(lambda: work(base))
