"""A head's rows with shapes that stay give what they give otherwise, and are what a recording can hold."""

from __future__ import annotations

import random

import pytest
import torch

from specviz.models import row_cache
from specviz.models.heads import TargetInfo
from specviz.models.static_rows import StaticRowBuffer

from ..targets.test_static_shapes import Watch
from . import tiny

HIDDEN, VOCAB = 16, 40
HEADS = ("eagle", "eagle3", "mtp", "kangaroo", "dflash", "dspark")


def opened(kind: str, static: bool, device: str = "cpu"):
    """A head of a kind, the same for both, and a run's rows of it."""
    body = TargetInfo(
        "toy",
        HIDDEN,
        VOCAB,
        6,
        torch.device(device),
        config={"num_attention_heads": 4, "num_key_value_heads": 2},
        static=static,
    )
    head = tiny.head(kind, body)
    return head, head.open()


@torch.inference_mode()
def poison(rows):
    """Large finite values in every slot that nothing may read."""
    slots = rows._slots if rows._static is None else rows._static.slots
    slots[:, :, :, rows.count + rows._scratch :] = 1e4


@torch.inference_mode()
def play(kind: str, head, rows, steps: int, spoil: bool):
    """Outputs of reads, branches, blocks and crops, all drawn by one seed."""
    source, noise = random.Random(5), torch.Generator().manual_seed(5)
    hidden_states = len(getattr(head, "hidden_states", ("one",)))

    def states(n, wide=1):
        return torch.randn(n, wide * HIDDEN, generator=noise).to(rows.net.device)

    def read(n):
        if kind == "kangaroo":
            return rows.read(states(n))
        return (
            rows.read(states(n, hidden_states))
            if kind in ("dflash", "dspark")
            else rows.read(states(n), states(n, hidden_states))
        )

    out = [read(90)]  # a prompt
    for step in range(steps):
        if step % 4 == 3:
            rows.crop(rows.count - source.randrange(0, 3))
        out.append(read(source.randrange(1, 9)))
        if kind in ("dflash", "dspark"):
            out.append(rows.draft(states(source.randrange(2, 7))))
        elif kind != "kangaroo":
            parents = [-1]
            depths = [1]
            count = 0
            for _ in range(3):  # levels, each below any of the rows before it
                out.append(rows.branch(states(len(parents)), states(len(parents)), parents, depths))
                count += len(parents)
                parents = [source.randrange(count) for _ in range(source.randrange(1, 5))]
                depths = [2] * len(parents)
        if spoil:
            poison(rows)
    return [x for x in out if x is not None]


@pytest.mark.parametrize("kind", HEADS)
def test_what_stays_gives_what_grows(kind):
    (head, eager), (twin, static) = opened(kind, False), opened(kind, True)
    wanted, found = play(kind, head, eager, 12, False), play(kind, twin, static, 12, True)
    assert len(wanted) == len(found) >= 12
    assert all(torch.allclose(a, b, atol=2e-5) for a, b in zip(wanted, found))
    assert isinstance(static._static, StaticRowBuffer) and eager._static is None
    assert {name for name, _, _ in static._static.inputs} == (
        {"run", "take"} if kind in ("dflash", "dspark") else {"run"}
    )


def test_a_text_that_outgrows_its_room_moves_and_one_that_ends_leaves_it():
    (_, eager), (twin, static) = opened("eagle", False), opened("eagle", True)
    first = None
    with torch.inference_mode():
        for n in (150, 60, 60, 5):
            more = torch.randn(n, HIDDEN), torch.randn(n, HIDDEN)
            assert torch.allclose(eager.read(*more), static.read(*more), atol=2e-5)
            first = first or static._static
        assert static._static is not first and static._static.capacity == 512
        last = static._static
        del static
        again = twin.open()
        again.restart(400)
        again.read(*more)
        assert again._static is last, "the room of the run before"


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "dflash"])
def test_what_would_be_recorded_reads_no_value_and_never_changes_shape(kind, monkeypatch):
    seen: dict = {}

    def watching(net, room, x, first, past, depths, sees, work, name):
        def watched(*given):
            with Watch() as watch:
                out = work(*given)
            seen.setdefault((name, given[0].shape), []).append(watch)
            return out

        return run(net, room, x, first, past, depths, sees, watched, name)

    run = row_cache.run_static
    monkeypatch.setattr(row_cache, "run_static", watching)
    play(kind, *opened(kind, True), 8, False)
    assert sum(len(watches) for watches in seen.values()) > 12
    for watches in seen.values():
        assert all(watch.waits == [] and watch.shapes == watches[0].shapes for watch in watches)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", HEADS)
def test_a_replay_gives_what_the_layers_give(kind):
    wanted, found = (play(kind, *opened(kind, static, "cuda"), 12, False) for static in (False, True))
    assert all(torch.allclose(a, b, atol=2e-4) for a, b in zip(wanted, found))
