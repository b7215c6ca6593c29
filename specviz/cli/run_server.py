"""``specviz run --server``: one prompt streamed from a server."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from typing import Any

from .errors import UsageError

LOCAL_ONLY = (
    "raw",
    "knob",
    "predicted",
    "stop",
    "request",
    "image",
    "hide_image",
    "generation_config",
    "deterministic",
)  # options that do not go to a server
DEADLINE = 600.0  # seconds for a server's answer where none is given: a server may send a little for ever


def run_server(args: argparse.Namespace) -> int:
    """Run the command on a server; return the exit status."""
    from ..run.request import read_integer, read_messages, read_sampling, read_seconds
    from ..run.result import RunFailed
    from ..servers.configured import find_server
    from ..servers.merge_lanes import merge_lanes
    from ..servers.stream import Stream
    from ..trace.events import Checked, Failed, TextEmitted
    from ..trace.files import Trace, writable_path
    from ..trace.recorder import Recorder
    from .run_output import CancelOnSignal, read_stdin

    ignored = [f"--{name.replace('_', '-')}" for name in LOCAL_ONLY if getattr(args, name)]
    if ignored:
        raise UsageError("run.server_options", options=", ".join(ignored))
    server = find_server(args.server)
    if args.trace:
        writable_path(args.trace)
    prompt = read_stdin() if args.prompt == "-" else args.prompt
    asked = read_messages(
        [{"role": "system", "content": args.system}] * bool(args.system)
        + [{"role": "user", "content": prompt}]
    )
    sampling = read_sampling(args.temperature, args.top_k, args.top_p, args.seed)
    deadline = read_seconds(DEADLINE if args.deadline is None else args.deadline)
    stream = Stream(server, asked, read_integer("max_new_tokens", args.max_new_tokens, 1), sampling, deadline)
    recorder = Recorder(0, None)
    records = []
    answer = bytearray()
    figures = {}
    why = ""
    cancel = threading.Event()
    try:
        with CancelOnSignal(cancel) as stop:
            for _, event in merge_lanes((one for one in ()), {0: stream}, cancel):
                records += recorder.take(event)
                if isinstance(event, TextEmitted):
                    answer += b"".join(piece[1] for piece in event.pieces)
                    _show(event, args)
                elif isinstance(event, Checked):
                    figures = event.detail
                elif isinstance(event, Failed):
                    why = event.why
    finally:
        if args.trace and records:
            Trace(records).save(args.trace)
    if args.json:
        print(
            json.dumps(
                {
                    "text": answer.decode("utf-8", "replace"),
                    "model": stream.model,
                    **figures,
                    **({"error": why} if why else {}),
                },
                ensure_ascii=False,
                indent=2,
            )
        )
    else:
        print(flush=True)
        print(_summary(figures), file=sys.stderr)
    if why:
        raise RunFailed(why)
    return stop.status


def _show(event: Any, args: argparse.Namespace) -> None:
    from .terminal import escape_control_characters

    if not args.json:
        text = b"".join(piece[1] for piece in event.pieces).decode("utf-8", "replace")
        print(escape_control_characters(text) if sys.stdout.isatty() else text, end="", flush=True)


def _summary(figures: dict[str, Any]) -> str:
    """Return the observed, inferred and unknown figures, one line each."""
    from .terminal import format_value

    lines = []
    for badge in ("observed", "inferred", "unknown"):
        mine = [fact for fact in figures.get("facts", ()) if fact["badge"] == badge]
        words = (
            f["name"].replace("_", " ")
            + ("" if f["value"] is None or isinstance(f["value"], list) else f" {format_value(f['value'])}")
            for f in mine
        )
        lines += [f"{badge}: {', '.join(words)}"] if mine else []
    return "\n".join([*lines, *(f"doubted: {words}" for words in figures.get("doubts", ()))])
