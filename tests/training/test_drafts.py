"""Drafts trained otherwise: DistillSpec, FastDraft, TVD++ and S2D are the draft's recipe with other
numbers."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import AutoTokenizer, LlamaConfig

from specviz.core import DraftTree
from specviz.methods import draft_kinds
from specviz.methods.draft_model.distillspec import distillspec_recipe as distillspec
from specviz.methods.draft_model.fastdraft import fastdraft_recipe as fastdraft
from specviz.methods.draft_model.s2d import s2d_recipe as s2d
from specviz.methods.draft_model.tvdpp import tvdpp_recipe as tvdpp
from specviz.models.exits import sub_model_layers
from specviz.models.pretrained import open_network
from specviz.targets.fast import FastModel
from specviz.training import draft
from specviz.training import text_answers as generate
from specviz.training.draft import DraftTrainer
from specviz.training.files import write_tensors
from specviz.training.job import TARGET, Job, TrainingError, fingerprint
from specviz.training.text_answers import Answer, pack

from ..message_codes import refuses
from ..zoo.checkpoints import write
from .recipes import killed

RECIPES = {"distillspec": distillspec, "fastdraft": fastdraft, "tvdpp": tvdpp, "s2d": s2d}
STEPS = 6


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A tiny target with a tokenizer, made-up answers with its own leaders along them, and answers that
    others wrote."""
    folder = tmp_path_factory.mktemp("drafts")
    path = write(folder / "models" / TARGET)
    root = folder / "generations" / fingerprint(path)
    rng = torch.Generator().manual_seed(0)
    for split, count in (("train", 24), ("heldout", 6), ("read", 12)):
        made = []
        for i in range(count):
            ids, size = torch.randint(3, 300, (30,), generator=rng), 12
            probs = torch.randn(size, 300, generator=rng).mul(3).log_softmax(-1).topk(8)
            made.append(
                Answer(ids, 30 - size, "chat", float(i % 2), probs.indices.short(), probs.values.half())
            )
        write_tensors(root / split / "shard-00000.safetensors", pack(made))
    return folder


def job(work, **more):
    return Job(work=work, size="tiny", quiet=True, device="cpu", **{"steps": STEPS, **more})


def lesson(work, recipe, **more):
    one = job(work)
    hparams = one.hparams(recipe) | more
    torch.manual_seed(3)
    target = one.model(TARGET)
    model = draft.build(LlamaConfig.from_pretrained(target), hparams)
    return DraftTrainer(one, hparams, model, AutoTokenizer.from_pretrained(target), torch.device("cpu"))


@pytest.fixture
def alone(work, tmp_path):
    """A work folder of its own that reads the common material."""
    for name in ("generations", "models"):
        (tmp_path / name).mkdir()
        for path in (work / name).iterdir():
            (tmp_path / name / path.name).symlink_to(path)
    return tmp_path


@pytest.mark.parametrize("kind", ["distillspec", "tvdpp"])  # a phase, text of its own; a phase, dice
def test_a_killed_run_ends_at_the_same_weights_and_its_card_says_how(work, alone, monkeypatch, kind):
    recipe, name = RECIPES[kind], f"Llama-specviz-{kind}"
    want = load_file(recipe.run(job(work)) / "model.safetensors")
    place = killed(monkeypatch, lambda: recipe.run(job(alone)), 4)
    found = load_file(place / "model.safetensors")
    assert (
        place.name == name
        and want.keys() == found.keys()
        and all(torch.equal(want[key], found[key]) for key in want)
    )
    card = (place / "README.md").read_text()
    assert (
        "Built with Llama" in card
        and f"training {kind}" in card
        and "{" not in card
        and "of the budget" in card
    )


def test_every_kind_has_a_recipe_that_is_the_drafts_but_for_its_numbers():
    assert set(draft_kinds()) == set(RECIPES)
    for size in ("default", "tiny"):
        plain = Job(size=size).hparams("draft")
        for kind in draft_kinds():
            own = Job(size=size).hparams(kind)
            assert own["kind"] == kind and own["like"] == "draft" and plain.keys() <= own.keys()
            assert 3 <= sum(own[name] != value for name, value in plain.items()) <= 8
    with refuses(Exception, "training.size", "tvdpp.yaml", "'wide'"):
        Job(size="wide").hparams("tvdpp")


def test_text_of_its_own_is_the_drafts_and_judged_by_the_target(work):
    """Answers at temperature 1 to the step's prompts, other weights write others; the leaders are the
    target's along them."""
    one = lesson(work, "distillspec")
    ids, where, top_ids, top_logp, labels = one.on_policy_batch(2)
    asked = one.own.rows(2)[: one.hparams["policy_rows"]]
    assert len(ids) == len(asked) and {tuple(a.ids[: a.start].tolist()) for a in asked} == {
        tuple(row[:18].tolist()) for row in ids
    }
    assert torch.equal(ids.flatten()[where + 1], labels) and not torch.equal(
        ids, torch.stack([a.ids[: ids.shape[1]] for a in asked])
    )
    again = one.on_policy_batch(2)
    assert all(torch.equal(a, b) for a, b in zip((ids, top_ids, top_logp), (again[0], again[2], again[3])))
    with torch.no_grad():
        logp = one.teacher.model(ids).logits.flatten(0, 1)[where].float().log_softmax(-1)
    assert torch.allclose(logp.gather(1, top_ids), top_logp, atol=2e-2)
    assert torch.allclose(logp.amax(-1), top_logp[:, 0], atol=2e-2)
    with torch.no_grad():  # a draft that is sure writes its likeliest token
        one.model.model.norm.weight.mul_(1000)
        ids, where, _, _, labels = one.on_policy_batch(2)
        assert torch.equal(one.model(ids).logits.flatten(0, 1)[where].argmax(-1), labels)


def test_it_writes_in_full_precision_while_it_learns_in_half_of_it(work):
    """Where bfloat16 is faster a step runs in it, and what is told of its own text is kept in another kind
    of 16 bits."""
    one = lesson(work, "distillspec")
    plain = one.on_policy_batch(5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = one.on_policy_batch(5)
    assert all(torch.equal(a, b) for a, b in zip(plain, half))


def test_first_plain_text_whole_then_the_targets_answers_alone(work, monkeypatch):
    """FastDraft: every token of others' exchanges, then the tokens of the target's answers; its
    distributions are not used."""
    one = lesson(work, "fastdraft")
    with torch.no_grad():
        for done, texts, first in (
            (0.1, generate.read(generate.folder(one.job) / "read"), 1),
            (0.9, one.own.answers, None),
        ):
            rows = (one.plain if first else one.own).rows(1)
            known = {tuple(a.ids.tolist()) for a in texts}
            assert rows and {tuple(a.ids.tolist()) for a in rows} <= known
            found, tokens = one.loss(1, done)
            nll = [
                F.cross_entropy(
                    one.model(a.ids[None]).logits[0, (first or a.start) - 1 : -1],
                    a.ids[first or a.start :],
                    reduction="sum",
                )
                for a in rows
            ]
            assert tokens == sum(len(a.ids) - (first or a.start) for a in rows)
            assert float(found) == pytest.approx(float(sum(nll)) / tokens, rel=1e-4)


def test_the_share_of_steps_on_its_own_text_is_the_recipes(work, monkeypatch):
    one, written = lesson(work, "distillspec", on_policy=0.4, pretrain=0.0), []
    monkeypatch.setattr(
        DraftTrainer, "on_policy_batch", lambda self, step: written.append(step) or self.own[step]
    )
    short = one.own[0][0][:1, :4], torch.tensor([1]), *(part[:1] for part in one.own[0][2:])
    monkeypatch.setattr(draft.Batches, "__getitem__", lambda self, step: short)
    with torch.no_grad():
        for step in (*range(60), *range(60)):
            one.loss(step, 0.5)
    assert 15 <= len(written) / 2 <= 33 and written[: len(written) // 2] == written[len(written) // 2 :]


def test_every_exit_of_a_sorted_draft_learns_and_drafts_alike(work):
    """The loss is the mean over exits; what an exit says in training is what its layers say where they
    draft."""
    one = lesson(work, "s2d")
    ids, where, top_ids, top_logp, labels = one.wide[0]
    layers = one.hparams["layers"]
    assert (
        one.layers == sub_model_layers(layers) == (2, 3, 4)
        and sub_model_layers(12) == (6, 9, 12)
        and sub_model_layers(1) == (1,)
    )
    with torch.no_grad():
        states = draft.exit_states_at(one.model, ids, where, one.layers)
        each = [
            draft.losses.distil(
                x, one.model.lm_head.weight, top_ids, top_logp, labels, one.hparams["hard_label_weight"]
            )
            for x in states
        ]
        assert float(one.loss(0, 0.0)[0]) == pytest.approx(float(sum(each)) / 3, rel=1e-5)
    place = s2d.run(job(work, steps=2))
    net, found = FastModel(place), open_network(place, torch.float32)
    text = one.own.answers[0].ids
    for count in one.layers:
        view = net.open().skipping(range(2 * count, 2 * layers)) if count < layers else net.open()
        view.sync(text.tolist())
        with torch.no_grad():
            want = found.lm_head(draft.acceptance.states(found, text[None], count)[0, -1])
        assert torch.allclose(view.score(DraftTree()).logits[0], want, atol=1e-4)


def test_a_draft_may_begin_as_a_smaller_one(work):
    """The wider and deeper one computes the same, so nothing that was learned is lost."""
    one = job(work)
    small = one.hparams("draft")
    torch.manual_seed(5)
    old = draft.build(LlamaConfig.from_pretrained(one.model(TARGET)), small)
    old.save_pretrained(work / "models" / "before")
    shape = {
        "hidden": 64,
        "layers": 3,
        "heads": 2 * small["heads"],
        "kv_heads": 2 * small["kv_heads"],
        "intermediate": 96,
    }
    new = draft.load_and_grow(one, small | shape | {"from": "before"}, old.config.vocab_size)
    ids = torch.randint(3, 300, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert float((new(ids).logits - old(ids).logits).abs().max()) < 1e-4
    assert new.config.hidden_size == 64 and new.config.num_hidden_layers == 3
    with refuses(TrainingError, "training.vocabulary", "before"):
        draft.load_and_grow(one, small | shape | {"from": "before"}, old.config.vocab_size + 1)


def test_a_draft_carries_what_it_earned_on_its_way(work, tmp_path):
    """Beside the weights: points in tokens that carried loss, spread over the budget, the last one at its
    end."""
    one = job(work, steps=16, shipped=tmp_path, ship=True)
    write(tmp_path / TARGET)
    place = draft.run(one)
    found = json.loads((place / "training.json").read_text())
    assert json.loads((tmp_path / place.name / "training.json").read_text()) == found
    assert (
        [point["step"] for point in found["points"]] == [1, 2, 4, 8, 16]
        and found["answers"] == 6
        and found["from"] is None
    )
    assert 0 < found["points"][0]["tokens"] < found["points"][-1]["tokens"]
    net = open_network(place, torch.float32)
    assert found["parameters"] == sum(weight.numel() for weight in net.parameters())
    heldout = generate.read(generate.folder(one) / "heldout")
    again = draft.measure(net.eval(), heldout, one.hparams("draft"))
    last = found["points"][-1]
    assert set(again) <= set(last) and {"block_efficiency_greedy", "acceptance_rate_sampled"} <= set(again)
    assert all(
        last[name] == pytest.approx(value, abs=0.2) for name, value in again.items()
    )  # shipped in 8 and 16 bits


def test_some_steps_say_a_span_again_and_only_what_can_be_known_is_learned(work):
    copies = lesson(work, "draft", copy_share=1.0, batch_tokens=512, length=64)
    adam = torch.optim.Adam(copies.model.parameters(), 1e-2)
    losses = []
    for _ in range(30):  # one batch, learned by heart
        loss, count = copies.loss(0, 0.5)
        assert 0 < count < 512
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 2
    assert float(copies.loss(0, 0.5)[0].detach()) == float(
        copies.loss(0, 0.5)[0].detach()
    )  # of the step alone
    assert float(copies.loss(1, 0.5)[0].detach()) > losses[-1] + 1  # other spans, which were not learned


def test_a_row_says_its_span_again_and_frees_the_first_saying():
    import random

    from specviz.training.repeated_spans import repeat_span

    row, counts = repeat_span(random.Random(2), 60, lambda size: list(range(100, 100 + size)))
    learned = [i for i, yes in enumerate(counts) if yes]
    assert len(row) == len(counts) >= 60 and learned
    for i in learned:
        assert row[i] in row[:i], "what carries loss was said before"
        assert row[i - 1] in row[: i - 1]
