"""A config.json names no code that runs: attention and experts are those of transformers, whatever kernel
of the hub it asks for."""

from __future__ import annotations

import ast
import json

import pytest

from specviz import ROOT
from specviz.models.pretrained import load_causal, open_network

from ..targets.test_hf import checkpoint

ASKED = (
    "org/kernels",
    "org/kernels@v1",
    "org/kernels:attend",
    "paged|org/kernels",
    "flash_attention_2",
    "flex_attention",
    {"": "org/kernels"},
    {"text_config": "org/kernels"},
)


@pytest.mark.parametrize(
    "key",
    [
        "_attn_implementation",
        "attn_implementation",
        "_experts_implementation",
        "experts_implementation",
        "_attn_implementation_internal",
        "kernel_config",
        "use_kernels",
    ],
)
def test_no_kernel_of_the_hub_is_asked_for(tmp_path, monkeypatch, key):
    def refuse(*_, **__):
        pytest.fail("a kernel was asked for")

    monkeypatch.setattr(
        "transformers.modeling_utils.is_kernel", lambda name: "/" in (name or "") and refuse()
    )
    monkeypatch.setattr("transformers.modeling_utils.lazy_import_flash_attention", refuse)
    folder = checkpoint(tmp_path / "m", "gpt2")
    given = json.loads((folder / "config.json").read_text())
    for asked in ASKED:
        (folder / "config.json").write_text(json.dumps(given | {key: asked}))
        for net in (load_causal("m", str(folder), None), open_network(folder, None)):
            assert net.config._attn_implementation in ("sdpa", "eager") and not getattr(
                net, "_use_kernels", False
            )


def test_every_network_of_transformers_is_opened_with_our_configuration():
    odd = []
    for file in (ROOT / "specviz").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("from_pretrained", "from_config")
            ):
                words = ast.unparse(node.func.value)
                if (
                    "Tokenizer" in words
                    or words == "words"
                    or "Config" in words
                    and file.name == "pretrained.py"
                ):
                    continue
                if node.func.attr == "from_pretrained" and not any(
                    key.arg == "config" for key in node.keywords
                ):
                    odd.append(f"{file.name}: {words}")
    assert not odd
