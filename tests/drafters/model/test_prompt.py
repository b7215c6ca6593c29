"""Whatever drafts reads the prompt when the target does, so that seconds after the prefill mean the same
for every method."""

from __future__ import annotations

import pytest

from specviz.core import Sampling, State, open_run
from specviz.methods import catalogue
from specviz.models.row_cache import RowCache
from specviz.targets.tiny import TinyTarget

from ...exactness.toys import later, player, provided, sample, toy_of

PROMPT = [(7 * i + i * i) % 12 for i in range(160)]
FEW = 150  # rows that a pass of a round may have on these toys: fewer than the prompt


LEFT_OUT = {
    "online",  # a model that has learned reads the text again: its rows are those of other weights
    "parallel_branches",  # asks for words, which the toys do not have; nothing drafts but the target
    "collaborative_decoding",
}  # nothing drafts; its models paint scales: tests/loops/test_next_scale.py


@pytest.mark.parametrize(
    "key", [later(pytest.param(key, id=key), key in sample()) for key in sorted(set(catalogue()) - LEFT_OUT)]
)
def test_no_pass_of_a_round_reads_the_prompt(key, monkeypatch):
    method, num_computed = catalogue()[key], []
    kit = toy_of(method, 12, context=400)
    provided(method, kit)
    kit.piece = lambda token: bytes([97 + token])
    forward, run = TinyTarget._forward, RowCache._run
    monkeypatch.setattr(
        TinyTarget, "_forward", lambda self, rows: num_computed.append(len(rows.ids)) or forward(self, rows)
    )
    monkeypatch.setattr(
        RowCache,
        "_run",
        lambda self, x, depths, *rest: num_computed.append(len(depths)) or run(self, x, depths, *rest),
    )
    parts = method.build(kit, **method.read_knobs({}))
    state = State(list(PROMPT), Sampling(0.0), limit=12)
    open_run(parts, kit.target, state)
    assert max(num_computed) >= len(PROMPT) - 1
    num_computed.clear()
    while not state.done:
        player(parts)(parts, kit.target, state)
    assert max(num_computed, default=0) <= FEW
