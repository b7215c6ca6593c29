"""A draft over part of the vocabulary: logits, chains written in one call, and what a hostile folder is
told."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.checkpoints import split
from specviz.checkpoints.sizes import check_weights
from specviz.checkpoints.weights import ModelError, Weights
from specviz.core import DraftTree
from specviz.models.reduced_vocabulary import OUTSIDE, projected_table
from specviz.targets.fast import FastModel
from specviz.targets.int8 import Int8Model

from ..targets.tiny import CONFIGS, VOCAB, network

TOKENS = [3, 4, 7, 11, 19, 20, 33, 40, 41, 47]
WIDE = 32


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target, and a draft that shares its embedding through a projection."""
    root = tmp_path_factory.mktemp("reduced")
    config = CONFIGS["llama"]()
    config.tie_word_embeddings = False
    network(config, seed=3).save_pretrained(root / "target")
    net = network(config, seed=4)
    net.save_pretrained(root / "plain")
    weights, table = (
        load_file(root / "plain" / "model.safetensors"),
        load_file(root / "target" / "model.safetensors"),
    )
    projection = torch.randn(32, WIDE, generator=torch.Generator().manual_seed(5)) / WIDE**0.5
    draft = root / "draft"
    draft.mkdir()
    plain = dict(weights) | {"model.embed_tokens.weight": table["model.embed_tokens.weight"] @ projection.T}
    save_file(plain, root / "plain" / "model.safetensors")
    reduced = {
        name: weight
        for name, weight in weights.items()
        if name not in ("model.embed_tokens.weight", "lm_head.weight")
    }
    reduced |= {
        "model.embed_projection.weight": projection,
        "lm_head.weight": weights["lm_head.weight"][TOKENS].contiguous(),
        "draft_tokens": torch.tensor(TOKENS, dtype=torch.int32),
    }
    save_file(reduced, draft / "model.safetensors")
    settings = json.loads((root / "plain" / "config.json").read_text())
    (draft / "config.json").write_text(
        json.dumps(settings | {"draft_vocab_size": len(TOKENS), "embedding_from": "target"})
    )
    return root


def test_logits_are_the_whole_models_at_its_tokens_and_nothing_elsewhere(folders):
    whole, reduced = (FastModel(folders / name).open() for name in ("plain", "draft"))
    tree = DraftTree((7, 3, 9), (-1, -1, 0), (-1,) * 3)
    found = []
    for target in (whole, reduced):
        target.sync([5, 9, 30, 7])
        found.append(target.score(tree).logits)
    others = [token for token in range(VOCAB) if token not in TOKENS]
    torch.testing.assert_close(found[1][:, TOKENS], found[0][:, TOKENS], atol=1e-5, rtol=1e-4)
    assert bool((found[1][:, others] == OUTSIDE).all())
    for temperature in (0.1, 1.0, 2.0):
        assert float((found[1] / temperature).softmax(-1)[:, others].sum()) == 0.0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_chains_written_in_one_call_are_those_of_passes(folders, temperature):
    model = Int8Model(folders / "draft")
    assert model.can_generate  # without it the draft would be slow and nobody would know
    target, stepped = model.open(), model.open()
    uniforms = [0.3, 0.9, 0.55, 0.1]
    target.sync([5, 9, 30, 7])
    stepped.sync([5, 9, 30, 7])
    written = target.draft_chain([], 4, temperature, lambda count: uniforms[:count])
    tokens: list[int] = []
    for u in uniforms:
        row = stepped.score(DraftTree.chain(tuple(tokens))).logits[-1]
        at = (
            int(row.argmax())
            if not temperature
            else int(torch.searchsorted(row.softmax(-1).cumsum(-1), torch.tensor(u)))
        )
        tokens.append(at)
    assert written.tokens == tokens and set(tokens) <= set(TOKENS)


def test_a_draft_learns_with_its_output_matrix(folders):
    learner = FastModel(folders / "draft").open().learning()
    with torch.enable_grad():
        loss = -learner.logits([5, 9, 30, 7]).log_softmax(-1)[-1, 7]
        loss.backward()
    assert any(
        weight.shape[0] == len(TOKENS) and float(weight.grad.abs().sum()) > 0 for weight in learner.weights
    )


@pytest.mark.parametrize(
    "change",
    [
        {"embedding_from": "../target"},
        {"embedding_from": "/etc"},
        {"embedding_from": 3},
        {"embedding_from": "missing"},
        {"draft_vocab_size": 9},
    ],
)
def test_what_does_not_fit_is_refused(folders, change, tmp_path_factory):
    root = tmp_path_factory.mktemp("odd")
    (root / "target").symlink_to(folders / "target")
    (root / "draft").mkdir()
    (root / "draft" / "model.safetensors").symlink_to(folders / "draft" / "model.safetensors")
    settings = json.loads((folders / "draft" / "config.json").read_text()) | change
    (root / "draft" / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError):
        FastModel(root / "draft")


def test_tokens_must_be_distinct_ids(folders, tmp_path_factory):
    root = tmp_path_factory.mktemp("twice")
    (root / "target").symlink_to(folders / "target")
    (root / "draft").mkdir()
    (root / "draft" / "config.json").write_text((folders / "draft" / "config.json").read_text())
    weights = load_file(folders / "draft" / "model.safetensors")
    for tokens in ([3] * len(TOKENS), [*TOKENS[:-1], VOCAB], [*TOKENS[:-1], -1]):
        save_file(
            weights | {"draft_tokens": torch.tensor(tokens, dtype=torch.int32)},
            root / "draft" / "model.safetensors",
        )
        with pytest.raises(ModelError):
            FastModel(root / "draft")


def test_the_embedding_of_a_model_whose_weights_were_fetched_is_found_in_the_cache(
    folders, tmp_path, monkeypatch
):
    monkeypatch.setattr(split, "cache_folder", lambda: tmp_path / "cache")
    for name in ("target", "draft"):
        shutil.copytree(folders / name, tmp_path / name)
    (tmp_path / "target" / "t.gguf.sha256").write_text(f"{'ab' * 32}  t.gguf\n")
    copy = split.fetched_copy(tmp_path / "target")
    copy.mkdir(parents=True)
    (tmp_path / "target" / "model.safetensors").rename(copy / "model.safetensors")
    now, before = (FastModel(root / "draft", device="cpu").open() for root in (tmp_path, folders))
    for target in (now, before):
        target.sync([1, 2, 3])
    torch.testing.assert_close(
        now.score(DraftTree()).logits, before.score(DraftTree()).logits
    )  # the table is multiplied anew
    (copy / "model.safetensors").unlink()
    with pytest.raises(ModelError):
        FastModel(tmp_path / "draft", device="cpu")


def test_a_draft_whose_file_is_smaller_than_a_whole_table_is_read(folders, tmp_path):
    """As one in eight bits is: 49,152 rows of 256 would be larger than all its weights."""
    shutil.copytree(folders, tmp_path / "all")
    draft = tmp_path / "all" / "draft"
    config = json.loads((draft / "config.json").read_text())
    weights = load_file(draft / "model.safetensors")
    stored = sum(weight.nbytes for weight in weights.values())
    bounds = Weights(draft, torch.device("cpu"), torch.float32)
    check_weights(config | {"vocab_size": stored}, bounds, "draft", 4, torch.device("cpu"))
    for change in ({"draft_vocab_size": stored}, {"intermediate_size": stored}):
        with pytest.raises(ModelError, match=next(iter(change))):
            check_weights(config | change, bounds, "draft", 4, torch.device("cpu"))


def test_a_table_in_memory_is_not_read_again_unless_the_files_changed(folders, tmp_path):
    shutil.copytree(folders, tmp_path / "all")
    draft, target = tmp_path / "all" / "draft", tmp_path / "all" / "target"
    asked = (json.loads((draft / "config.json").read_text()), draft, torch.device("cpu"), torch.float32)
    model = FastModel(target)
    with torch.inference_mode():
        assert projected_table(*asked) is model.embedding
    torch.nn.Linear(WIDE, 2)(
        projected_table(*asked)
    ).sum().backward()  # a draft may be trained while the model is in memory
    weights = load_file(target / "model.safetensors")
    save_file(
        weights | {"model.embed_tokens.weight": weights["model.embed_tokens.weight"] + 1},
        target / "model.safetensors",
    )
    with torch.inference_mode():
        assert torch.equal(projected_table(*asked), weights["model.embed_tokens.weight"] + 1)
