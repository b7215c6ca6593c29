"""What guesses inside the target is trained through its layers: it learns and resumes, each row sees what
it should and stands where it should, the engine keeps what the replay promises, and what is trained uses
the text."""

from __future__ import annotations

import pytest
import torch

from specviz.drafters.heads.in_target import InTargetTree, uniform_plan
from specviz.models import in_target as models
from specviz.training import in_target
from specviz.training.draft import collate
from specviz.training.features import Features, entering_states
from specviz.training.recipes import run_of
from specviz.training.text_answers import Answer
from specviz.trees import full_tree

from .recipes import killed_and_resumed, promised_and_kept, whole_numbers
from .test_features import STEPS, history, job, material  # noqa: F401

RECIPES = ("pass_sampling", "ppd", "hidden_transfer", "speculative_streaming")
CHAIN = full_tree((1, 1, 1))


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("inside")
    for name in RECIPES:
        run_of(name)(job(material, place))
    return place


@pytest.fixture(scope="module")
def features(material, trained):  # noqa: F811
    work = job(material, trained)
    return whole_numbers(Features(work, work.hparams("ppd")), trained)


def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch):  # noqa: F811
    for name in RECIPES:
        whole = history(trained, name)
        assert len(whole) == STEPS and sum(whole[-5:]) < sum(whole[:5]), name
        card = (trained / "models" / f"Llama-specviz-{name}" / "README.md").read_text()
        assert f"training {name}" in card and "{" not in card
    assert killed_and_resumed("hidden_transfer", material, tmp_path / "again", monkeypatch) == history(
        trained, "hidden_transfer"
    )


@pytest.mark.parametrize("name", RECIPES)
def test_the_replay_says_what_the_engine_does(trained, features, name):
    """A row at the wrong place, or one that sees another chain, says something else."""
    expected_length, kept, accepted = promised_and_kept(
        models,
        lambda model: InTargetTree(model, uniform_plan(CHAIN, 3)),
        lambda model: After(model, features).head_states,
        features,
        trained,
        name,
        CHAIN,
    )
    assert accepted > 0 and expected_length == kept


class After(in_target.AllPositionStates):
    """As drafts go: nothing is guessed before the first token of an answer was written in a round of its
    own."""

    def head_states(self, batch, index):
        kept, states = super().head_states(batch, index)
        late = kept > index
        return kept[late], states[late]


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_trained_uses_the_text(material, trained, features, name):  # noqa: F811
    """What is guessed behind the same token changes when the text before it is another."""
    model = models.load(trained / "models" / f"Llama-specviz-{name}", features.target_info)
    answer, seen = features.own.answers[0], []
    for shift in (0, 1):
        ids = torch.cat([answer.ids[:8].roll(shift), answer.ids[8:]])
        batch = features.states(
            collate([Answer(ids, answer.start, *list(answer.__dict__.values())[2:])], 64, features.device)
        )
        with torch.no_grad():
            reader = in_target.ExtraRowStates(model, features, batch.where[None, 5:6])
            seen.append(
                [
                    (reader.head_states(batch, step)[1] @ features.head.T).softmax(-1)
                    for step in range(len(model))
                ]
            )
    assert all(float((a - b).abs().sum()) > 1e-3 for a, b in zip(*seen))


def test_states_that_enter_a_layer_are_those_of_the_whole_network(features):
    """Of any layer, in any order: what a library keeps of the layers that it saw first must not matter."""
    net, ids = features.target, features.own.answers[0].ids[None]
    with torch.no_grad():
        found = {layer: entering_states(net, ids, layer) for layer in (2, 0, 1)}
        seen = []
        hooks = [
            layer.register_forward_pre_hook(
                lambda module, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]),
                with_kwargs=True,
            )
            for layer in net.model.layers
        ]
        net.model(ids)
    for hook in hooks:
        hook.remove()
    assert len(seen) == net.config.num_hidden_layers == len(net.model.layers)
    assert all(torch.equal(states, seen[layer]) for layer, states in found.items())
    assert not torch.equal(found[1], found[2])
