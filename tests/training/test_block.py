"""The recipes of block drafters: they learn and resume, they use the text, and the engine keeps what the
replay promises."""

from __future__ import annotations

import pytest
import torch

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.drafters.heads.masked_block import BlockChain
from specviz.models import masked_block as network
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import chains, masked_block
from specviz.training.features import Features
from specviz.training.job import TARGET
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .test_features import STEPS, history, job, material  # noqa: F401

KINDS = ("dflash", "dspark")


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("trained")
    for kind in KINDS:
        masked_block.run(job(material, place), kind)
    return place


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch, kind):  # noqa: F811
    whole = history(trained, kind)
    assert len(whole) == STEPS and sum(whole[-3:]) < sum(whole[:3])
    inner, left = Features.batch, [9]

    def killed(self, step, done):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return inner(self, step, done)

    with monkeypatch.context() as patch:
        patch.setattr(masked_block.AuxStateFeatures, "batch", killed)
        with pytest.raises(KeyboardInterrupt):
            masked_block.run(job(material, tmp_path), kind)
    masked_block.run(job(material, tmp_path), kind)
    assert history(tmp_path, kind) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_drafter_uses_the_text(material, trained, kind):  # noqa: F811
    """Its rows change when the states of the text are shuffled, though the last one stays."""
    work = job(material, trained)
    features = masked_block.AuxStateFeatures(work, work.hparams(kind))
    head = network.load(trained / "models" / f"Llama-specviz-{kind}", features.target_info)
    answer = features.heldout[0]
    batch = features.states(masked_block.collate([answer], len(answer.ids), features.device))
    rows = batch.layer.float()[:20]
    embeds = torch.nn.functional.embedding(
        torch.tensor([5] + [head.mask_token] * (head.block - 1)), features.embedding
    ).float()
    order = torch.cat([torch.randperm(19, generator=torch.Generator().manual_seed(0)), torch.tensor([19])])
    with torch.inference_mode():
        drafts = []
        for text in (rows, rows[order]):
            cache = head.open()
            cache.read(text)
            drafts.append(cache.draft(embeds) @ features.head.float().T)
    change = (drafts[0].softmax(-1) - drafts[1].softmax(-1)).abs().sum(-1) / 2
    assert float(change.min()) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_keeps_what_the_replay_promises(material, trained, kind):  # noqa: F811
    """At temperature 0 the rounds of the engine accept exactly what the replay of the same text accepts."""
    model = FastModel(trained / "models" / TARGET)
    target = model.open()
    head = network.load(trained / "models" / f"Llama-specviz-{kind}", body(target))
    work = job(material, trained)
    features = masked_block.AuxStateFeatures(work, work.hparams(kind))
    features.target.float()
    features.head, features.embedding = (
        features.target.lm_head.weight,
        features.target.get_input_embeddings().weight,
    )
    answer = next(a for a in features.heldout if a.greedy)
    state = State(answer.ids[: answer.start].tolist(), Sampling(0.0), limit=len(answer.ids) - answer.start)
    parts = Parts(BlockChain(head), Fixed(head.length), TokenRejection())
    open_run(parts, target, state)
    rounds = 0
    while not state.done:
        play(parts, target, state)
        rounds += 1
    written = state.tokens[answer.start :]
    replayed = masked_block.accepted_by_step(
        head.float(),
        features,
        masked_block.Answer(
            torch.tensor(state.tokens), answer.start, "chat", 0.0, answer.top_ids, answer.top_logp
        ),
    )
    assert chains.replay_rounds([replayed], head.length)["block_efficiency"] == pytest.approx(
        len(written) / rounds, abs=1e-4
    )
