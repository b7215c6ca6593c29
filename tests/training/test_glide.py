"""The recipe of GliDe's drafter: it learns and resumes, reads the target's keys as the engine lends them,
and uses them."""

from __future__ import annotations

import pytest
import torch

from specviz.core import Parts
from specviz.drafters.model.chain import DraftChain
from specviz.methods.trained_heads.glide import glide_network as models
from specviz.methods.trained_heads.glide import glide_recipe as glide
from specviz.methods.trained_heads.glide.glide_drafter import Glide
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains
from specviz.training.draft import collate
from specviz.training.job import TARGET
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .recipes import killed, tokens_a_round
from .test_features import START, STEPS, history, job, material  # noqa: F401


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("trained")
    glide.run(job(material, place))
    return place


@pytest.fixture(scope="module")
def features(material, trained):  # noqa: F811
    work = job(material, trained)
    return glide.KeyValueFeatures(work, work.hparams("glide"))


@pytest.mark.thorough
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch):  # noqa: F811
    whole = history(trained, "glide")
    assert len(whole) == STEPS and sum(whole[-3:]) < sum(whole[:3])
    killed(monkeypatch, lambda: glide.run(job(material, tmp_path)), 9)
    assert history(tmp_path, "glide") == whole
    assert "{" not in (trained / "models" / "Llama-specviz-glide" / "README.md").read_text()


def test_its_material_is_what_the_engine_lends(features, trained):
    """Keys and values of the layers that are read, as the target's own cache holds them."""
    batch = features.states(collate(features.heldout[:1], 64, features.device))
    text, target = batch.ids[0].tolist(), FastModel(trained / "models" / TARGET).open()
    target.sync([*text, 0])
    for layer, rows in zip(features.reads, batch.layer.float().chunk(len(features.reads), -1)):
        for part, found in zip(target.kv(layer), rows.chunk(2, -1)):
            want = part.transpose(0, 1).flatten(1)
            assert torch.allclose(found, want, atol=3e-2 * float(want.abs().max()))  # half precision


def test_a_trained_one_uses_the_targets_keys(features, trained):
    model = models.load(trained / "models" / "Llama-specviz-glide", features.target_info)
    batch = features.states(collate(features.heldout[:1], 64, features.device))
    other = torch.randn_like(batch.layer.float()) * batch.layer.float().std()
    with torch.no_grad():
        one, moved = (
            glide.predict(
                model,
                features,
                type(batch)(
                    batch.ids,
                    batch.states,
                    rows,
                    *[getattr(batch, name) for name in ("where", "labels", "top_ids", "top_logp")],
                ),
            ).flatten(0, 1)[batch.where]
            for rows in (batch.layer, other)
        )
        change = (features.logits(one).softmax(-1) - features.logits(moved).softmax(-1)).abs().sum(
            -1
        ).mean() / 2
    assert float(change) > 0.01


def test_the_replay_is_near_what_the_engine_does(features, trained):
    """Greedy chains, counted on the text and on the engine; on the engine the rows of the text before saw
    less here and more there."""
    gamma, model = 3, FastModel(trained / "models" / TARGET)
    net = models.load(trained / "models" / "Llama-specviz-glide", body(model.open()))
    chosen = [a for a in features.own.answers if a.greedy]
    expected_length = chains.replay_rounds(
        [
            chains.accepted_by_step(glide.chain_states_function(net, features), features, a, gamma, 0)
            for a in chosen
        ],
        gamma,
    )
    found, accepted = tokens_a_round(
        model, lambda: Parts(Glide(net, DraftChain), Fixed(gamma), TokenRejection()), chosen
    )
    assert accepted > 0 and expected_length["block_efficiency"] == pytest.approx(found, rel=0.15)
