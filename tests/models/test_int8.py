"""Int8 weights and what a pass with them gives: each row is rounded by its own step, and a row's logits have
the same bits with 1 to 8 threads and in chains of 1 to 64 rows."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree
from specviz.core.threads import set_thread_count, thread_count
from specviz.models.int8 import MOST, quantise_rows
from specviz.targets.int8 import Int8Model

from ..targets.tiny import VOCAB, checkpoint


def test_weights_are_whole_numbers_times_the_step_of_their_row():
    weight = torch.randn(6, 40, generator=torch.Generator().manual_seed(0))
    numbers, steps = quantise_rows(weight)
    assert numbers.dtype == torch.int8 and int(numbers.abs().amax(1).min()) == MOST
    assert ((numbers * steps[:, None] - weight).abs() <= steps[:, None] * 0.5001).all()
    assert not quantise_rows(torch.zeros(2, 3))[0].any()


@pytest.mark.parametrize("most", [17, pytest.param(64, marks=pytest.mark.thorough)])
def test_logits_in_every_batch_and_with_every_number_of_threads(tmp_path, most):
    model = Int8Model(checkpoint(tmp_path, "llama3"))
    found = []
    before = thread_count()
    tokens = torch.arange(3, 67).remainder(VOCAB).tolist()
    try:
        for threads in range(1, 9 if most == 64 else 4):
            set_thread_count(threads)
            for n in (*range(1, most, 9 if threads > 1 else 1), 33, 64):
                target = model.open()
                target.sync([5, 2, 7, tokens[0]])
                found.append(target.score(DraftTree.chain(tuple(tokens[1:n]))).logits)
    finally:
        set_thread_count(before)
    longest = max(found, key=len)
    assert all(torch.equal(logits, longest[: len(logits)]) for logits in found)
