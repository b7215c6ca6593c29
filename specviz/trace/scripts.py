"""Order the page's scripts so that each comes after those whose names it reads. Derived from the scripts themselves.

A script provides what it assigns to the namespace (`SV.fold = ...`) and needs what it reads from it (`SV.text`). Several
may add to one name (`P.views`): they need not wait for one another, and a reader waits for them all.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from ..core.errors import CodedError

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


class ScriptOrderError(CodedError, ValueError):
    """Scripts that cannot be put in an order: a name that nobody provides, or scripts that wait for one another."""


def names(text: str, namespace: str) -> tuple[set[str], set[str]]:
    """Return (provided, needed): the names of a namespace that a script assigns, and those that it only reads.

    `namespace` is a pattern that all its spellings match, as `SV|SpecViz`.
    """
    code = _COMMENT.sub("", text)
    provided = set(re.findall(rf"\b(?:{namespace})\.(\w+) = ", code))
    return provided, set(re.findall(rf"\b(?:{namespace})\.(\w+)", code)) - provided


def ordered(scripts: dict[str, str], namespace: str) -> list[str]:
    """Return the scripts (name -> text) in an order in which each comes after those it needs; ties by name.

    Raises ScriptOrderError on a name that no script provides, and on scripts that need one another.
    """
    found = {script: names(text, namespace) for script, text in scripts.items()}
    graph = {}
    for script, (_, needed) in found.items():
        graph[script] = {other for other in found if other != script and found[other][0] & needed}
        lost = needed - {name for provided, _ in found.values() for name in provided}
        if lost:
            raise ScriptOrderError(f"{script}.js reads {', '.join(sorted(lost))}, which no script provides.", "scripts.lost")
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        raise ScriptOrderError(f"Scripts need one another: {' needs '.join(reversed(error.args[1]))}.", "scripts.circle") from None
    out: list[str] = []
    while ready := sorted(sorter.get_ready()):
        out += ready
        sorter.done(*ready)
    return out


def folder(path: Path, namespace: str, besides: tuple[str, ...] = ()) -> list[str]:
    """The scripts below a folder in their order, without the suffix; those in `besides` are left out."""
    found = {p.relative_to(path).with_suffix("").as_posix(): p for p in sorted(path.rglob("*.js"))}
    return ordered({name: p.read_text(encoding="utf-8") for name, p in found.items() if name not in besides}, namespace)
