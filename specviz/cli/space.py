"""``specviz space --check``: check on this machine that the checkout would run as a Hugging Face Space."""

from __future__ import annotations

import argparse
import json


def add(command) -> None:
    """Add the command to the parser."""
    sub = command(
        "space",
        space,
        "Check a Hugging Face Space before it is deployed: front matter, requirements, file sizes, that the app responds.",
    )
    sub.add_argument(
        "--check",
        action="store_true",
        required=True,
        help="check the files of this checkout that a Space would receive",
    )
    sub.add_argument("--no-app", action="store_true", help="do not start the app")


def space(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from .. import ROOT
    from ..evidence.space_rehearsal import check_space
    from .terminal import table

    rows = check_space(ROOT, app=not args.no_app)
    if args.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        print(table(rows, ["check", "ok", "detail"]))
    return 0 if all(row["ok"] for row in rows) else 1
