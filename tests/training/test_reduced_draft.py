"""Drafts over part of the vocabulary: what they learn, that the engine reads what is written, and labels
that are exact."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import pytest
import torch

from specviz.core import DraftTree
from specviz.models.linear import without_timing
from specviz.models.reduced_vocabulary import OUTSIDE, ProjectedTable
from specviz.targets.fast import FastModel
from specviz.training import draft, reduced_draft
from specviz.training import text_answers as generate
from specviz.training.job import TARGET, TrainingError, fingerprint

from .test_drafts import job, work  # noqa: F401

SOME = 64


@pytest.fixture(scope="module")
def trained(work):  # noqa: F811
    one = job(work)
    hparams = one.hparams("draft")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(one), "hparams", lambda self, recipe: hparams | {"draft_vocab": SOME, "kind": "part"}
        )
        return draft.run(one)


def test_the_engine_reads_what_was_trained(work, trained):  # noqa: F811
    config = json.loads((trained / "config.json").read_text())
    assert (config["draft_vocab_size"], config["embedding_from"], config["vocab_size"]) == (SOME, TARGET, 300)
    target = FastModel(trained).open()
    target.sync([5, 9, 30, 7])
    logits = target.score(DraftTree((11,), (-1,))).logits
    answers = generate.read(work / "generations" / fingerprint(work / "models" / TARGET) / "train")
    tokens = reduced_draft.frequent_tokens(answers, 300, SOME, [2])
    outside = torch.ones(300, dtype=torch.bool).index_fill(0, tokens, False)
    assert (
        bool((logits[:, outside] == OUTSIDE).all())
        and bool((logits[:, tokens] > OUTSIDE).all())
        and 2 in tokens
    )


def test_leaders_without_a_row_leave_the_distribution():
    """What is left is renormalised, and no row is counted twice."""
    head = reduced_draft.ReducedHead(torch.randn(6, 4), torch.tensor([9, 3, 7, 1, 0, 5]), 10)
    logp = torch.tensor([[0.5, 0.2, 0.1], [0.6, 0.3, 0.05], [0.3, 0.3, 0.3]]).log()
    batch = (
        torch.zeros(1, 5).long(),
        torch.arange(3),
        torch.tensor([[9, 2, 7], [2, 4, 3], [6, 8, 2]]),
        logp,
        torch.tensor([9, 3, 8]),
    )
    _, where, rows, found, labels = head.to_reduced_vocabulary(batch)
    assert where.tolist() == [0, 1] and labels.tolist() == [0, 1], "the third label has no row"
    assert (
        rows[0, [0, 2]].tolist() == [0, 2]
        and rows[1, 2] == 1
        and all(len(set(row)) == 3 for row in rows.tolist())
    )
    torch.testing.assert_close(found[0].exp()[[0, 2]], torch.tensor([0.5, 0.1]) / 0.8)
    torch.testing.assert_close(found[1].exp()[2], torch.tensor(0.05 / 0.1))
    assert bool((found[0, 1] == reduced_draft.ABSENT) & (found[1, :2] == reduced_draft.ABSENT).all())


def test_a_grown_vocabulary_keeps_what_it_could_write():
    """New rows continue the linear map from embeddings and frequencies that the old rows follow."""
    table, fitted, counts = torch.randn(40, 6), torch.randn(8, 4), torch.arange(40) ** 2
    known = torch.cat([table, counts[:, None].float().log1p(), torch.ones(40, 1)], 1)
    projection = torch.nn.Linear(6, 4, bias=False)
    inner = SimpleNamespace(embed_tokens=ProjectedTable(table, projection))
    old = torch.tensor([9, 3, 7, 1, 0, 5, 12, 30, 33, 38])
    model = SimpleNamespace(model=inner, lm_head=reduced_draft.ReducedHead(known[old] @ fitted, old, 40))
    reduced_draft.grow_vocabulary(model, torch.tensor([7, 20, 3, 21, 22, 9, *range(23, 30)]), counts)
    assert model.lm_head.tokens.tolist() == [*old.tolist(), 20, 21, 22]
    torch.testing.assert_close(
        model.lm_head.weight.data, known[model.lm_head.tokens] @ fitted, atol=1e-4, rtol=1e-4
    )
    reduced_draft.grow_vocabulary(model, torch.arange(8), counts)
    assert len(model.lm_head.tokens) == 13, "it never forgets a token"


def test_its_logits_cover_the_vocabulary():
    head = reduced_draft.ReducedHead(torch.randn(3, 4), torch.tensor([8, 2, 5]), 10)
    x = torch.randn(2, 5, 4)
    logits = head(x)
    assert logits.shape == (2, 5, 10) and torch.equal(logits[..., [8, 2, 5]], x @ head.weight.T)
    assert bool((logits[..., [0, 1, 3, 4, 6, 7, 9]] == OUTSIDE).all())


def test_a_written_draft_is_opened_for_training_with_the_logits_of_the_engine(work, trained, tmp_path):  # noqa: F811
    """And a grown one has its vocabulary and its logits, also where the target lies elsewhere, as with a
    new work folder."""
    alone = tmp_path / "alone" / "part"
    shutil.copytree(trained, alone)
    ids, target = torch.tensor([[5, 9, 30, 7, 11]]), FastModel(trained).open()
    target.sync(ids[0].tolist())
    wanted = target.score(DraftTree()).logits[0]
    opened = reduced_draft.open_draft(trained, torch.float32)
    with torch.inference_mode():
        torch.testing.assert_close(opened(ids).logits[0, -1], wanted, rtol=1e-4, atol=1e-4)
    config = opened.config
    shape = {
        "hidden": config.hidden_size,
        "layers": config.num_hidden_layers + 1,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "intermediate": config.intermediate_size,
        "from": "part",
    }
    one = type(
        "OneModel",
        (),
        {
            "model": lambda self, name: work / "models" / TARGET if name == TARGET else alone,
            "target": TARGET,
            "seed": 0,
        },
    )()
    grown = draft.load_and_grow(one, shape, 300)
    with torch.inference_mode():
        torch.testing.assert_close(grown(ids).logits[0, -1], wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(TrainingError, match="width"):
        draft.load_and_grow(one, shape | {"hidden": 2 * config.hidden_size}, 300)


def test_a_draft_in_the_folder_of_its_target_projects_the_embedding_around_it(work, trained, tmp_path):  # noqa: F811
    target = tmp_path / TARGET
    shutil.copytree(work / "models" / TARGET, target)
    shutil.copytree(trained, target / "heads" / "distillspec")
    with without_timing():  # another layout rounds differently
        inside, beside = FastModel(target / "heads" / "distillspec").open(), FastModel(trained).open()
    for one in (inside, beside):
        one.sync([5, 9, 30, 7])
    assert torch.equal(*(one.score(DraftTree()).logits for one in (inside, beside)))
