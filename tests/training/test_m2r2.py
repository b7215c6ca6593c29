"""The recipe of M2R2's adapters: it learns and resumes, reads the keys that the engine lends, uses them,
and keeps what its replay says."""

from __future__ import annotations

import json

import pytest
import torch

from specviz.core import Parts
from specviz.methods.trained_heads.m2r2 import m2r2_network as models
from specviz.methods.trained_heads.m2r2 import m2r2_recipe as m2r2
from specviz.methods.trained_heads.m2r2.m2r2_drafter import M2R2Chain
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains
from specviz.training.draft import collate
from specviz.training.job import TARGET, Job, TrainingError
from specviz.verifiers import TokenRejection

from ..message_codes import refuses
from ..models.tiny import body
from .recipes import learns_and_resumes, tokens_a_round, whole_numbers
from .test_features import job, material  # noqa: F401


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("trained")
    m2r2.run(job(material, place))
    return place


@pytest.fixture(scope="module")
def features(material, trained):  # noqa: F811
    work = job(material, trained)
    return whole_numbers(m2r2.ExitLayerFeatures(work, work.hparams("m2r2"), layer=1), trained)


def test_no_entropy_is_reported_of_attention_that_is_not_looked_at(trained):
    """Its queries read keys that are lent: nothing was measured, and 0 would say that it looks at one
    place."""
    told = [
        json.loads(line)
        for path in (trained / "m2r2").glob("*/measures.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert told and all(
        "block_efficiency_greedy" in line and "attention_entropy" not in line for line in told
    )


def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch):  # noqa: F811
    learns_and_resumes(m2r2.run, "m2r2", material, trained, tmp_path, monkeypatch)


def test_its_material_is_what_the_engine_lends_and_it_is_used(features, trained):
    batch = features.states(collate(features.heldout[:1], 64, features.device))
    text, target = batch.ids[0].tolist(), FastModel(trained / "models" / TARGET).open()
    target.capture(frozenset({"layer:1"}))
    slow, kv = (
        target.sync([*text, 0]).hidden_states["layer:1"],
        torch.cat([part.transpose(0, 1).flatten(1) for part in target.kv(0)], -1),
    )
    assert torch.allclose(batch.layer, torch.cat([slow, kv], -1), atol=1e-4)
    model = models.load(trained / "models" / "Llama-specviz-m2r2", features.target_info)
    mixed = batch.layer.clone()
    mixed[:, features.target_info.hidden :] = torch.randn_like(kv) * kv.std()
    with torch.no_grad():
        one, other = (
            features.logits(
                m2r2.predict(
                    model, features, type(batch)(batch.ids, batch.states, rows, batch.where, *[None] * 3)
                )[batch.where]
            ).softmax(-1)
            for rows in (batch.layer, mixed)
        )
    assert float((one - other).abs().sum(-1).mean() / 2) > 0.01


def test_the_replay_says_what_the_engine_does(features, trained):
    gamma, model = 3, FastModel(trained / "models" / TARGET)
    net = models.load(trained / "models" / "Llama-specviz-m2r2", body(model.open()))
    chosen = [a for a in features.own.answers if a.greedy]  # what it has seen, so that something is accepted
    expected_length = chains.replay_rounds(
        [
            chains.accepted_by_step(m2r2.chain_states_function(net, features), features, a, gamma, 0)
            for a in chosen
        ],
        gamma,
    )
    found, accepted = tokens_a_round(
        model, lambda: Parts(M2R2Chain(net), Fixed(gamma), TokenRejection()), chosen
    )
    assert accepted > 0 and expected_length["block_efficiency"] == found


def test_an_exit_that_the_target_does_not_have_is_refused(material, tmp_path, monkeypatch):  # noqa: F811
    hparams = Job.hparams
    monkeypatch.setattr(Job, "hparams", lambda self, recipe: hparams(self, recipe) | {"exit_layer": 3})
    with refuses(TrainingError, "training.exit_layer", "1 and 2"):
        m2r2.run(job(material, tmp_path))
