"""``specviz models``: list the entries of models.yaml and whether each fits this machine, validate them,
fetch one."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .messages import TEXTS


def add(command) -> None:
    """Add the command to the parser."""
    sub = command(
        "models",
        models,
        "List the models of models.yaml, and whether they fit into memory; --check validates every entry.",
    )
    sub.add_argument("--check", action="store_true", help="validate every entry, without network access")
    sub.add_argument(
        "--network", action="store_true", help="with --check: download only the configurations of hub models"
    )
    sub.add_argument(
        "--fetch",
        metavar="NAME",
        help="download a model: resumes a partial download, refuses a model that does not fit into memory",
    )
    sub.add_argument("--device", default="auto", help="auto, cpu or cuda")


def models(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from ..zoo.device import read_device
    from ..zoo.registry import CLONE, register

    book, device = register(), read_device(args.device)
    if args.check:
        return _check(book, args)
    if args.fetch:
        return _fetch(book.find(args.fetch, named_only=True), device, args)
    from ..zoo.free_memory import too_large_reason
    from .terminal import table

    rows = [
        {
            "name": e.name,
            "role": e.role,
            "here": "yes" if (place := e.availability()) == "here" else place + " (gated)" * bool(e.gated),
            "fits": "yes" if (why := too_large_reason(e, device)) is None else "no",
            "why": why,
            "memory": e.memory and f"{e.memory} GB",
            "size": e.size,
            "draft": e.draft,
            "licence": e.licence + (" (gated)" if e.gated else ""),
        }
        for e in book.entries.values()
        if e.role in ("target", "draft")
    ]

    def in_words() -> None:
        print(table(rows, ["name", "role", "here", "fits", "memory", "size"]))
        print(TEXTS["models.here"].format(how=CLONE))

    _show(rows, args, in_words)
    return 0


def _check(book: Any, args: argparse.Namespace) -> int:
    from ..zoo.entry_checks import check

    rows = check(book, args.network)
    bad = [row for row in rows if row["problems"]]

    def in_words() -> None:
        for row in bad:
            print(f"{row['name']}: {'; '.join(row['problems'])}.")
        print(f"{len(rows)} entries, {len(bad)} with problems.")

    _show(rows, args, in_words)
    return 1 if bad else 0


def _fetch(entry: Any, device: Any, args: argparse.Namespace) -> int:
    from ..zoo.free_memory import require_memory

    require_memory(entry, device)
    if entry.memory and not args.json:
        print(
            f"{entry.name}: about {entry.memory} GB from {entry.hub or entry.package or entry.path}; an earlier download is resumed."
        )
    folder = entry.fetch()  # huggingface_hub shows a progress bar per file
    _show({"name": entry.name, "folder": str(folder)}, args, lambda: print(f"{entry.name} lies in {folder}."))
    return 0


def _show(value: Any, args: argparse.Namespace, in_words) -> None:
    if args.json:
        print(json.dumps(value, ensure_ascii=False, indent=2))
    else:
        in_words()
