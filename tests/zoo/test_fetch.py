"""What is fetched from the hub, on a server that stands in for it: sizes, a connection that breaks, and
what goes on after it."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from hashlib import sha256

import pytest

from specviz import ROOT, zoo
from specviz.engine import choices
from specviz.engine.engine import Engine
from specviz.engine.messages import text
from specviz.methods import catalogue
from specviz.zoo import machine_memory, registry
from specviz.zoo.registry import Entry, register
from specviz.zoo.trained_heads import needed

from .checkpoints import write

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.ThreadingHTTPServer):
    """One model under o/n, its files by name; ``breaks``: bytes of its weights after which the connection
    is cut, 0 for never."""

    def __init__(self, files: dict[str, bytes]):
        super().__init__(("127.0.0.1", 0), Files)
        self.files = files
        self.breaks = 0
        self.asked = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Files(http.server.BaseHTTPRequestHandler):
    def log_message(self, *answer):
        """Nothing to the terminal."""

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body: bool) -> None:
        hub, path = self.server, self.path.partition("?")[0]
        name = path.rpartition("/")[2]
        if path.startswith("/api/models/"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": sha256(data).hexdigest()}
                for name, data in hub.files.items()
            ]
            answer = (
                tree
                if "/tree/" in path
                else {
                    "id": "o/n",
                    "modelId": "o/n",
                    "sha": COMMIT,
                    "siblings": [{"rfilename": name} for name in hub.files],
                }
            )
            return self.send({"Content-Type": "application/json"}, json.dumps(answer).encode(), body)
        if name not in hub.files:
            return self.send_error(404)
        data, span = hub.files[name], self.headers.get("Range")
        first = int(span.removeprefix("bytes=").partition("-")[0]) if span else 0
        about = {"ETag": f'"{sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if first:
            about["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        if body:
            hub.asked.append((name, first))
        self.send(
            about,
            data[first:],
            body,
            206 if first else 200,
            hub.breaks if name.endswith(".safetensors") else 0,
        )

    def send(
        self, about: dict[str, str], data: bytes, body: bool, status: int = 200, breaks: int = 0
    ) -> None:
        self.send_response(status)
        for name, value in {**about, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data[:breaks] if breaks else data)
        if breaks:
            self.close_connection = True


def fetch(hub: Hub, cache) -> str:
    """The entry's folder or the sentence of its refusal, as another process says it: the client reads its
    settings once."""
    work = f"from specviz.zoo.registry import Entry, ZooError\ntry:\n    print(Entry('n', hub='o/n', revision='{COMMIT}').folder())\n"
    work += "except ZooError as why:\n    print(why)\n"
    environment = os.environ | {
        "HF_ENDPOINT": hub.address,
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
        "TRANSFORMERS_OFFLINE": "0",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, "-c", work], env=environment, capture_output=True, text=True, timeout=60
    ).stdout.strip()


@pytest.mark.thorough
def test_a_download_that_breaks_goes_on_where_it_stopped(tmp_path):
    weights = bytes(range(256)) * 60000  # 15 MB: the client keeps what came in pieces of ten
    hub = Hub({"config.json": b"{}", "model.safetensors": weights})
    hub.breaks = 12 * 10**6
    try:
        folder = fetch(hub, tmp_path)
    finally:
        hub.shutdown()
    assert folder.endswith(COMMIT), folder
    first, *later = [at for name, at in hub.asked if name == "model.safetensors"]
    assert first == 0 and later and min(later) > 10**7, "from the start again"
    assert (tmp_path / "models--o--n" / "snapshots" / COMMIT / "model.safetensors").read_bytes() == weights


@pytest.fixture
def book(tmp_path, monkeypatch):
    """models.yaml with a model of the hub, its draft and a head, none of which is here; asking for more
    than a config.json fails."""
    write(tmp_path / "target", tokenizer=False)
    about = f"revision: {COMMIT}, licence: MIT, about: A model."
    lines = [
        "default: first",
        "backends: {fast: [llama], hf: ['*']}",
        "models:",
        "  first: {path: target}",
        f"  large: {{hub: o/large, draft: small, memory: 16, size: 8 B, {about}}}",
        f"  small: {{hub: o/small, memory: 1, {about}}}",
        f"  crown: {{hub: o/crown, role: head, for: large, kind: medusa, memory: 3, {about}}}",
    ]
    (tmp_path / "models.yaml").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    monkeypatch.setattr(registry, "local_files", lambda entry: None)
    for user in ("trained_heads", "pair"):
        monkeypatch.setattr(f"specviz.zoo.{user}.local_files", lambda entry: None)
    monkeypatch.setattr(
        "huggingface_hub.hf_hub_download", lambda *_, **__: str(tmp_path / "target" / "config.json")
    )
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("weights were fetched")
    )
    return register()


def test_what_a_model_could_run_is_asked_without_its_weights(book):
    unsupported_reason, methods = zoo.survey("large"), catalogue()
    assert (
        unsupported_reason(methods["medusa"]) is None and unsupported_reason(methods["speculative"]) is None
    )
    assert needed("eagle", "large", {}) in unsupported_reason(methods["eagle"])


@pytest.mark.parametrize(
    "cards, memory, large",
    [((), 8e9, True), ((), 64e9, False), ((24e9,), 8e9, False), ((8e9, 8e9), 64e9, True)],
)
def test_the_page_offers_first_what_fits_and_says_what_does_not(book, monkeypatch, cards, memory, large):
    monkeypatch.setattr(machine_memory, "gpu_memory", lambda: tuple(map(int, cards)))
    monkeypatch.setattr(machine_memory, "main_memory", lambda: int(memory))
    monkeypatch.setattr(
        choices, "_expected", lambda entry: ""
    )  # what speed it would have is another test's (test_expected_speed.py)
    cards_shown = {card["model"]: card for card in Engine().targets()}
    assert list(cards_shown) == (["first", "small", "large"] if large else ["first", "large", "small"])
    assert (
        cards_shown["large"]["title"].startswith("large, 8 B, 16 GB")
        and (cards_shown["large"]["title"].count(",") == 3) == large
    )
    assert ("large" in cards_shown["large"]) == large and "large" not in cards_shown["small"]
    monkeypatch.setenv("SPACES_ZERO_GPU", "1")
    assert "large" not in choices.target_choice(book.entries["large"], "first"), (
        "the page does not judge memory where a GPU is attached per call"
    )


def test_progress_counts_all_that_is_fetched_with_a_model(book, monkeypatch):
    monkeypatch.setattr(
        "specviz.engine.engine.bytes_fetched",
        {"o/large": 4_000_000_000, "o/small": 1_000_000_000, "o/crown": 0}.__getitem__,
    )
    assert Engine().progress("large") == text("models.progress", here=5000, whole=20000, share=0.25)
    assert Engine().progress(None) == "" == Engine().progress("nobody")


def test_the_driver_says_how_large_a_card_is(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nprintf '81559, Card A\\n24576, Card B, 2\\n'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine_memory.gpus.cache_clear()
    try:
        assert machine_memory.gpus() == (("Card A", 81559 * 2**20), ("Card B, 2", 24576 * 2**20))
        assert machine_memory.gpu_memory() == (81559 * 2**20, 24576 * 2**20)
        assert machine_memory.too_large_message(Entry("a", memory="70", device_map="auto")) == ""
        assert re.search(r"99\.0.*85\.5", machine_memory.too_large_message(Entry("a", memory="90")))
    finally:
        machine_memory.gpus.cache_clear()
