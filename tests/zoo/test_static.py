"""The forward of fixed shapes by name, and what a trace and a certificate say about it."""

from __future__ import annotations

import json

import pytest
import torch

from specviz import zoo
from specviz.cli.commands import main
from specviz.evidence import certificate, whole_answers
from specviz.run.session import Session
from specviz.targets.static_shapes import StaticModel
from specviz.zoo.backends import FORWARDS

from .checkpoints import register


@pytest.fixture
def static(tmp_path, monkeypatch):
    """The tiny pair with `backend: static` on both."""
    book = register(tmp_path)
    lines = book.read_text().replace("  hf: ['*']", "  static: [llama]\n  hf: ['*']")
    lines = lines.replace(
        "{path: target, draft: tiny-draft}", "{path: target, draft: tiny-draft, backend: static}"
    )
    book.write_text(
        lines.replace("{path: draft, role: draft}", "{path: draft, role: draft, backend: static}")
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(book))
    yield
    zoo.forget()


def test_an_entry_chooses_it_and_the_header_tells(static):
    loaded = zoo.load()
    assert isinstance(loaded.model, StaticModel) and isinstance(loaded.draft, StaticModel)
    assert loaded.facts["target"]["backend"] == "static" and loaded.facts["target"]["forward"] == "static"
    events = list(Session(loaded, "draft_tree", {"nodes": 12}).run("abc", 12))
    assert events[0].header["target"]["forward"] == "static"
    assert type(events[-1]).__name__ == "Finished"


def test_a_run_takes_the_bucket_of_its_largest_tree(static):
    loaded = zoo.load()
    for method, knobs, bucket in (
        ("draft_tree", {"nodes": 12}, 16),
        ("speculative", {"gamma": 3}, 4),
        ("autoregressive", {}, 1),
    ):
        run = Session(loaded, method, knobs).open("abc", 12)
        for _ in range(6):
            next(run.events)
        assert run.kit.target.bucket == bucket, method
        run.events.close()


def test_the_certificate_says_which_forward_it_is_about(static, capsys, monkeypatch):
    for of, test in (
        (certificate, "distribution"),
        (whole_answers, "certify_with_small_target"),
    ):  # long, and not asked here
        monkeypatch.setattr(of, test, lambda loaded, key, knobs=None: {"status": "pass", "detail": ""})
    monkeypatch.setattr(certificate, "PROMPTS", certificate.PROMPTS[:1])
    assert main(["verify", "--method", "speculative", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert (
        row["forward"] == "static, float32, every pass in one bucket of 64 rows"
        and row["greedy"] == "identical"
    )


def test_the_eager_forward_is_named_too(at_home, capsys):
    loaded = zoo.load()
    assert loaded.forward == "eager" and loaded.facts["target"]["forward"] == "eager"


def test_on_cuda_the_fast_forward_has_fixed_shapes_but_not_where_it_is_lent_call_by_call(tiny, monkeypatch):
    made = []
    monkeypatch.setattr(
        "specviz.targets.static_shapes.StaticModel", lambda folder, device: made.append("static")
    )
    monkeypatch.setattr("specviz.targets.fast.FastModel", lambda folder, device: made.append("eager"))
    load = FORWARDS["fast"].load
    load(tiny / "target", torch.device("cuda"))
    load(tiny / "target", torch.device("cpu"))
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    load(tiny / "target", torch.device("cuda"))
    assert made == ["static", "eager", "eager"]
