"""A slower kernel that stands in for a missing one is named once in the log."""

from __future__ import annotations

import logging

from specviz.models import fallbacks


def test_what_is_missing_is_logged_once(caplog):
    fallbacks.log_fallback.cache_clear()
    with caplog.at_level(logging.WARNING, logger=fallbacks.__name__):
        for missing in ("numba", "numba", "another"):
            fallbacks.log_fallback(missing, "floats")
    assert [record.name for record in caplog.records] == [fallbacks.__name__] * 2
    fallbacks.log_fallback.cache_clear()
