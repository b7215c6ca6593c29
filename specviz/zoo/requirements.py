"""Whether a method can run on what is loaded, and one sentence that says what would make it."""
from __future__ import annotations

from pathlib import Path

from . import other_vocabulary as others, trained_drafts
from ..core import Method
from ..indexes.store import HOW, HOW_TO
from .trained_heads import needed

NEEDS = {  # what a method may ask for, and what would make it work
    "draft": "needs a draft model: choose one with --draft, or a target that is paired with one",
    others.ROLE: others.NEEDED,
    "small": ("needs a draft model for the draft model; `python -m specviz.training draft --size small --ship` trains one for the "
              "embedded pair"),
    "tree": "needs a target that can score a tree of drafts; {name} runs chains only",
    "rewind": "needs a target whose cache can be rewound; that of {name} cannot",
    "early": "needs a target that can stop after some of its layers, which {name} cannot; choose one of the Llama family",
    "lean": "needs a target that can draft from a part of its own keys and values, which {name} cannot; choose one of the Llama family",
    "skip": "needs a target that can leave layers out, which {name} cannot; choose one of the Llama family",
}


def why_not(method: Method, name: str, capabilities: frozenset[str], has_draft: bool, draft_problem: str = "",
            head_problems: dict[str, str] | None = None) -> str | None:
    have = capabilities | {"draft", "middle"} if has_draft else capabilities
    missing = sorted(need for need in method.needs if need not in have)
    return f"{method.title} {sentence(missing[0], name, draft_problem, head_problems or {})}." if missing else None


def roles(other: Path | None, more: dict[str, Path]) -> frozenset[str]:
    """What models beside target and draft add to what is provided."""
    return frozenset(more) | ({others.ROLE} if other else set())


def stored(stores: dict[str, Path]) -> frozenset[str]:
    """What the datastores that are there add to what is provided."""
    return frozenset(f"store:{name}" for name, folder in stores.items() if (folder / "store.json").is_file())


def sentence(need: str, name: str, draft_problem: str, head_problems: dict[str, str] | None = None) -> str:
    """What a missing need asks for: the end of a sentence."""
    if need.startswith("head:"):
        return needed(need[5:], name, head_problems or {})
    if need.startswith(trained_drafts.ROLE):
        return trained_drafts.needed(need.removeprefix(trained_drafts.ROLE), name)
    if need.startswith("store:"):
        return f"needs a datastore named {need[6:]!r}: build one with `{HOW_TO.get(need[6:], HOW)}` and name its folder in models.yaml"
    need = "draft" if need == "middle" else need
    if need == "draft" and draft_problem:
        return f"needs a draft model; {draft_problem.rstrip('.')}"
    lends = "needs a target that lends {need!r}, which {name} does not; choose one of the Llama family"
    return NEEDS.get(need, lends).format(need=need, name=name)
