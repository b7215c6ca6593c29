"""``app.py`` as it is started: no torch before somebody wants a run, the address from the environment, the
real pair."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from specviz import ROOT
from specviz.engine.messages import TEXTS

from ..message_codes import codes
from .conftest import Server, free_port
from .test_page import open_fields, painted, run, state, text

FIRST_LOAD = """
import sys, threading
import app
from specviz.ui import launch
_, url, _ = launch(app.demo, server_port=int(sys.argv[1]), prevent_thread_lock=True, quiet=True)
print("up", flush=True)
sys.stdin.readline()
print(sorted({"torch", "transformers", "safetensors"} & set(sys.modules)), flush=True)
"""


def test_arguments_are_refused_and_not_passed_over():
    ended = subprocess.run(
        [sys.executable, "app.py", "--port", "7971"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (
        ended.returncode == 1
        and "'--port'" in ended.stderr
        and "GRADIO_SERVER_PORT" in ended.stderr
        and not ended.stdout
    )


@pytest.mark.thorough
def test_the_first_load_moves_without_torch(visit):
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-c", FIRST_LOAD, str(port)],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as app:
        try:
            assert app.stdout.readline() == "up\n"
            page = visit(url=f"http://127.0.0.1:{port}/", moving=True)
            state(page, "done")
            clock = "document.querySelector('#board .transport .where').textContent"
            page.wait_for_function(f"old => {clock} !== old", arg=page.evaluate(clock))
            page.close()  # before the server goes, which it does once it has answered
            app.stdin.write("\n")
            app.stdin.flush()
            assert app.stdout.readline() == "[]\n"
        finally:
            app.kill()


def _hear_interrupts():
    """A shell starts its background jobs deaf to SIGINT, and what they start inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.thorough
def test_app_py_listens_where_the_environment_says_and_ends_on_request():
    port = free_port()
    env = os.environ | {"GRADIO_SERVER_NAME": "127.0.0.1", "GRADIO_SERVER_PORT": str(port)}
    with subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_hear_interrupts,
    ) as app:
        try:
            said = ""
            while f":{port}" not in said:
                line = app.stdout.readline()
                assert line, said
                said += line
            assert f"http://127.0.0.1:{port}" in said
            app.send_signal(signal.SIGINT)
            app.wait(timeout=60)
        finally:
            app.kill()


@pytest.fixture(scope="module")
def real():
    from specviz.engine import Engine

    engine = Engine()
    engine.load(None)  # before the browser waits: on a busy machine it takes longer than a selector's timeout
    server = Server(engine)
    yield server
    server.close()


def test_the_embedded_pair_runs_on_the_page(visit, real):
    page = visit(url=real.url)
    page.click("#tab-race")
    open_fields(page)
    page.fill("#length input", "24")
    run(page, "Tell the child-appropriate tale called `The Fox`. <b>${1+1}</b>")
    assert page.get_attribute("#board .sv", "data-lost") == "0"
    shown = painted(page)
    assert len(shown) == 3 and all(len(lane) >= 8 for lane in shown)
    assert text(page, 0) == text(page, 1) == text(page, 2)
    assert "Llama-specviz" in page.inner_text("#models")
    run(page, "And then?")
    assert page.get_attribute(".pg-chat", "data-turns") == "1"


def test_a_conversation_longer_than_the_context_is_refused(real):
    from gradio_client import Client
    from gradio_client.exceptions import AppError

    client = Client(real.url, verbose=False)
    long = [{"role": role, "content": "one two three " * 270} for role in ("user", "assistant")] * 5
    with pytest.raises(AppError, match="8197.*2048"):
        client.predict(prompt="and?", methods=["speculative"], messages=long, api_name="/run")
    with pytest.raises(AppError, match=r"\.\./\.\./x"):
        client.predict(prompt="and?", methods=["speculative"], target="../../x", api_name="/run")


def test_a_recording_can_be_made_on_a_steady_machine_only(tmp_path, capsys, monkeypatch):
    from specviz import Trace
    from tools import make_recordings
    from tools.make_recordings import main

    out = tmp_path / "sub" / "x.jsonl"
    asked = ["--out", str(out), "--methods", "speculative", "--max-new-tokens", "8"]
    monkeypatch.setattr(make_recordings, "unsteady_lanes", lambda records: ["speculative"])
    assert main(asked) == 1 and not out.exists()
    assert "recording.unsteady" in codes(capsys.readouterr().err.strip(), TEXTS)
    monkeypatch.setattr(make_recordings, "unsteady_lanes", lambda records: [])
    assert main(asked) == 0
    trace = Trace.load(out)
    assert trace.header(0)["mode"] == "recorded" and len(trace.lanes) == 2
    assert trace.header(0)["baseline_run_id"] == trace.header(1)["run_id"]
    assert main(["--out", str(out), "--methods", "nope"]) == 1
    assert "field.method" in codes(capsys.readouterr().err.strip(), TEXTS)


@pytest.mark.thorough
def test_a_malformed_models_file_is_a_sentence_on_the_page(visit, tmp_path, monkeypatch):
    from specviz.engine import Engine

    broken = tmp_path / "models.yaml"
    broken.write_text("default: x\nmodels: [1, 2\n")
    monkeypatch.setenv("SPECVIZ_MODELS", str(broken))
    server = Server(Engine())
    try:
        page = visit(url=server.url)
        records = page.get_attribute("#board .sv", "data-records")
        page.fill("#prompt textarea", "hello")
        page.click("#run")
        state(page, "error")
        assert "models.yaml, line" in page.inner_text("#board .notice")
        assert page.get_attribute("#board .sv", "data-records") == records
        page.close()
    finally:
        server.close()
