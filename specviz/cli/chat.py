"""``specviz chat``: a conversation in the terminal. Tokens are coloured by verdict as they arrive. A line
shows the method, its speed and the tokens per target pass: on a terminal also while the answer grows."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from . import request_options
from .errors import UsageError
from .messages import TEXTS, busy_line

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

HELP = """\
/method KEY       switch the method (its knobs take their defaults); /method alone lists the keys
/knob NAME=VALUE  set a knob of the method
/temperature T    0 is greedy
/new              forget the conversation
/quit             end (also Ctrl-D)
Ctrl-C            stop the answer"""


def add(command: Callable[..., Any], options: Callable[[Any], object]) -> None:
    """Add the command to the parser. options(parser): adds the options of models and sampling."""
    sub = command("chat", chat, "A conversation in the terminal, with coloured tokens and /method to switch.")
    sub.add_argument("--method", default="speculative", metavar="KEY", help="key of a method (speculative)")
    sub.add_argument(
        "--knob",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the method; may be repeated",
    )
    sub.add_argument("--system", metavar="TEXT", help="system message before the conversation")
    request_options.add(sub)
    options(sub)


def chat(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from ..zoo import load

    talk = Conversation(args)
    talk.loaded = load(args.target, args.draft, args.device, deterministic=args.deterministic)
    talk.use({})
    if sys.stdin.isatty():
        import readline  # noqa: F401  line editing and history for input()

        print(f"{talk.loaded.name}. /help lists the commands.", file=sys.stderr)
    while (line := _read()) is not None:
        try:
            if line.startswith("/"):
                if not talk.command(line):
                    break
            elif line.strip():
                talk.answer(line)
        except (
            ValueError,
            RuntimeError,
        ) as error:  # SessionError, UsageError, RunFailed: a sentence, and the conversation goes on
            print(f"specviz: {error}", file=sys.stderr)
    return 0


def _read() -> str | None:
    """Return the user's next line; None at the end of the input."""
    try:
        return input("> " if sys.stdin.isatty() else "")
    except EOFError:
        return None
    except KeyboardInterrupt:
        return ""


class Conversation:
    """A conversation in the terminal: the messages so far, and the settings for the next answer."""

    def __init__(self, args: argparse.Namespace):
        from ..run.prefix_cache import PrefixPool
        from ..run.session import find_method

        self.args = args
        self.loaded: Loaded  # the models, opened by the caller
        self.method, self.knobs = find_method(args.method), {}
        self.fields = request_options.given_fields(args)
        if int(self.fields.get("n") or 1) > 1:
            raise UsageError("chat.n")
        self.request: Any = None  # made of the fields with the models
        self.caches = PrefixPool(1)  # the KV cache of the turn before
        self._machine: Any = None  # monitors the passes of all answers
        for pair in args.knob:
            self._set_knob(pair)
        self.messages: list[dict[str, str]] = []
        self._begin()

    def use(self, fields: dict[str, Any]) -> None:
        """Change fields of the request. Raises SessionError; the old fields are then kept."""
        self.request = request_options.request_for(self.fields | fields, self.loaded)
        self.fields |= fields

    def _begin(self) -> None:
        self.messages = [{"role": "system", "content": self.args.system}] if self.args.system else []

    def _set_knob(self, pair: str) -> None:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError("knob.form", given=pair)
        knobs = self.knobs | {name.strip(): value.strip()}
        self.method.read_knobs(knobs)
        self.knobs = knobs

    def command(self, line: str) -> bool:
        """Run a line that begins with a slash. Return False if it ends the conversation."""
        from ..methods import catalogue
        from ..run.session import find_method

        name, _, value = line[1:].partition(" ")
        value = value.strip()
        if name in ("quit", "exit", "q"):
            return False
        if name == "method" and value:
            self.method, self.knobs = find_method(value), {}
        elif name == "method":
            print(
                ", ".join(
                    key
                    for key, method in catalogue().items()
                    if self.loaded.unsupported_reason(method) is None
                ),
                file=sys.stderr,
            )
        elif name == "knob":
            self._set_knob(value)
        elif name == "temperature":
            self.use({"temperature": value})
        elif name == "new":
            self._begin()
        else:
            print(HELP, file=sys.stderr)
        return True

    def answer(self, line: str) -> None:
        """Generate the answer to a line, print it as it grows, and add both to the messages."""
        from ..run.machine import Machine
        from ..run.result import Result, RunFailed
        from ..run.session import Session
        from .live_answer import LiveAnswer
        from .run_output import CancelOnSignal
        from .terminal import TokenPrinter, use_colour

        asked = [*self.messages, {"role": "user", "content": line}]
        cancel, result = threading.Event(), Result()
        self._machine = self._machine or Machine(self.loaded)
        live = (
            None
            if self.args.json or not use_colour(sys.stdout)
            else LiveAnswer(sys.stdout, lambda: self._figures(result))
        )
        writer = (
            None
            if self.args.json
            else TokenPrinter(
                live or sys.stdout,
                self.loaded.token_bytes,
                self.request.stop,
                self.request.min_tokens,
                self.loaded.codec.decoder(),
            )
        )
        session = Session(
            self.loaded, self.method, self.knobs, deterministic=self.args.deterministic, request=self.request
        )
        if not self.args.deterministic:
            session.lease(self.caches, "", asked)
        with CancelOnSignal(cancel), live or nullcontext():
            for event in self._machine.watch(session.run(asked, cancel=cancel)):
                result.take(event)
                if writer:
                    writer.print_event(event)
            if writer:
                writer.close()
        if writer and not live:
            print(flush=True)
        if result.why:
            raise RunFailed(result.why)
        self.messages = [*asked, {"role": "assistant", "content": result.text}]
        self._show(result)

    def _figures(self, result: Any) -> str:
        """Return the method and the figures of an answer, or of the part of it that is there."""
        from .terminal import format_value

        figures = {name: format_value(value) for name, value in result.metrics().items()}
        reused = f", {result.reused} prompt tokens reused" if result.reused else ""
        return (
            f"{self.method.title} | {TEXTS['run.figures'].format_map(figures)} | "
            f"first token after {figures['time_to_first_token']} s{reused}"
        )

    def _show(self, result: Any) -> None:
        """Print the figures of an answer: one JSON object on stdout, or a right-aligned line on stderr."""
        if self.args.json:
            print(json.dumps({"method": self.method.key, **result.record()}, ensure_ascii=False), flush=True)
            return
        from rich.console import Console

        console = Console(stderr=True, highlight=False)
        console.print(self._figures(result), style="dim", justify="right", markup=False)
        if result.busy:
            console.print(busy_line(result), style="dim", justify="right", markup=False)
