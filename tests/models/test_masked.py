"""Draft models with mask tokens: the published layout is read and drafts what transformers computes over
the text and the masks; what is none is refused with a sentence."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch

from specviz.checkpoints.weights import ModelError
from specviz.core import Budget, DraftTree, Sampling, State
from specviz.drafters.model.masked import MaskedDraft
from specviz.models import masked
from specviz.models.heads import TargetInfo
from specviz.targets.fast import FastModel

from ..message_codes import refuses
from ..targets.tiny import CONFIGS, VOCAB, network
from .test_reduced_vocabulary import folders  # noqa: F401

BODY = TargetInfo("toy", 24, VOCAB, 2)
MASK, GAMMA = 5, 4


def published(folder, kind, **said):
    """A network of transformers as its authors' trainer saves it."""
    net = network(CONFIGS[kind]())
    net.save_pretrained(folder)
    config = (
        json.loads((folder / "config.json").read_text()) | {"pard_token": MASK, "spd_type": "pard"} | said
    )
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in config.items() if value is not None})
    )
    return net


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_a_published_model_drafts_what_one_pass_over_text_and_masks_says(tmp_path, kind):
    """Two rounds, of which the second stands on what the first left; then a text that goes another way."""
    net = published(tmp_path, kind)
    drafter = MaskedDraft(masked.load(tmp_path, BODY))
    for text in ([7, 3, 21, 9], [7, 3, 21, 9, 30, MASK, 2], [7, 3, 21, 9, 30, MASK, 2], [7, 3, 8, 1, 2]):
        with torch.no_grad():
            want = net(torch.tensor([text + [MASK] * (GAMMA - 1)])).logits[0, -GAMMA:]
        tree = drafter.propose(State(list(text), Sampling(0.0)), Budget(GAMMA))
        assert list(tree.tokens) == want.argmax(-1).tolist() and tree.parents == (-1, 0, 1, 2)
        distributions = drafter.propose(State(list(text), Sampling(1.0)), Budget(GAMMA)).probs
        assert float((distributions - want.softmax(-1)).abs().max()) < 1e-5


def test_a_vocabulary_that_was_padded_otherwise_will_do(tmp_path):
    published(tmp_path, "llama")
    state = State([7, 3, 21, 9], Sampling(1.0))
    for vocab in (VOCAB + 4, VOCAB - 4):
        drafter = MaskedDraft(masked.load(tmp_path, replace(BODY, vocab=vocab)))
        distributions = drafter.propose(state, Budget(2)).probs
        assert (
            distributions.shape == (2, vocab)
            and torch.allclose(distributions.sum(-1), torch.ones(2))
            and not distributions[:, VOCAB:].any()
        )
    drafter = MaskedDraft(masked.load(tmp_path, replace(BODY, vocab=VOCAB + 4)))
    assert not len(drafter.propose(State([7, VOCAB + 1], Sampling(1.0)), Budget(2))), (
        "it cannot read a token that it does not have"
    )


@pytest.mark.parametrize(
    "said, why",
    [
        ({"pard_token": None}, "pard.no_token pard_token"),
        ({"pard_token": VOCAB}, "pard.token 48"),
        ({"pard_token": "x"}, "pard.token pard_token"),
        ({"model_type": "phi3"}, "pard.family phi3"),
        ({"num_attention_heads": 5}, "head.sizes"),
        ({"num_hidden_layers": 2}, "head.unknown_weights"),
    ],
)
def test_what_is_none_is_refused_with_a_sentence(tmp_path, said, why):
    published(tmp_path, "llama", **said)
    with refuses(ModelError, *why.split()) as told:
        masked.load(tmp_path, BODY)
    assert "\n" not in str(told.value)


def test_a_draft_with_a_reduced_vocabulary_reads_masks(folders, tmp_path):  # noqa: F811
    """As the draft itself over the text, and after masks what its network says to them."""
    place = tmp_path / "target" / "heads" / "pard"
    shutil.copytree(folders / "target", tmp_path / "target")
    shutil.copytree(folders / "draft", place)
    config = json.loads((place / "config.json").read_text()) | {"pard_token": MASK}
    (place / "config.json").write_text(json.dumps(config))
    model, draft = masked.load(place, BODY), FastModel(folders / "draft").open()
    draft.sync([5, 9, 30, 7])
    found = model.open().draft([5, 9, 30, 7], 2)
    torch.testing.assert_close(found[0], draft.score(DraftTree()).logits[0], atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        want = model.expand(model(torch.tensor([[5, 9, 30, 7, MASK, MASK]]))[0, -3:] @ model.output.T)
    torch.testing.assert_close(found, want, atol=1e-4, rtol=1e-4)
    with refuses(ModelError, "pard.vocabulary", VOCAB, VOCAB + 1):
        masked.load(place, replace(BODY, vocab=VOCAB + 1))
