"""The recipe of an MTP module: it learns and resumes, uses the text, and the engine keeps what the replay
promises."""

from __future__ import annotations

import pytest
import torch

from specviz.core import Parts
from specviz.drafters.heads.features import FeatureDrafter
from specviz.drafters.model.chain import DraftChain
from specviz.methods.trained_heads.mtp import mtp_network as models
from specviz.methods.trained_heads.mtp import mtp_recipe as mtp
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains
from specviz.training.draft import collate
from specviz.training.features import Features
from specviz.training.job import TARGET
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .recipes import learns_and_resumes, tokens_a_round, whole_numbers
from .test_features import START, STEPS, history, job, material  # noqa: F401


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("trained")
    mtp.run(job(material, place))
    return place


def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch):  # noqa: F811
    learns_and_resumes(mtp.run, "mtp", material, trained, tmp_path, monkeypatch)


def test_a_trained_module_uses_the_text(material, trained):  # noqa: F811
    """What it says after the same last pair changes when the pairs before it are shuffled."""
    work = job(material, trained)
    features = Features(work, work.hparams("mtp"))
    module = models.load(trained / "models" / "Llama-specviz-mtp", features.target_info)
    batch = features.states(collate(features.heldout[:1], 64, features.device))
    rows, ids = batch.states.float()[:20], batch.ids[0, 1:21]
    order = torch.cat([torch.randperm(19, generator=torch.Generator().manual_seed(0)), torch.tensor([19])])
    with torch.inference_mode():
        one, other = (
            (
                module.open().read(features.embedding[ids[at]].float(), rows[at])[-1]
                @ features.head.float().T
            ).softmax(-1)
            for at in (torch.arange(20), order)
        )
    assert float((one - other).abs().sum() / 2) > 1e-4


def test_the_replay_says_what_the_engine_does(material, trained):  # noqa: F811
    """Tokens a round of greedy chains, counted on the text and on the engine."""
    gamma, work = 3, job(material, trained)
    model = FastModel(trained / "models" / TARGET)
    module = models.load(trained / "models" / "Llama-specviz-mtp", body(model.open()))
    features = Features(work, work.hparams("mtp"))
    whole_numbers(features, trained)
    chosen = [a for a in features.own.answers if a.greedy]
    expected_length = chains.replay_rounds(
        [
            chains.accepted_by_step(mtp.chain_states_function(module, features), features, a, gamma, 0)
            for a in chosen
        ],
        gamma,
    )
    found, accepted = tokens_a_round(
        model, lambda: Parts(FeatureDrafter(module, DraftChain), Fixed(gamma), TokenRejection()), chosen
    )
    assert accepted > 0 and expected_length["block_efficiency"] == found
