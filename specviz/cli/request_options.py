"""Options of commands that make a request: its fields, those of --request, and the model's recommended
sampling settings."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from .errors import UsageError
from .messages import TEXTS

if TYPE_CHECKING:
    from ..run.request import GenerationRequest
    from ..zoo.pair import Loaded

OPTIONS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "seed": "seed",
    "max_tokens": "max_new_tokens",
}


def add(sub: Any) -> None:
    """Add the options that all commands with a request have."""
    sub.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end the answer before this text; may be repeated",
    )
    add_image(sub)
    sub.add_argument(
        "--hide-image",
        action="store_true",
        help="record the picture with the run, but do not show it to the target",
    )
    sub.add_argument(
        "--guidance-scale",
        metavar="N",
        help="scale of classifier-free guidance, for targets that paint pictures (1: none)",
    )
    sub.add_argument(
        "--request", metavar="JSON", help="further fields of the request as JSON, or @FILE (docs/requests.md)"
    )
    sub.add_argument(
        "--generation-config",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="missing fields take the values of the model's generation_config.json (SPECVIZ_GENERATION_CONFIG=1: always)",
    )


def add_image(sub: Any) -> None:
    """Add the options for a picture that the target reads."""
    sub.add_argument(
        "--image",
        metavar="FILE",
        help="a picture (PNG, JPEG, WebP) that the target reads before the prompt, or sample:N for "
        "one of the target's samples",
    )


def given_fields(args: argparse.Namespace) -> dict[str, Any]:
    """Return the request fields that the user gave. An option replaces the same field of --request. Raises
    UsageError, SessionError."""
    from ..run.request import SWITCH, GenerationRequest
    from .run_output import read_text_argument

    given: Any = {}
    if args.request:
        try:
            text = read_text_argument(args.request[1:]) if args.request.startswith("@") else args.request
            given = json.loads(text)
        except argparse.ArgumentTypeError as error:
            raise UsageError("run.request_file", why=error) from None
        except ValueError:
            raise UsageError("run.request") from None
        if not isinstance(given, dict):
            raise UsageError("run.request")
    own = {name: getattr(args, option) for name, option in OPTIONS.items()}
    given |= {name: value for name, value in own.items() if isinstance(value, str)}  # a default is no text
    given |= {"stop": tuple(args.stop)} if args.stop else {}
    given |= {"image": given_image(args)} if args.image else {}
    given |= {"hide_image": True} if args.hide_image else {}
    given |= {} if args.guidance_scale is None else {"guidance_scale": args.guidance_scale}
    given |= {} if args.generation_config is None else {SWITCH: args.generation_config}
    GenerationRequest.from_dict(
        {name: value for name, value in given.items() if name != SWITCH}
    )  # a mistake is reported before loading
    return given


def given_image(args: argparse.Namespace) -> str:
    """Return the picture of --image as a data URL; empty without it. Raises ZooError."""
    from ..zoo.codec import SAMPLE, sample_picture
    from ..zoo.picture_input import read_file
    from ..zoo.registry import register

    return (
        sample_picture(register().find(args.target).path, args.image)
        if args.image.startswith(SAMPLE)
        else read_file(args.image)
    )


def request_for(fields: dict[str, Any], loaded: Loaded) -> GenerationRequest:
    """Return the request with these fields for a loaded model. Print to stderr what its
    generation_config.json recommends, and whether that is used."""
    from ..run.request import SWITCH, GenerationRequest

    request = GenerationRequest.for_model(fields, loaded)
    used = {name: getattr(request, name) for name in request.from_model}
    advised = {
        name: value for name, value in loaded.generation_defaults.items() if value != getattr(request, name)
    }
    code, found = ("run.from_model", used) if used else ("run.advised", {} if fields.get(SWITCH) else advised)
    if fields.get(SWITCH) and not loaded.generation_defaults:
        print(TEXTS["run.no_advice"].format(target=loaded.name), file=sys.stderr)
    if found:
        words = ", ".join(f"{name} {value:g}" for name, value in found.items())
        print(TEXTS[code].format(target=loaded.name, fields=words), file=sys.stderr)
    return request
