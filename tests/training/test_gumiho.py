"""The recipe of Gumiho: it learns and resumes, the engine keeps the replay's promise, and a shared serial
part stays another head's."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from specviz.core import Parts
from specviz.drafters.model.chain import DraftChain
from specviz.methods.trained_heads.eagle import eagle_recipe as eagle
from specviz.methods.trained_heads.gumiho import gumiho_network as network
from specviz.methods.trained_heads.gumiho import gumiho_recipe as gumiho
from specviz.methods.trained_heads.gumiho.gumiho_drafter import GumihoTree
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains
from specviz.training.features import Features
from specviz.training.job import TARGET, Job
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .recipes import job, learns_and_resumes, tokens_a_round, whole_numbers


@pytest.fixture(scope="module")
def trained(pair, tmp_path_factory):
    place = tmp_path_factory.mktemp("trained")
    gumiho.run(job(pair, place))
    return place


def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(pair, trained, tmp_path, monkeypatch):
    learns_and_resumes(gumiho.run, "gumiho", pair, trained, tmp_path, monkeypatch)


def test_the_replay_says_what_the_engine_does(pair, trained):
    model, work = FastModel(trained / "models" / TARGET), job(pair, trained)
    head = network.load(trained / "models" / "Llama-specviz-gumiho", body(model.open()))
    features = whole_numbers(Features(work, work.hparams("gumiho")), trained)
    chosen = [a for a in features.own.answers if a.greedy]
    states = gumiho.chain_states_function(head, features)
    promised = chains.replay_rounds(
        [chains.accepted_by_step(states, features, a, len(head), 0) for a in chosen], len(head)
    )
    found, accepted = tokens_a_round(
        model, lambda: Parts(GumihoTree(head, DraftChain), Fixed(len(head)), TokenRejection()), chosen
    )
    assert accepted > 0 and promised["block_efficiency"] == found


def test_only_the_parallel_part_is_stored_where_the_serial_part_is_another_heads(pair, tmp_path, monkeypatch):
    work, shared = job(pair, tmp_path), {"begin": "eagle", "trained": ["mlp.mlp"]}
    hparams = Job.hparams
    monkeypatch.setattr(
        Job, "hparams", lambda self, recipe: hparams(self, recipe) | (shared if recipe == "gumiho" else {})
    )
    eagle.run(work)
    folder = gumiho.run(work)
    assert all(name.startswith("mlp.mlp.") for name in load_file(folder / "model.safetensors"))
    target = FastModel(tmp_path / "models" / TARGET).open()
    head = network.load(folder, body(target))
    serial = load_file(tmp_path / "models" / "Llama-specviz-eagle" / "model.safetensors")
    assert torch.equal(head.fc.weight, serial["fc.weight"].float())
