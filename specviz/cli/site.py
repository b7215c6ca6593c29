"""``specviz site``: write recordings, Learn and Traces as files that need no server."""

from __future__ import annotations

import argparse
from pathlib import Path

from .messages import TEXTS, UsageError


def add(command) -> None:
    """Add the command to the parser."""
    sub = command(
        "site", site, "Write a static site: recordings, Learn and Traces as files, without a server."
    )
    sub.add_argument(
        "folder",
        metavar="OUT",
        help="folder of the site; it is created, files of the same names are replaced",
    )


def site(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from ..site.build import report, write_site

    folder = Path(args.folder)
    try:
        sizes = write_site(folder)
    except OSError as error:
        raise UsageError("file.write", path=str(folder)[:200], why=error.strerror or str(error)) from None
    print(
        report(sizes)
        if args.json
        else TEXTS["site.written"].format(path=folder, files=len(sizes), size=sum(sizes.values()) / 2**20)
    )
    return 0
