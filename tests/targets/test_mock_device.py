"""How often a round waits for the device, on a device that is not there: what would be slow on a card fails
without one."""

from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree, LazyScalar, Proposal, Sampling, Scores, State, lazy_ints, open_run
from specviz.core.round import _split_seconds, play
from specviz.methods import catalogue
from specviz.targets.static_shapes import StaticModel

from ..exactness.pair import Pair
from .host_syncs import save_pair
from .mock_device import CARD, Card
from .tiny import VOCAB

pytestmark = pytest.mark.far
PROMPT, LENGTH = [7, 3, 21, 7, 3, 40, 7], 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pair(tmp_path_factory.mktemp("card"))


def run(models, key, waits=None):
    """The text, and for each round how deep its tree might be and how often the host waited, by why."""
    kit = Pair(*models, VOCAB, [PROMPT])
    method = catalogue()[key]
    rounds = []
    parts, state = (
        method.build(kit, **method.read_knobs({})),
        State(list(PROMPT), Sampling(0.0), limit=LENGTH),
    )
    open_run(parts, kit.target, state)
    while not state.done:
        if waits is not None:
            waits.clear()
        rounds.append(
            (
                play(parts, kit.target, state).budget.gamma,
                {why: count for why, count in (waits or {}).items() if count},
            )
        )
    return state.tokens, rounds


@pytest.fixture(scope="module")
def plain(folder):
    return run([StaticModel(folder / name) for name in ("target", "draft")], "autoregressive")[0]


@pytest.mark.parametrize(
    "key", ["autoregressive", "speculative", "draft_tree", "eagle", "mtp", "dflash", "medusa"]
)
def test_a_round_waits_for_the_device_once(folder, plain, key):
    """A draft whose length and shape are known is not read before the pass is over, and nothing is sent
    that must be waited for."""
    with Card() as card:
        tokens, rounds = run(
            [StaticModel(folder / name, CARD, torch.float32) for name in ("target", "draft")], key, card.waits
        )
    assert tokens == plain
    assert len(rounds) > 2 and [waits for _, waits in rounds[1:]] == [{"read": 1}] * (
        len(rounds) - 1
    )  # in the first, rooms are made
    assert key == "autoregressive" or rounds[0][0] > 1


def test_levels_that_follow_from_the_draft_are_read_once_each(folder, plain):
    """Which nodes of a level get children depends on their chances: one wait a level, one for the pass."""
    with Card() as card:
        tokens, rounds = run(
            [StaticModel(folder / name, CARD, torch.float32) for name in ("target", "draft")],
            "eagle2",
            card.waits,
        )
    assert tokens == plain and rounds[0][0] > 1
    assert len(rounds) > 2 and all(
        set(waits) == {"read"} and waits["read"] <= gamma + 1 for gamma, waits in rounds[1:]
    )


@pytest.mark.parametrize(
    "wait, why",
    [
        (lambda x: int(x[0]), "read"),
        (lambda x: x.tolist(), "read"),
        (lambda x: x.cpu(), "read"),
        (lambda x: bool((x > 1).any()), "read"),
        (lambda x: x[[0, 1]], "upload"),
        (lambda x: torch.tensor([1, 2], device=x.device), "upload"),
        (lambda x: torch.ones(2).to(x.device), "upload"),
        (lambda x: x.nonzero(), "shape"),
        (lambda x: x[x > 1], "shape"),
        (lambda x: x.masked_select(x > 1), "shape"),
    ],
)
def test_the_card_counts_what_it_must(wait, why):
    with Card() as card:
        x = torch.arange(4).to(CARD, non_blocking=True)
        assert not +card.waits and x.device == CARD
        wait(x)
        assert set(+card.waits) == {why}


def test_two_devices_do_not_mix():
    with Card(), pytest.raises(AssertionError, match="devices"):
        torch.ones(3).to(CARD) + torch.ones(3)


def test_numbers_are_read_together_and_pass_for_plain_ones():
    with Card() as card:
        one, several = (
            lazy_ints(torch.tensor([5]).to(CARD, non_blocking=True)),
            lazy_ints(torch.tensor([[1, 2], [3, 4]]).to(CARD, non_blocking=True)),
        )
        assert type(one[0]) is LazyScalar and repr(several[1][0]) == "LazyScalar()" and not +card.waits
        assert (
            several[1][1] == 4
            and one[0] in {5}
            and one[0] > 4
            and [10, 11, 12][several[0][1]] == 12
            and max(several[0]) == 2
        )
        assert card.waits == {"read": 1}
        assert lazy_ints(torch.tensor([[1, 2]])) == [[1, 2]] and type(lazy_ints(torch.tensor([1]))[0]) is int


def test_what_is_waited_for_beyond_the_pass_was_drafting():
    chain = Proposal(None, DraftTree.chain((1, 2)), 0.0, 0.0, 0.1)
    late, on_time = Scores(torch.zeros(3, 4), seconds=lambda: 0.5), Scores(torch.zeros(3, 4))
    assert _split_seconds(chain, late, 0.75) == pytest.approx((0.35, 0.5)) and _split_seconds(
        chain, on_time, 0.75
    ) == (0.1, 0.75)
    assert _split_seconds(chain, late, 0.25) == (0.1, 0.25)
    assert _split_seconds(Proposal(None, DraftTree(), 0.0, 0.0, 0.1), late, 0.75) == (0.1, 0.75), (
        "nothing was drafted"
    )
