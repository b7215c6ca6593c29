"""The real thing: llama.cpp runs the converted target, and its servers are streamed as lanes. `make
test-engines` installs what it needs; SPECVIZ_TEST_SERVER (ENGINE=URL#MODEL) adds a live vLLM, SGLang or
whatever else is up; a llama-server on the path is used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from specviz.core import Sampling
from specviz.servers.configured import parse_server
from specviz.servers.http_client import Bounds
from specviz.servers.stream import Stream
from specviz.trace.events import Checked, Finished, TextEmitted
from specviz.zoo.registry import Server, register

from ..ui.conftest import free_port

pytestmark = pytest.mark.engines
PROMPTS = [
    "Tell a story about a small fox.",
    "What is 12 + 30?",
    "Write a Python function that adds two numbers.",
    "Repeat: the cat sat on the mat 1234.",
    "It's me \u2014 na\u00efve caf\u00e9, \u65e5\u672c\u8a9e \U0001f98a\n\n  two  spaces\tTab 2026",
]
COPY = "Repeat: one two three four five, one two three four five, one two three four five."
LENGTH = 48
FLOATS = "SmolLM2-135M-Instruct-float"  # in eight bits a near-tie falls either way
F32 = 0  # ggml's number for it: keys and values unrounded
BINARY = os.environ.get("SPECVIZ_LLAMA_SERVER") or shutil.which("llama-server")


@pytest.fixture(scope="module")
def target():
    from specviz import load

    return load(FLOATS)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    from specviz.zoo.gguf_export import export

    path = tmp_path_factory.mktemp("gguf") / "target.gguf"
    export(
        register().find(FLOATS), path, "full"
    )  # in 16 bits llama.cpp rounds states too, and near-ties fall either way
    return path


def ours(target, prompt):
    from specviz import Session
    from specviz.run.result import collect

    return collect(Session(target, "autoregressive").run(prompt, LENGTH))


@pytest.fixture(scope="module")
def started():
    """``started(command, port)``: a server's address once it answers."""
    running = []

    def start(command, port):
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
                    if json.loads(answer.read())["data"]:
                        return f"http://127.0.0.1:{port}"
            except OSError:
                assert running[-1].poll() is None, "the server ended"
                threading.Event().wait(0.2)
        raise AssertionError("the server did not answer")

    yield start
    for one in running:
        one.terminate()
        one.wait(20)


def lane(server, prompt, length=LENGTH):
    """(text, facts, the last event)."""
    asked = [{"role": "user", "content": prompt}]
    events = list(Stream(server, asked, length, Sampling(), 120.0, Bounds(begin=60.0)).events())
    told = next(e.detail for e in events if isinstance(e, Checked))
    assert isinstance(events[-1], Finished) and not told["doubts"], (events[-1], told)
    text = b"".join(piece[1] for e in events if isinstance(e, TextEmitted) for piece in e.pieces).decode()
    return text, {f["name"]: (f["badge"], f["value"]) for f in told["facts"]}


def test_greedy_tokens_through_llama_cpp_are_ours(target, file):
    from llama_cpp import Llama

    model = Llama(
        str(file), n_ctx=1024, n_threads=1, n_threads_batch=1, type_k=F32, type_v=F32, verbose=False
    )
    for prompt in [*PROMPTS, COPY]:
        assert model.tokenize(prompt.encode(), add_bos=False, special=False) == target.tokenizer.encode(
            prompt, add_special_tokens=False
        )
        run, out = ours(target, prompt), []
        for token in model.generate(run.prompt_ids, temp=0.0, repeat_penalty=1.0):
            out.append(token)
            if token in target.end_tokens or len(out) == LENGTH:
                break
        assert out == run.token_ids


@pytest.mark.parametrize(
    "speculation", [(), ("--draft_model", "prompt-lookup-decoding")], ids=["plain", "lookup"]
)
def test_llama_cpp_pythons_server_writes_our_text(target, file, started, speculation):
    port = free_port()
    url = started(
        [
            sys.executable,
            "-m",
            "llama_cpp.server",
            "--model",
            str(file),
            "--n_ctx",
            "1024",
            "--n_threads",
            "1",
            "--type_k",
            str(F32),
            "--type_v",
            str(F32),
            "--port",
            str(port),
            *speculation,
        ],
        port,
    )
    for prompt in (PROMPTS[3], COPY):
        text, facts = lane(Server("llama", "llamacpp", url), prompt)
        assert text == ours(target, prompt).text
        assert facts["drafted"] == facts["refused_ids"] == ("unknown", None)  # it tells nothing of its drafts


@pytest.mark.skipif(not BINARY, reason="no llama-server on the path, and SPECVIZ_LLAMA_SERVER names none")
def test_llama_servers_drafts_are_observed(target, file, started):
    port = free_port()
    url = started(
        [
            BINARY,
            "-m",
            str(file),
            "-c",
            "1024",
            "-t",
            "1",
            "--port",
            str(port),
            "--jinja",
            "--metrics",
            "--no-webui",
            "-ctk",
            "f32",
            "-ctv",
            "f32",
            "--spec-type",
            "ngram-simple",
            "--spec-ngram-simple-size-n",
            "3",
            "--spec-ngram-simple-size-m",
            "8",
        ],
        port,
    )
    text, facts = lane(Server("llama", "llamacpp", url), COPY)
    assert text == ours(target, COPY).text
    assert facts["drafted"][0] == facts["accepted"][0] == facts["passes"][0] == "observed" and facts[
        "refused_ids"
    ] == ("unknown", None)
    assert facts["drafted"][1] >= facts["accepted"][1] > 0 and facts["accepted_length"][1] > 1


def test_the_benchmark_has_its_row(target):
    from specviz.evidence.benchmark import bench

    report = bench(
        target,
        ["autoregressive"],
        tasks=["story"],
        prompts=1,
        repeats=1,
        max_new_tokens=16,
        reference=True,
        quiet=True,
    )
    mine = [row for row in report["rows"] if row["method"] == "llama_cpp"]
    assert mine and all(row["same_tokens"] == 1 and row["tokens_per_second"] > 0 for row in mine)


@pytest.mark.skipif(
    not os.environ.get("SPECVIZ_TEST_SERVER"), reason="SPECVIZ_TEST_SERVER names no live server"
)
def test_a_live_server(target):
    server = parse_server(os.environ["SPECVIZ_TEST_SERVER"])
    text, facts = lane(server, "Count from one to twenty.", 96)
    assert text.strip() and facts["tokens"][0] == "observed" and facts["refused_ids"] == ("unknown", None)
    if server.engine in ("vllm", "sglang"):
        assert facts["token_ids"][0] == "observed" and facts["passes"][0] in ("observed", "inferred")
