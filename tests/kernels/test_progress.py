"""How far the compilation of the kernels is: nested compilations are counted, and numba's own events are
heard."""

from __future__ import annotations

import pytest

from specviz.kernels.progress import CompileProgress


def test_compilations_are_counted_as_they_end_and_never_make_a_whole():
    progress = CompileProgress(expected=4)
    assert progress.share() is None
    progress.begin()
    progress.begin()  # what the first one calls
    assert progress.share() == 0
    progress.end()
    progress.end()
    assert progress.share() == 0.5
    for _ in range(4):
        progress.begin()
        progress.end()
    assert progress.share() == 0.99
    progress.reset()
    assert progress.share() is None


def test_a_function_that_numba_compiles_is_heard():
    import numba

    progress = CompileProgress(expected=4)
    progress.listen()
    assert numba.njit(lambda x: x + 1)(1) == 2
    assert progress.share() == 0.25


@pytest.mark.thorough
def test_loaded_kernels_leave_no_progress_behind():
    from specviz.kernels.progress import PROGRESS
    from specviz.zoo import load

    load("SmolLM2-135M-Instruct")
    assert PROGRESS.share() is None


def test_who_waits_for_a_model_is_told_how_far_it_is(monkeypatch):
    from specviz.engine.engine import Engine
    from specviz.engine.messages import text
    from specviz.kernels.progress import PROGRESS

    monkeypatch.setattr(PROGRESS, "share", lambda: 0.5)
    assert Engine().progress(None) == text("models.compiling", share=0.5)
