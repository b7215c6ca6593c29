"""Servers are named by their owner, in a file, the environment or the command line; a visitor names what
there is."""

from __future__ import annotations

import json

import pytest

from specviz.cli import commands as cli
from specviz.servers.configured import find_server, servers
from specviz.servers.http_client import ServerError
from specviz.servers.messages import TEXTS
from specviz.trace.files import Trace
from specviz.zoo.registry import ZooError, register

from ..message_codes import codes, command_codes, refuses
from .fake import Fake
from .test_stream import answers

BOOK = "default: a\nbackends: {hf: ['*']}\nmodels:\n  a: {path: a}\nservers:\n"


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.delenv("SPECVIZ_SERVERS", raising=False)

    def write(text):
        (tmp_path / "models.yaml").write_text(BOOK + text)
        monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))

    return write


def test_the_file_and_the_environment_name_them(book, monkeypatch):
    book("  house: {engine: vllm, url: 'http://10.0.0.1:8000/', model: q, key: HOUSE}\n")
    monkeypatch.setenv("SPECVIZ_SERVERS", "llamacpp=http://127.0.0.1:1, llamacpp=https://x/y#m")
    found = servers()
    assert [(s.name, s.engine, s.url, s.model) for s in found.values()] == [
        ("house", "vllm", "http://10.0.0.1:8000", "q"),
        ("llamacpp", "llamacpp", "http://127.0.0.1:1", ""),
        ("llamacpp 2", "llamacpp", "https://x/y", "m"),
    ]
    monkeypatch.setenv("HOUSE", "k")
    assert (
        found["house"].secret() == "k"
        and find_server("house").name == "house"
        and find_server("sglang=http://z#m").model == "m"
    )


@pytest.mark.parametrize(
    "text, says",
    [
        ("  x: {engine: tgi, url: 'http://x'}", "vllm"),
        ("  x: {engine: vllm}", "url"),
        ("  x: {engine: vllm, url: 'http://x', token: abc}", "token"),
        ("  '<b>': {engine: vllm, url: 'http://x'}", "40"),
    ],
)
def test_a_slip_in_the_file_names_its_line(book, text, says):
    book(text + "\n")
    with refuses(ZooError, "models_yaml.entry", "line 6", says):
        register()


@pytest.mark.parametrize("asked", ["nobody", "vllm=ftp://x", "tgi=http://x", "=http://x"])
def test_what_is_no_server_is_a_sentence(book, asked):
    book("  house: {engine: vllm, url: 'http://x'}\n")
    with pytest.raises(ServerError):
        find_server(asked)


def test_a_visitor_names_no_address(book, monkeypatch):
    """Neither the page nor a program: a lane is a key of the cards, and those are the owner's."""
    from specviz.engine.limits import Refused, read_request
    from specviz.engine.server_lanes import served_cards, server_streams

    book("  house: {engine: vllm, url: 'http://10.0.0.1:8000', model: q, key: HOUSE}\n")
    from specviz.engine.cards import cards

    known = cards() | served_cards()
    ask = read_request(known, prompt="hi", methods=["server:house", "speculative"])
    ((lane, stream),) = server_streams(ask, 5.0).items()
    assert lane == 0 and stream.server.name == "house" and stream.conversation[-1]["content"] == "hi"
    for evil in (
        "server:http://evil",
        "server:vllm=http://evil",
        "server:",
        {"method": "server:house", "knobs": {"url": "http://evil"}},
    ):
        with pytest.raises(Refused):
            read_request(known, prompt="hi", methods=[evil])
    for field in (
        "prompt",
        "system",
        "predicted",
        "target",
        "draft",
    ):  # wherever an address is written, the owner's is spoken to
        told = {"prompt": "hi", "methods": ["server:house"], field: "vllm=http://evil#m"}
        assert [one.url for one in server_streams(read_request(known, **told), 5.0).values()] == [
            "http://10.0.0.1:8000"
        ]
    for field in ("url", "server", "servers", "key"):
        with pytest.raises(TypeError):
            read_request(known, prompt="hi", methods=["server:house"], **{field: "http://evil"})
    assert "10.0.0.1" not in json.dumps([vars(card) for card in served_cards().values()], default=str)


@pytest.mark.thorough
def test_one_lane_from_the_command_line(book, tmp_path, capsys):
    book("  house: {engine: vllm, url: 'http://x'}\n")
    fake = Fake(answers())
    try:
        out = tmp_path / "run.jsonl"
        status = cli.main(
            ["run", "--server", f"vllm={fake.url}/vllm#m", "--prompt", "hi", "--trace", str(out), "--json"]
        )
        told = json.loads(capsys.readouterr().out)
        assert status == 0 and told["text"] == "One two three four five six" == Trace.load(out).text()
        assert {f["badge"] for f in told["facts"]} == {"observed", "unknown"}
        assert cli.main(["run", "--server", f"vllm={fake.url}/vllm#m", "--prompt", "hi"]) == 0
        said = capsys.readouterr()
        assert (
            said.out == told["text"] + "\n"
            and "observed: tokens 6" in said.err
            and "unknown: refused ids" in said.err
        )
        assert cli.main(["run", "--server", f"openai={fake.url}/nowhere#m", "--prompt", "hi"]) == 1
        assert "status" in codes(capsys.readouterr().err.removeprefix("specviz: ").strip(), TEXTS)
    finally:
        fake.close()
    assert cli.main(["run", "--prompt", "hi"]) == 2 and "run.method_or_server" in command_codes(
        capsys.readouterr().err
    )


def test_vllm_is_started_so_that_it_tells_each_pass(capsys):
    assert cli.main(["serve-vllm", "--json", "--tokens", "5", "--port", "8123"]) == 0
    line = json.loads(capsys.readouterr().out)["command"]
    how = json.loads(line[line.index("--speculative-config") + 1])
    assert (
        line[:2] == ["vllm", "serve"]
        and how["num_speculative_tokens"] == 5
        and how["model"].endswith("_eagle3")
    )
    assert (
        line[line.index("--per-request-spec-decode-metrics") + 1] == "detailed"
        and line[line.index("--host") + 1] == "127.0.0.1"
    )
    assert (
        cli.main(["serve-vllm", "--head", "none", "--print"]) == 0
        and "speculative" not in capsys.readouterr().out
    )


def test_a_missing_package_is_a_sentence(tmp_path, monkeypatch, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "gguf", None)
    assert cli.main(["export", "--gguf", "--out", str(tmp_path / "x.gguf")]) == 1
    assert "gguf_export.package" in command_codes(capsys.readouterr().err) and not list(tmp_path.iterdir())


def test_queries_and_keys_are_turned_head_by_head():
    """Rows i and i + size / 2 of each head become neighbours, as llama.cpp's rotary positions want them."""
    import torch

    from specviz.zoo.gguf_export import adjacent_pairs

    weight = torch.arange(12.0).repeat_interleave(3).reshape(12, 3)
    assert adjacent_pairs(weight, 2)[:, 0].tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
