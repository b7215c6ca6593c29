"""``specviz run --server``: one prompt streamed from a server."""
from __future__ import annotations

import argparse
import json
import sys
import threading
from typing import Any


def run_server(args: argparse.Namespace) -> int:
    from ..run.request import read_messages, read_sampling, read_seconds, read_whole
    from ..run.result import RunFailed
    from ..servers.merge_lanes import beside
    from ..servers.configured import find
    from ..servers.stream import Stream
    from ..trace.events import Checked, Failed, TextEmitted
    from ..trace.files import Trace, place_of
    from ..trace.recorder import Recorder
    from .errors import INTERRUPTED
    from .run_output import ctrl_c

    server = find(args.server)
    if args.trace:
        place_of(args.trace)
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    asked = read_messages([{"role": "system", "content": args.system}] * bool(args.system) + [{"role": "user", "content": prompt}])
    sampling = read_sampling(args.temperature, args.top_k, args.top_p, args.seed)
    stream = Stream(server, asked, read_whole("max_new_tokens", args.max_new_tokens, 1), sampling, read_seconds(args.deadline))
    recorder, records, said, told, why = Recorder(0, None), [], bytearray(), {}, ""
    cancel = threading.Event()
    try:
        with ctrl_c(cancel):
            for _, event in beside((one for one in ()), {0: stream}, cancel):
                records += recorder.take(event)
                if isinstance(event, TextEmitted):
                    said += b"".join(piece[1] for piece in event.pieces)
                    _show(event, args)
                elif isinstance(event, Checked):
                    told = event.detail
                elif isinstance(event, Failed):
                    why = event.why
    finally:
        if args.trace and records:
            Trace(records).save(args.trace)
    if args.json:
        print(json.dumps({"text": said.decode("utf-8", "replace"), "model": stream.model, **told, **({"error": why} if why else {})},
                         ensure_ascii=False, indent=2))
    else:
        print(flush=True)
        print(_summary(told), file=sys.stderr)
    if why:
        raise RunFailed(why)
    return INTERRUPTED if cancel.is_set() else 0


def _show(event: Any, args: argparse.Namespace) -> None:
    from .terminal import harmless

    if not args.json:
        text = b"".join(piece[1] for piece in event.pieces).decode("utf-8", "replace")
        print(harmless(text) if sys.stdout.isatty() else text, end="", flush=True)


def _summary(told: dict[str, Any]) -> str:
    """What is observed, inferred and unknown, a line each."""
    from .terminal import shown

    lines = []
    for badge in ("observed", "inferred", "unknown"):
        mine = [fact for fact in told.get("facts", ()) if fact["badge"] == badge]
        words = (f["name"].replace("_", " ") + ("" if f["value"] is None or isinstance(f["value"], list) else f" {shown(f['value'])}")
                 for f in mine)
        lines += [f"{badge}: {', '.join(words)}"] if mine else []
    return "\n".join([*lines, *(f"doubted: {words}" for words in told.get("doubts", ()))])
