"""The rehearsal of a Space finds what would not work there."""

from __future__ import annotations

import pytest

from specviz import ROOT
from tools import space_rehearsal as space

from ..message_codes import engine_codes

README = """---
title: a
emoji: b
colorFrom: red
colorTo: green
sdk: gradio
sdk_version: 6.31.0
app_file: app.py
license: mit
---
# a
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "app.py").write_text("print('nothing')\n")
    (tmp_path / "requirements.txt").write_text("gradio>=6.31,<7  # the page\ntorch>=2\n")
    return tmp_path


def found(root, **options):
    return {row["check"]: (row["ok"], row["detail"]) for row in space.check_space(root, **options)}


def test_this_checkout_would_be_taken():
    assert all(row["ok"] for row in space.check_space(ROOT, app=False))


@pytest.mark.parametrize(
    "change, check, says",
    [
        (("sdk_version: 6.31.0\n", ""), "front matter", "lacks sdk_version"),
        (("colorTo: green", "colorTo: mauve"), "front matter", "Colours are"),
        (("app_file: app.py", "app_file: main.py"), "front matter", "a file that is there"),
        (("title: a", "title: [a"), "front matter", "no YAML"),
        (("---\ntitle", "title"), "front matter", "no front matter"),
        (("license: mit", "license: mit\npython_version: 3.10"), "front matter", "in quotes"),
        (("license: mit", "license: mit\nshort_description: " + "a" * 61), "front matter", "60 characters"),
        (("6.31.0", "5.0.0"), "requirements", "gradio 5.0.0, which requirements.txt refuses"),
    ],
)
def test_front_matter_that_a_space_refuses(checkout, change, check, says):
    (checkout / "README.md").write_text(README.replace(*change))
    ok, detail = found(checkout, app=False)[check]
    assert not ok and says in detail


def test_a_requirement_that_no_installer_reads(checkout):
    assert found(checkout, app=False)["requirements"][0]
    (checkout / "requirements.txt").write_text("gradio>>6\n")
    assert "gradio>>6" in found(checkout, app=False)["requirements"][1]


def test_a_file_too_large_for_git(checkout, monkeypatch):
    (checkout / "weights").write_bytes(b"0" * 2000)
    assert found(checkout, app=False)["file sizes"][0]
    monkeypatch.setattr(space, "LARGEST", 1000)
    assert "weights " in found(checkout, app=False)["file sizes"][1]


def test_an_app_that_answers_and_one_that_does_not(checkout, monkeypatch):
    monkeypatch.setattr(space, "PATIENCE", 20.0)
    assert not found(checkout)["app"][0] and "space.no_answer" in engine_codes(found(checkout)["app"][1])
    (checkout / "app.py").write_text(
        "import http.server, os\nclass H(http.server.BaseHTTPRequestHandler):\n    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers()\n"
        "        self.wfile.write(b'gradio' if os.environ['SPACE_ID'] else b'')\n"
        "http.server.HTTPServer(('127.0.0.1', int(os.environ['GRADIO_SERVER_PORT'])), H).serve_forever()\n"
    )
    ok, detail = found(checkout)["app"]
    assert ok, detail


@pytest.mark.soak
def test_the_page_itself_answers_as_a_space():
    assert space.check_app_answers(ROOT)  # raises where the page does not come
