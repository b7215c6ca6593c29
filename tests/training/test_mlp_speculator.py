"""MLPSpeculator's recipe: it learns and resumes, reads the true tokens, and the trained levels use state
and token."""

from __future__ import annotations

import pytest
import torch

from specviz.methods.trained_heads.mlp_speculator import mlp_speculator_network as models
from specviz.methods.trained_heads.mlp_speculator import mlp_speculator_recipe as mlp_speculator
from specviz.training.draft import collate
from specviz.training.features import Features, body_of
from specviz.training.job import TARGET

from .recipes import killed_and_resumed
from .test_features import STEPS, history, job, material  # noqa: F401


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("mlp")
    mlp_speculator.run(job(material, place))
    return place


def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch):  # noqa: F811
    whole = history(trained, "mlp_speculator")
    assert len(whole) == STEPS and sum(whole[-3:]) < sum(whole[:3])
    assert killed_and_resumed("mlp_speculator", material, tmp_path, monkeypatch) == whole


def test_a_level_reads_the_state_and_every_token_behind_it(material, tmp_path):  # noqa: F811
    work = job(material, tmp_path)
    features = Features(work, work.hparams("mlp_speculator"))
    torch.manual_seed(1)
    model = models.build(features.target_info, features.hparams)
    answer = features.heldout[0]
    batch = features.states(collate([answer], 64, features.device))
    guess = mlp_speculator.head_states_function(model, features)
    with torch.no_grad():
        for index in range(len(model)):
            kept, states = guess(batch, index)
            for row in (0, len(kept) - 1):
                label = int(batch.where[kept[row]]) + 1  # the place of the token that is guessed
                x = batch.states[label - index - 2].float()[None]
                for level in range(index + 1):
                    x = model.step(level, x, answer.ids[label - index - 1 + level].long()[None])
                assert torch.allclose(states[row], x[0], atol=1e-6)


def test_it_begins_with_the_main_directions_of_the_targets_output_matrix(material, tmp_path):  # noqa: F811
    work = job(material, tmp_path)
    features = Features(work, work.hparams("mlp_speculator"))
    matrix, found = features.head.float(), []
    for inner in (2, matrix.shape[1] // 2, matrix.shape[1]):
        model = models.build(features.target_info, features.hparams | {"inner": inner})
        mlp_speculator.begin(model, features)
        assert torch.equal(model.emb[0].weight, model.head[0].weight)
        tables = (model.head[0].weight, matrix)
        found.append(
            float(
                torch.corrcoef(torch.stack([(table @ table.T).flatten() for table in tables]))[0, 1].detach()
            )
        )
    assert found[0] < found[1] < found[2] and found[1] > 0.5 and found[2] > 0.999, (
        "all directions give all products of its rows"
    )


def test_the_trained_levels_use_state_and_token(trained):
    made = models.load(
        trained / "models" / "Llama-specviz-mlp_speculator", body_of(trained / "models" / TARGET)
    )
    torch.manual_seed(0)
    states, same = torch.randn(2, made.hidden), torch.zeros(2, dtype=torch.long)
    for level in range(len(made)):
        by_state = made.logits(level, made.step(level, states, same)).softmax(-1)
        by_token = made.logits(
            level, made.step(level, states[:1].expand(2, -1), torch.tensor([3, 9]))
        ).softmax(-1)
        for probs in (by_state, by_token):
            assert float((probs[0] - probs[1]).abs().sum()) > 1e-3
        states = made.step(level, states, same)
