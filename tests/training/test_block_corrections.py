"""The recipes of corrections of a frozen DFlash: they learn and resume, leave DFlash alone, and the engine
keeps what the replay promises."""

from __future__ import annotations

import hashlib
import random

import pytest
import torch

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.drafters.heads.masked_block import BlockChain
from specviz.models import masked_block as network
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import block_corrections, chains, masked_block
from specviz.training.job import TARGET
from specviz.training.recipes import module_of
from specviz.verifiers import TokenRejection
from specviz.zoo.trained_heads import network_of

from ..models.tiny import body
from .recipes import killed
from .test_features import STEPS, history, job, material  # noqa: F401

LATER = pytest.mark.thorough
KINDS = (
    "domino",
    *(pytest.param(kind, marks=LATER) for kind in ("dflash2", "lilicorr", "treeflash", "taps", "xpress")),
)
NAMES = ("domino", "dflash2", "lilicorr", "treeflash", "taps", "xpress")


def recipe(kind):
    return module_of(kind).run


def with_drafter(material, drafted, place):  # noqa: F811
    """A job of its own place that has the same DFlash."""
    made = job(material, place)
    (there := place / "models" / "Llama-specviz-dflash").exists() or there.symlink_to(
        drafted / "models" / "Llama-specviz-dflash"
    )
    return made


@pytest.fixture(scope="module")
def drafted(material, tmp_path_factory):  # noqa: F811
    place = tmp_path_factory.mktemp("drafted")
    masked_block.run(job(material, place), "dflash")
    return place


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, drafted, tmp_path, monkeypatch, kind):  # noqa: F811
    before, work = digest(drafted), with_drafter(material, drafted, tmp_path / "whole")
    place = recipe(kind)(work)
    whole = history(tmp_path / "whole", kind)
    killed(monkeypatch, lambda: recipe(kind)(with_drafter(material, drafted, tmp_path / "again")), 9)
    assert history(tmp_path / "again", kind) == whole and len(whole) == STEPS
    assert digest(drafted) == before, "DFlash is frozen"
    assert "{" not in (place / "README.md").read_text()
    features = block_corrections.Corrected(work, work.hparams(kind), kind)
    trained = network_of(kind).load(place, features.target_info)
    torch.manual_seed(0)
    fresh = begun(network_of(kind).build(features.target_info, work.hparams(kind)), features)
    assert loss(trained, features, kind, work) < loss(fresh, features, kind, work)


def begun(model, features):
    if hasattr(model, "begin"):
        model.begin(features.embedding.float(), features.head.float())
    return model.float()


def loss(model, features, kind, work):
    """The mean distillation loss over the same batches."""
    found, scores = [], module_of(kind).scores
    with torch.inference_mode():
        for step in range(6):
            batch = features.batch(step, 0.0)
            blocks = features.blocks(batch, masked_block.sample_anchors(batch, 8, random.Random(step)))
            found.append(
                float(
                    block_corrections.distil(
                        scores(model.float(), features, blocks), batch, blocks, work.hparams(kind)
                    )
                )
            )
    return sum(found) / len(found)


def digest(place):
    return hashlib.sha256(
        (place / "models" / "Llama-specviz-dflash" / "model.safetensors").read_bytes()
    ).hexdigest()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in KINDS[3:]])
def test_the_engine_keeps_what_the_replay_promises(material, drafted, tmp_path, kind):  # noqa: F811
    """At temperature 0 the rounds of the engine accept exactly what the replay of the same text accepts."""
    work = with_drafter(material, drafted, tmp_path)
    place = recipe(kind)(work)
    model = FastModel(tmp_path / "models" / TARGET)
    target = model.open()
    head, dflash = (
        reader.load(folder, body(target))
        for reader, folder in (
            (network_of(kind), place),
            (network, tmp_path / "models" / "Llama-specviz-dflash"),
        )
    )
    features = block_corrections.Corrected(work, work.hparams(kind), kind)
    features.target.float()
    features.head, features.embedding = (
        features.target.lm_head.weight,
        features.target.get_input_embeddings().weight,
    )
    answer = next(a for a in features.heldout if a.greedy)
    state = State(answer.ids[: answer.start].tolist(), Sampling(0.0), limit=len(answer.ids) - answer.start)
    parts, rounds = Parts(BlockChain(dflash, correction=head), Fixed(dflash.length), TokenRejection()), 0
    open_run(parts, target, state)
    while not state.done:
        play(parts, target, state)
        rounds += 1
    text = masked_block.Answer(
        torch.tensor(state.tokens), answer.start, "chat", 0.0, answer.top_ids, answer.top_logp
    )
    with torch.inference_mode():
        marks = block_corrections.accepted_by_step(head.float(), features, text, module_of(kind).scores)
    assert chains.replay_rounds([marks], dflash.length)["block_efficiency"] == pytest.approx(
        (len(state.tokens) - answer.start) / rounds, abs=1e-4
    )


@pytest.mark.parametrize("kind", NAMES)
def test_an_untrained_correction_that_begins_from_the_targets_tables_changes_nothing(
    material,  # noqa: F811
    drafted,
    tmp_path,
    kind,
):
    """Training starts at DFlash's own predictions (but LiLiCorr's, whose transitions are unit vectors)."""
    work = with_drafter(material, drafted, tmp_path)
    features = block_corrections.Corrected(work, work.hparams(kind), kind)
    model = begun(network_of(kind).build(features.target_info, work.hparams(kind)), features)
    batch = features.batch(0, 0.0)
    blocks = features.blocks(batch, torch.arange(len(batch.ids))[:, None])
    with torch.inference_mode():
        found = module_of(kind).scores(model, features, blocks).log_softmax(-1)
        change = float((found - blocks.logits.log_softmax(-1)).abs().max())
    assert (change < 2e-2) == (kind != "lilicorr")  # a bfloat16 output matrix rounds TreeFlash's states
