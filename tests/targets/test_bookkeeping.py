"""sync, score and commit: which rows are run, kept and dropped, whatever network lies below."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree, HiddenInput, Verdict
from specviz.targets.base import PREFILL_CHUNK, CachedTarget, ContextOverflow
from specviz.targets.rows import AppendableRows, shape_of

from ..message_codes import refuses


class Log(CachedTarget):
    """A network that says which rows it was given; its logits are the ids of the rows in sight, as one
    number."""

    capabilities = frozenset({"tree", "rewind", "tap:final"})

    def __init__(self, context=2000):
        self.vocab = 100
        self.context = context
        self.hidden = 1
        self.layers = 1
        self.slots: list[int] = []
        self.runs: list[list[int]] = []
        self.broken = False
        super().__init__()

    def _forward(self, rows):
        if self.broken:
            raise RuntimeError("the network fell over")
        self.runs.append(rows.ids)
        self.slots[rows.past + rows.lo :] = rows.ids
        shape = rows.shape
        logits = torch.zeros(len(rows.ids), 100)
        for i in range(len(rows.ids)):
            seen = self.slots[: rows.past] + [
                self.slots[rows.past + j] for j in shape.sees[i].nonzero()[:, 0].tolist()
            ]
            assert int(shape.depth[i]) == len(seen) - rows.past - 1
            logits[i] = hash(tuple(seen)) % 10**6
        logits = logits[-1:] if rows.last else logits
        return logits, {"final": torch.tensor(rows.ids)[:, None]} if "final" in self._want else {}

    def _gather(self, past, rows):
        self.slots[past:] = [self.slots[past + row] for row in rows]

    def _crop(self, length):
        del self.slots[length:]


def value(tokens):
    return hash(tuple(tokens)) % 10**6


def tree(tokens, parents, probes=()):
    return DraftTree(tuple(tokens), tuple(parents), (-1,) * len(tokens), probes=frozenset(probes))


def test_prefill_feeds_all_but_the_last_token_and_gives_its_last_row():
    target = Log()
    scores = target.sync([1, 2, 3, 4])
    assert target.runs == [[1, 2, 3]] and scores.num_computed == 3 and scores.first_position == 0
    assert scores.logits.shape == (1, 100) and scores.logits[0, 0] == value([1, 2, 3])
    assert target.root == 4 and target.cached_tokens == [1, 2, 3] == target.slots


def test_a_prompt_of_one_token_runs_nothing():
    target = Log()
    scores = target.sync([5])
    assert target.runs == [] and scores.num_computed == 0 and scores.logits.shape == (0, 100)
    assert target.score(DraftTree()).logits[0, 0] == value([5])


def test_a_long_prompt_is_fed_in_chunks():
    target = Log()
    target.capture(frozenset({"final"}))
    tokens = [i % 90 for i in range(2 * PREFILL_CHUNK + 10)]
    scores = target.sync(tokens)
    assert [len(run) for run in target.runs] == [
        PREFILL_CHUNK,
        PREFILL_CHUNK,
        9,
    ] and scores.num_computed == len(tokens) - 1
    assert scores.hidden_states["final"][:, 0].tolist() == tokens[:-1] and scores.logits[0, 0] == value(
        tokens[:-1]
    )


def test_rows_of_a_tree_see_their_ancestors_and_nothing_else():
    target = Log()
    target.sync([1, 2, 3])
    logits = target.score(tree([4, 5, 6, 7], [-1, 0, -1, 1])).logits[:, 0].tolist()
    assert logits == [
        value(x) for x in ([1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 6], [1, 2, 3, 4, 5, 7])
    ]


def test_commit_keeps_root_and_path_and_makes_sync_a_no_op():
    target = Log()
    target.sync([1, 2, 3])
    target.score(tree([4, 5, 6, 7], [-1, -1, 1, 0]))
    target.commit(Verdict((1, 2), 9, "bonus"))
    assert target.cached_tokens == [1, 2, 3, 5, 6] == target.slots and target.root == 9
    runs = len(target.runs)
    assert target.sync([1, 2, 3, 5, 6, 9]).num_computed == 0 and len(target.runs) == runs == target.passes


def test_sync_follows_the_scratch_by_token():
    target = Log()
    target.sync([1, 2, 3])
    target.score(tree([4, 5, 6, 7], [-1, -1, 1, 0]))
    assert target.sync([1, 2, 3, 5, 6, 8]).num_computed == 0  # 3, 5 and 6 were scored
    assert target.cached_tokens == [1, 2, 3, 5, 6] and len(target.runs) == 2
    target.score(tree([4], [-1]))
    target.sync([1, 2, 3, 5, 6, 8, 50, 51])  # 8 was the root, 50 is new
    assert target.cached_tokens == [1, 2, 3, 5, 6, 8]
    assert target.score(DraftTree()).logits[0, 0] == value([1, 2, 3, 5, 6, 8, 50, 51])


def test_twins_are_followed_side_by_side():
    target = Log()
    target.sync([1, 2])
    target.score(tree([4, 4, 5], [-1, -1, 1]))  # the continuation lies under the second twin
    assert (
        target.sync([1, 2, 4, 5, 6]).num_computed == 0
        and target.cached_tokens == [1, 2, 4, 5]
        and len(target.runs) == 2
    )


def test_probes_and_made_rows_are_not_followed():
    target = Log()
    target.sync([1, 2])
    target.score(tree([4, 5], [-1, -1], probes={0}))
    target.sync([1, 2, 4, 6])
    assert target.cached_tokens == [1, 2]
    target.score(DraftTree((7,), (-1,), (-1,), inputs=(HiddenInput(0, (0,), lambda x: x[:1]),)))
    target.sync([1, 2, 4, 6, 7, 8])
    assert target.cached_tokens == [1, 2, 4, 6]


@pytest.mark.parametrize(
    "tokens", [[1, 2, 3], [1, 2, 9, 9], [9], [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 9, 9, 9]]
)
def test_sync_goes_anywhere(tokens):
    target = Log()
    target.sync([1, 2, 3, 4, 5, 6])
    target.score(tree([7, 8], [-1, 0]))
    target.sync(tokens)
    logits = target.score(tree([3, 4], [-1, 0])).logits[:, 0].tolist()
    assert logits == [value(tokens), value(tokens + [3]), value(tokens + [3, 4])]
    assert target.cached_tokens == tokens[:-1] and target.slots[: len(tokens) + 2] == tokens + [3, 4]


def test_a_few_missing_rows_go_with_the_next_score():
    target = Log()
    target.sync([1, 2, 3])
    target.score(tree([4], [-1]))
    assert target.sync([1, 2, 3, 4, 5, 6, 7]).num_computed == 0
    logits = target.score(tree([8, 9], [-1, -1])).logits[:, 0].tolist()
    assert logits == [value([1, 2, 3, 4, 5, 6, 7] + more) for more in ([], [8], [9])]
    assert target.runs[-1] == [5, 6, 7, 8, 9] and target.cached_tokens == [1, 2, 3, 4, 5, 6]
    target.commit(Verdict((1,), 3, "bonus"))
    assert target.slots == [1, 2, 3, 4, 5, 6, 7, 9] == target.cached_tokens


def test_rows_that_wait_are_not_lost():
    target = Log()
    target.sync([1, 2, 3])
    target.sync([1, 2, 3, 4, 5])
    assert target.sync([1, 2, 3, 4, 5]).num_computed == 0
    target.capture(frozenset({"final"}))  # states are wanted from here on
    assert target.cached_tokens == [1, 2, 3, 4] and target.score(DraftTree()).hidden_states[
        "final"
    ].tolist() == [[5]]
    assert target.sync([1, 2, 3, 4, 5, 6, 7]).hidden_states["final"].tolist() == [
        [6]
    ]  # with taps nothing waits


def test_a_tree_grows_level_by_level():
    target = Log()
    target.sync([1, 2])
    target.score(DraftTree())
    first = target.score(tree([4, 5], [-1, -1])).logits
    again = target.score(tree([4, 5, 6, 7], [-1, -1, 0, 1]), start=2).logits
    assert target.runs[1:] == [[2], [4, 5], [6, 7]]  # a root scored alone is not run again
    assert torch.equal(first, again[:3]) and again[3:, 0].tolist() == [
        value([1, 2, 4, 6]),
        value([1, 2, 5, 7]),
    ]
    other = target.score(tree([4, 5, 8], [-1, -1, 0]), start=2).logits
    assert other[3, 0] == value([1, 2, 4, 8]) and again[3, 0] == value(
        [1, 2, 4, 6]
    )  # what was handed out stays
    assert (
        torch.equal(target.score(tree([4, 5, 8], [-1, -1, 0]), start=3).logits, other)
        and len(target.runs) == 5
    )
    target.commit(Verdict((0, 2), 3, "bonus"))
    assert target.slots == [1, 2, 4, 8]


def test_a_start_that_does_not_lie_in_the_scratch_is_refused():
    target = Log()
    target.sync([1, 2])
    target.score(tree([4, 5], [-1, -1]))
    for wrong in (tree([4, 6, 7], [-1, -1, 0]), tree([4, 5, 7], [-1, 0, 0])):
        with refuses(ValueError, "target.scratch"):
            target.score(wrong, start=2)
    with refuses(ValueError, "target.scratch"):
        target.score(tree([4, 5, 6, 7], [-1] * 4), start=3)


def test_what_cannot_be_done_is_said():
    target = Log(context=5)
    with pytest.raises(ValueError, match="empty"):
        target.sync([])
    with refuses(ContextOverflow, "context.overflow", 6):
        target.sync([1, 2, 3, 4, 5, 6])
    with refuses(ValueError, "target.not_synced"):
        target.score(DraftTree())
    for alien in ([1, 100, 2], [1, -3, 2]):
        with refuses(ValueError, "target.token"):
            target.sync(alien)
    target.sync([1, 2, 3])
    with refuses(ValueError, "target.token", 100):
        target.score(tree([100], [-1]))
    with refuses(ValueError, "target.not_scored"):
        target.commit(Verdict((3,), 1, "bonus"))


def test_a_forward_that_fails_leaves_nothing_half_done():
    target = Log()
    target.sync([1, 2, 3])
    target.score(tree([4], [-1]))
    target.broken = True
    with pytest.raises(RuntimeError, match="over"):
        target.score(tree([5, 6], [-1, -1]))
    target.broken = False
    with refuses(ValueError, "target.not_synced"):
        target.score(DraftTree())
    target.sync([1, 2, 3])
    assert target.score(tree([5], [-1])).logits[:, 0].tolist() == [value([1, 2, 3]), value([1, 2, 3, 5])]


def test_busy_counts_the_seconds_inside_forwards():
    target = Log()
    target.sync([1, 2, 3])
    target.score(tree([4, 5], [-1, -1]))
    assert target.busy > 0 and target.passes == 2
    before = target.busy
    target.commit(Verdict((), 4, "correction"))
    target.sync([1, 2, 3, 4])
    assert target.busy == before and target.passes == 2


def test_shapes_of_random_trees_equal_a_walk_over_ancestors():
    generator = torch.Generator().manual_seed(0)
    for n in (1, 7, 8, 9, 63, 64, 65, 200):
        parents = tuple(int(torch.randint(-1, i, (1,), generator=generator)) if i else -1 for i in range(n))
        for lo in (0, n // 2):
            shape = shape_of(parents, lo)
            want = torch.zeros(n + 1, n + 1, dtype=torch.bool)
            for i in range(n + 1):
                at = i
                while at > 0:
                    want[i, at] = True
                    at = parents[at - 1] + 1
                want[i, 0] = True
            assert (
                torch.equal(shape.sees, want[lo:]) and shape.depth.tolist() == (want.sum(1) - 1).tolist()[lo:]
            )
            assert shape.all_seen == bool(want[lo:].all())


def test_growing_rows_never_change_under_a_view():
    rows = AppendableRows(torch.zeros(1, 2))
    views = [rows.add(i, torch.full((1, 2), float(i))) for i in range(1, 30)]
    branch = rows.add(3, torch.full((2, 2), 99.0))
    for n, view in enumerate(views, 2):
        assert view[:, 0].tolist() == list(range(n))
    assert branch[:, 0].tolist() == [0, 1, 2, 99, 99]
