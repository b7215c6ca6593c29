"""Packed answers: the tokens of the engine's target, whatever shares their passes."""

from __future__ import annotations

import random

import pytest
import torch

from specviz.core import DraftTree
from specviz.core.errors import InvalidUse
from specviz.training import text_answers
from specviz.training.packed_answers import PackedGenerator

from ..message_codes import refuses
from ..targets.tiny import FAST, VOCAB, checkpoint

TOKENS = 6
TOP = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("packed"), FAST[0])


def greedy(model, prompt, count, end):
    """Greedy tokens of a target of its own, one pass each."""
    target, tokens = model.open(), list(prompt)
    while len(tokens) < len(prompt) + count and tokens[-1:] != [end] or len(tokens) == len(prompt):
        target.sync(tokens)
        tokens.append(int(target.score(DraftTree()).logits[0].argmax()))
    return tokens[len(prompt) :]


def sampler(logits, temperatures):
    return text_answers.sample(logits, temperatures, TOP)


@pytest.mark.parametrize("lanes", [1, 2, 8])
@pytest.mark.parametrize("prefill", [4, 64])
def test_answers_are_those_of_a_target_of_its_own(folder, lanes, prefill):
    source = random.Random(3)
    prompts = [[source.randrange(VOCAB) for _ in range(source.randrange(1, 9))] for _ in range(5)]
    made = PackedGenerator(folder, -1, lanes, prefill)
    found = made.generate(prompts, [0.0] * 5, TOKENS, sampler)
    assert [one.tokens.tolist() for one in found] == [greedy(made.model, p, TOKENS, -1) for p in prompts]
    for one in found:
        assert torch.equal(one.top_ids[:, 0].long(), one.tokens)
        assert one.top_logp.shape == (TOKENS, TOP)


def test_an_answer_ends_with_the_end_token_and_its_cache_is_used_again(folder):
    prompts = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    probe = PackedGenerator(folder, -1, 1)
    end = probe.generate(prompts, [0.0] * 3, TOKENS, sampler)[1].tokens[0].item()
    made = PackedGenerator(folder, end, 2)
    for _ in range(2):
        found = made.generate(prompts, [0.0] * 3, TOKENS, sampler)
        assert found[1].tokens.tolist() == [end]
        assert [one.tokens.tolist() for one in found] == [greedy(made.model, p, TOKENS, end) for p in prompts]


def test_log_probabilities_are_those_at_temperature_one(folder):
    made = PackedGenerator(folder, -1, 2)
    torch.manual_seed(1)
    (one,) = made.generate([[1, 2, 3]], [1.0], TOKENS, sampler)
    target = made.model.open()
    target.sync([1, 2, 3, *one.tokens[:-1].tolist()])
    expected = target.score(DraftTree()).logits[0].log_softmax(-1)
    assert torch.allclose(one.top_logp[-1].float(), expected[one.top_ids[-1].long()], atol=4e-3)


def test_an_empty_prompt_is_refused(folder):
    with refuses(InvalidUse, "prompt.empty"):
        PackedGenerator(folder, -1).generate([[]], [0.0], TOKENS, sampler)
