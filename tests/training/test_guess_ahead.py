"""The recipes of heads that guess ahead from the last state: they learn and resume, the engine keeps what
the replay promises, and what is trained uses the state and, where it reads them, the tokens drafted
before."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from specviz.drafters.heads.lattice import BlockLattice
from specviz.methods.trained_heads.blockwise import blockwise_network as blockwise_models
from specviz.methods.trained_heads.blockwise import blockwise_recipe as blockwise
from specviz.methods.trained_heads.chimera import chimera_network as chimera_models
from specviz.methods.trained_heads.chimera import chimera_recipe as chimera
from specviz.methods.trained_heads.chimera.chimera_drafter import ChimeraTree
from specviz.methods.trained_heads.clover import clover_network as clover_models
from specviz.methods.trained_heads.clover import clover_recipe as clover
from specviz.methods.trained_heads.clover.clover_drafter import CloverTree
from specviz.methods.trained_heads.redrafter import redrafter_network as redrafter_models
from specviz.methods.trained_heads.redrafter import redrafter_recipe as redrafter
from specviz.methods.trained_heads.redrafter.redrafter_drafter import BeamTree
from specviz.training.features import Features, body_of
from specviz.training.job import TARGET
from specviz.trees import full_tree

from .recipes import killed_and_resumed, promised_and_kept, whole_numbers
from .test_features import STEPS, history, job, material  # noqa: F401

CHAIN = full_tree((1, 1, 1))
RECIPES = {
    "redrafter": (
        redrafter,
        redrafter_models,
        lambda model: BeamTree(model, 1),
        redrafter.head_states_function,
    ),
    "clover": (
        clover,
        clover_models,
        lambda model: CloverTree(model, CHAIN),
        lambda model, features: clover.BatchHeadStates(model, features).head_states,
    ),
    "chimera": (
        chimera,
        chimera_models,
        lambda model: ChimeraTree(model, CHAIN),
        lambda model, features: chimera.BatchHeadStates(model, features).head_states,
    ),
    "blockwise": (blockwise, blockwise_models, BlockLattice, blockwise.head_states_function),
}


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("ahead")
    for recipe, *_ in RECIPES.values():
        recipe.run(job(material, place))
    return place


@pytest.mark.thorough
@pytest.mark.parametrize("name", RECIPES)
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch, name):  # noqa: F811
    whole = history(trained, name)
    assert len(whole) == STEPS and sum(whole[-3:]) < sum(whole[:3])
    assert killed_and_resumed(name, material, tmp_path / "again", monkeypatch) == whole
    card = (trained / "models" / f"Llama-specviz-{name}" / "README.md").read_text()
    assert f"training {name}" in card and "{" not in card


@pytest.mark.parametrize("name", RECIPES)
def test_the_replay_says_what_the_engine_does(material, trained, name):  # noqa: F811
    _, reader, drafter_of, guess_of = RECIPES[name]
    work = job(material, trained)
    features = whole_numbers(Features(work, work.hparams(name)), trained)
    expected_length, kept, accepted = promised_and_kept(
        reader, drafter_of, lambda model: guess_of(model, features), features, trained, name, CHAIN
    )
    assert accepted > 0 and expected_length == kept


def probs(name, model, state, tokens, matrix):
    """What the trained head says behind some tokens; matrix: the target's output matrix."""
    head = lambda states: states @ matrix.T  # noqa: E731
    with torch.inference_mode():
        if name == "blockwise":
            return model(state, len(tokens), head)[-1].softmax(-1)
        if name == "chimera":
            codes = [
                model.trigrams(matrix[[1, 2, *tokens][end : end + 3]])[None, None]
                for end in range(len(tokens))
            ]
            outputs = model(state[None, None], codes)[-1][0]
            return model.logits(len(tokens) - 1, state[None], outputs, head)[0].softmax(-1)
        table = F.normalize(matrix, dim=-1)
        states = torch.zeros_like(state)[None] if name == "redrafter" else state[None]
        for token in tokens:
            states = (
                model.step(states, matrix[[token]])
                if name == "redrafter"
                else model.regression(states, table[[token]])[0]
            )
        logits = (
            model.logits(state[None], states, head)
            if name == "redrafter"
            else model.logits(len(tokens) - 1, states, head)
        )
        return logits[0].softmax(-1)


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_trained_uses_the_state_and_the_tokens(trained, name):
    model = RECIPES[name][1].load(
        trained / "models" / f"Llama-specviz-{name}", body_of(trained / "models" / TARGET)
    )
    torch.manual_seed(0)
    (state, other), matrix = torch.randn(2, 32), torch.randn(48, 32)
    for tokens in ([3], [3, 9], [3, 9, 4]):
        mine = probs(name, model, state, tokens, matrix)
        assert float((mine - probs(name, model, other, tokens, matrix)).abs().sum()) > 1e-2
        for place in range(len(tokens)):
            changed = [7 if i == place else token for i, token in enumerate(tokens)]
            assert (float((mine - probs(name, model, state, changed, matrix)).abs().sum()) > 1e-5) == (
                name != "blockwise"
            )
