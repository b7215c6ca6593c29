"""The recipes of drafters with mask tokens: which rows see what, learning, resumption, and that the engine
keeps the replay's promise."""

from __future__ import annotations

import random

import pytest
import torch

from specviz.core import Parts
from specviz.drafters.model.masked import MaskedDraft
from specviz.methods.draft_model.pard import pard_recipe as pard
from specviz.methods.draft_model.pard2 import pard2_network, pard2_recipe
from specviz.methods.draft_model.pard2.pard2_drafter import InformedMaskedDraft
from specviz.methods.trained_heads.peagle import peagle_network as peagle_models
from specviz.methods.trained_heads.peagle import peagle_recipe as peagle
from specviz.methods.trained_heads.peagle.peagle_drafter import OnePassFeatures
from specviz.models import masked as pard_models
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains, mask_rows
from specviz.training.draft import collate
from specviz.training.features import Features
from specviz.training.job import TARGET
from specviz.training.masked_block import AuxStateFeatures
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .recipes import killed, learns_and_resumes, tokens_a_round, whole_numbers
from .test_features import history, job

RECIPES = {
    "pard": (pard, pard_models, Features, MaskedDraft),
    "peagle": (peagle, peagle_models, peagle.States, OnePassFeatures),
}


@pytest.fixture(scope="module")
def trained(pair, tmp_path_factory):
    place = tmp_path_factory.mktemp("trained")
    for recipe, *_ in RECIPES.values():
        recipe.run(job(pair, place))
    return place


@pytest.mark.parametrize("kind", RECIPES)
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(pair, trained, tmp_path, monkeypatch, kind):
    learns_and_resumes(RECIPES[kind][0].run, kind, pair, trained, tmp_path, monkeypatch)


@pytest.mark.parametrize("back", [0, 1])
def test_a_mask_sees_the_text_before_its_anchor_and_the_masks_between(pair, tmp_path, back):
    work = job(pair, tmp_path)
    features = Features(work, work.hparams("pard"))
    batch = features.batch(0, 1.0)
    hparams = {"block": 4, "anchors": 5, "keep": 0.7, "keep_least": 0.2}
    made, width = mask_rows.sample_masks(batch, hparams, random.Random("1"), back), batch.ids.shape[1]
    assert torch.bincount(made.depth).tolist() == [0, 3, 2, 1], "fewer masks the further ahead"
    own = torch.cat([torch.arange(count) for count in (3, 2, 1)])
    for row in range(len(batch.ids)):
        for i, depth in enumerate(made.depth.tolist()):
            seen = made.mask[row, 0, width + i].nonzero()[:, 0].tolist()
            anchor = int(made.place[row, i]) - depth  # the last row of text that it sees
            between = [width + j for j in range(i + 1) if own[j] == own[i]]
            assert seen == [*range(anchor + 1), *between] and len(between) == depth
            index = int(made.index[row, i])
            if index >= 0:
                assert int(batch.where[index]) == row * width + anchor + back + depth
            else:
                assert row * width + anchor + back + depth not in batch.where.tolist()
    assert (
        torch.equal(made.mask[0, 0, :width, :width], torch.ones(width, width).bool().tril())
        and not made.mask[:, :, :width, width:].any()
    )


@pytest.mark.parametrize("kind", RECIPES)
def test_the_replay_says_what_the_engine_does(pair, trained, kind):
    recipe, reader, kept, drafter = RECIPES[kind]
    model, work = FastModel(trained / "models" / TARGET), job(pair, trained)
    head = reader.load(trained / "models" / f"Llama-specviz-{kind}", body(model.open()))
    features = whole_numbers(kept(work, work.hparams(kind)), trained)
    block = work.hparams(kind)["block"]
    chosen = [a for a in features.own.answers if a.greedy]
    expected_length = chains.replay_rounds(
        [recipe.mask_trainer(head, features).accepted_by_step(a, block) for a in chosen], block
    )
    found, accepted = tokens_a_round(
        model, lambda: Parts(drafter(head), Fixed(block), TokenRejection()), chosen
    )
    assert accepted > 0 and expected_length["block_efficiency"] == found


def test_pard2_learns_over_frozen_weights_and_the_engine_does_what_the_replay_says(
    pair, trained, tmp_path, monkeypatch
):
    weights = trained / "models" / "Llama-specviz-pard" / "model.safetensors"
    before = weights.read_bytes()
    work = job(pair, trained)
    place = pard2_recipe.run(work)
    assert weights.read_bytes() == before, "PARD is frozen"
    again = job(pair, tmp_path)
    (tmp_path / "models").mkdir(exist_ok=True)
    (tmp_path / "models" / "Llama-specviz-pard").symlink_to(trained / "models" / "Llama-specviz-pard")
    killed(monkeypatch, lambda: pard2_recipe.run(again), 9)
    assert history(tmp_path, "pard2") == history(trained, "pard2") and len(history(trained, "pard2")) > 9
    model = FastModel(trained / "models" / TARGET)
    target = body(model.open())
    head = pard_models.load(trained / "models" / "Llama-specviz-pard", target)
    projection = pard2_network.load(place, target)
    assert float(projection.target_proj.weight.abs().max()) > 0, "it began at zero"
    hparams = work.hparams("pard2")
    features = whole_numbers(
        AuxStateFeatures(work, hparams, lambda on, said: pard2_network.build(on, said | {"draft_hidden": 1})),
        trained,
    )
    chosen = [a for a in features.own.answers if a.greedy]
    trainer = pard2_recipe.mask_trainer(projection, head, features)
    expected = chains.replay_rounds(
        [trainer.accepted_by_step(a, hparams["block"]) for a in chosen], hparams["block"]
    )
    found, accepted = tokens_a_round(
        model,
        lambda: Parts(InformedMaskedDraft(head, projection), Fixed(hparams["block"]), TokenRejection()),
        chosen,
    )
    assert accepted > 0 and expected["block_efficiency"] == found


@pytest.mark.parametrize("kind", RECIPES)
def test_every_place_of_a_trained_block_uses_the_text(pair, trained, kind):
    """What each place says after the same last rows changes when the text before them is shuffled."""
    recipe, reader, kept, _ = RECIPES[kind]
    work = job(pair, trained)
    features = kept(work, work.hparams(kind))
    head = reader.load(trained / "models" / f"Llama-specviz-{kind}", features.target_info).float()
    trainer, answer = recipe.mask_trainer(head, features), features.heldout[0]
    batch = features.states(collate([answer], 64, features.device))
    masks = mask_rows.masks_after(batch, torch.tensor([[8]]), [1, 1, 1], trainer.back)
    order = torch.cat(
        [torch.randperm(12, generator=torch.Generator().manual_seed(0)), torch.arange(12, batch.ids.shape[1])]
    )
    other = type(batch)(
        batch.ids[:, order],
        batch.states[order],
        None if batch.layer is None else batch.layer[order],
        batch.where,
        batch.labels,
        batch.top_ids,
        batch.top_logp,
    )
    with torch.inference_mode():
        pairs = zip(trainer.predict(batch, masks), trainer.predict(other, masks))
        for depth, ((one, index), (two, _)) in enumerate(pairs):
            at = index == 8 + depth
            change = (
                trainer.logits(one[at]).softmax(-1) - trainer.logits(two[at]).softmax(-1)
            ).abs().sum() / 2
            assert int(at.sum()) == 1 and float(change) > 1e-4, depth
