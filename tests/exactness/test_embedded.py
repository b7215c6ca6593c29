"""The embedded targets, as they ship: greedy equality of every method, and the distribution of its first
tokens by Monte-Carlo.

The default chat model has every trained drafter; the 16 M target is quick, for what needs many runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from specviz import load
from specviz.core import Sampling
from specviz.evidence import certificate as certify
from specviz.evidence.statistics import ACCEPTANCE, Cells, chi_square, normal_score
from specviz.zoo import forget
from tools.sample_answers import generate_answers

from ..message_codes import begins
from .toys import methods, sample

SHORT = 16


@pytest.fixture(scope="module")
def loaded():
    return load("Llama-specviz-16M", device="cpu")


def runnable(loaded, *exactness):
    found = [method for method in methods(*exactness) if loaded.unsupported_reason(method) is None]
    assert len(found) >= 8, "the embedded pair must run most methods"
    return found


@pytest.mark.thorough  # the default target has its sample below
@pytest.mark.parametrize("every", [False, True], ids=["sample", "all"])
def test_methods_write_what_plain_decoding_writes(loaded, every):
    tried = sample()
    for i, method in enumerate(
        m for m in runnable(loaded, "exact", "greedy only") if every or m.key in tried
    ):
        answer = certify.greedy(loaded, method.key, [certify.PROMPTS[i % len(certify.PROMPTS)]], SHORT)
        assert answer["status"] == "identical", f"{method.key}: {answer['detail']}"


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["sample", "all"]
)
def test_the_default_target_writes_what_plain_decoding_writes(every):
    default = load(device="cpu")
    _, temperature, text, remarks = next(generate_answers(default))  # "What is the capital of France?"
    assert temperature == 0 and "Paris" in text and not remarks
    found = runnable(default, "exact", "greedy only")
    for i, method in enumerate(found if every else found[1::72]):
        answer = certify.greedy(default, method.key, [certify.PROMPTS[i % len(certify.PROMPTS)]], SHORT)
        assert answer["status"] == "identical", f"{method.key}: {answer['detail']}"
    forget()


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["Llama-specviz-16M", "SmolLM2-135M-Instruct"])
def test_all_methods_together_follow_the_targets_distribution(target):
    """At temperature 1 with top-p. The runs of all exact methods follow one distribution, so eight of each
    are counted together; chi-square over the first tokens, where a single one outside the distribution's
    support fails."""
    loaded = load(target, device="cpu")
    many, sampling = runnable(loaded, "exact"), Sampling(1.0, top_p=0.95)
    each = max(8, 250 // len(many))
    with torch.inference_mode():
        ids = certify.encode(loaded, certify.PROMPTS[0])
        cells = Cells.build(
            certify.NextTokenDistribution(loaded.open_target(), ids, sampling),
            each * len(many),
            2,
            loaded.end_tokens,
        )
        counts = Counter()
        for i, method in enumerate(many):
            seeded = replace(sampling, seed=1 + i)
            counts.update(
                cells.find(tokens[:2])
                for tokens, _ in certify.first_tokens(loaded, method, None, ids, seeded, each)
            )
    assert (
        len(cells.expected) > 5
        and abs(normal_score(*chi_square(cells.expected, counts, each * len(many)))) < 4
    )
    forget()


@pytest.mark.thorough
def test_speculative_decoding_follows_the_distribution_and_accepts_as_often_as_it_must(loaded):
    answer = certify.distribution(loaded, "speculative", samples=200, sampling=Sampling(1.0, top_p=0.95))
    assert answer["status"] == "pass" and begins({"a": ACCEPTANCE}, "a") in answer["detail"], answer["detail"]
