"""The recipes of heads: a killed run resumes to the same weights, a full disk keeps the old ones, a loss
that is what it says."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file

from specviz import zoo
from specviz.checkpoints import mx
from specviz.methods.trained_heads.hydra import hydra_recipe as hydra
from specviz.methods.trained_heads.medusa import medusa_network as heads_medusa
from specviz.methods.trained_heads.medusa import medusa_recipe as medusa
from specviz.models import hydra as heads_hydra
from specviz.models.heads import TargetInfo
from specviz.training import chains, drafters, files, ranks
from specviz.training.data import TASKS, chat_prompt
from specviz.training.draft import collate
from specviz.training.features import Features
from specviz.training.files import write_tensors
from specviz.training.job import SHIPPED, TARGET, Job, TrainingError, fingerprint
from specviz.training.runner import Runner
from specviz.training.text_answers import Answer, pack

from ..message_codes import refuses
from ..zoo.checkpoints import write


@pytest.fixture
def work(tmp_path):
    """A tiny target that was never trained, and made-up answers with their laws."""
    write(tmp_path / "models" / TARGET)
    rng = torch.Generator().manual_seed(0)
    root = tmp_path / "generations" / fingerprint(tmp_path / "models" / TARGET)
    for split, count in (("train", 24), ("heldout", 12)):
        made = []
        for i in range(count):
            ids, size = torch.randint(3, 300, (30,), generator=rng), 12
            probs = torch.randn(size, 300, generator=rng).mul(3).log_softmax(-1).topk(8)
            made.append(
                Answer(ids, 30 - size, TASKS[i % 6], float(i % 2), probs.indices.short(), probs.values.half())
            )
        write_tensors(root / split / "shard-00000.safetensors", pack(made))
    return tmp_path


def job(work, **more):
    return Job(work=work, size="tiny", quiet=True, device="cpu", **{"steps": 6, **more})


@pytest.mark.parametrize("recipe", [medusa, hydra], ids=lambda r: r.__name__.rpartition(".")[2])
def test_a_killed_run_ends_at_the_same_weights(work, monkeypatch, recipe):
    name = recipe.__name__.rpartition(".")[2].removesuffix("_recipe")
    place = recipe.run(job(work))
    want = load_file(place / "model.safetensors")
    checkpoint = work / name / fingerprint(work / "models" / TARGET) / "checkpoint.safetensors"
    checkpoint.unlink()
    update, count = Runner.update, [0]

    def killed(self, loss_at):
        count[0] += 1
        if count[0] == 4:
            raise KeyboardInterrupt
        return update(self, loss_at)

    monkeypatch.setattr(Runner, "update", killed)
    with pytest.raises(KeyboardInterrupt):
        recipe.run(job(work))
    monkeypatch.setattr(Runner, "update", update)
    assert checkpoint.is_file()
    again = load_file(recipe.run(job(work)) / "model.safetensors")
    assert want.keys() == again.keys() and all(torch.equal(want[key], again[key]) for key in want)
    before = torch.stack([tensor.float().abs().mean() for tensor in want.values()])
    assert before.isfinite().all() and float(before.sum()) > 0


def test_a_full_disk_keeps_the_heads_that_were_there(work, monkeypatch):
    place = medusa.run(job(work))
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    features = Features(job(work), job(work).hparams("medusa"))
    model = heads_medusa.build(features.target_info, features.hparams)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    runner = Runner(job(work), "medusa", model, features.hparams, features.checkpoint_folder("medusa"))
    with refuses(TrainingError, "training.save"):
        chains.export(job(work), "Llama-specviz-medusa", model, features, runner, "")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_large_heads_are_written_in_pieces_and_read_back(work, monkeypatch):
    """Output matrices of their own make a folder of several files, none larger than asked; going back
    leaves one."""
    hparams, whole = Job.hparams, files.write_shards
    monkeypatch.setattr(Job, "hparams", lambda self, recipe: hparams(self, recipe) | {"output": "own"})
    monkeypatch.setattr(chains, "write_shards", lambda place, tensors: whole(place, tensors, 30_000))
    place = medusa.run(job(work, steps=1))
    parts = sorted(path.name for path in place.glob("*.safetensors"))
    assert (
        len(parts) > 2
        and "model.safetensors" not in parts
        and max((place / name).stat().st_size for name in parts) < 40_000
    )
    made = heads_medusa.load(place, TargetInfo("toy", 32, 300, 2))
    assert len(made.lm_heads) == 3 and made.accuracy
    monkeypatch.setattr(chains, "write_shards", whole)
    medusa.run(job(work, steps=1))
    assert [path.name for path in place.glob("*.safetensors*")] == ["model.safetensors"]
    again = heads_medusa.load(place, TargetInfo("toy", 32, 300, 2))
    assert all(torch.equal(a, b) for a, b in zip(made.state_dict().values(), again.state_dict().values()))


def test_large_matrices_are_stored_in_eight_bits(work, monkeypatch):
    wide = heads_medusa.load(medusa.run(job(work)), TargetInfo("toy", 32, 300, 2))
    monkeypatch.setattr(mx, "WORTH", 500)
    place = medusa.run(job(work))
    kept = load_file(place / "model.safetensors")
    assert {tensor.dtype for tensor in kept.values()} == {torch.int8, torch.uint8, torch.bfloat16}
    made = heads_medusa.load(place, TargetInfo("toy", 32, 300, 2))
    for name, tensor in wide.state_dict().items():
        assert torch.allclose(made.state_dict()[name], tensor, atol=float(tensor.abs().max()) / 64)
    assert (
        f"{sum(t.numel() for t in wide.state_dict().values()) / 1e6:.2f} million parameters"
        in (place / "README.md").read_text()
    )


def test_heads_of_a_target_that_is_not_shipped_are_not_shipped(work, tmp_path):
    shipped = write(tmp_path / "assets" / TARGET, seed=9).parent
    with refuses(TrainingError, "training.not_shipped"):
        medusa.run(job(work, ship=True, shipped=shipped))
    with refuses(TrainingError, "generate.missing"):
        medusa.run(Job(work=tmp_path / "other", shipped=work / "models", size="tiny", quiet=True))


@pytest.fixture
def features(work):
    return Features(job(work), job(work).hparams("medusa"))


def test_states_and_places_are_the_targets_own(features):
    """The batch's states are what the target's forward gives; ``back`` never leaves its row."""
    batch = features.batch(0, 0.0)
    with torch.no_grad():
        want = features.target.model(batch.ids).last_hidden_state
    width = batch.ids.shape[1]
    lengths = torch.tensor([[len(answer.ids)] for answer in features.wide.rows(0)])
    seen = torch.arange(width) < lengths  # what is padded is nobody's
    assert (
        torch.allclose(batch.states.view(want.shape)[seen].float(), want[seen].float(), rtol=1 / 256)
        and batch.layer is None
    )
    assert torch.equal(batch.ids.flatten()[batch.where + 1], batch.labels)
    for steps in (1, 3, 20):
        kept, places = batch.back(steps)
        assert torch.equal(places + steps, batch.where[kept]) and torch.equal(
            places // width, batch.where[kept] // width
        )
        assert len(kept) == int((batch.where % width >= steps).sum())
    again = features.batch(0, 0.0)
    assert all(
        torch.equal(a, b)
        for a, b in ((again.ids, batch.ids), (again.states, batch.states), (again.top_logp, batch.top_logp))
    )


@pytest.mark.parametrize("leaders", [None, 3])
def test_the_loss_of_a_head_is_its_divergence_from_the_distribution_it_should_give(features, leaders):
    """By hand, in full: head k reads the state k + 1 places before the place whose distribution it learns."""
    torch.manual_seed(1)
    model = heads_medusa.build(features.target_info, features.hparams)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    answer = features.heldout[0]
    batch = features.states(collate([answer], 64, features.device))

    def guess(batch, index):
        kept, places = batch.back(index + 1)
        return kept, model.blocks[index](batch.states[places].float())

    hparams = features.hparams | {"hard_label_weight": 0.0, "leaders": leaders}
    found = float(ranks.loss(model, guess, features, batch, hparams).detach())
    total = weights = 0.0
    for k in range(len(model)):
        each = []
        for j in range(len(answer.ids) - answer.start):
            state = batch.states[answer.start + j - 1 - (k + 1)].float()
            q = (features.head.float() @ model.blocks[k](state)).log_softmax(-1)
            p, ids = answer.top_logp[j, :leaders].double().exp(), answer.top_ids[j, :leaders].long()
            rest = max(1e-6, 1 - float(p.sum()))
            each.append(
                float((p * (p.log() - q[ids].double())).sum())
                + rest * float(torch.log(torch.tensor(rest / (1 - float(q[ids].exp().sum())))))
            )
        total, weights = total + 0.8**k * sum(each) / len(each), weights + 0.8**k
    assert found == pytest.approx(total / weights, rel=2e-2)  # the recipe computes in half precision


def test_hydra_reads_the_state_the_root_and_the_tokens_below_it(work):
    hparams = job(work).hparams("hydra")
    features = Features(job(work), hparams)
    torch.manual_seed(1)
    model = heads_hydra.build(
        features.target_info, hparams | {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8}
    )
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    batch = features.states(collate(features.heldout[:2], 64, features.device))
    reader = hydra.BatchHeadStates(model, features)
    with torch.no_grad():
        states = model.prefix(batch.states.float().view(*batch.ids.shape, -1)).flatten(0, 1)
        for index in range(len(model)):
            kept, found = reader.head_states(batch, index)
            for row in (0, len(kept) - 1):
                place = int(batch.where[kept[row]])  # the last token that is read stands here
                above = [
                    states[place - index - 1],
                    *(
                        features.embedding[batch.ids.flatten()[place - index + i]].float()
                        for i in range(index + 1)
                    ),
                ]
                assert torch.allclose(model.hydra_mlp[index](torch.cat(above)), found[row], atol=1e-5)


def test_ranks_count_how_many_tokens_a_head_prefers(features):
    torch.manual_seed(2)
    model = heads_medusa.build(features.target_info, features.hparams)

    def guess(batch, index):
        kept, places = batch.back(index + 1)
        return kept, batch.states[places].float() * (index + 1)

    rows = ranks.token_ranks(model, guess, features, features.heldout[:3])
    table = ranks.rank_accuracy(rows, 300)
    for row in table:
        assert sum(row) == pytest.approx(1, abs=2e-3), "the token has some rank"
    answer = features.heldout[0]
    batch = features.states(collate([answer], 64, features.device))
    logits = features.head.float() @ batch.states[answer.start + 4 - 1 - 2].float()
    assert int(rows[0][1, 4]) == int((logits > logits[answer.ids[answer.start + 4]]).sum())


def test_the_cost_of_a_pass_is_measured_for_every_size(features):
    seconds = ranks.pass_seconds(features.path, repeats=1)
    assert seconds.keys() == set(ranks.SIZES) and all(0 < value < 60 for value in seconds.values())


def test_chat_prompts_are_long_enough_for_every_head():
    """A head that stands k tokens back never looks before the row: the template alone is longer than that."""
    from transformers import AutoTokenizer

    words = AutoTokenizer.from_pretrained(SHIPPED / TARGET)
    assert len(chat_prompt(words, "")) > Job().hparams("medusa")["heads"]


@pytest.mark.parametrize("target", [TARGET, "fox-135M"])
def test_the_card_of_a_head_names_its_target_and_the_commands_that_made_it(tmp_path, target):
    """By the target's own name, whatever folder its parts were joined in; a target that is not the first is
    named in the commands."""
    told = Job(work=tmp_path, target=target, quiet=True)
    model = torch.nn.Linear(2, 2)
    model.config = {}
    place = tmp_path / "medusa"
    place.mkdir()
    runner, features = (
        SimpleNamespace(name="medusa", place=place, hparams={}),
        SimpleNamespace(path=tmp_path / f"{target}-0123abcd"),
    )
    card = (
        chains.export(told, told.model_name("medusa"), model, features, runner, "Four heads.") / "README.md"
    ).read_text()
    more = "" if target == TARGET else f" --target {target}"
    assert (
        f"[{target}](../{target})" in card and f"medusa --data DIR{more}\n" in card and "0123abcd" not in card
    )
    assert told.model_name("eagle") not in card
    told, runner.hparams = replace(told, size="chat"), {"begin": "eagle"}
    card = (
        chains.export(told, told.model_name("hydra"), model, features, runner, "Four heads.") / "README.md"
    ).read_text()
    assert f"medusa --data DIR{more} --size chat\n" in card and told.model_name("eagle") in card


def test_new_weights_get_a_new_card_and_the_same_weights_keep_theirs(tmp_path):
    told, model = Job(work=tmp_path, quiet=True), torch.nn.Linear(2, 2)
    model.config = {}
    runner, features = (
        SimpleNamespace(name="medusa", place=tmp_path, hparams={}),
        SimpleNamespace(path=tmp_path),
    )
    card = (
        chains.export(told, told.model_name("medusa"), model, features, runner, "Four heads.") / "README.md"
    )
    card.write_text(card.read_text() + "Measured: much.")
    chains.export(told, told.model_name("medusa"), model, features, runner, "Five heads.")
    assert card.read_text().endswith("Measured: much.") and "Four heads." in card.read_text()
    torch.nn.init.zeros_(model.weight)
    chains.export(told, told.model_name("medusa"), model, features, runner, "Five heads.")
    assert "Measured: much." not in card.read_text() and "Five heads." in card.read_text()


def test_a_card_quotes_the_last_run_for_its_own_target(tmp_path):
    first, other = Job(work=tmp_path, quiet=True), Job(work=tmp_path, target="fox-135M", quiet=True)
    first.log("eagle", steps=1)
    other.log("eagle", steps=2)
    assert (first.last_log("eagle")["steps"], other.last_log("eagle")["steps"]) == (1, 2) and other.last_log(
        "hydra"
    ) is None


def test_the_report_knows_drafters_of_every_target(tmp_path):
    name = "SmolLM2-135M-Instruct"
    later = Job(work=tmp_path, target=name, quiet=True, prefer_shipped=True)
    entries = yaml.safe_load(drafters.models_yaml_text(later))["models"]
    assert (
        "Llama-specviz-redrafter" not in entries
        and Path(entries[f"{name}-eagle"]["path"]) == (SHIPPED / name / "heads/eagle").resolve()
    )
    with drafters.use_work_models(later):
        register = zoo.registry.register()
        assert register.entries[f"{name}-eagle"].kind == "eagle"
        assert register.stores_of("fox")["text"].is_dir(), "a store for every target stays one"
    zoo.forget()
