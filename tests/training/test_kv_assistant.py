"""The recipe of the KV-borrowing assistant: it learns and resumes, its clusters are equal and sensible, and
its rollout is what the engine computes."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree, Parts
from specviz.drafters.model.chain import DraftChain
from specviz.methods.trained_heads.kv_assistant import kv_assistant_network as network
from specviz.methods.trained_heads.kv_assistant import kv_assistant_recipe as kv_assistant
from specviz.methods.trained_heads.kv_assistant.kv_assistant_drafter import AssistantModel, BorrowingDrafter
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains
from specviz.training.draft import collate
from specviz.training.job import TARGET
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .recipes import killed, tokens_a_round
from .test_features import STEPS, history, job, material  # noqa: F401

NAME = "Llama-specviz-kv_assistant"


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("trained")
    kv_assistant.run(job(material, place))
    return place


@pytest.fixture(scope="module")
def features(material, trained):  # noqa: F811
    work = job(material, trained)
    return kv_assistant.AssistantFeatures(work, work.hparams("kv_assistant"))


@pytest.mark.thorough
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch):  # noqa: F811
    whole = history(trained, "kv_assistant")
    assert len(whole) == STEPS and sum(whole[-3:]) < sum(whole[:3])
    killed(monkeypatch, lambda: kv_assistant.run(job(material, tmp_path)), 9)
    assert history(tmp_path, "kv_assistant") == whole
    assert "{" not in (trained / "models" / NAME / "README.md").read_text()


def test_clusters_are_of_equal_size_and_hold_what_is_near():
    torch.manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(6, 8), dim=-1)
    rows = (centres[:, None] + 0.05 * torch.randn(6, 10, 8)).flatten(0, 1)
    found = kv_assistant.equal_clusters(rows[torch.randperm(60)], 6)
    assert found.shape == (6, 10) and sorted(found.flatten().tolist()) == list(range(60))
    crowded = torch.cat([centres[:1].repeat(40, 1), centres[1:2].repeat(20, 1)])
    assert kv_assistant.equal_clusters(crowded, 3).shape == (3, 20)
    torch.manual_seed(0)
    order = torch.randperm(60)
    kinds = order[kv_assistant.equal_clusters(rows[order], 6)] // 10
    assert sum(len(set(row.tolist())) == 1 for row in kinds) >= 4


def test_the_rollout_is_what_the_engine_computes(features, trained):
    """A chain of two after a text, step by step, against the rows of the rollout that belong to it."""
    model = FastModel(trained / "models" / TARGET)
    net = network.load(trained / "models" / NAME, body(model.open()))
    batch = features.states(collate(features.heldout[:1], 64, features.device))
    text, at = batch.ids[0].tolist(), 14
    steps = kv_assistant.rollout(net, features, batch, 2)
    target = model.open()
    target.capture(frozenset({"final"}))
    drafter = AssistantModel(net)
    drafter.start(target)
    drafter.before = target.sync(text[: at + 1]).hidden_states["final"][-1:]
    assert drafter.sync(text[: at + 1])
    drafter.score(DraftTree())
    drafter.score(DraftTree.chain([text[at + 1]]))
    for step, found in enumerate(drafter._out):
        want = steps[step][1][0, at + step]
        assert torch.allclose(
            found, want, atol=0.1 * float(want.abs().max())
        )  # bfloat16, if the processor has it


def test_the_replay_is_near_what_the_engine_does(features, trained):
    """Greedy chains, counted on the text and on the engine, which leaves out the tokens of other clusters."""
    gamma, model = 3, FastModel(trained / "models" / TARGET)
    net = network.load(trained / "models" / NAME, body(model.open()))
    chosen = [a for a in features.own.answers if a.greedy]
    states = kv_assistant.chain_states_function(net, features)
    expected = chains.replay_rounds(
        [chains.accepted_by_step(states, features, a, gamma, 0) for a in chosen], gamma
    )
    found, accepted = tokens_a_round(
        model, lambda: Parts(BorrowingDrafter(net, DraftChain), Fixed(gamma), TokenRejection()), chosen
    )
    assert accepted > 0 and expected["block_efficiency"] == pytest.approx(found, rel=0.2)
