"""``specviz serve``: the OpenAI-compatible endpoint alone, without the page."""

from __future__ import annotations

import argparse
import json
import os
import socket


def add(command) -> None:
    """Add the command to the parser."""
    sub = command(
        "serve",
        serve,
        "Serve models through an OpenAI-compatible endpoint: /v1/chat/completions, /v1/completions, /v1/models.",
    )
    sub.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine only)"
    )
    sub.add_argument("--port", default=8000, type=int, help="port to listen on (8000)")
    sub.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="KEY",
        help="an API key that requests must carry; may be repeated; or set SPECVIZ_API_KEYS",
    )
    sub.add_argument(
        "--target",
        metavar="MODEL",
        help="a name of models.yaml, a folder in Hugging Face format, a GGUF file, or org/name@commit",
    )
    sub.add_argument(
        "--draft", metavar="MODEL", help="the draft model, in the same forms; `none`: no draft model"
    )
    sub.add_argument(
        "--generation-config",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="missing fields of a request take the values of the model's generation_config.json, unless it has "
        "generation_config: false; or set SPECVIZ_GENERATION_CONFIG=1",
    )
    sub.add_argument(
        "--parallel",
        default=8,
        type=int,
        metavar="N",
        help="requests that are answered at once, in one batch where their method allows it (8)",
    )
    sub.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="the most tokens that an answer may ask for, also the default (as many as the context holds)",
    )
    sub.add_argument(
        "--max-seconds",
        default=600,
        type=int,
        metavar="N",
        help="the longest time of an answer; what was written by then is returned (600)",
    )
    sub.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a web page whose scripts may read answers (CORS), such as http://localhost:3000, or *; may be repeated",
    )


def serve(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from ..engine.engine import Engine
    from ..run.request import SWITCHED_ON, read_integer
    from ..serve.api_server import serve_api
    from ..serve.openai_api import configured_keys
    from ..serve.openai_fields import ApiLimits
    from .messages import UsageError
    from .request_options import request_for

    parallel = read_integer("--parallel", args.parallel, 1, 128)
    most = None if args.max_tokens is None else read_integer("--max-tokens", args.max_tokens, 1)
    limits = ApiLimits.own(most, read_integer("--max-seconds", args.max_seconds, 1, 86_400))
    keys = (*args.key, *configured_keys())
    if os.environ.get("SPECVIZ_API_KEYS") and not keys:  # a list of nothing must not open the endpoint
        raise UsageError("serve.keys")
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((args.host, args.port))
    except (OSError, OverflowError) as error:
        raise UsageError(
            "serve.port", host=args.host, port=args.port, why=getattr(error, "strerror", None) or error
        ) from None
    if args.generation_config is not None:
        os.environ[SWITCHED_ON] = "1" if args.generation_config else "0"
    engine = Engine(args.target, args.draft)
    engine.load(None)
    request_for({}, engine.loaded(None))  # prints what generation_config.json recommends
    url = f"http://{args.host}:{args.port}/v1"

    def started() -> None:
        print(
            json.dumps({"url": url}) if args.json else f"Serving {engine.targets()[0]['model']} at {url}",
            flush=True,
        )

    serve_api(engine, args.host, args.port, keys, started, limits, parallel, tuple(args.allow_origin))
    return 0
