"""States on disk: what was computed once is what everybody sees, and nothing of it belongs to another
answer."""

from __future__ import annotations

import torch

from specviz.training.state_cache import StateCache
from specviz.training.text_answers import Answer


def answers():
    return [
        Answer(torch.arange(n) + 10 * n, 2, "chat", 0.0, torch.zeros(n - 2, 1), torch.zeros(n - 2, 1))
        for n in (3, 6, 4)
    ]


def of(rows, width, plus=0.0):
    """What a target would say: here the token itself."""
    whole = torch.zeros(len(rows), width, 2)
    for row, answer in enumerate(rows):
        whole[row, : len(answer.ids)] = answer.ids[:width, None] + plus
    return whole


def test_each_row_is_computed_once_and_is_its_own(tmp_path):
    some, asked = answers(), []
    kept = StateCache(tmp_path, some, 2)

    def rows(these, width, plus=0.0, kept=kept):
        return kept.rows(these, width, lambda: asked.append(len(these)) or of(these, width, plus)).float()

    assert torch.equal(rows([some[1], some[0]], 6), of([some[1], some[0]], 6)) and asked == [2]
    assert torch.equal(rows([some[0]], 3), of([some[0]], 3)) and asked == [2]
    mixed = rows([some[2], some[1]], 6, plus=100)  # one is there and stays what it was; the other is new
    assert torch.equal(
        mixed, torch.cat([of([some[2]], 6, 100), of([some[1]], 6)]) * (mixed != 0)
    ) and asked == [2, 2]
    again = answers()
    assert torch.equal(
        rows([again[2]], 5, kept=StateCache(tmp_path, again, 2))[:, :4], of([again[2]], 4, 100)
    ) and asked == [2, 2]


def test_a_cut_answer_is_not_kept_and_others_begin_anew(tmp_path):
    some, asked = answers(), []
    kept = StateCache(tmp_path, some, 2)
    for _ in range(2):
        assert kept.rows([some[1]], 4, lambda: asked.append(0) or of([some[1]], 6)[:, :4]).shape == (1, 4, 2)
    assert len(asked) == 2
    kept.rows(some, 6, lambda: of(some, 6))
    fewer = StateCache(tmp_path, some[:2], 2)
    assert not fewer.done.any() and kept.done.all()
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["done", "states"], (
        "what nobody reads goes"
    )
