"""The recipe of AdaEAGLE's length network: labels are what the engine's chains do, the loss weighs a draft
too short, it learns and looks."""

from __future__ import annotations

import pytest
import torch

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.drafters.heads.features import FeatureDrafter
from specviz.drafters.model.chain import DraftChain
from specviz.methods.draft_length.adaeagle import METHOD
from specviz.methods.draft_length.adaeagle import adaeagle_recipe as adaeagle
from specviz.methods.trained_heads.eagle import eagle_recipe as eagle
from specviz.models import draft_length
from specviz.models import eagle as eagle_models
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training.draft import collate
from specviz.training.job import TARGET
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .recipes import START, job, learns_and_resumes, whole_numbers


@pytest.fixture(scope="module")
def chained(pair, tmp_path_factory):
    """The work folder with an EAGLE head in it."""
    place = tmp_path_factory.mktemp("chained")
    eagle.run(job(pair, place))
    return place


@pytest.fixture(scope="module")
def trained(chained):
    adaeagle.run(job(chained, chained))
    return chained


def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(chained, trained, tmp_path, monkeypatch):
    learns_and_resumes(adaeagle.run, "adaeagle", chained, trained, tmp_path, monkeypatch)


def test_the_loss_weighs_what_is_too_short():
    told, lengths = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 2.0, 1.0])
    assert float(adaeagle.loss(told, lengths, 3.0)) == pytest.approx((3 * 1 + 0 + 2) / 3)


def test_labels_are_what_the_engines_chains_do(trained):
    """Every round of a chain of three begins at some place: what it accepts there is that place's label."""
    most, work = 3, job(trained, trained)
    model = FastModel(trained / "models" / TARGET)
    features = whole_numbers(adaeagle.ChainLengthFeatures(work, work.hparams("adaeagle")), trained)
    head = eagle_models.load(trained / "models" / "Llama-specviz-eagle", body(model.open()))
    met = set()
    for answer in features.own.answers[:4]:
        labels = features.lengths(features.states(collate([answer], 64, features.device)), most).tolist()
        target, parts = model.open(), Parts(FeatureDrafter(head, DraftChain), Fixed(most), TokenRejection())
        state = State(answer.ids[:START].tolist(), Sampling(0.0), limit=len(answer.ids) - START)
        open_run(parts, target, state)
        while not state.done:
            at = len(state.tokens) - START
            accepted = len(play(parts, target, state).verdict.path)
            assert accepted == min(labels[at], len(labels) - at - 1), "the last token is the target's own"
            met.add(accepted)
    assert len(met) > 1


def test_a_trained_network_looks_at_its_input_and_decides_the_length(trained):
    """On the engine, too: what the method asks for each round is what the network says of the token before
    the last."""
    model = FastModel(trained / "models" / TARGET)
    target = model.open()
    place = trained / "models"
    heads = {
        "adaeagle": draft_length.load(place / "Llama-specviz-adaeagle", body(target)),
        "eagle": eagle_models.load(place / "Llama-specviz-eagle", body(target)),
    }
    kit = type("Kit", (), {"target": target, "head": lambda self, kind: heads[kind]})()
    parts = METHOD.build(kit, **METHOD.read_knobs({"most": 3}))
    state = State([3, 7, 1, 4], Sampling(0.0), limit=12)
    open_run(parts, target, state)
    lengths = []
    while not state.done:
        fresh, tokens = model.open(), list(state.tokens)
        fresh.capture(frozenset({"final"}))
        hidden = fresh.sync(tokens).hidden_states["final"][-1]
        with torch.inference_mode():
            want = float(heads["adaeagle"](target.embed([tokens[-2]])[0], hidden))
        budget = parts.policy.plan(state)
        assert state.notes[-1][1]["predicted"] == pytest.approx(want, abs=2e-3) and budget.gamma == min(
            3, max(0, round(want))
        )
        lengths.append(want)
        play(parts, target, state)
    assert max(lengths) - min(lengths) > 1e-3
