"""The recipes of SpecDec++ and DISCO: labels and losses by hand, learning, resumption, and that the trained
network looks."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import LlamaConfig

from specviz.models import draft_length as models
from specviz.training import draft_length
from specviz.training.draft import collate
from specviz.training.features import Features, body_of
from specviz.training.job import TARGET

from ..targets.tiny import network
from .test_features import STEPS, history, job, material  # noqa: F401

KINDS = ("specdecpp", "disco")


@pytest.fixture(scope="module")
def pair(material):  # noqa: F811
    """The tiny target's folder with a draft model beside it, narrower than the target and right now and
    then."""
    place = material / "models" / "Llama-specviz-draft"
    if not place.exists():
        net = network(
            LlamaConfig(
                vocab_size=48,
                hidden_size=16,
                intermediate_size=24,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=1,
                max_position_embeddings=96,
                bos_token_id=None,
                eos_token_id=None,
                pad_token_id=None,
            ),
            seed=5,
        )
        net.get_input_embeddings().weight.data.mul_(0.5)
        net.save_pretrained(place)
    return material


@pytest.fixture(scope="module")
def trained(pair, tmp_path_factory):
    place = tmp_path_factory.mktemp("lengths")
    for kind in KINDS:
        draft_length.run(job(pair, place), kind)
    return place


@pytest.fixture(scope="module")
def features(pair, tmp_path_factory):
    work = job(pair, tmp_path_factory.mktemp("features"))
    return draft_length.DraftFeatures(work, work.hparams("specdecpp"))


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(pair, trained, tmp_path, monkeypatch, kind):
    whole = history(trained, kind)
    assert len(whole) == STEPS and sum(whole[-5:]) < sum(whole[:5])
    inner, left = Features.batch, [9]

    def killed(self, step, done):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return inner(self, step, done)

    with monkeypatch.context() as patch:
        patch.setattr(Features, "batch", killed)
        with pytest.raises(KeyboardInterrupt):
            draft_length.run(job(pair, tmp_path), kind)
    draft_length.run(job(pair, tmp_path), kind)
    assert history(tmp_path, kind) == whole


def test_the_loss_weighs_a_refusal_more_and_is_divided_by_the_weight():
    token_probs, passes = [0.9, 0.4, 0.2], [1.0, 0.25, 0.0]
    want = sum(-a * math.log(c) - 6 * (1 - a) * math.log(1 - c) for c, a in zip(token_probs, passes))
    want /= 6 * sum(1 - a for a in passes) + sum(passes)
    found = draft_length.acceptance_loss(torch.tensor(token_probs).logit(), torch.tensor(passes), 6.0)
    assert float(found) == pytest.approx(want, abs=1e-5)


def test_labels_are_the_chance_that_the_drawn_token_is_accepted(features):
    p, q = torch.tensor([[0.5, 0.3, 0.2]]).expand(9000, 3), torch.tensor([[0.2, 0.6, 0.2]]).expand(9000, 3)
    tokens, passes = draft_length.sample_tokens(p, q, torch.Generator().manual_seed(0))
    assert {(int(t), round(float(a), 4)) for t, a in zip(tokens, passes)} == {(0, 1.0), (1, 0.5), (2, 1.0)}
    share = torch.bincount(tokens) / len(tokens)
    assert float((share - q[0]).abs().max()) < 0.02
    assert float(passes.mean()) == pytest.approx(float(torch.minimum(p[0], q[0]).sum()), abs=0.02)


def test_the_head_reads_the_draft_model_on_the_mixed_text(features):
    """By hand: replace the answer's tokens, run the draft model, take the state behind each token; its
    chance is of the true text."""
    answer = features.heldout[0]
    batch = features.states(collate([answer], 64, features.device))
    states, passes, own = draft_length.states_of_mixed_text(
        features, batch, 0.4, torch.Generator().manual_seed(4)
    )
    tokens, again = draft_length.sample_tokens(
        *features.distributions(batch), torch.Generator().manual_seed(4)
    )
    assert torch.equal(passes, again) and 0 < int(own.sum()) < len(own)
    text = answer.ids[: answer.start].tolist()
    with torch.no_grad():
        p = features.target(answer.ids[None].long()).logits[0].float().softmax(-1)
        q = features.draft(answer.ids[None].long()).logits[0].softmax(-1)
        for j, token in enumerate(tokens.tolist()):
            at = answer.start + j
            assert float(passes[j]) == pytest.approx(
                min(1.0, float(p[at - 1, token] / q[at - 1, token])), rel=0.05
            )  # half precision
            text.append(token if own[j] else int(answer.ids[at]))
            state = features.draft.model(torch.tensor([text])).last_hidden_state[0, -1]
            assert torch.allclose(states[j], state, atol=1e-5)
    every = draft_length.states_of_mixed_text(features, batch, 1.0, torch.Generator().manual_seed(4))[2]
    assert not every.any(), "a share of 1 leaves the target's text alone"


def test_traces_are_rounds_along_the_text(features, monkeypatch):
    """All accepted: places 0..most-1, then a token of the target's own. All refused: always place 0."""
    batch = features.states(collate(features.heldout[:2], 64, features.device))
    rows = [len(a.ids) - a.start for a in features.heldout[:2]]
    certain = torch.eye(48)
    for prob, want in (
        (1.0, lambda n: [d for d in (i % 4 for i in range(n)) if d < 3]),
        (0.0, lambda n: [0] * n),
    ):
        made = certain[[3] * len(batch.where)], certain[[3 if prob else 4] * len(batch.where)]
        monkeypatch.setattr(features, "distributions", lambda batch, made=made: made)
        q, depths, passes = draft_length.simulate_rounds(features, batch, 3, 0)
        assert depths.tolist() == [d for n in rows for d in want(n)]
        assert len(q) == len(depths) == len(passes) and set(passes.tolist()) == {prob}


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_network_looks_at_its_input_and_reads_back(pair, trained, kind):
    place = trained / "models"
    made = models.load(place / f"Llama-specviz-{kind}", body_of(place / TARGET))
    torch.manual_seed(0)
    if kind == "disco":
        distributions = torch.tensor([[1.0, *[0.0] * 47], [1 / 48] * 48])
        first, second = made(distributions, torch.zeros(2)).tolist()
    else:
        assert made.hidden == 16, "the draft model's states, not the target's"
        first, second = made(torch.randn(2, 16)).tolist()
    assert abs(first - second) > 1e-3
