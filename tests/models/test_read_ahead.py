"""Parts of a checkpoint are read in a second thread while the one before is used: in order, at most two
held, errors where they belong."""

from __future__ import annotations

import threading

import pytest
import torch

from specviz.checkpoints.weights import ModelError, read_ahead


def test_parts_come_in_order_and_at_most_one_is_read_ahead():
    held: list[int] = []
    most, threads = 0, set()

    def read(item):
        threads.add(threading.current_thread())
        assert torch.is_inference_mode_enabled()
        held.append(item)
        return item

    seen = []
    for item in read_ahead(read, range(5)):
        seen.append(item)
        most = max(most, len(held))
        held.remove(item)
    assert seen == [0, 1, 2, 3, 4] and most <= 2 and threading.current_thread() not in threads
    assert list(read_ahead(read, [])) == []


def test_an_error_is_raised_where_its_part_would_come():
    def read(item):
        if item == 2:
            raise ModelError("broken", "checkpoint.shape")
        return item

    seen = []
    with pytest.raises(ModelError, match="broken"):
        for item in read_ahead(read, range(5)):
            seen.append(item)
    assert seen == [0, 1]


def test_who_stops_early_leaves_no_thread():
    before = threading.active_count()
    parts = read_ahead(lambda item: item, range(5))
    assert next(parts) == 0
    parts.close()
    assert threading.active_count() == before
