"""The recipe of EAGLE-3's head: it learns and resumes, uses the text, and the engine keeps what the replay
promises."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.core import Parts
from specviz.drafters.heads.features import FeatureDrafter
from specviz.drafters.model.chain import DraftChain
from specviz.methods.trained_heads.eagle3 import eagle3_recipe as eagle3
from specviz.models import eagle3 as models
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains
from specviz.training.draft import collate
from specviz.training.files import write_json
from specviz.training.job import TARGET
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .recipes import learns_and_resumes, tokens_a_round, whole_numbers
from .test_features import START, STEPS, history, job, material  # noqa: F401


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("trained")
    eagle3.run(job(material, place))
    return place


def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch):  # noqa: F811
    learns_and_resumes(eagle3.run, "eagle3", material, trained, tmp_path, monkeypatch)


def test_the_vocabulary_it_writes_is_that_of_the_answers(material, trained):  # noqa: F811
    work = job(material, trained)
    features = eagle3.ReducedVocabFeatures(work, work.hparams("eagle3"))
    place = trained / "models" / "Llama-specviz-eagle3"
    head, stored = models.load(place, features.target_info), load_file(place / "model.safetensors")
    counts = torch.bincount(torch.cat([a.ids[a.start :] for a in features.own.answers]).long(), minlength=48)
    left = torch.ones(48, dtype=torch.bool)
    left[head.tokens] = False
    assert len(head.tokens) == 40 and int(counts[head.tokens].min()) >= int(counts[left].max())
    assert stored["d2t"].dtype == torch.long and stored["t2d"].dtype == torch.bool
    assert "{" not in (place / "README.md").read_text()


def test_the_loss_is_the_divergence_on_the_vocabulary_it_speaks(material, trained):  # noqa: F811
    """By hand, a place at a time; places whose likeliest token it lacks count for nothing."""
    work = job(material, trained)
    hparams = work.hparams("eagle3") | {"rollout": 1}
    features = eagle3.ReducedVocabFeatures(work, hparams)
    head = models.load(trained / "models" / "Llama-specviz-eagle3", features.target_info).float()
    batch = features.states(collate(features.heldout[:2], 64, features.device))
    head.set_draft_vocab(torch.arange(48)[torch.arange(48) != int(batch.top_ids[0, 0])][:40])
    states = eagle3.rollout_states(head, features, batch, 1)[0]
    found, spoken = [], head.tokens.tolist()
    for row, place in enumerate(batch.where.tolist()):
        probs = {int(i): float(lp.float().exp()) for i, lp in zip(batch.top_ids[row], batch.top_logp[row])}
        if max(probs, key=probs.get) in spoken:
            q = (head.lm_head.weight @ head.norm(states[place - 1])).log_softmax(-1)
            inside = {i: p for i, p in probs.items() if i in spoken}
            found.append(
                -sum(p / sum(inside.values()) * float(q[spoken.index(i)]) for i, p in inside.items())
            )
    assert 0 < len(found) < len(batch.where)
    assert float(eagle3.loss(head, features, batch, hparams)) == pytest.approx(
        sum(found) / len(found), rel=1e-4
    )


def test_a_head_that_borrows_the_targets_matrix_learns_its_divergence_over_all_tokens(
    material,  # noqa: F811
    trained,
    tmp_path,
):
    """By hand, over the stored leaders and one outcome for the rest; what is written has no matrix and
    reads back without one."""
    work = job(material, trained)
    hparams = work.hparams("eagle3") | {"rollout": 1, "own_head": False, "draft_vocab": 0}
    features = eagle3.ReducedVocabFeatures(work, hparams)
    head = models.build(features.target_info, hparams)
    batch = features.states(collate(features.heldout[:2], 64, features.device))
    states = eagle3.rollout_states(head, features, batch, 1)[0].detach()
    found = []
    for row, place in enumerate(batch.where.tolist()):
        q = (features.head.float() @ head.norm(states[place - 1])).softmax(-1).detach()
        p = batch.top_logp[row].float().exp().tolist()
        p, q = (
            [*p, max(1 - sum(p), 1e-6)],
            [*(float(q[i]) for i in batch.top_ids[row]), 1 - sum(float(q[i]) for i in batch.top_ids[row])],
        )
        found.append(sum(a * math.log(a / b) for a, b in zip(p, q)))
    assert float(eagle3.loss(head, features, batch, hparams).detach()) == pytest.approx(
        sum(found) / len(found), rel=1e-3
    )
    save_file(dict(head.state_dict()), tmp_path / "model.safetensors")
    write_json(tmp_path / "config.json", {**head.config, "model_type": "eagle3"})
    again = models.load(tmp_path, features.target_info)
    assert again.lm_head is None and again.tokens is None
    features.model = again
    assert features.logits(states[:1]).shape == (1, features.target_info.vocab)


def test_a_trained_head_uses_the_text(material, trained):  # noqa: F811
    """What it says after the same last pair changes when the pairs before it are shuffled."""
    work = job(material, trained)
    features = eagle3.ReducedVocabFeatures(work, work.hparams("eagle3"))
    head = models.load(trained / "models" / "Llama-specviz-eagle3", features.target_info)
    batch = features.states(collate(features.heldout[:1], 64, features.device))
    rows, ids = batch.layer.float()[:20], batch.ids[0, 1:21]
    order = torch.cat([torch.randperm(19, generator=torch.Generator().manual_seed(0)), torch.tensor([19])])
    with torch.inference_mode():
        one, other = (
            head.draft_logits(head.open().read(features.embedding[ids[at]].float(), rows[at])[-1]).softmax(-1)
            for at in (torch.arange(20), order)
        )
    assert float((one - other).abs().sum() / 2) > 1e-4


def test_the_replay_says_what_the_engine_does(material, trained):  # noqa: F811
    """Tokens a round of greedy chains, counted on the text and on the engine."""
    gamma, work = 3, job(material, trained)
    model = FastModel(trained / "models" / TARGET)
    head = models.load(trained / "models" / "Llama-specviz-eagle3", body(model.open()))
    features = eagle3.ReducedVocabFeatures(work, work.hparams("eagle3"))
    whole_numbers(features, trained)
    features.model = head
    chosen = [a for a in features.own.answers if a.greedy]
    expected_length = chains.replay_rounds(
        [
            chains.accepted_by_step(eagle3.chain_states_function(head, features), features, a, gamma, 0)
            for a in chosen
        ],
        gamma,
    )
    found, accepted = tokens_a_round(
        model, lambda: Parts(FeatureDrafter(head, DraftChain), Fixed(gamma), TokenRejection()), chosen
    )
    assert accepted > 0 and expected_length["block_efficiency"] == found
