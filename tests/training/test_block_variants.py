"""The recipes of DFlash's variants: they begin with DFlash's weights, learn the parts they name, resume,
and store those parts alone."""

from __future__ import annotations

import pytest
import torch
from safetensors import safe_open

from specviz.methods.trained_heads.dflare.dflare_recipe import fit_to_dflash
from specviz.models import masked_block as network
from specviz.training import masked_block
from specviz.training.recipes import module_of
from specviz.zoo.trained_heads import network_of

from .recipes import killed
from .test_block_corrections import drafted, with_drafter  # noqa: F401
from .test_features import STEPS, history, material  # noqa: F401

KINDS = ("jetspec", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("dflare", "dflash2_conv")))


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_its_parts_from_dflash_and_a_killed_run_resumes(
    material,  # noqa: F811
    drafted,  # noqa: F811
    tmp_path,
    monkeypatch,
    kind,
):
    run, places = module_of(kind).run, [tmp_path / "whole", tmp_path / "again"]
    works = [with_drafter(material, drafted, place) for place in places]
    if kind == "dflash2_conv":
        for work in works:
            module_of("dflash2").run(work)
    made = run(works[0])
    whole = history(places[0], kind)
    killed(monkeypatch, lambda: run(works[1]), 9)
    assert history(places[1], kind) == whole and len(whole) == STEPS
    assert "{" not in (made / "README.md").read_text()
    with safe_open(made / "model.safetensors", "pt") as file:
        assert all(any(part in name for part in works[0].hparams(kind)["trained"]) for name in file.keys())  # noqa: SIM118
        count = len(file.keys())
    features = masked_block.AuxStateFeatures(works[0], works[0].hparams(kind))
    head = network_of(kind).load(made, features.target_info)
    plain = network.load(works[0].model(works[0].model_name("dflash")), features.target_info).state_dict()
    own = {
        name
        for name, tensor in head.state_dict().items()
        if name not in plain or not torch.equal(tensor, plain[name])
    }
    assert len(own) == count, "what is not stored is DFlash's"


@pytest.mark.thorough
def test_dflare_begins_with_dflashs_keys_and_values(material, drafted, tmp_path):  # noqa: F811
    """The fitted projections of the text reproduce them better than one projection to their mean, in each
    layer."""
    work = with_drafter(material, drafted, tmp_path)
    features = masked_block.AuxStateFeatures(work, work.hparams("dflare"))
    model = network_of("dflare").build(features.target_info, work.hparams("dflare")).float()
    fit_to_dflash(work, model, features)
    plain = network.load(work.model(work.model_name("dflash")), features.target_info).float()
    states = features.batch(3, 0.0).captured.float()
    with torch.inference_mode():
        for i, (layer, other) in enumerate(zip(model.layers, plain.layers)):
            text = plain.text_rows(states)[i]
            want = other.self_attn.v_proj(text)
            error = layer.self_attn.v_proj_target(model.text_rows(states)[i]) - want
            assert float(error.square().mean()) < 0.5 * float((want - want.mean(0)).square().mean())
