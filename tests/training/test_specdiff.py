"""The recipe of SpecDiff: blocks end with their answers, it learns and resumes, and the engine keeps what
the replay promises."""

from __future__ import annotations

import random

import pytest
import torch

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.drafters.heads.diffusion import DiffusionDraft
from specviz.methods.trained_heads.specdiff import specdiff_network as network
from specviz.methods.trained_heads.specdiff import specdiff_recipe as specdiff
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains
from specviz.training.features import Batch, Features
from specviz.training.job import TARGET
from specviz.training.text_answers import Answer
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .test_features import STEPS, history, job, material  # noqa: F401


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("trained")
    specdiff.run(job(material, place))
    return place


def test_blocks_read_the_text_before_them_and_end_with_the_answer():
    ids = torch.arange(10, 22).view(2, 6)  # answers: places 3, 4, 5 of the first row and 2, 3 of the second
    where = torch.tensor([2, 3, 4, 7, 8])
    batch = Batch(
        ids, ids.new_zeros(0), None, where, ids.flatten()[where + 1], ids.new_zeros(5, 1), torch.zeros(5, 1)
    )
    made = specdiff.blocks(batch, torch.tensor([[0, 2], [3, 4]]), torch.ones(2, 2, 2, dtype=torch.bool))
    assert made.index.tolist() == [[[0, 1], [2, -1]], [[3, 4], [4, -1]]]
    assert made.places[0, 6:].tolist() == [2, 3, 4, 4, 5, 6] and made.ids[0, 6:9].tolist() == [12, 13, 14]
    assert made.masked[:, 6:].tolist() == [[False, True, True] * 2] * 2
    sees = made.mask[0, 0].int().tolist()
    assert sees[6] == sees[8] == [1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0] and sees[9] == [
        1,
        1,
        1,
        1,
        0,
        0,
        0,
        0,
        0,
        1,
        1,
        1,
    ]
    assert sees[2] == [1, 1, 1] + [0] * 9


def test_half_of_the_blocks_are_masked_whole_and_the_others_as_in_later_steps():
    hidden = specdiff.sample_masked_positions(40, 50, 4, random.Random(1)).flatten(0, 1)
    whole = hidden.all(1).float().mean()
    later = (hidden.int().diff(dim=1) >= 0).all(1)
    assert 0.5 < whole < 0.75 and not later.all() and hidden.any(1).float().mean() > 0.9


def test_the_most_frequent_tokens_are_kept():
    answers = [
        Answer(
            torch.tensor([1, 2, 5, 5, 9, 9, 9, 2, 99]), 2, "chat", 0.0, torch.zeros(7, 1), torch.zeros(7, 1)
        )
    ]
    assert specdiff.most_frequent(answers, torch.tensor([1, 2, 5, 9]), 2).tolist() == [2, 3]


def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch):  # noqa: F811
    found = history(trained, "specdiff")
    assert len(found) == STEPS and sum(found[-3:]) < sum(found[:3])
    inner, left = Features.batch, [9]

    def killed(self, step, done):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return inner(self, step, done)

    with monkeypatch.context() as patch:
        patch.setattr(specdiff.TextFeatures, "batch", killed)
        with pytest.raises(KeyboardInterrupt):
            specdiff.run(job(material, tmp_path))
    specdiff.run(job(material, tmp_path))
    assert history(tmp_path, "specdiff") == found


def test_the_engine_keeps_what_the_replay_promises(material, trained):  # noqa: F811
    """At temperature 0 and with one step the rounds of the engine accept exactly what the replay of the
    same text accepts."""
    target = FastModel(trained / "models" / TARGET).open()
    head = network.load(trained / "models" / "Llama-specviz-specdiff", body(target))
    work = job(material, trained)
    features = specdiff.TextFeatures(work, work.hparams("specdiff"))
    features.embedding = features.target.float().get_input_embeddings().weight
    answer = next(a for a in features.heldout if a.greedy)
    state = State(answer.ids[: answer.start].tolist(), Sampling(0.0), limit=len(answer.ids) - answer.start)
    parts = Parts(DiffusionDraft(head), Fixed(head.block), TokenRejection())
    open_run(parts, target, state)
    rounds = 0
    while not state.done:
        play(parts, target, state)
        rounds += 1
    written = state.tokens[answer.start :]
    whole = Answer(torch.tensor(state.tokens), answer.start, "chat", 0.0, answer.top_ids, answer.top_logp)
    replayed = specdiff.Trainer(head.float(), features, work.hparams("specdiff")).accepted_by_step(whole)
    assert chains.replay_rounds([replayed], head.block)["block_efficiency"] == pytest.approx(
        len(written) / rounds, abs=1e-4
    )
