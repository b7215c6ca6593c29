"""The recipes of the judge and of the reward head: labels by hand, learning, resumption, and that what was
trained looks at its input."""

from __future__ import annotations

import random

import pytest
import torch

from specviz.models import judge as models
from specviz.training import acceptance_heads
from specviz.training.draft import collate
from specviz.training.features import body_of
from specviz.training.job import TARGET

from .recipes import job, learns_and_resumes, whole_numbers

KINDS = ("judge", "reward")


@pytest.fixture(scope="module")
def trained(pair, tmp_path_factory):
    place = tmp_path_factory.mktemp("trained")
    for kind in KINDS:
        acceptance_heads.run(job(pair, place), kind)
    return place


@pytest.fixture(scope="module")
def features(pair, trained):
    work = job(pair, trained)
    return whole_numbers(acceptance_heads.ReplacementFeatures(work, work.hparams("judge")), trained)


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(pair, trained, tmp_path, monkeypatch, kind):
    learns_and_resumes(
        lambda work: acceptance_heads.run(work, kind), kind, pair, trained, tmp_path, monkeypatch
    )


def test_a_swapped_token_is_good_when_the_rest_is_expected_about_as_much(features):
    """By hand, text by text: the draft model's best token that is not the target's, and the target's
    log-probabilities of what follows. The places of a text are judged in one pass, and none sees what was
    swapped at another."""
    answer, after = features.heldout[0], 4
    batch = features.states(collate([answer], 64, features.device))
    hparams = {"after": after, "places": 5, "margin": 0.0}
    chosen = acceptance_heads.sample_positions(batch, after, 5, random.Random(5))[1][0].tolist()
    assert len(set(chosen)) == 5
    with torch.no_grad():
        probs, found = features.draft(answer.ids[None].long()).logits[0], []
        for place in (at + 1 for at in chosen):  # of the token that is swapped
            assert answer.start <= place < len(answer.ids) - after
            text = answer.ids.long().clone()
            text[place] = next(
                t for t in probs[place - 1].argsort(descending=True).tolist() if t != int(answer.ids[place])
            )
            lost = []
            for ids in (answer.ids.long(), text):
                logp = features.target(ids[None]).logits[0].log_softmax(-1)
                lost.append(sum(float(logp[i, ids[i + 1]]) for i in range(place, place + after)) / after)
            found.append((lost[0] - lost[1], features.target.model(text[None]).last_hidden_state[0, place]))
        for margin in [loss + side for loss, _ in found for side in (1e-3, -1e-3)]:
            states, label = acceptance_heads.replacement_examples(
                features, batch, {**hparams, "margin": margin}, random.Random(5)
            )
            assert label.tolist() == [float(loss <= margin) for loss, _ in found]
            assert torch.allclose(states, torch.stack([state for _, state in found]), atol=1e-5)


def test_steps_of_the_draft_model_stand_where_the_targets_stood(features):
    answer = features.heldout[0]
    batch = features.states(collate([answer], 64, features.device))
    chosen = acceptance_heads.sample_positions(batch, 4, 3, random.Random(2))[1][0].tolist()
    own, theirs = acceptance_heads.states_along_steps(
        features, batch, {"tokens": 4, "places": 3}, random.Random(2)
    )
    with torch.no_grad():
        for index, place in enumerate(at + 1 for at in chosen):
            text = answer.ids[:place].long().tolist()
            while len(text) < place + 4:
                text.append(int(features.draft(torch.tensor([text])).logits[0, -1].argmax()))
            for ids, found in ((answer.ids[None, : place + 4].long(), own), (torch.tensor([text]), theirs)):
                assert torch.allclose(
                    found[index], features.target.model(ids).last_hidden_state[0, place:], atol=1e-5
                )


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_network_looks_at_its_input_and_reads_back(pair, trained, kind):
    place = trained / "models"
    made = models.load(place / f"Llama-specviz-{kind}", body_of(place / TARGET))
    states = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    first, second = (made(states) if kind == "reward" else made(states[:, 0])).tolist()
    assert abs(first - second) > 1e-3 and 0 < first < 1
    if kind == "reward":
        want = made.second(torch.nn.functional.silu(made.first(states)))[..., 0].mean(-1).sigmoid()
        assert want.tolist() == pytest.approx([first, second], abs=1e-6)
