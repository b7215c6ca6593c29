"""A target over a part of its own keys and values: what is kept, and that it is the target itself where all
of it is."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree, State, open_run, play
from specviz.methods.self_speculation import magicdec, quantspec, triforce
from specviz.targets.cache_selection import RelevantChunks, RoundedCache, SinksAndWindow

from ..drafters.lookup.toys import check_greedy, greedy, layered, play_all

PROMPT = [3, 7, 1, 4, 9, 2, 6, 5, 3, 5, 8, 10, 11, 0, 2]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return layered(tmp_path_factory.mktemp("tiny"), 12, 4, 1)


def rows(n=10, layers=2, heads=2, width=4):
    return torch.randn(
        layers, 2, heads, n, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )


def test_the_first_and_the_latest_rows_are_kept():
    all_rows = rows()
    kept, finished = SinksAndWindow(2, 3)(all_rows, 0)
    assert finished == 0 and torch.equal(kept, all_rows[:, :, :, [0, 1, 7, 8, 9]])
    assert torch.equal(SinksAndWindow(4, 6)(all_rows, 0)[0], all_rows)


def test_the_pieces_most_like_the_last_key_are_kept_by_layer_and_head():
    all_rows = rows(11)
    kept, _ = RelevantChunks(2, 4, 3)(all_rows, 0)
    assert kept.shape[3] == 2 * 2 + 3
    for layer in range(2):
        for head in range(2):
            keys = all_rows[layer, 0, head]
            alike = [float(keys[i : i + 2].mean(0) @ keys[-1]) for i in range(0, 8, 2)]
            best = sorted(sorted(range(4), key=lambda i: -alike[i])[:2])
            want = [2 * i + k for i in best for k in (0, 1)] + [8, 9, 10]
            assert torch.equal(kept[layer, :, head], all_rows[layer, :, head, want])


def test_old_groups_are_rounded_once_to_the_grid_between_their_ends():
    all_rows, keep = rows(10), RoundedCache(2, 4, 3)
    kept, finished = keep(all_rows, 0)
    assert finished == 4 and torch.equal(kept[:, :, :, 4:], all_rows[:, :, :, 4:])
    assert all(len(kept[0, 0, 0, :4, c].unique()) <= 4 for c in range(4)), "keys by channel"
    assert float((kept - all_rows)[:, :, :, :4].abs().max()) > 0.01
    assert torch.equal(keep(all_rows, 4)[0], all_rows[:, :, :, 4:]) and keep(all_rows, 4)[1] == 4
    near = RoundedCache(8, 4, 3)(all_rows, 0)[0]
    assert 0 < float((near - all_rows).abs().max()) < 0.02


@torch.inference_mode()
def test_a_view_that_keeps_everything_is_the_target_and_one_that_does_not_is_not(one):
    target = one.fresh()
    target.sync(PROMPT)
    chain = DraftTree.chain([1, 2, 3])
    want = target.score(chain).logits
    target.sync(PROMPT)
    for keep, same in (
        (SinksAndWindow(4, 60), True),
        (SinksAndWindow(1, 3), False),
        (RoundedCache(8, 4, 20), True),
        (RoundedCache(1, 2, 2), False),
        (RelevantChunks(2, 60, 2), True),
        (RelevantChunks(2, 2, 2), False),
    ):
        view = target.partial_cache(keep)
        view.sync(PROMPT)
        off = float((view.score(chain).logits - want).abs().max())
        assert (off < 1e-9) == same, keep


@torch.inference_mode()
def test_what_is_taken_in_round_by_round_is_what_is_taken_at_once(one):
    """After many rounds, trees among them, a view says what a new one says; and keys keep their positions."""
    for keep in (
        lambda: SinksAndWindow(2, 4),
        lambda: RoundedCache(3, 4, 2),
        lambda: RelevantChunks(2, 4, 3),
    ):
        parts = magicdec.METHOD.build(one, gamma=2, window=4, sinks=2)
        target = one.target = one.fresh()
        view, state = target.partial_cache(keep()), State(list(PROMPT), limit=40)
        open_run(parts, target, state)
        parts.drafter.model = view
        for _ in range(8):
            play(parts, target, state)
            view.sync(state.tokens)
            new = target.partial_cache(keep())
            new.sync(state.tokens)
            fork = DraftTree((1, 2, 3), (-1, -1, 1), (-1,) * 3)
            assert float((view.score(fork).logits - new.score(fork).logits).abs().max()) < 1e-9
            assert view.kept < len(state.tokens) - 1 or isinstance(view.keep, RoundedCache)


@pytest.mark.parametrize(
    "method, knobs",
    [(magicdec.METHOD, {"window": 3, "sinks": 1}), (quantspec.METHOD, {"bits": 1, "group": 2, "window": 1})],
)
def test_greedy(method, knobs, one):
    assert check_greedy(method, [one], ([1], PROMPT), 24, **knobs) > 1.2
    told = [data for kind, data in play_all(method, one, PROMPT, 24, **knobs)[2].notes if kind == "own_cache"]
    assert told[0]["of"] == len(PROMPT) - 1 and all(t["kept"] <= t["of"] for t in told)


def test_triforce_has_two_checks_one_inside_the_other(one):
    one.open = lambda role: one.fresh()
    written, outcomes, state = play_all(triforce.METHOD, one, PROMPT, 24, budget=4, size=2, window=2)
    assert written == greedy(one.net, PROMPT, 24)
    assert any(kind == "staged" and data["rounds"] > 0 for kind, data in state.notes)
    assert any(o.verdict.kind == "correction" for o in outcomes), (
        "what the middle level passed fell at the last one"
    )
