"""Models by name for "Which one for my server?": what there is for them, from models.yaml and assets/recommend.yaml."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from ..zoo.registry import Entry, ZooError, register

SIZE = re.compile(r"([\d.]+) ([MB]) parameters")


class ServerModel(NamedTuple):
    """A model and what drafts for it. answers: its answers to questions; head, draft: names on the hub, empty
    for none; active, draft_size: billions of parameters that a token uses, 0 if unknown; routed: experts of
    a token and of a layer, 0 and 0 if it has none or they are unknown."""

    name: str
    answers: dict[str, str]
    head: str = ""
    draft: str = ""
    active: float = 0.0
    draft_size: float = 0.0
    routed: tuple[int, int] = (0, 0)

    @property
    def short(self) -> str:
        """The name without its owner."""
        return self.name.rpartition("/")[2]


def server_models(table: dict[str, Any]) -> dict[str, ServerModel]:
    """Return {name in small letters: model}, by their names on the hub. table: assets/recommend.yaml."""
    named = {name: _of_table(name, about) for name, about in table["names"].items()}
    return {name.lower(): model for name, model in (_of_register() | named).items()}


def _of_table(name: str, about: dict[str, Any]) -> ServerModel:
    used, _, experts = str(about.get("routed", "0/0")).partition("/")
    return ServerModel(
        name,
        {"model": about["model"], "experts": about.get("experts", "dense")},
        about.get("head", ""),
        about.get("draft", ""),
        about["active"],
        about.get("draft_size", 0.0),
        (int(used), int(experts)),
    )


@cache
def _of_register() -> dict[str, ServerModel]:
    """Return the hub's models of models.yaml that something can draft for, and what does."""
    try:
        entries = register().entries
    except ZooError:  # an own models.yaml that cannot be read is reported where it is used
        return {}
    found = {}
    for entry in entries.values():
        if not entry.hub or entry.role != "target":
            continue
        heads = [one.hub for one in entries.values() if one.target == entry.name and one.kind == "eagle3"]
        draft = entries.get(entry.draft)
        hub = draft.hub if draft else ""
        kind = "head" if heads else "family" if hub else "none"
        found[entry.hub] = ServerModel(
            entry.hub,
            {"model": kind, "experts": "dense"},
            heads[0] if heads else "",
            hub,
            _billions(entry),
            _billions(draft) if draft and hub else 0.0,
        )
    return found


def _billions(entry: Entry) -> float:
    """Return billions of parameters as an entry states them, 0 if it does not."""
    size = SIZE.fullmatch(entry.size)
    return float(size[1]) / (1000 if size[2] == "M" else 1) if size else 0.0
