"""``specviz contexts``: the cost of a forward pass at long contexts, and the gain from drafting over a
reduced KV cache."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any


def add(command: Callable[..., Any], models: Callable[[Any], None]) -> None:
    """Add the command to the parser. models(parser): adds the options of models."""
    about = (
        "Measure how the duration of a forward pass, and the speed-up of MagicDec, TriForce and QuantSpec, depend on the "
        "length of the "
        "text, up to the target's context; longer texts are extrapolated."
    )
    models(command("contexts", contexts, about))


def contexts(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from .. import lab
    from ..zoo import load
    from .terminal import table

    answer: dict[str, Any] = {}
    for answer in lab.answer("context_costs", {}, load(args.target, args.draft, args.device)):
        if sys.stderr.isatty():
            line = f"{len(answer['lengths'])} lengths and {len(answer['methods'])} methods measured"
            print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(answer, ensure_ascii=False, indent=2))
        return 0
    print(f"{answer['machine']}.\nMeasured, a pass of one row:")
    print(
        table(
            [{"tokens": n, "ms": 1e3 * s} for n, s in zip(answer["lengths"], answer["seconds"])],
            ["tokens", "ms"],
        )
    )
    if answer["methods"]:
        print(
            f"\nSpeed-up over plain decoding, measured at {answer['longest']:,} tokens, else extrapolated by a line through them:"
        )
        columns = ["tokens", "how", *(m["method"] for m in answer["methods"])]
        rows = [(answer["longest"], "measured", *(m["measured"] for m in answer["methods"]))]
        predicted = (m["extrapolated"] for m in answer["methods"])
        rows += [(n, "extrapolated", *speeds) for n, *speeds in zip(answer["extrapolated"], *predicted)]
        print(table([dict(zip(columns, row)) for row in rows], columns))
        print(
            "Tokens a round are held at "
            + ", ".join(f"{m['tokens']:.2f} ({m['method']})" for m in answer["methods"])
            + "; choosing, copying and rounding what is kept are left out, and rounded numbers count as their bits would."
        )
    return 0
