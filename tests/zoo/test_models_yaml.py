"""Every field of models.yaml is checked in one place: a value of the wrong kind is one sentence with its
line, never a traceback later."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from specviz import ROOT, ZooError
from specviz.checkpoints.quantised import PACKAGES
from specviz.zoo import registry
from specviz.zoo.backends import FORWARDS
from specviz.zoo.machine_memory import BITS
from specviz.zoo.registry import register

from ..message_codes import refuses

FIELDS = [
    "path",
    "draft",
    "middle",
    "role",
    "for",
    "kind",
    "backend",
    "about",
    "nature",
    "languages",
    "licence",
    "size",
    "memory",
    "gated",
    "device_map",
    "quantise",
    "package",
]
HUB = {"hub": "org/name", "revision": "0" * 40}


def book(tmp_path, **tops):
    path = tmp_path / "models.yaml"
    path.write_text(
        json.dumps({"default": "t", "backends": {"fast": ["llama"]}, "models": {"t": {"path": "t"}}} | tops)
    )
    return path


@pytest.mark.parametrize(
    "field, value",
    [
        ("memory", "lots"),
        ("memory", "-1"),
        ("memory", "nan"),
        ("memory", "inf"),
        ("memory", 0),
        ("memory", "1 GB"),
        ("gated", "perhaps"),
        ("device_map", "cuda:7"),
        ("quantise", "ao-int3"),
        ("backend", "warp"),
        ("draft", "t\u0000"),
        ("about", "\u202eback"),
        ("size", "x" * 2000),
        ("draft", "nobody"),
        ("middle", "nobody"),
        ("role", "boss"),
        ("kind", "eagle"),
        ("path", "\u0000"),
        ("path", "x" * 300),
        ("path", "~nobodyhere/x"),
        ("licence", "\u001b[2J"),
    ],
)
def test_a_value_of_the_wrong_kind_is_one_sentence(tmp_path, field, value):
    with refuses(ZooError, "models_yaml.entry", "1") as refused:
        register(book(tmp_path, models={"t": {"path": "t"}, "m": {"path": "t", field: value}}))
    assert len(str(refused.value)) < 400 and str(refused.value).isprintable()


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [[], {}, ["a"], {"a": "b"}, None, ""], ids=repr)
def test_a_field_that_is_no_text_is_one_sentence(tmp_path, field, value):
    if value is None:
        value = []  # JSON's null is the text "null" in YAML's nodes
    with refuses(ZooError, "models_yaml.entry", "1"):
        register(book(tmp_path, models={"t": {"path": "t"}, "m": {"path": "t", field: value}}))


@pytest.mark.parametrize(
    "top, value",
    [
        ("default", []),
        ("default", "nobody"),
        ("default", "head"),
        ("backends", []),
        ("backends", {"fast": "llama"}),
        ("backends", {"warp": ["llama"]}),
        ("backends", {"fast": [[]]}),
        ("models", []),
        ("models", {"t": "path"}),
        ("models", {"a\u0007": {"path": "t"}}),
        ("models", {"n" * 200: {"path": "t"}}),
        ("stores", []),
        ("stores", {"text": []}),
        ("stores", {"text": {"nobody": "x"}}),
        ("stores", {"text": "~nobodyhere/x"}),
        ("stores", {"text": "x" * 300}),
        ("servers", {"s": "x"}),
        ("odd", {}),
        ("servers", {"s": {"engine": "vllm", "url": "http://h", "key": "not a variable"}}),
        ("servers", {"s": {"engine": "warp", "url": "http://h"}}),
        ("servers", {"s": {"engine": "vllm", "url": "lots"}}),
        ("servers", {"s": {"engine": "vllm", "url": "http://a:b@h"}}),
    ],
)
def test_a_top_level_value_of_the_wrong_kind_is_one_sentence(tmp_path, top, value):
    models = {"t": {"path": "t"}, "head": {"path": "h", "role": "head", "for": "t", "kind": "eagle"}}
    with refuses(ZooError, "models_yaml.entry", "1") as refused:
        register(book(tmp_path, **({"models": models} | {top: value})))
    assert "a:b@" not in str(refused.value)


def test_roles_that_do_not_fit_are_one_sentence(tmp_path):
    head = {"path": "h", "role": "head", "for": "t", "kind": "eagle"}
    for wrong in (
        {"t": {"path": "t", "draft": "h"}, "h": head},
        {"t": {"path": "t"}, "d": {"path": "d", "role": "draft"}, "h": head | {"for": "d"}},
        {"t": {"path": "t", "middle": "d"}, "d": {"path": "d", "role": "draft"}},
        {"t": {"path": "t"}, "h": head | {"kind": "warp"}},
        {"t": {"path": "t"}, "d": {"path": "d", "role": "draft", "for": "t", "kind": "eagle"}},
    ):
        with refuses(ZooError, "models_yaml.entry", "1"):
            register(book(tmp_path, models=wrong))


def test_the_names_that_need_no_torch_are_those_of_the_modules_that_do():
    assert registry.FORWARDS == tuple(FORWARDS) and registry.QUANTISED == tuple(PACKAGES) == tuple(BITS)


def test_a_file_nested_without_end_is_one_sentence(tmp_path):
    (tmp_path / "models.yaml").write_text("models: " + "[" * 50_000)
    with pytest.raises(ZooError):
        register(tmp_path / "models.yaml")


@pytest.mark.thorough
def test_commands_end_with_one_sentence_and_the_page_opens(tmp_path):
    path = book(tmp_path, models={"t": {"path": "t", "memory": "lots"}})
    env = {"PATH": "", "SPECVIZ_MODELS": str(path)}
    done = subprocess.run(
        [sys.executable, "-m", "specviz", "list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
    )
    assert (
        done.returncode == 1
        and "Traceback" not in done.stderr
        and " t" in done.stderr
        and "memory" in done.stderr
    ), done.stderr
    page = "from specviz.engine import Engine; from specviz.ui import build_app; build_app(Engine(None, None)); print('page')"  # the page opens without models
    done = subprocess.run(
        [sys.executable, "-c", page], cwd=ROOT, capture_output=True, text=True, env=env, timeout=120
    )
    assert done.stdout.endswith("page\n"), done.stderr
