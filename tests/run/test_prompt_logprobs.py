"""Log-probabilities of a prompt's tokens."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree
from specviz.run.prompt_logprobs import CHUNK, prompt_logprobs

from .fakes import FakeLoaded


@pytest.mark.parametrize("length", [1, 2, CHUNK, CHUNK + 1, CHUNK + 2, 3 * CHUNK])
def test_they_are_those_of_one_pass_over_the_prompt(length):
    loaded = FakeLoaded(context=512)
    ids = [(7 * i + 3) % loaded.vocab for i in range(length)]
    found = prompt_logprobs(loaded, ids, 3)
    kit = loaded.kit()
    expected = []
    for end in range(1, length):
        kit.target.sync(ids[:end])
        row = kit.target.score(DraftTree()).logits[0].float().log_softmax(-1)
        expected.append(row)
    kit.close()
    assert len(found) == max(0, length - 1)
    for (logprob, top), row, token in zip(found, expected, ids[1:]):
        assert logprob == pytest.approx(float(row[token]), abs=1e-5)
        values, _ = torch.topk(row, 3)
        assert [value for _, value in top] == pytest.approx(values.tolist(), abs=1e-5)


def test_a_cancelled_request_stops_between_two_passes():
    asked = []

    def cancelled():
        asked.append(True)
        return len(asked) > 1

    assert len(prompt_logprobs(FakeLoaded(context=512), [3] * (3 * CHUNK), 0, cancelled)) == CHUNK
