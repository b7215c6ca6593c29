"""A slower kernel that stands in for a missing one is named once in the log."""

from __future__ import annotations

import logging

import torch

from specviz.models import fallbacks, int8


def test_a_missing_product_is_logged_once_and_changes_no_number(monkeypatch, caplog):
    def missing(*_):
        raise RuntimeError("not on this processor")

    fallbacks.log_fallback.cache_clear()
    weight, x = torch.randint(-127, 128, (3, 8)).to(torch.int8), torch.randint(-5, 6, (2, 8)).float()
    monkeypatch.setattr(int8, "HalfProducts", missing)
    with caplog.at_level(logging.WARNING, logger=fallbacks.__name__):
        products = [int8._floats(weight) for _ in range(2)]
    assert len(caplog.records) == 1 and caplog.records[0].name == fallbacks.__name__
    assert torch.equal(products[0](x), x @ weight.float().T)
    fallbacks.log_fallback.cache_clear()
