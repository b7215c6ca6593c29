"""From names to loaded models: weights once per folder and device, shared by every run; caches one per run. What cannot be
loaded is refused with one sentence (ZooError). Whether a method can run on what is loaded is a sentence too.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from . import other_vocabulary as others, trained_drafts
from ..core import Method, Target
from ..core.needs import missing
from .backends import Forward, choose, chosen_for
from .trained_heads import Heads, heads_of, sizes
from .device import environment, read_device, use_cores
from .kept import once
from .kit import Kit
from .memory import need_room
from .registry import Entry, Register, ZooError, register
from .requirements import roles, stored, why_not
from .text import TokenBytes
from .tokenizer import end_tokens, open_tokenizer, read, same_vocabulary


@dataclass
class Loaded:
    """A target with its tokenizer, maybe paired with a draft model. ``folder``: where its files lie; ``deterministic``: no clock chose
    how its weights are stored."""

    name: str
    folder: Path
    model: Any
    backend: Forward
    device: torch.device
    draft_name: str | None = None
    draft_folder: Path | None = None
    draft: Any = None
    draft_problem: str = ""
    stores: dict[str, Path] = field(default_factory=dict)
    heads: Heads = Heads()
    other: Path | None = None  # where a draft of another vocabulary lies
    more: dict[str, Path] = field(default_factory=dict)  # by role, where further models of the same vocabulary lie
    pass_seconds: float | None = None  # the least that a pass of one row was seen to cost; run.machine measures
    deterministic: bool = False
    nature: str = ""  # what a reader must know of its answers, from models.yaml
    rows: int = 0  # every pass of a target of fixed shapes has at least so many rows: certificates compare through one bucket

    @property
    def vocab(self) -> int:
        return self.model.vocab

    @property
    def context(self) -> int:
        """Most tokens that the target, and the draft model beside it, can read."""
        return self.model.context if self.draft is None else min(self.model.context, self.draft.context)

    @property
    def other_model(self) -> Any:
        """The weights of the draft of another vocabulary. Raises ZooError with a sentence."""
        if self.other is None:
            raise ZooError(f"This method {missing(others.ROLE, self.name)}.")
        return self.weights(self.other, choose(register().backends, self.other))

    def beside(self, role: str) -> Any:
        """The weights of a further model of the same vocabulary, None where there is none. Raises ZooError with a sentence."""
        if role == "draft" or role == "middle" and role not in self.more:
            return self.draft
        return self._open(self.more[role].name, self.more[role]) if role in self.more else None

    def size_named(self, size: str) -> str:
        """What models.yaml calls another size of the draft."""
        return f"{self.draft_name}-{size}"

    def other_size(self, size: str) -> Any:
        """The weights of a draft model of another size, which models.yaml names after the draft: <draft>-wide. Raises ZooError."""
        book, name = register(), self.size_named(size)
        if name not in book.entries:
            raise ZooError(f"This needs a second draft model, and models.yaml names no {name}.")
        return self._open(name, book.entries[name].folder())

    def _open(self, name: str, folder: Path) -> Any:
        model = self.weights(folder, choose(register().backends, folder))
        _same_words(self, name, folder, model)
        return model

    def weights(self, folder: Path, backend: Forward) -> Any:
        """A folder's weights for a forward, stored as this pair's are. Raises ZooError."""
        return once(folder, self.device, backend.name, backend.load, self.deterministic and backend.measures)

    @cached_property
    def tokenizer(self) -> Any:
        return open_tokenizer(self.folder)

    @cached_property
    def token_bytes(self) -> TokenBytes:
        return TokenBytes(self.tokenizer)

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        return end_tokens(self.folder, self.tokenizer)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """For the trace's header: target, draft, tokenizer, env."""
        model = self.model
        target = {"name": self.name, "layers": model.layers, "hidden": model.hidden, "vocab": model.vocab,
                  "parameters": model.parameters, "nature": self.nature, "backend": self.backend.name, "forward": self.forward}
        draft = None if self.draft is None else {"name": self.draft_name, "parameters": self.draft.parameters}
        env = environment(self.device, getattr(model, "numbers", model.dtype))
        return {"target": target, "draft": draft, "tokenizer": self.name, "env": env}

    def facts_of(self, method: Method) -> dict[str, Any]:
        """The facts of a run of a method, whose smaller model may be the one in the middle."""
        if "middle" not in method.needs or "middle" not in self.more:
            return self.facts
        try:
            return self.facts | {"draft": {"name": self.more["middle"].name, "parameters": self.beside("middle").parameters}}
        except ZooError:  # it cannot be opened: the run will say so
            return self.facts

    def open_target(self) -> Target:
        """The target with a cache of its own."""
        target = self.model.open()
        target.expect(self.rows)
        return target

    @property
    def forward(self) -> str:
        """How its passes run: "eager", "static" (fixed shapes), "captured" (the same, recorded)."""
        return getattr(self.model, "forward", "eager")

    def kit(self) -> Kit:
        return Kit(self)

    @cached_property
    def capabilities(self) -> frozenset[str]:
        return self.open_target().capabilities | stored(self.stores) | self.heads.capabilities | roles(self.other, self.more)

    def why_not(self, method: Method) -> str | None:
        """One sentence that says what would make the method work here, or None when it does."""
        return why_not(method, self.name, self.capabilities, self.draft is not None, self.draft_problem, self.heads.problems)


def load(target: str | None = None, draft: str | None = None, device: str = "auto", *, named_only: bool = False,
         deterministic: bool = False) -> Loaded:
    """Load a pair. target, draft: a name of models.yaml, a folder in Hugging Face format, or org/name@commit; None: the
    default, and the draft it is paired with; draft "none": none. named_only: names of models.yaml and nothing else (for what
    comes from a page). deterministic: how weights are stored and how many threads compute is fixed instead of measured, so that a
    run with Session's ``deterministic`` comes out the same to the last bit in every process on this machine; slower. Raises ZooError
    with one sentence."""
    on = read_device(device)
    use_cores(deterministic)
    book, entry, folder, backend, chosen = _asked_for(target, draft, named_only, on)
    model = once(folder, on, backend.name, backend.load, deterministic and backend.measures)
    place = entry.path or folder  # of shards in parts, where the parts lie: as other entries name it
    heads = heads_of(book, entry.name, place, model.hidden, model.vocab, on)
    loaded = Loaded(entry.name, folder, model, backend, on, stores=book.stores_of(entry.name), heads=heads, deterministic=deterministic,
                    nature=entry.nature,
                    other=others.folder_of(book, entry.name, place), more=trained_drafts.roles_of(book, entry.name, place))
    try:
        if chosen:
            _pair(loaded, book, book.find(chosen, named_only))
            loaded.more |= _between(book, book.find(chosen), entry.middle if draft is None else "")
    except ZooError as error:
        if draft is not None:
            raise
        loaded.draft_problem = str(error)  # the target runs without the draft it is usually paired with
    return loaded


def _asked_for(target: str | None, draft: str | None, named_only: bool = False,
               on: torch.device | None = None, fetch: bool = True) -> tuple[Register, Entry, Path, Forward, str]:
    """models.yaml, the target's entry, where it lies, what runs it, and the draft's name, empty for none; on: where it must find
    room; fetch: of a hub model that is not here its weights, too. Raises ZooError."""
    book = register()
    entry = book.find(target, named_only)
    if on is not None:
        need_room(entry, on)
    folder = entry.folder() if fetch else entry.config_folder()
    chosen = entry.draft if draft is None else "" if str(draft).strip().lower() == "none" else draft
    return book, entry, folder, chosen_for(entry, book.backends, folder, on), chosen


def _pair(loaded: Loaded, book: Register, entry: Entry) -> None:
    need_room(entry, loaded.device)
    folder = entry.folder()
    model = loaded.weights(folder, chosen_for(entry, book.backends, folder, loaded.device))
    _same_words(loaded, entry.name, folder, model)
    loaded.draft, loaded.draft_name, loaded.draft_folder = model, entry.name, folder


def _same_words(loaded: Loaded, name: str, folder: Path, model: Any) -> None:
    if not same_vocabulary(loaded.folder, folder, loaded.vocab == model.vocab):
        raise ZooError(f"{name} cannot draft for {loaded.name}: their vocabularies differ ({model.vocab} and {loaded.vocab} tokens).")


def _between(book: Register, draft: Entry, middle: str) -> dict[str, Path]:
    """Where the model in the middle lies, if models.yaml names one and it is there, and the one that drafts for it, or for the draft."""
    def there(name: str) -> Path | None:
        entry = book.entries.get(name)
        return entry.path if entry and entry.path and (entry.path / "config.json").is_file() else None

    places = {"middle": there(middle)}
    places["small"] = there(book.entries[middle].draft if places["middle"] else draft.draft)
    return {role: place for role, place in places.items() if place}


def survey(target: str | None = None, draft: str | None = None):
    """``why_not`` of a pair that is not loaded: method -> sentence or None, from configurations and models.yaml. Raises ZooError."""
    book, entry, folder, backend, chosen = _asked_for(target, draft, fetch=False)
    config = read(folder, "config.json")
    place = entry.path or folder
    heads = heads_of(book, entry.name, place, *sizes(config), fetch=False)
    capabilities = backend.capabilities(config) | stored(book.stores_of(entry.name)) | heads.capabilities
    problem, more = "", trained_drafts.roles_of(book, entry.name, place)
    try:
        if chosen:
            book.find(chosen).config_folder()
            more |= _between(book, book.find(chosen), entry.middle if draft is None else "")
    except ZooError as error:
        problem = str(error)
    capabilities |= roles(others.folder_of(book, entry.name, place), more)
    return lambda method: why_not(method, entry.name, capabilities, bool(chosen) and not problem, problem, heads.problems)
