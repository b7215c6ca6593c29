"""Measure what a target with sparse experts reads: `python -m tools.experts` prints two tables.

Bytes: weights of experts read per forward pass, by draft length and tree width, over greedy answers. Time:
one feed-forward layer with random weights at the paper's sizes, of which a share of the experts is active.
Three variants are timed: only the experts that are active for some token, all experts, and two dense
products."""

from __future__ import annotations

import argparse
import time
from statistics import mean
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from specviz.core import Sampling
from specviz.models.blockffn import Experts
from specviz.run.result import Result
from specviz.run.session import Session
from specviz.trace.events import Noted
from specviz.zoo import load

if TYPE_CHECKING:
    from specviz.zoo.pair import Loaded

TARGET = "Llama-specviz-blockffn"
PROMPTS = (
    "Write a short story about Ada.",
    "Tell me a story about Finn and a lantern.",
    "Tell a story about a compass.",
    "Who are you?",
    "Describe the word 'feather'.",
    "Write three sentences about snow.",
)
SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (1, 15), (2, 4), (4, 4), (8, 4))  # width, depth
NODES = 63
SIZES = {"0.1B": (768, 48, 64), "1.2B": (1792, 56, 128)}  # the paper's hidden size, experts, expert size
THRESHOLD = 0.84  # of a router output, in standard deviations: a fifth of the experts is active
SHARED = 0.8  # correlation of the rows' router outputs
ROUNDS = 30


def expert_bytes_read(loaded: Loaded, width: int, depth: int) -> dict[str, float]:
    """Return means over forward passes: tokens, kB of experts read, kB if every token were processed
    separately, kB of all experts; and tokens generated per pass."""
    notes = []
    tokens = 0
    passes = 0
    for prompt in PROMPTS:
        result = Result()
        for event in Session(
            loaded, "blockffn", {"width": width, "depth": depth, "nodes": NODES}, sampling=Sampling(0.0)
        ).run(prompt, 96):
            result.take(event)
            if isinstance(event, Noted) and event.kind == "expert_union":
                notes.append(event.data)
        tokens, passes = tokens + result.totals.tokens, passes + result.totals.rounds
    found = {
        name: mean(note[name] for note in notes) / 1000 for name in ("bytes", "separately", "whole", "other")
    }
    return found | {"rows": mean(len(note["line"]) for note in notes), "tokens": tokens / passes}


def random_expert_layer(hidden: int, experts: int, size: int) -> Experts:
    """Return a layer with random weights. Its first input feature lowers all router outputs, so that it
    controls the share of active experts."""
    source = torch.Generator().manual_seed(0)
    router, w_in, w_out = (
        torch.randn(*shape, generator=source) / hidden**0.5
        for shape in ((experts, hidden), (experts * size, hidden), (hidden, experts * size))
    )
    router[:, 0] = -THRESHOLD
    return Experts(router, torch.ones(experts), w_in, w_out, 1e-6)


def random_rows(count: int, hidden: int) -> Tensor:
    """Return random inputs [count, hidden] in which neighbours are similar."""
    source = torch.Generator().manual_seed(1)
    x = SHARED**0.5 * torch.randn(1, hidden, generator=source) + (1 - SHARED) ** 0.5 * torch.randn(
        count, hidden, generator=source
    )
    x[:, 0] = 1
    return x


def milliseconds(run) -> float:
    """Return the shortest time of several calls of ``run``, in milliseconds."""
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - began)
    return 1000 * least


@torch.inference_mode()
def layer_times(size: str, count: int) -> dict[str, float]:
    """Return the share of experts that are active for ``count`` tokens together, and the milliseconds of a
    layer in three ways."""
    hidden, experts, width = SIZES[size]
    layer, x = random_expert_layer(hidden, experts, width), random_rows(count, hidden)
    up, down = (
        layer.w_in.permute(0, 2, 1).flatten(0, 1).contiguous(),
        layer.w_out.flatten(0, 1).T.contiguous(),
    )
    found = {
        "share": float(layer(x, x)[1].any(0).double().mean()),
        "union": milliseconds(lambda: layer(x, x)),
    }
    layer.read_all = True
    return found | {
        "all": milliseconds(lambda: layer(x, x)),
        "dense": milliseconds(lambda: F.linear(F.silu(F.linear(x, up)), down)),
    }


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=TARGET)
    args = parser.parse_args()
    loaded = load(args.target, None, "cpu")
    print(
        "| width | depth | rows per pass | kB of experts read | row by row | all | tokens per pass | kB of experts per token |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for width, depth in SHAPES:
        one = expert_bytes_read(loaded, width, depth)
        print(
            f"| {width} | {depth} | {one['rows']:.1f} | {one['bytes']:.0f} | {one['separately']:.0f} | {one['whole']:.0f} | "
            f"{one['tokens']:.2f} | {one['bytes'] / one['tokens']:.0f} |"
        )
    print(
        "\n| layer | rows | experts read | union, ms | all experts, ms | two dense products, ms |\n|---|---|---|---|---|---|"
    )
    for size in SIZES:
        for count in (1, 2, 4, 8, 32):
            one = layer_times(size, count)
            print(
                f"| {size} | {count} | {one['share']:.0%} | {one['union']:.2f} | {one['all']:.2f} | {one['dense']:.2f} |"
            )


if __name__ == "__main__":
    main()
