"""``specviz completion``: print a script that completes commands, options, methods and models in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .messages import UsageError

SHELLS = ("bash", "zsh")
FILES = ("FILE", "TRACE")  # metavars of options that name a file
NAMES = {"KEY": "methods", "MODEL": "models", "NAME": "models"}  # metavars of options that take a name


def add(command: Callable[..., Any], parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Add the command to the parser. parser(): the parser of all commands."""
    sub = command(
        "completion",
        lambda args: completion(args.shell, parser()),
        "Print a script for shell completion: source <(specviz completion bash).",
    )
    sub.add_argument("shell", choices=SHELLS, metavar="SHELL", help="one of " + ", ".join(SHELLS))


def completion(shell: str, parser: argparse.ArgumentParser) -> int:
    """Print the script; return the exit status. Raises UsageError without the package shtab."""
    try:
        import shtab
    except ImportError:
        raise UsageError("completion.missing") from None
    from ..methods import catalogue
    from ..zoo.registry import register

    models = [entry.name for entry in register().entries.values() if entry.role in ("target", "draft")]
    words = {"methods": list(catalogue()), "models": models}
    commands = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    for sub in dict.fromkeys(commands.choices.values()):
        for action in sub._actions:
            if action.metavar in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar in NAMES:
                kind = NAMES[str(action.metavar)]
                action.complete = {  # type: ignore[attr-defined]
                    "bash": f"_specviz_{kind}",
                    "zsh": f"({' '.join(words[kind])})",
                }
    functions = [
        f"_specviz_{kind}() {{ compgen -W '{' '.join(known)}' -- \"$1\"; }}" for kind, known in words.items()
    ]
    preamble: Any = {"bash": "\n".join(functions)}
    print(shtab.complete(parser, shell, preamble=preamble))
    return 0
