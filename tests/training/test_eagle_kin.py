"""The recipes of FSPAD, Jakiro and Falcon: losses by hand, learning, resumption, and that the engine keeps
the replay's promise."""

from __future__ import annotations

import random

import pytest
import torch

from specviz.core import Parts
from specviz.drafters.model.chain import DraftChain
from specviz.methods.trained_heads.falcon.falcon_drafter import BlockwiseTree
from specviz.methods.trained_heads.fspad.fspad_drafter import FspadTree
from specviz.methods.trained_heads.jakiro.jakiro_drafter import JakiroTree
from specviz.models.eagle_layers import Attention
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains
from specviz.training import eagle_variants as eagle_kin
from specviz.training.draft import collate
from specviz.training.features import Features
from specviz.training.job import TARGET
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .recipes import job, learns_and_resumes, tokens_a_round, whole_numbers

DRAFTERS = {
    "fspad": lambda head: FspadTree(head, DraftChain),
    "jakiro": lambda head: JakiroTree(head, DraftChain),
    "falcon": lambda head: BlockwiseTree(head, 1),
}
GAMMA = {"fspad": 3, "jakiro": 3, "falcon": 2}


@pytest.fixture(scope="module")
def trained(pair, tmp_path_factory):
    place = tmp_path_factory.mktemp("trained")
    for kind in DRAFTERS:
        eagle_kin.run(job(pair, place), kind)
    return place


def made(kind, trained, features):
    return (
        eagle_kin.VARIANTS[kind]
        .load(trained / "models" / f"Llama-specviz-{kind}", features.target_info)
        .float()
    )


@pytest.mark.thorough
@pytest.mark.parametrize("kind", DRAFTERS)
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(pair, trained, tmp_path, monkeypatch, kind):
    learns_and_resumes(lambda work: eagle_kin.run(work, kind), kind, pair, trained, tmp_path, monkeypatch)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_the_replay_says_what_the_engine_does(pair, trained, kind):
    model = FastModel(trained / "models" / TARGET)
    work = job(pair, trained)
    gamma = GAMMA[kind]
    head = eagle_kin.VARIANTS[kind].load(trained / "models" / f"Llama-specviz-{kind}", body(model.open()))
    features = whole_numbers(Features(work, work.hparams(kind)), trained)
    chosen = [a for a in features.own.answers if a.greedy]
    guesses = eagle_kin.chain_states_function(head, features)
    expected_length = chains.replay_rounds(
        [chains.accepted_by_step(guesses, features, a, gamma, 0) for a in chosen], gamma
    )
    found, accepted = tokens_a_round(
        model, lambda: Parts(DRAFTERS[kind](head), Fixed(gamma), TokenRejection()), chosen
    )
    assert accepted > 0 and expected_length["block_efficiency"] == found


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_trained_head_uses_the_text(pair, trained, kind):
    """What it says after the same last pair changes when the pairs before it are shuffled."""
    work = job(pair, trained)
    features = Features(work, work.hparams(kind))
    head = made(kind, trained, features)
    batch = features.states(collate(features.heldout[:1], 64, features.device))
    rows, ids = batch.states.float()[:20], batch.ids[0, 1:21]
    order = torch.cat(
        [torch.randperm(18, generator=torch.Generator().manual_seed(0)), torch.tensor([18, 19])]
    )

    def moved():
        with torch.inference_mode():
            one, other = (
                head.logits(
                    head.open().read(features.embedding[ids[at]].float(), rows[at])[-1:], features.logits
                ).softmax(-1)
                for at in (torch.arange(20), order)
            )
        return float((one - other).abs().sum() / 2)

    seeing = moved()
    for part in (part for part in head.modules() if isinstance(part, Attention)):
        part.o_proj.weight.data.zero_()
    assert seeing > 1e-5 and moved() == 0, "what is left without attention knows nothing of the text"


@pytest.fixture
def alone(pair, tmp_path):
    """A batch of one answer, and a feature of noise in the place of each true one."""
    work = job(pair, tmp_path)
    features = Features(work, work.hparams("fspad"))
    return features, features.states(collate(features.heldout[:1], 64, features.device))


def by_hand(features, batch, hparams, kept, feature, spoken):
    near = torch.nn.functional.smooth_l1_loss(feature, batch.states[batch.where[kept]].float())
    logq, found = features.logits(spoken).log_softmax(-1), []
    for row, index in zip(logq, kept.tolist()):
        p, ids = batch.top_logp[index].exp(), batch.top_ids[index]
        rest, left = (1 - p.sum()).clamp(min=1e-6), (1 - row[ids].exp().sum()).clamp(min=1e-6)
        found.append((p * (p.log() - row[ids])).sum() + rest * (rest / left).log())
    return float(
        hparams["regression_weight"] * near + hparams["classification_weight"] * torch.stack(found).mean()
    )


def test_each_state_learns_its_own_part(alone, trained, pair):
    """FSPAD: the handed-on state is held to the feature, the other to the token; Jakiro: the second guess
    to the token after the next."""
    features, batch = alone
    for kind in ("fspad", "jakiro"):
        hparams = job(pair, trained).hparams(kind) | {"rollout": 1, "hard_label_weight": 0.0}
        head = made(kind, trained, features)
        with torch.no_grad():
            out = eagle_kin.eagle.rollout_states(head, features, batch, 1)[0]
            found = eagle_kin.LOSSES[kind](head, features, batch, batch.states.float(), hparams, None)
        first, second = (batch.back(steps)[0] for steps in (1, 2))
        rows = out[batch.where[first] - 1]
        if kind == "fspad":
            want = by_hand(features, batch, hparams, first, rows[:, 32:], rows[:, :32])
        else:
            later = out[batch.where[second] - 2][:, 32:64]
            want = by_hand(features, batch, hparams, first, rows[:, :32], rows[:, :32])
            want = (want + 0.5 * by_hand(features, batch, hparams, second, later, later)) / 1.5
        assert float(found) == pytest.approx(want, rel=2e-2)  # the recipe computes in half precision


def test_a_glance_answers_a_share_of_the_mistakes(alone, trained, pair, monkeypatch):
    """What the second try reads differs from the first in block starts alone, and there by the pair two
    places further on."""
    features, batch = alone
    head = made("falcon", trained, features)
    hparams = job(pair, trained).hparams("falcon")
    seen = []
    forward = type(head).forward
    monkeypatch.setattr(
        type(head), "forward", lambda self, e, f, o: (seen.append((e[0], f[0], o)), forward(self, e, f, o))[1]
    )
    with torch.no_grad():
        for share in (1.0, 0.0):
            eagle_kin.falcon_loss(
                head, features, batch, batch.states.float(), hparams, (random.Random(3), share)
            )
    (tokens, states, offset), (other, truer, _), *rest = seen
    changed = (states != truer).any(-1).nonzero()[:, 0]
    assert len(changed) and ((changed - offset) % 2 == 0).all()
    assert torch.equal(truer[changed], batch.states[changed + 2].float())
    assert torch.equal(other[changed], features.embedding[batch.ids[0, changed + 3]].float())
    kept, at = batch.back(2)
    with torch.no_grad():
        wrong = (
            features.logits(forward(head, tokens[None], states[None], offset)[0][at]).argmax(-1)
            != batch.labels[kept]
        )
    starts = int(((at - offset) % 2 == 0).sum())
    assert len(changed) == min(starts, int(wrong.sum()))
    assert torch.equal(rest[0][1], rest[1][1]), "at the end nothing is answered"
