"""``specviz serve`` in a process of its own, an OpenAI client of it, and the page's server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from ..ui.conftest import _server, backend, free_port, pytest_pyfunc_call, server, visit

__all__ = ["_server", "backend", "pytest_pyfunc_call", "server", "visit"]

SERVE = (sys.executable, "-m", "specviz", "serve", "--json")
ORIGIN = "http://localhost:3000"  # a page whose scripts may read the endpoint's answers


@pytest.fixture(scope="module")
def url(tiny, tmp_path_factory):
    """``specviz serve`` in a process of its own, with a key, on the tiny pair and on one whose chat
    template reads tools."""
    port, home = free_port(), tmp_path_factory.mktemp("served") / "zoo"
    shutil.copytree(tiny, home)
    shutil.copytree(tiny / "target", home / "tools")
    template = (home / "tools" / "chat_template.jinja").read_text()
    (home / "tools" / "chat_template.jinja").write_text(
        "{% if tools %}<tool_call>{{ tools[0].function.name }}{% endif %}" + template
    )
    with (home / "models.yaml").open("a") as register:
        register.write("  tools: {path: tools, draft: tiny-draft}\n")
        register.write(f"  far: {{hub: org/far, revision: '{'0' * 40}'}}\n")
    config = home / "tools" / "config.json"  # a schema in the prompt takes some hundred tokens
    config.write_text(
        config.read_text().replace('"max_position_embeddings": 256', '"max_position_embeddings": 4096')
    )
    environment = {**os.environ, "SPECVIZ_MODELS": str(home / "models.yaml")}
    process = subprocess.Popen(
        [*SERVE, "--port", str(port), "--key", "secret", "--allow-origin", ORIGIN],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def client(url):
    openai = pytest.importorskip("openai")
    return openai.OpenAI(base_url=url, api_key="secret", max_retries=0)
