"""The recipe of a consistency model: which blocks it is shown, its loss by hand, learning, resumption, and
that a run writes its own text."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from specviz.checkpoints import mx
from specviz.checkpoints.weights import ModelError
from specviz.core import Sampling, State
from specviz.methods.parallel_decoding.cllm import METHOD
from specviz.methods.parallel_decoding.cllm import cllm_recipe as cllm
from specviz.models import causal
from specviz.targets.fast import FastModel
from specviz.trace.events import Committed
from specviz.training.draft import collate
from specviz.training.features import body_of
from specviz.training.job import TARGET, Job

from ..message_codes import refuses
from ..models.tiny import body
from .recipes import START, job, learns_and_resumes

NUMBERS = {"block": 4, "passes": 2, "anchors": 3, "hard_label_weight": 0.0, "stay": 1.0}


@pytest.fixture(scope="module")
def trained(pair, tmp_path_factory):
    place = tmp_path_factory.mktemp("trained")
    cllm.run(job(pair, place))
    return place


@pytest.fixture(scope="module")
def features(pair, trained):
    work = job(pair, trained)
    return cllm.Trajectories(work, work.hparams("cllm"))


@pytest.mark.thorough
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(pair, trained, tmp_path, monkeypatch):
    learns_and_resumes(cllm.run, "cllm", pair, trained, tmp_path, monkeypatch)


def test_a_block_is_a_point_of_its_trajectory(features):
    """No pass: tokens of the text in front of it. As many passes as places: the answer itself, which greedy
    decoding wrote."""
    batch = features.states(collate(features.own.answers[:3], 64, features.device))
    points = cllm.trajectory_points(features.before, batch, NUMBERS | {"passes": 0}, random.Random(1))
    for row, text in enumerate(batch.ids.tolist()):
        for owner, tokens, right, inside in zip(
            *(part[row].tolist() for part in (points.owners, points.tokens, points.right, points.inside))
        ):
            assert set(tokens) <= set(text[: owner + 1]) and owner >= START - 1 and inside[0]
            assert [token for token, there in zip(right, inside) if there] == text[
                owner + 1 : owner + 1 + sum(inside)
            ]
    assert points.wrong.sum() > 6 and not (points.wrong & ~points.inside).any()
    first = points.wrong.int().argmax(-1, keepdim=True)
    assert (points.tokens != points.right).gather(-1, first)[points.wrong.any(-1)].all()

    class Most(random.Random):
        def randrange(self, stop):
            return stop - 1 if stop == 9 else super().randrange(stop)

    assert not cllm.trajectory_points(features.before, batch, NUMBERS | {"passes": 8}, Most(1)).wrong.any()


def test_a_pass_over_blocks_is_a_jacobi_pass_over_the_text(features):
    """Blocks of one text that share its keys see no other block."""
    model, batch = features.before, features.states(collate(features.own.answers[:2], 64, features.device))
    points = cllm.trajectory_points(model, batch, NUMBERS | {"passes": 0}, random.Random(2))
    with torch.no_grad():
        found = points.rows(model, model.rows(batch.ids)[1])
        for row, ids in enumerate(batch.ids):
            for owner, tokens, states in zip(points.owners[row], points.tokens[row], found[row]):
                want = model(torch.cat([ids[: owner + 1], tokens])[None])[0, owner + 1 :]
                assert torch.allclose(states, want, atol=1e-4)


def test_the_loss_asks_behind_the_first_wrong_token_for_what_the_right_text_says(features):
    batch = features.states(collate(features.own.answers[:1], 64, features.device))
    model, at = features.before, START + 5
    right = batch.ids[:, None, at : at + 4]
    wrong = right.clone()
    wrong[0, 0, 1] = (wrong[0, 0, 1] + 1) % 48
    points = cllm.TrajectoryPoints(
        torch.tensor([[at - 1]]), wrong, right, torch.ones(1, 1, 4, dtype=torch.bool)
    )
    with torch.no_grad():
        found = float(cllm.loss(model, batch, points, NUMBERS))
        along = float(cllm.loss(model, batch, replace(points, tokens=right), NUMBERS))
        ids = batch.ids.clone()
        ids[0, at + 1] = wrong[0, 0, 1]
        p, q = ((model(one)[0] @ model.output.T).log_softmax(-1) for one in (batch.ids, ids))
    want = [float((p[i].exp() * (p[i] - q[i])).sum()) for i in range(at + 1, at + 4)]
    assert found - along == pytest.approx(sum(want) / 3, rel=1e-3) and found > along


def test_matrices_of_small_rank_are_kept_alone_and_added_to_the_target(
    pair, trained, features, tmp_path, monkeypatch
):
    hparams = Job.hparams
    monkeypatch.setattr(Job, "hparams", lambda self, recipe: hparams(self, recipe) | {"rank": 2})
    place = cllm.run(job(pair, tmp_path))
    kept = load_file(place / "model.safetensors")
    assert (
        kept
        and all(".lora_" in name for name in kept)
        and sum(t.numel() for t in kept.values()) < 0.2 * sum(w.numel() for w in features.before.parameters())
    )
    target = body_of(trained / "models" / TARGET)
    read = causal.load(place, target)
    whole = copy.deepcopy(features.before)
    one = causal.LoraAdapters(whole, 2)
    one.load_state_dict({name: tensor.float() for name, tensor in mx.from_file_tensors(kept).items()})
    ids = features.own.answers[0].ids[None, :40]
    with torch.no_grad():
        found = read(ids)
        want = one(ids)
        before = features.before(ids)
    assert (
        torch.allclose(found, want, atol=0.05)
        and float((found - want).norm()) < 0.2 * float((want - before).norm()) > 0
    )
    with refuses(ModelError, "adapters.no_folder"):
        causal.load(place, replace(target, folder=None))
    told = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({key: value for key, value in told.items() if key != "r"}))
    with refuses(ModelError, "adapters.rank"):
        causal.load(place, target)


def test_a_run_writes_what_its_own_weights_write(pair, trained, features):
    """Whatever is loaded as the target, in as many passes as the recipe's count says; and these weights are
    no longer the target's."""
    target = FastModel(trained / "models" / TARGET).open()
    head = causal.load(trained / "models" / "Llama-specviz-cllm", body(target))
    assert any(
        not torch.equal(a, b)
        for a, b in zip(head.state_dict().values(), features.before.state_dict().values())
    )
    kit = type("Kit", (), {"target": target, "head": lambda self, kind: head})()
    tokens = passes = 0
    for answer in features.own.answers[:3]:
        prompt, count = answer.ids[:START].tolist(), len(answer.ids) - START
        parts = METHOD.build(kit, block=4)
        state = State(list(prompt), Sampling(0.0), limit=count)
        rounds = sum(isinstance(event, Committed) for event in parts.loop(parts, target, state))
        with torch.no_grad():
            want = list(prompt)
            while len(want) < len(answer.ids):
                want.append(int((head(torch.tensor([want]))[0, -1] @ head.output.T).argmax()))
        assert state.tokens == want and (count, rounds) == cllm.jacobi(head, answer, 4)
        tokens, passes = tokens + count, passes + rounds
    assert passes < tokens and target.passes == 0, "the target has no part in it"
