"""Compiled passes and torch's operations have their own numbers of threads."""

from __future__ import annotations

import threading

import pytest
import torch

from specviz import load
from specviz.core.threads import set_thread_count, thread_count, thread_limit
from specviz.kernels.workers import call_threads
from specviz.zoo.device import fit_threads


@pytest.fixture(autouse=True)
def threads():
    """Put the number of threads back after a test."""
    before = thread_count()
    yield
    set_thread_count(before)


def test_torch_has_one_thread_beside_compiled_passes():
    set_thread_count(3, compiled=True)
    assert (thread_count(), call_threads(), torch.get_num_threads()) == (3, 3, 1)
    set_thread_count(2)
    assert (thread_count(), call_threads(), torch.get_num_threads()) == (2, 2, 2)


def test_a_limit_holds_on_its_own_thread_and_ends():
    set_thread_count(3)
    seen = []
    with thread_limit(1):
        other = threading.Thread(target=lambda: seen.append(thread_count()))
        other.start()
        other.join()
        with thread_limit(2):
            seen.append(thread_count())
        seen.append((thread_count(), torch.get_num_threads()))
    assert seen == [3, 1, (1, 1)]
    assert (thread_count(), torch.get_num_threads()) == (3, 3)


@pytest.mark.parametrize("compiled, torchs", [(True, 1), (False, 2)])
def test_the_number_that_fits_leaves_torch_one_thread_beside_compiled_passes(monkeypatch, compiled, torchs):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    set_thread_count(2)
    during = []
    fit_threads(lambda: during.append((thread_count(), torch.get_num_threads())) or 0.001, compiled)
    assert during == [(2, torchs)]
    assert torch.get_num_threads() == torchs


@pytest.mark.thorough
def test_a_model_of_compiled_passes_says_so():
    loaded = load()
    assert loaded.compiled and loaded.forward == "compiled"
    assert torch.get_num_threads() == 1
