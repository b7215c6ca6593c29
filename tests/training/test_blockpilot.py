"""The recipe of BlockPilot's network: its sweep is a replay of rounds, it learns, and the engine asks it once
for an answer."""

from __future__ import annotations

import pytest

from specviz.core import Sampling, State, open_run, play
from specviz.methods.draft_length.blockpilot import METHOD
from specviz.methods.draft_length.blockpilot import blockpilot_network as network
from specviz.methods.draft_length.blockpilot import blockpilot_recipe as blockpilot
from specviz.methods.trained_heads.eagle import eagle_recipe as eagle
from specviz.models import eagle as eagle_models
from specviz.targets.fast import FastModel
from specviz.training.job import TARGET

from ..models.tiny import body
from .recipes import START, job, learns_and_resumes


@pytest.fixture(scope="module")
def chained(pair, tmp_path_factory):
    place = tmp_path_factory.mktemp("chained")
    eagle.run(job(pair, place))
    return place


@pytest.fixture(scope="module")
def trained(chained):
    blockpilot.run(job(chained, chained))
    return chained


@pytest.mark.thorough
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(chained, trained, tmp_path, monkeypatch):
    learns_and_resumes(blockpilot.run, "blockpilot", chained, trained, tmp_path, monkeypatch)


def test_the_sweep_counts_rounds_and_their_costs():
    """Drafts of which all is accepted earn with their length; of which nothing is, the shortest is best."""
    sure, wrong = (blockpilot.speeds_of([n] * 12, 3, 0.1, 0.1) for n in (9, 0))
    assert sure == pytest.approx([12 / (6 * 1.2), 12 / (4 * 1.4), 12 / (3 * 1.6)])
    assert wrong == pytest.approx([1 / 1.2, 1 / 1.4, 1 / 1.6])
    mixed = blockpilot.speeds_of([2, 1, 0, 0], 2, 0.0, 0.0)
    assert mixed == pytest.approx([4 / 3, 4 / 2])


def test_the_engine_asks_once_and_keeps_the_length(trained):
    model = FastModel(trained / "models" / TARGET)
    target, place = model.open(), trained / "models"
    net = network.load(place / "Llama-specviz-blockpilot", body(target))
    heads = {
        "blockpilot": net,
        "eagle": eagle_models.load(place / "Llama-specviz-eagle", body(target)),
    }
    kit = type("Kit", (), {"target": target, "head": lambda self, kind: heads[kind]})()
    asked, lengths = [], []
    length = net.length
    net.length = lambda state: asked.append(length(state)) or asked[-1]
    parts = METHOD.build(kit, **METHOD.read_knobs({}))
    state = State(list(range(1, START)), Sampling(0.0), limit=24)
    open_run(parts, target, state)
    while not state.done:
        lengths.append((len(play(parts, target, state).tree), state.left))
    assert len(asked) == 1 and {n for n, left in lengths if left > 4} == {min(asked[0], 3)}
