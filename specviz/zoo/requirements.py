"""Check whether a method can run on the loaded models, and say what is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..core import Method
from ..core.needs import missing_reason
from ..indexes.store import HOW, HOW_TO, Store, StoreError
from . import other_vocabulary as others
from . import trained_drafts
from .backends import first_supporting_forward
from .registry import Register, register
from .tokenizer import read_json
from .trained_heads import hidden_and_vocab_size as model_sizes
from .trained_heads import needed

log = logging.getLogger(__name__)

SIZES = ("wide", "deep")  # sizes of draft models, by the end of their names


def unsupported_reason(
    method: Method,
    name: str,
    capabilities: frozenset[str],
    has_draft: bool,
    draft_problem: str = "",
    head_problems: dict[str, str] | None = None,
) -> str | None:
    """Return why a method cannot run, as a sentence; None if it can.

    name: the target's; capabilities: of the loaded models; draft_problem: why there is no draft model;
    head_problems: {kind: why a head cannot be used}."""
    have = capabilities | {"draft", "middle"} if has_draft else capabilities
    lacking = sorted(
        (need for need in method.requires if need not in have), key=lambda need: (need != "sequence", need)
    )
    return (
        f"{method.title} {requirement_message(lacking[0], name, draft_problem, head_problems or {})}."
        if lacking
        else None
    )


def role_capabilities(other: Path | None, more: dict[str, Path]) -> frozenset[str]:
    """Return the capabilities that further models add. other: folder of a draft model with another
    vocabulary; more: {role: folder}."""
    return frozenset(more) | ({others.ROLE} if other else set())


def draft_size_capabilities(book: Register, name: str, same: Callable[[Path], bool]) -> frozenset[str]:
    """Return the capabilities that other sizes of a draft model add. Only sizes on this machine that have
    the target's vocabulary count, as in a run. same(folder): whether the draft model in a folder has that
    vocabulary."""
    found = {size: book.entries.get(f"{name}-{size}") for size in SIZES}
    there = {
        size: entry.path
        for size, entry in found.items()
        if entry and entry.path and (entry.path / "config.json").is_file()
    }
    return frozenset(f"size:{size}" for size, folder in there.items() if same(folder))


def half_model_capabilities(target: Path, middle: Path | None) -> frozenset[str]:
    """Return the capability that the middle model adds if half of its layers can be skipped and it has the
    target's vocabulary."""
    if middle is None:
        return frozenset()
    config = read_json(middle, "config.json")
    whole = {"skip", "tap:layer", "head"} <= first_supporting_forward(
        register().backends, middle
    ).capabilities(config)
    return frozenset(
        {"middle:half"}
        if whole and model_sizes(config)[1] == model_sizes(read_json(target, "config.json"))[1]
        else ()
    )


def single_layer_lacks(config: dict[str, Any]) -> frozenset[str]:
    """Return the capabilities that a model with one layer does not have: nothing is left after an exit."""
    return frozenset({"early"} if (config.get("text_config") or config).get("num_hidden_layers") == 1 else ())


def knob_limits(method: Method, capabilities: frozenset[str], has_draft: bool) -> dict[str, float]:
    """Return {knob: highest value} for the knobs that these models limit; of a choice: how many of the
    choices can be used."""
    have = capabilities | {"draft"} if has_draft else capabilities
    limits = {knob.name: (knob.highest(have), knob.top) for knob in method.knobs if knob.needs}
    return {
        name: most
        for name, (most, high) in limits.items()
        if most is not None and high is not None and most < high
    }


def datastore_capabilities(stores: dict[str, Path], mark: Callable[[], str | None]) -> frozenset[str]:
    """Return the capabilities that datastores add. Only those that can be opened with the target's
    vocabulary count, as in a run.

    mark(): the fingerprint of the target's vocabulary; None if it is unknown, because the model is not
    fetched yet. Then no datastore is opened."""
    there = {name: folder for name, folder in stores.items() if (folder / "store.json").is_file()}
    wanted = mark() if there else None
    return frozenset(
        f"store:{name}"
        for name, folder in there.items()
        if wanted is None or _opens(folder, wanted, _changed(folder))
    )


@lru_cache(maxsize=64)
def _opens(folder: Path, mark: str, changed: int) -> bool:
    try:
        Store.open(folder, mark)
    except StoreError as error:
        log.warning("the datastore %s is not used: %s", folder, error)
        return False
    return True


def _changed(folder: Path) -> int:
    return (folder / "store.json").stat().st_mtime_ns


def requirement_message(
    need: str, name: str, draft_problem: str, head_problems: dict[str, str] | None = None
) -> str:
    """Return what a missing requirement means, as the end of a message ("needs ...")."""
    if need.startswith("head:"):
        return needed(need[5:], name, head_problems or {})
    if need.startswith(trained_drafts.ROLE):
        return trained_drafts.missing_draft_message(need.removeprefix(trained_drafts.ROLE), name)
    if need.startswith("store:"):
        return (
            f"needs a datastore named {need[6:]!r} for the tokenizer of {name}: build one with `{HOW_TO.get(need[6:], HOW)}` and name "
            "its folder in models.yaml"
        )
    if need in ("draft", "middle") and draft_problem:
        return f"needs a draft model; {draft_problem.rstrip('.')}"
    return missing_reason(need, name)
