"""``specviz export --gguf``: write a model of models.yaml for another engine."""

from __future__ import annotations

import argparse
import json


def add(command) -> None:
    """Add the command to the parser."""
    sub = command("export", export, "Write a model of models.yaml for another engine.")
    sub.add_argument(
        "--gguf",
        action="store_true",
        required=True,
        help="write one GGUF file for llama.cpp (needs the package gguf)",
    )
    sub.add_argument(
        "--f32",
        action="store_true",
        help="write 32-bit weights instead of 16-bit ones: twice as large, without rounding",
    )
    sub.add_argument(
        "--model", metavar="NAME", help="a name of models.yaml, or a folder (the default target)"
    )
    sub.add_argument("--out", required=True, metavar="FILE", help="path of the file")


def export(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from ..trace.file_writer import WriteError, replacing
    from ..zoo.gguf_export import export as write
    from ..zoo.registry import register
    from .output_files import check_files, write_refused

    entry = register().find(args.model)
    check_files(args, [entry.path] if entry.path else [])
    try:
        with replacing(args.out) as temporary:
            written = write(entry, temporary, "full" if args.f32 else "half") | {"path": args.out}
    except WriteError as error:
        raise write_refused(args.out, error) from None
    if args.json:
        print(json.dumps(written, indent=2))
    else:
        print(
            f"{written['path']}: {written['bytes'] / 1e6:.1f} MB, {written['tensors']} tensors, {written['tokens']} tokens."
        )
    return 0
