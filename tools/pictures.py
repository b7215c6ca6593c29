"""Count the target passes per picture by method: `python -m tools.pictures` prints a table.

Temperature 1, one picture per prompt and method, the same seeds. tv: mean total variation distance between
the output distribution and the target's, over the tested patches."""

from __future__ import annotations

import argparse
from statistics import mean
from typing import TYPE_CHECKING, Any

from specviz.core import Sampling
from specviz.run.result import Result
from specviz.run.session import Session
from specviz.trace.events import Noted
from specviz.zoo import load

if TYPE_CHECKING:
    from specviz.zoo.pair import Loaded

TARGET = "specviz-pictures"
WINDOW = 16
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("autoregressive", {}),
    *(
        ("speculative_jacobi", {"window": WINDOW, "init": init})
        for init in ("random", "left", "above", "sample")
    ),
    *(("lantern", {"window": WINDOW, "delta": delta}) for delta in (0.0, 0.1, 0.2, 0.4)),
    ("speculative", {"gamma": 6}),
    ("eagle", {"nodes": 20, "depth": 5}),
    ("eagle2", {"nodes": 20, "depth": 8}),
)


def measure(
    loaded: Loaded, key: str, knobs: dict[str, Any], prompts: list[str], temperature: float = 1.0
) -> dict[str, Any]:
    """Return passes per picture and tokens per pass of a method; for a rule that is not exact also the
    accepted share of its tests and the mean ``tv``."""
    passes = []
    tokens = 0
    accepted = 0
    tried = 0
    found = []
    for seed, prompt in enumerate(prompts):
        result = Result()
        for event in Session(loaded, key, knobs, sampling=Sampling(temperature, seed=seed)).run(prompt, 4096):
            result.take(event)
            if isinstance(event, Noted) and event.kind == "relaxed":
                found += [test["tv"] for test in event.data["tests"]]
        passes.append(result.totals.rounds)
        tokens = tokens + result.totals.tokens
        accepted = accepted + result.totals.accepted
        tried = tried + result.totals.tried
    return {
        "method": key,
        "knobs": knobs,
        "passes": mean(passes),
        "tokens_per_pass": tokens / sum(passes),
        "accepted": accepted / tried if tried else None,
        "tv": mean(found) if found else None,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""

    def shown(value: float | None, digits: int = 2) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    lines = [
        "| method | knobs | passes a picture | tokens per pass | accepted of tested | mean tv |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        knobs = ", ".join(f"{name} {value}" for name, value in row["knobs"].items())
        lines.append(
            f"| `{row['method']}` | {knobs} | {row['passes']:.1f} | {shown(row['tokens_per_pass'])} | {shown(row['accepted'])} | "
            f"{shown(row['tv'], 4)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--pictures", type=int, default=20, help="pictures of each method")
    args = parser.parse_args()
    loaded = load(args.target, None, "cpu")
    samples = loaded.codec.prompts
    prompts = [samples[i % len(samples)] for i in range(args.pictures)]
    print(table([measure(loaded, key, knobs, prompts) for key, knobs in CASES]))


if __name__ == "__main__":
    main()
