"""Measure how long a lookup takes per round, by the length of the text or datastore: a table and a figure
for docs/.

    python -m tools.lookup_cost [--most TOKENS] [--rounds N] [--out FOLDER]

A round appends four new tokens, looks up the end of the text and builds a draft of at most ten tokens. The
text is synthetic: words with the frequencies of natural language, a third of them copied from earlier
positions, so that there are always matches. Figures are medians on one thread; no model is used."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from specviz.core import Budget, Drafter, DraftTree, State
from specviz.drafters.lookup.copying import GramCopy, NgramDraft, SuffixCopy
from specviz.drafters.lookup.counted_suffixes import CountedSuffixes
from specviz.drafters.lookup.datastore import StoreTree
from specviz.drafters.lookup.prompt_lookup import PromptLookup
from specviz.indexes.earlier_answers import Memory
from specviz.indexes.nearest import HiddenStateIndex, KeyProjection, build_hnsw_index, import_faiss
from specviz.indexes.store import Store
from specviz.indexes.suffix_array import SuffixArray
from specviz.trace.file_writer import write_file
from specviz.zoo.device import environment

VOCAB = 8192  # tokens of the synthetic vocabulary
STEP = 4  # tokens that a round appends
DRAFT = 10  # draft length
DIM = 64  # dimensions of a key
SIZES = (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000)
INMEMORY = 256_000  # tokens beyond which an automaton of Python objects takes gigabytes; a datastore on disk is measured instead

Round = Callable[[], object]


def synthetic_tokens(count: int, seed: int = 0) -> list[int]:
    """Return ``count`` synthetic tokens with Zipf's frequencies, a third of them in spans copied from
    earlier positions."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(2, VOCAB + 2)
    tokens = rng.choice(VOCAB, count, p=weights / weights.sum())
    at = 64
    while at < count:
        size = int(rng.integers(8, 40))
        if rng.random() < 1 / 3:
            start = int(rng.integers(0, at - 40))
            tokens[at : at + size] = tokens[start : start + size][: max(0, count - at)]
        at += size
    return tokens.tolist()


class ScanLookup(Drafter):
    """A drafter for comparison: prompt lookup that scans the whole text in every round."""

    def __init__(self, longest: int = 3):
        self.longest = longest
        self.text = np.zeros(0, np.int64)
        self.count = 0

    def propose(self, state: State, budget: Budget) -> DraftTree:
        if len(state.tokens) > len(self.text):  # room for twice as many: what is new is copied, not all of it
            self.text = np.concatenate([self.text[: self.count], np.zeros(2 * len(state.tokens), np.int64)])
        self.text[self.count : len(state.tokens)] = state.tokens[self.count :]
        self.count = len(state.tokens)
        tokens = self.text[: self.count]
        for n in range(self.longest, 0, -1):
            hits = np.all(
                np.lib.stride_tricks.sliding_window_view(tokens[:-1], n) == tokens[-n:], axis=1
            ).nonzero()[0]
            if len(hits):
                at = int(hits[0]) + n
                return DraftTree.chain(tokens[at : at + budget.gamma].tolist())
        return DraftTree()


def text_rounds(make: Callable[[], Drafter], text: list[int], rounds: int) -> Iterator[Round]:
    """Yield functions that each run one round of a drafter on a text. Each round appends STEP tokens;
    together they are the last rounds * STEP tokens of the text. make(): a new drafter."""
    drafter, split = make(), len(text) - rounds * STEP
    state = State(text[:split])
    unused: Any = None  # drafters that copy from the text read neither target nor outcome
    drafter.start(state, unused, unused)
    for at in range(split, len(text), STEP):

        def one(at=at):
            drafter.propose(state, Budget(DRAFT, 8, 16))
            state.tokens += text[at : at + STEP]
            drafter.observe(state, unused)

        yield one


def datastore_rounds(text: list[int], rounds: int) -> Iterator[Round]:
    """Yield functions that each look up the end of a prefix of the text in a datastore of the text."""
    store = Store("text", SuffixArray.build(np.array(text, np.uint32)))
    drafter = StoreTree(store)
    for end in np.linspace(32, len(text) - 1, rounds).astype(int).tolist():
        state = State(text[max(0, end - 64) : end])
        yield partial(drafter.propose, state, Budget(DRAFT, 8, 16))


def hidden_state_rounds(how: str, text: list[int], rounds: int) -> Iterator[Round]:
    """Yield functions that each search for the stored hidden state nearest to a random one. how: over all
    positions, over those of one token, or in the approximate index."""
    source = torch.Generator().manual_seed(0)
    array = SuffixArray.build(np.array(text, np.uint32), 2)
    keys = torch.nn.functional.normalize(torch.randn(len(text), DIM, generator=source), dim=-1)
    frame = KeyProjection(torch.zeros(DIM), torch.ones(DIM), torch.eye(DIM))
    dense = HiddenStateIndex(keys.numpy().astype(np.float16), frame)
    graph: Any = build_hnsw_index(keys.numpy()) if how == "graph" else None
    for at in np.linspace(0, len(text) - 1, rounds).astype(int).tolist():
        key = keys[at] + 0.1
        yield {
            "all": lambda key=key: (keys @ key).topk(4),
            "token": lambda key=key, at=at: dense.nearest(array, text[at], key, 4),
            "graph": lambda key=key: graph.search(key[None].numpy(), 4),
        }[how]


STRUCTURES: dict[
    str, tuple[Callable[[list[int], int], Iterator[Round]], int]
] = {  # rounds of a text, most tokens
    "scan (prompt lookup as usual)": (lambda t, r: text_rounds(ScanLookup, t, r), 10**9),
    "tables of n-grams (prompt lookup)": (lambda t, r: text_rounds(PromptLookup, t, r), 10**9),
    "hash of n-grams (CopySpec)": (lambda t, r: text_rounds(GramCopy, t, r), 10**9),
    "counted n-grams (ANPD)": (lambda t, r: text_rounds(NgramDraft, t, r), INMEMORY),
    "suffix automaton (SAM-Decoding)": (lambda t, r: text_rounds(lambda: SuffixCopy(2), t, r), INMEMORY),
    "counted suffixes (SuffixDecoding)": (
        lambda t, r: text_rounds(lambda: CountedSuffixes(Memory()), t, r),
        INMEMORY,
    ),
    "suffix array of a store (REST)": (datastore_rounds, 10**9),
    "all states, exactly": (lambda t, r: hidden_state_rounds("all", t, r), INMEMORY),
    "states of one token, exactly (DReSD)": (lambda t, r: hidden_state_rounds("token", t, r), 10**9),
    "states, faiss HNSW": (lambda t, r: hidden_state_rounds("graph", t, r), 64_000),
}


def measure(
    most: int, rounds: int, report_progress: Callable[[str], Any] = lambda line: None
) -> dict[str, dict[int, float]]:
    """Return {data structure: {text length: median microseconds of a round}}. most: longest text in tokens;
    say: called with lines of progress."""
    out: dict[str, dict[int, float]] = {}
    text = synthetic_tokens(min(most, max(SIZES)))
    for name, (prepare, limit) in STRUCTURES.items():
        if name.endswith("HNSW") and import_faiss() is None:
            continue
        for size in (size for size in SIZES if size <= min(most, limit)):
            seconds = []
            for one in prepare(text[:size], min(rounds, size // (2 * STEP))):
                began = time.perf_counter()
                one()
                seconds.append(time.perf_counter() - began)
            out.setdefault(name, {})[size] = 1e6 * median(seconds)
            report_progress(f"{name}, {size:,} tokens: {out[name][size]:.0f} us")
    return out


def table(found: dict[str, dict[int, float]], where: str) -> str:
    """Return the figures as a Markdown table. where: a sentence on the machine."""
    sizes = sorted({size for row in found.values() for size in row})
    lines = [
        "# Cost of lookup drafters",
        "",
        "Median microseconds of a round by the number of tokens that are searched; printed by "
        f"`python -m tools.lookup_cost`; {where}, one thread.",
        "A round appends four tokens, looks up the suffix of the text and drafts at most ten tokens. A dash: not measured "
        "at this size.",
        "",
        "![](lookup_cost.svg)",
        "",
        "| | " + " | ".join(f"{size:,}" for size in sizes) + " |",
        "|---|" + "---:|" * len(sizes),
    ]
    for name, row in found.items():
        lines.append(
            f"| {name} | " + " | ".join(f"{row[size]:.0f}" if size in row else "-" for size in sizes) + " |"
        )
    return "\n".join(lines) + "\n"


COLOURS = (
    "#c0392b",
    "#2471a3",
    "#1e8449",
    "#b9770e",
    "#7d3c98",
    "#117a65",
    "#34495e",
    "#a93226",
    "#5d6d7e",
    "#6e2c00",
)


def figure_svg(found: dict[str, dict[int, float]]) -> str:
    """Return the figures as an SVG plot with logarithmic axes."""
    left = 64
    top = 20
    wide = 440
    high = 300
    sizes = sorted({size for row in found.values() for size in row})
    values = [us for row in found.values() for us in row.values()]
    x0, x1 = np.log10(sizes[0]), max(np.log10(sizes[-1]), np.log10(sizes[0]) + 1)
    y0, y1 = np.floor(np.log10(min(values))), np.ceil(np.log10(max(values)))

    def at(size: float, us: float) -> str:
        return f"{left + wide * (np.log10(size) - x0) / (x1 - x0):.1f},{top + high * (1 - (np.log10(us) - y0) / max(1, y1 - y0)):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {top + high + 50}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for power in range(int(y0), int(y1) + 1):
        x, y = at(sizes[0], 10.0**power).split(",")
        word = f"{10**power:,} us" if power < 3 else f"{10 ** (power - 3):,} ms"
        parts.append(
            f'<line x1="{x}" x2="{left + wide}" y1="{y}" y2="{y}" stroke="#ddd"/>'
            f'<text x="{left - 6}" y="{float(y) + 4:.1f}" text-anchor="end" fill="#333">{word}</text>'
        )
    for size in sizes:
        x = at(size, 10.0**y0).split(",")[0]
        word = f"{size // 1000:,}k" if size < 10**6 else f"{size // 10**6}M"
        parts.append(f'<text x="{x}" y="{top + high + 16}" text-anchor="middle" fill="#333">{word}</text>')
    parts.append(
        f'<text x="{left + wide / 2}" y="{top + high + 36}" text-anchor="middle" fill="#333">'
        "tokens of the text or the store</text>"
    )
    for i, (name, row) in enumerate(found.items()):
        colour, line = COLOURS[i % len(COLOURS)], " ".join(at(size, us) for size, us in row.items())
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="3" fill="{colour}"/>'
            for p in line.split()
        ]
        parts.append(
            f'<rect x="{left + wide + 20}" y="{top + 18 * i}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{left + wide + 36}" y="{top + 18 * i + 9}" fill="#333">{name}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write table and plot; return the exit status."""
    p = argparse.ArgumentParser(
        prog="python -m tools.lookup_cost", description=(__doc__ or "").splitlines()[0]
    )
    p.add_argument(
        "--most", type=int, default=max(SIZES), help="largest text or store, in tokens (1,000,000)"
    )
    p.add_argument("--rounds", type=int, default=200, help="rounds a point (200)")
    p.add_argument(
        "--out", type=Path, default=Path("docs"), help="folder for lookup_cost.svg and lookup_cost.md (docs)"
    )
    options = p.parse_args(arguments)
    if options.most < min(SIZES) or options.rounds < 1:
        print(f"--most must be at least {min(SIZES):,} and --rounds at least 1.", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    found = measure(options.most, options.rounds, lambda line: print(line, file=sys.stderr))
    options.out.mkdir(parents=True, exist_ok=True)
    write_file(options.out / "lookup_cost.svg", figure_svg(found))
    text = table(found, environment(torch.device("cpu"), torch.float32)["machine"])
    write_file(options.out / "lookup_cost.md", text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
