"""Sort the page's scripts by their dependencies, which are found in the scripts themselves.

A script provides the names that it assigns in the namespace (`SV.fold = ...`) and needs those that it reads
(`SV.text`). Several scripts may extend one name (`P.views`): they do not depend on each other, and a script
that reads the name depends on all of them."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from ..core.errors import CodedError

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


class ScriptOrderError(CodedError, ValueError):
    """The scripts cannot be sorted: a script reads a name that no script provides, or scripts need one
    another in a cycle."""


def provided_and_needed(text: str, namespace: str) -> tuple[set[str], set[str]]:
    """Return (provided, needed): the names of a namespace that a script assigns, and those that it only
    reads. namespace: a regular expression for all its spellings, as `SV|SpecViz`."""
    code = _COMMENT.sub("", text)
    provided = set(re.findall(rf"\b(?:{namespace})\.(\w+) = ", code))
    return provided, set(re.findall(rf"\b(?:{namespace})\.(\w+)", code)) - provided


def in_dependency_order(scripts: dict[str, str], namespace: str) -> list[str]:
    """Return the names of the scripts in dependency order, independent ones alphabetically. scripts: {name:
    text}; namespace: as in ``provided_and_needed``.

    Raises ScriptOrderError for a name that no script provides, and for cycles."""
    found = {script: provided_and_needed(text, namespace) for script, text in scripts.items()}
    graph = {}
    for script, (_, needed) in found.items():
        graph[script] = {other for other in found if other != script and found[other][0] & needed}
        lost = needed - {name for provided, _ in found.values() for name in provided}
        if lost:
            raise ScriptOrderError(
                f"{script}.js reads {', '.join(sorted(lost))}, which no script provides.", "scripts.lost"
            )
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        raise ScriptOrderError(
            f"Scripts need one another: {' needs '.join(reversed(error.args[1]))}.", "scripts.circle"
        ) from None
    out: list[str] = []
    while ready := sorted(sorter.get_ready()):
        out += ready
        sorter.done(*ready)
    return out


def scripts_below(path: Path, namespace: str, besides: tuple[str, ...] = (), only: str = "") -> list[str]:
    """Return the names of the scripts below a folder in dependency order, without their suffix. besides:
    names that are left out; only: a script, with those that it needs, and no others."""
    found = {p.relative_to(path).with_suffix("").as_posix(): p for p in sorted(path.rglob("*.js"))}
    texts = {name: p.read_text(encoding="utf-8") for name, p in found.items() if name not in besides}
    order = in_dependency_order(texts, namespace)
    if not only:
        return order
    known = {name: provided_and_needed(text, namespace) for name, text in texts.items()}
    wanted, open_names = {only}, set(known[only][1])
    for name in reversed(order[: order.index(only)]):
        provided, needed = known[name]
        if provided & open_names:
            wanted.add(name)
            open_names |= needed
    return [name for name in order if name in wanted]
