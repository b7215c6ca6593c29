"""The recipes of Uno and Orthrus: blocks read what they should, they learn and resume, and the engine keeps
what the replay promises."""

from __future__ import annotations

import random

import pytest
import torch

from specviz.core import Parts
from specviz.drafters.heads.draft_path import DraftPathChain
from specviz.models import draft_path as network
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains, draft_path
from specviz.training.job import TARGET
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .recipes import job, learns_and_resumes, tokens_a_round, whole_numbers

KINDS = ("uno", "orthrus")


@pytest.fixture(scope="module")
def trained(pair, tmp_path_factory):
    place = tmp_path_factory.mktemp("trained")
    for kind in KINDS:
        draft_path.run(job(pair, place), kind)
    return place


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(pair, trained, tmp_path, monkeypatch, kind):
    learns_and_resumes(lambda work: draft_path.run(work, kind), kind, pair, trained, tmp_path, monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
def test_the_replay_says_what_the_engine_does(pair, trained, monkeypatch, kind):
    """At temperature 0, with the same noise everywhere: the drafts that the replay finds right are those
    that the engine accepts. A block at the end of a text is shorter there, which rows that see those after
    them notice."""
    monkeypatch.setattr(network.DraftPath, "fillers", lambda self, uniforms: [3] * len(uniforms))
    model, work = FastModel(trained / "models" / TARGET), job(pair, trained)
    path = network.load(kind, trained / "models" / f"Llama-specviz-{kind}", body(model.open()))
    features = whole_numbers(draft_path.TextFeatures(work, work.hparams(kind)), trained)
    trainer = draft_path.Trainer(path.float(), features, work.hparams(kind))
    chosen = [answer for answer in features.own.answers if answer.greedy][:4]
    promised = chains.replay_rounds([trainer.accepted_by_step(answer) for answer in chosen], path.block)[
        "block_efficiency"
    ]
    found, accepted = tokens_a_round(
        model, lambda: Parts(DraftPathChain(path), Fixed(path.block), TokenRejection()), chosen
    )
    assert accepted > 0 and found == pytest.approx(promised, abs=0 if path.first else 0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_see_the_text_before_them_and_no_other_block(pair, trained, kind):
    """A row's state depends on the text up to its anchor and on its own block: causally for Uno, in both
    directions for Orthrus."""
    work = job(pair, trained)
    features = whole_numbers(draft_path.TextFeatures(work, work.hparams(kind)), trained)
    trainer = draft_path.Trainer(
        network.load(kind, trained / "models" / f"Llama-specviz-{kind}", features.target_info).float(),
        features,
        {},
    )
    ids, at = (
        torch.randint(0, 40, (1, 12), generator=torch.Generator().manual_seed(0)),
        torch.tensor([[4, 8]]),
    )

    def states(text, anchors=at):
        with torch.no_grad():
            return trainer.states(text, trainer.text_cache(text), anchors, 3, random.Random(1))[0]

    changed = ids.clone()
    changed[0, 6] = (ids[0, 6] + 1) % 40
    one = states(ids)
    other = states(changed)
    alone = states(ids, at[:, :1])
    assert torch.allclose(one[0], other[0], atol=1e-6) and not torch.allclose(one[1], other[1], atol=1e-4)
    assert torch.allclose(one[0], alone[0], atol=1e-5)
    earlier = ids.clone()
    earlier[0, 4] = (ids[0, 4] + 1) % 40
    assert not torch.allclose(one[0], states(earlier)[0], atol=1e-4), "the anchor's own token"
