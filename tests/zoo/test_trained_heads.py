"""Heads by name: found for their target, read once, shared; every reason not to use them is one sentence,
before anything is loaded."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz import ROOT as HERE
from specviz import load, zoo
from specviz.core.needs import missing_reason
from specviz.methods import catalogue, draft_kinds, head_kinds, trained_parts
from specviz.models.linear import PlainLinear
from specviz.run.result import collect
from specviz.run.session import Session
from specviz.training.recipes import sections
from specviz.zoo import survey
from specviz.zoo.registry import ZooError, register
from specviz.zoo.trained_drafts import missing_draft_message as needed_draft

from ..message_codes import engine_codes, refuses
from ..models import tiny
from .checkpoints import register as tiny_pair
from .checkpoints import write

NOT_YET: set[str] = {
    "pard2",
}  # tried and not shipped, or not tried: docs/log/2026-11/models.md
BY_KIND = {
    need[5:]: method
    for method in catalogue().values()
    for need in method.needs
    if need.startswith("head:") and "store:text" not in method.needs and method.key != "test_time"
}  # this home has no datastore; Test-Time Speculation names another method's heads


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The tiny pair of tests/session with a random head of every kind, in models.yaml for the target
    ``tiny``."""
    lines = [
        f"  tiny-{kind}: {{path: heads/{kind}, role: head, for: tiny, kind: {kind}}}" for kind in head_kinds()
    ]
    monkeypatch.setenv("SPECVIZ_MODELS", str(tiny_pair(tmp_path, heads="\n".join(lines))))
    zoo.forget()
    on = tiny.body(load().open_target())
    for kind in head_kinds():
        made = tiny.head(kind, on)
        folder = tmp_path / "heads" / kind
        folder.mkdir(parents=True)
        save_file(
            {key: tensor.clone() for key, tensor in made.state_dict().items()}, folder / "model.safetensors"
        )
        (folder / "config.json").write_text(json.dumps(made.config))
    yield tmp_path
    zoo.forget()


def both(kind):
    """The sentence, from loading and from the survey, which must agree."""
    loaded, method = load(), BY_KIND[kind]
    reason = loaded.unsupported_reason(method)
    assert survey()(method) == reason
    if reason is not None:
        assert reason.endswith(".") and "\n" not in reason and f"specviz.training {kind}" in reason
        with pytest.raises(ZooError, match="needs"):
            loaded.kit().head(kind)
    return reason


def test_every_kind_runs_and_its_weights_are_shared(home):
    loaded = load()
    assert loaded.heads.capabilities == tiny.PROVIDED <= loaded.capabilities
    plain = collect(Session(loaded, "autoregressive").run("the cat", 12))
    for kind, method in BY_KIND.items():
        assert both(kind) is None
        assert loaded.kit().head(kind) is load().kit().head(kind)
        if method.exactness == "exact":
            assert collect(Session(loaded, method.key).run("the cat", 12)).token_ids == plain.token_ids
    assert load(str(home / "target")).heads.capabilities == tiny.PROVIDED, (
        "a target is known by its folder too"
    )
    assert load("tiny-draft").heads.capabilities == frozenset()


def test_no_clock_chooses_how_heads_are_stored_where_none_may(home, monkeypatch):
    measured = []
    monkeypatch.setattr("specviz.models.eagle_layers.SMALL", 0)
    monkeypatch.setattr(
        "specviz.models.linear._measure",
        lambda weights, budget: (
            measured.append(1) or {tuple(w.shape): {PlainLinear: {1: 1.0, 8: 1.0}} for w in weights}
        ),
    )
    for deterministic in (True, False):
        kit = load(deterministic=deterministic).kit()
        before = len(measured)
        kernels = {
            part.fused.kernel
            for kind in head_kinds()
            for part in kit.head(kind).modules()
            if hasattr(getattr(part, "fused", None), "kernel")
        }
        assert (
            kernels == ({"transposed"} if deterministic else {"plain"})
            and (len(measured) > before) != deterministic
        )


def test_heads_that_are_not_there_or_broken(home):
    config = json.loads((home / "heads/medusa/config.json").read_text())
    weights = home / "heads/medusa/model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-40])
    assert "checkpoint.cut_short" in engine_codes(both("medusa"))
    weights.write_bytes(whole)
    for change, says in (({"hidden_size": 48}, "head.states"), ({"vocab_size": 299}, "head.vocabulary")):
        (home / "heads/medusa/config.json").write_text(json.dumps(config | change))
        assert says in engine_codes(both("medusa")) and all(str(n) in both("medusa") for n in change.values())
    (home / "heads/medusa/config.json").write_text("{nonsense")
    assert "config.read" in engine_codes(both("medusa"))
    (home / "heads/medusa/config.json").unlink()
    assert "config.json" in both("medusa")
    (home / "heads/hydra/model.safetensors").rename(home / "heads/hydra/hydra_lm_head.pt")
    assert "hydra_lm_head.pt" in both("hydra") and "head.pickled" in engine_codes(both("hydra"))
    shutil.rmtree(home / "heads/eagle")
    assert both("eagle").startswith("EAGLE") and "tiny" in both("eagle")
    assert load().heads.capabilities == {
        f"head:{kind}" for kind in head_kinds() if kind not in ("medusa", "hydra", "eagle")
    }, "the others still work"


def test_a_missing_shard_is_named(home):
    folder = home / "heads/medusa"
    parts = load_file(folder / "model.safetensors")
    names = dict.fromkeys(parts, "model-00001-of-00002.safetensors")
    save_file(parts, folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    save_file({"x": torch.ones(1)}, folder / "model-00002-of-00002.safetensors")
    index.write_text(json.dumps({"weight_map": names | {"x": "model-00002-of-00002.safetensors"}}))
    assert both("medusa") is None
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "checkpoint.lacks_shard" in engine_codes(
        both("medusa")
    ) and "model-00002-of-00002.safetensors" in both("medusa")


def test_what_the_config_does_not_say_is_found_when_the_weights_are_read(home):
    folder = home / "heads/medusa"
    save_file(
        {"0.0.linear.weight": torch.ones(48, 48), "0.1.weight": torch.ones(300, 48)},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text("{}")
    with refuses(ZooError, "head.states", 48, 32, "tiny"):
        load().kit().head("medusa")


@pytest.mark.parametrize(
    "entry, says",
    [
        ("{path: h, role: head}", ("'for'", "'kind'")),
        ("{path: h, role: head, for: tiny}", ("'for'", "'kind'")),
        ("{path: h, for: tiny, kind: medusa}", ("'for'", "'kind'")),
        ("{path: h, kind: medusa}", ("'for'", "'kind'")),
        ("{path: h, role: head, for: none, kind: medusa}", ("'none'",)),
        ("{path: h, role: draft, for: tiny}", ("draft",)),
        ("{path: h, role: other_draft, for: tiny, kind: tvdpp}", ("'for'",)),
    ],
)
def test_an_entry_that_makes_no_sense(tmp_path, entry, says):
    (tmp_path / "models.yaml").write_text(
        f"default: tiny\nbackends: {{fast: [llama]}}\nmodels:\n  tiny: {{path: a}}\n  h: {entry}\n"
    )
    with refuses(ZooError, "models_yaml.entry", *says):
        register(tmp_path / "models.yaml")


def test_a_kind_that_nothing_reads(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "SPECVIZ_MODELS",
        str(tiny_pair(tmp_path, odd="  odd: {path: h, role: head, for: tiny, kind: horoscope}")),
    )
    with refuses(ZooError, "models_yaml.entry", "'horoscope'", "medusa"):
        load()


def test_a_draft_trained_in_its_own_way(tmp_path, monkeypatch):
    """By its kind and its target, whatever the target is paired with; as a draft by its name; nothing while
    it is not trained."""
    line = "  tiny-rewarded: {path: rewarded, role: draft, for: tiny, kind: tvdpp}"
    monkeypatch.setenv("SPECVIZ_MODELS", str(tiny_pair(tmp_path, more=line)))
    method = catalogue()["tvdpp"]
    zoo.forget()
    assert needed_draft("tvdpp", "tiny") in load().unsupported_reason(method) and survey()(
        method
    ) == load().unsupported_reason(method)
    with refuses(ZooError, "method.needs_draft", "tvdpp", "tiny"):
        load().kit().open("draft:tvdpp")
    write(tmp_path / "rewarded", layers=1, seed=5)
    loaded = load(draft="none")
    assert (
        loaded.unsupported_reason(method) is None
        and survey(draft="none")(method) is None
        and "draft:s2d" not in loaded.capabilities
    )
    assert (
        load(str(tmp_path / "target")).unsupported_reason(method) is None
        and "draft:tvdpp" not in load("tiny-draft", draft="none").capabilities
    )
    plain = collect(Session(loaded, "autoregressive").run("the cat", 12))
    assert collect(Session(loaded, "tvdpp").run("the cat", 12)).token_ids == plain.token_ids
    assert load(draft="tiny-rewarded").draft is loaded.model_for("draft:tvdpp")
    monkeypatch.setenv("SPECVIZ_MODELS", str(tiny_pair(tmp_path, more=line.replace("tvdpp", "horoscope"))))
    with refuses(ZooError, "models_yaml.entry", "'horoscope'", "distillspec"):
        load()
    zoo.forget()


def test_the_projects_own_drafts_are_of_known_kinds_and_each_has_a_method():
    drafts = [
        entry
        for entry in register(HERE / "models.yaml").entries.values()
        if entry.role == "draft" and entry.kind
    ]
    asked = {
        need.removeprefix("draft:")
        for method in catalogue().values()
        for need in method.needs
        if need.startswith("draft:")
    }
    assert {entry.kind for entry in drafts} <= set(draft_kinds()) and asked == set(
        draft_kinds()
    )  # a new one has no weights yet


def test_the_projects_own_heads_are_of_known_kinds_and_each_has_a_method():
    heads = [entry for entry in register(HERE / "models.yaml").entries.values() if entry.role == "head"]
    assert (
        {entry.kind for entry in heads} <= head_kinds().keys() == BY_KIND.keys()
    )  # a new one has no weights yet


def test_what_a_recipe_trains_for_an_embedded_target_lies_here():
    """A recipe with numbers for the chat model has weights; a new one without them has none yet."""
    here = {
        (entry.target, entry.kind) for entry in register(HERE / "models.yaml").entries.values() if entry.kind
    }
    recipes = {kind for kind in trained_parts() if "chat" in sections(kind)}
    assert (
        len(recipes) > 40 and {kind for kind in recipes if (register().default, kind) not in here} <= NOT_YET
    )


def test_a_draft_for_the_draft_model(tmp_path, monkeypatch):
    """Named by the draft's own entry; without it staged drafting is greyed out, with another vocabulary it
    is refused."""
    path = tiny_pair(tmp_path, small="  tiny-small: {path: small, role: draft}")
    path.write_text(
        path.read_text().replace(
            "{path: draft, role: draft}", "{path: draft, role: draft, draft: tiny-small}"
        )
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(path))
    method = catalogue()["staged_models"]
    zoo.forget()
    assert missing_reason("small", "tiny") in load().unsupported_reason(method) and survey()(
        method
    ) == load().unsupported_reason(method)
    with refuses(ZooError, "method.needs_draft"):
        load().kit().open("small")
    write(tmp_path / "small", layers=1, seed=5)
    loaded = load()
    assert loaded.unsupported_reason(method) is None and survey()(method) is None
    plain = collect(Session(loaded, "autoregressive").run("the cat", 12))
    assert collect(Session(loaded, "staged_models").run("the cat", 12)).token_ids == plain.token_ids
    assert "small" not in load(draft="none").capabilities
    write(tmp_path / "small", layers=1, seed=5, vocab=290)
    zoo.forget()
    with refuses(ZooError, "method.needs_draft"):  # another vocabulary: it is offered to nothing
        load().kit().open("small")
    zoo.forget()


@pytest.mark.thorough
def test_a_run_names_the_draft_that_its_method_drafts_with():
    """DistillSpec brings a draft model of its own: the trace does not name the target's."""
    loaded, methods = load(), catalogue()
    own, plain = (
        loaded.trace_facts(methods["distillspec"])["draft"],
        loaded.trace_facts(methods["speculative"])["draft"],
    )
    assert own["name"] == "SmolLM2-135M-Instruct-distillspec" != plain["name"] and own["parameters"] > 0
    zoo.forget()


def test_a_model_between_target_and_draft(tmp_path, monkeypatch):
    """Methods that want one get it, with the draft that models.yaml names for it; a draft that was asked
    for takes its place."""
    path = tiny_pair(
        tmp_path,
        small="  tiny-middle: {path: middle, draft: tiny-small}\n  tiny-small: {path: small, role: draft}",
    )
    path.write_text(
        path.read_text().replace("draft: tiny-draft", "draft: tiny-draft, middle: tiny-middle", 1)
    )
    write(tmp_path / "middle", layers=3, seed=7)
    write(tmp_path / "small", layers=1, seed=5)
    monkeypatch.setenv("SPECVIZ_MODELS", str(path))
    zoo.forget()
    method, plain = catalogue()["bild"], catalogue()["speculative"]
    loaded, asked = load(), load(draft="tiny-draft")
    names = {role: loaded.kit().open(role).name for role in ("draft", "middle", "small")}
    assert (
        names == {"draft": "tiny-draft", "middle": "middle", "small": "small"}
        and "draft" in asked.kit().open("middle").name
    )
    assert (
        loaded.trace_facts(method)["draft"]["name"] == "middle"
        and loaded.trace_facts(plain)["draft"]["name"] == "tiny-draft"
    )
    assert asked.trace_facts(method)["draft"]["name"] == "tiny-draft" and "small" not in asked.capabilities
    assert (
        loaded.unsupported_reason(catalogue()["staged_models"]) is None
        and survey()(catalogue()["staged_models"]) is None
    )
    wanted = collect(Session(loaded, "autoregressive").run("the cat", 12)).token_ids
    assert collect(Session(loaded, "staged_models").run("the cat", 12)).token_ids == wanted
    zoo.forget()


def test_heads_of_another_target_are_named_where_ones_own_has_none(tmp_path, monkeypatch):
    path = tiny_pair(
        tmp_path, more="  elk: {path: elk}\n  elk-medusa: {path: heads, role: head, for: elk, kind: medusa}"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(path))
    zoo.forget()
    method = catalogue()["medusa"]
    assert "elk" not in load().unsupported_reason(method)
    (tmp_path / "heads").mkdir()
    assert " elk " in load().unsupported_reason(method) == survey()(method)
    zoo.forget()
