"""What a Hugging Face network is read for before it runs."""

from __future__ import annotations

import pytest
import torch

from specviz.models.pretrained import cache_argument


class Today(torch.nn.Module):
    def forward(self, ids, cache=None, **more):
        return ids


class Before(torch.nn.Module):
    def forward(self, ids, past_key_values=None):
        return ids


class Without(torch.nn.Module):
    def forward(self, ids, **more):
        return ids


@pytest.mark.parametrize("kind, word", [(Today, "cache"), (Before, "past_key_values"), (Without, None)])
def test_a_cache_is_called_as_the_network_calls_it(kind, word):
    assert cache_argument(kind()) == word
