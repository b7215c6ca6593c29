"""``specviz export --gguf`` and ``specviz serve``: a model of ours for an engine that others wrote, and such an engine with a published
head."""
from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
from pathlib import Path


def add(command) -> None:
    """Hang the commands into the parser."""
    sub = command("export", export, "Write a model of models.yaml for another engine.")
    sub.add_argument("--gguf", action="store_true", required=True, help="as one GGUF file for llama.cpp (package gguf)")
    sub.add_argument("--f32", action="store_true", help="weights in 32 bits: larger and slower, and rounded nowhere")
    sub.add_argument("--model", metavar="NAME", help="a name of models.yaml, or a folder; the default target where left out")
    sub.add_argument("--out", required=True, metavar="FILE", help="where to write it")
    sub = command("serve", serve, "Start vLLM with a published head, so that a lane can stream from it.")
    sub.add_argument("--target", default=PAIR[0], metavar="REPO", help=f"a model of the hub ({PAIR[0]})")
    sub.add_argument("--head", default=PAIR[1], metavar="REPO", help=f"its head ({PAIR[1]}); none for none")
    sub.add_argument("--speculate", default="eagle3", metavar="METHOD", help="vLLM's name for how the head drafts (eagle3)")
    sub.add_argument("--tokens", default=3, type=int, metavar="N", help="drafted a pass (3)")
    sub.add_argument("--port", default=8000, type=int, help="on this machine alone (8000)")
    sub.add_argument("--print", action="store_true", help="say the command and start nothing")


PAIR = ("Qwen/Qwen3-1.7B", "AngelSlim/Qwen3-1.7B_eagle3")


def export(args: argparse.Namespace) -> int:
    from ..zoo.gguf_export import export as write
    from ..zoo.registry import register

    told = write(register().find(args.model), Path(args.out), args.f32)
    if args.json:
        print(json.dumps(told, indent=2))
    else:
        print(f"{told['path']}: {told['bytes'] / 1e6:.1f} MB, {told['tensors']} tensors, {told['tokens']} tokens.")
    return 0


def serve(args: argparse.Namespace) -> int:
    """Become vLLM; its end is ours."""
    from .errors import UsageError

    line = vllm_command(args.target, args.head, args.speculate, args.tokens, args.port)
    if args.json:
        print(json.dumps({"command": line}))
    elif args.print:
        print(shlex.join(line))
    else:
        found = shutil.which(line[0])
        if found is None:
            raise UsageError("vLLM is not installed here: pip install vllm, on a machine with a card.")
        print(f"When it is up: SPECVIZ_SERVERS='vllm=http://127.0.0.1:{args.port}' python app.py", flush=True)
        os.execv(found, line)
    return 0


def vllm_command(target: str, head: str, method: str, tokens: int, port: int) -> list[str]:
    """The command that starts vLLM so that it tells of each request what it drafted and accepted, pass by pass."""
    line = ["vllm", "serve", target, "--host", "127.0.0.1", "--port", str(port)]
    if head != "none":
        how = {"method": method, "model": head, "num_speculative_tokens": tokens}
        line += ["--speculative-config", json.dumps(how), "--per-request-spec-decode-metrics", "detailed"]
    return line
