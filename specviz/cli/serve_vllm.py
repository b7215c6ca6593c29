"""``specviz serve-vllm``: start a vLLM server with a published draft head, whose answers the page can
show."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil

PAIR = ("Qwen/Qwen3-1.7B", "AngelSlim/Qwen3-1.7B_eagle3")


def add(command) -> None:
    """Add the command to the parser."""
    sub = command(
        "serve-vllm",
        serve_vllm,
        "Start a vLLM server with a published draft head; the page can then show its answers next to local methods.",
    )
    sub.add_argument("--target", default=PAIR[0], metavar="REPO", help=f"target model on the hub ({PAIR[0]})")
    sub.add_argument(
        "--head",
        default=PAIR[1],
        metavar="REPO",
        help=f"its trained draft head on the hub ({PAIR[1]}); `none`: no speculative decoding",
    )
    sub.add_argument(
        "--speculate",
        default="eagle3",
        metavar="METHOD",
        help="vLLM's name of the speculative method (eagle3)",
    )
    sub.add_argument(
        "--tokens", default=3, type=int, metavar="N", help="number of draft tokens per target pass (3)"
    )
    sub.add_argument(
        "--port", default=8000, type=int, help="port to listen on, reachable from this machine only (8000)"
    )
    sub.add_argument("--print", action="store_true", help="print the command without starting it")


def serve_vllm(args: argparse.Namespace) -> int:
    """Replace this process by vLLM, or print the command that starts it; return the exit status."""
    from .messages import UsageError

    line = vllm_command(args.target, args.head, args.speculate, args.tokens, args.port)
    if args.json:
        print(json.dumps({"command": line}))
    elif args.print:
        print(shlex.join(line))
    else:
        found = shutil.which(line[0])
        if found is None:
            raise UsageError("vllm.missing")
        print(f"When it is up: SPECVIZ_SERVERS='vllm=http://127.0.0.1:{args.port}' python app.py", flush=True)
        os.execv(found, line)
    return 0


def vllm_command(target: str, head: str, method: str, tokens: int, port: int) -> list[str]:
    """Return the command that starts vLLM with speculative decoding. vLLM then reports drafted and accepted
    tokens per pass for each request. head: name of the trained draft head; method: vLLM's name of its kind;
    tokens: draft length."""
    line = ["vllm", "serve", target, "--host", "127.0.0.1", "--port", str(port)]
    if head != "none":
        how = {"method": method, "model": head, "num_speculative_tokens": tokens}
        line += ["--speculative-config", json.dumps(how), "--per-request-spec-decode-metrics", "detailed"]
    return line
