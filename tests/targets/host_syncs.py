"""How often a round of each method waits for a device, on one that is not there.

    python -m tests.targets.host_syncs [--temperature 1] [METHOD ...]

prints it; docs/gpu.md has the table and the reasons, and test_waits.py holds the methods to it.
"""

from __future__ import annotations

import argparse
import copy
import re
import tempfile
from collections import Counter
from pathlib import Path

import torch

from specviz import ROOT
from specviz.core import FixedCosts, Method, Sampling, State, open_run
from specviz.methods import catalogue
from specviz.targets.static_shapes import StaticModel

from ..exactness.pair import Pair
from ..exactness.toys import player
from .mock_device import CARD, Card
from .tiny import CONFIGS, VOCAB, network

PROMPT, LENGTH = [7, 3, 21, 7, 3, 40, 7], 7
ROW = re.compile(r"^\| (\d+) \| ([a-z0-9_, ]+) \| ([^|]+) \|$")
DRAWN = "The same at temperature 1"  # where the second of the two tables begins


def save_pair(folder: Path) -> Path:
    """Target and draft; the draft is the target with noise on its weights."""
    net = network(CONFIGS["llama"](), seed=2)
    noisy, source = copy.deepcopy(net), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in noisy.parameters():
            weight.add_(torch.randn(weight.shape, generator=source) * float(weight.std()) * 0.1)
    net.save_pretrained(folder / "target")
    noisy.save_pretrained(folder / "draft")
    return folder


def play(
    models, method: Method, temperature: float, waits: Counter | None = None
) -> tuple[list[int], list[int]]:
    """The text of a run, and how often each of its rounds waited."""
    kit, counts = Pair(*models, VOCAB, [PROMPT, PROMPT, [3, 21, 9, 7, 3, 40]]), []
    parts = method.build(kit, **method.read_knobs({}))
    state = State(list(PROMPT), Sampling(temperature, seed=3), limit=LENGTH, costs=FixedCosts())
    open_run(parts, kit.target, state)
    while not state.done:
        if waits is not None:
            waits.clear()
        player(parts)(parts, kit.target, state)
        counts.append(sum((waits or Counter()).values()))
    return state.tokens, counts


def most(folder: Path, method: Method, temperature: float) -> int:
    """The most waits of a round behind the first, in which rooms are made. The text must be the
    processor's."""
    here, _ = play([StaticModel(folder / name) for name in ("target", "draft")], method, temperature)
    with Card() as card:
        there, counts = play(
            [StaticModel(folder / name, CARD, torch.float32) for name in ("target", "draft")],
            method,
            temperature,
            card.waits,
        )
    assert here == there, f"{method.key} writes another text on the device"
    return max(counts[1:], default=0)


def table(temperature: float) -> dict[str, tuple[int, str]]:
    """By method what docs/gpu.md says: how often it waits, and why. Above temperature 0 it says so of
    some."""
    greedy, drawn = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8").split(DRAWN)
    rows = [
        found.groups() for found in map(ROW.match, (drawn if temperature else greedy).splitlines()) if found
    ]
    named = [(key, int(count), why) for count, keys, why in rows for key in keys.split(", ")]
    assert len({key for key, *_ in named}) == len(named), "a method stands in two rows"
    return {key: (count, why) for key, count, why in named}


def main() -> None:
    read = argparse.ArgumentParser(prog="python -m tests.targets.host_syncs")
    read.add_argument("--temperature", type=float, default=0.0)
    read.add_argument("methods", nargs="*")
    said = read.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = save_pair(Path(temporary))
        for key in said.methods or catalogue():
            print(key, most(folder, catalogue()[key], said.temperature), flush=True)


if __name__ == "__main__":
    main()
