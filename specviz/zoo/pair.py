"""Load a target and its draft model by name. Weights are read once per folder and device and shared by all
runs; each run has its own KV caches.

A model that cannot be loaded raises ZooError. ``unsupported_reason`` returns why a method cannot run on the
loaded models."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch

from ..core import Method
from ..core.needs import missing_reason
from ..core.threads import set_thread_count, thread_count
from ..indexes.store import vocabulary_mark
from ..targets.base import CachedTarget
from ..targets.guided import GuidableTarget, GuidedTarget
from . import other_vocabulary as others
from . import trained_drafts
from .backends import Forward, LoadedModel, chosen_for, first_supporting_forward
from .codec import Codec, TokenTable, codec_capabilities, open_codec
from .device import environment, read_device, use_cores
from .draft_checks import draft_problem, tokenizer_problem, usable, usable_with_own_words, vocabulary_problem
from .found_weights import FOLDER
from .free_memory import require_memory
from .kit import Kit
from .model_notes import model_notes
from .picture_input import picture_pixels
from .registry import Entry, Register, ZooError, local_files, register
from .requirements import (
    datastore_capabilities,
    half_model_capabilities,
    knob_limits,
    role_capabilities,
    single_layer_lacks,
    unsupported_reason,
)
from .requirements import draft_size_capabilities as sizes_of_draft
from .tokenizer import (
    end_tokens,
    generation_defaults,
    open_tokenizer,
    read_json,
    vocabulary_fingerprint,
)
from .trained_heads import Heads, heads_of, hidden_and_vocab_size
from .weight_cache import load_once

log = logging.getLogger(__name__)


@dataclass
class Loaded:
    """A loaded target with its tokenizer, and its draft model if it has one. ``folder``: the target's
    checkpoint folder; ``backend``: the implementation of its forward pass; ``deterministic``: the weights'
    memory layout on a CPU is fixed instead of the fastest one by measurement."""

    name: str
    folder: Path
    model: LoadedModel
    backend: Forward
    device: torch.device
    draft_name: str | None = None
    draft_folder: Path | None = None
    draft: LoadedModel | None = None
    draft_problem: str = ""
    stores: dict[str, Path] = field(default_factory=dict)
    heads: Heads = Heads()
    other_vocab_folder: Path | None = None  # folder of a draft with another vocabulary
    role_folders: dict[str, Path] = field(
        default_factory=dict
    )  # by role: further models of the same vocabulary
    pass_seconds: float | None = (
        None  # the smallest measured time of a forward pass of one token (run.machine)
    )
    deterministic: bool = False
    nature: str = ""  # a remark on its answers that users must know, from models.yaml
    picture: Any = None  # uint8 [height, width, 3], read before every prompt
    rows: int = 0  # a target of fixed shapes pads every pass to at least so many rows; certificates compare runs of one shape
    guidance: float = 1.0  # scale of classifier-free guidance, 1 for none

    @property
    def vocab(self) -> int:
        """The target's vocabulary size."""
        return self.model.vocab

    @property
    def context(self) -> int:
        """The target's maximum context in tokens. A draft model with a shorter context drafts until the
        text exceeds it."""
        return self.model.context

    @property
    def other_model(self) -> LoadedModel:
        """The weights of the draft model with another vocabulary. Raises ZooError if there is none."""
        if self.other_vocab_folder is None:
            raise ZooError(f"This method {missing_reason(others.ROLE, self.name)}.", "method.needs_draft")
        return self.load_weights(self.other_vocab_folder, self._forward_of(self.other_vocab_folder))

    def model_for(self, role: str) -> LoadedModel | None:
        """Return the weights of the model with a role ("draft", "middle", ...; see Kit.open) and the
        target's vocabulary; None if there is none. Raises ZooError if it cannot be loaded."""
        if role == "draft" or role == "middle" and role not in self.role_folders:
            return self.draft
        return (
            self._open(self.role_folders[role].name, self.role_folders[role])
            if role in self.role_folders
            else None
        )

    def folder_for(self, role: str) -> Path | None:
        """Return the checkpoint folder of the model with a role; None for the target's own and without
        one."""
        if role in ("wide", "deep"):
            return register().entries[self.size_named(role)].folder()
        return self.role_folders.get(role) or (self.draft_folder if role in ("draft", "middle") else None)

    def name_for(self, role: str) -> str:
        """Return the name of the model with a role, for messages and the trace."""
        if role in ("wide", "deep"):
            return self.size_named(role)
        return self.role_folders[role].name if role in self.role_folders else self.draft_name or role

    def size_named(self, size: str) -> str:
        """Return the name that models.yaml uses for another size ("wide" or "deep") of the draft model."""
        return f"{self.draft_name}-{size}"

    def other_size(self, size: str) -> LoadedModel:
        """Return the weights of another size of the draft model, named <draft>-wide or <draft>-deep in
        models.yaml. Raises ZooError."""
        book, name = register(), self.size_named(size)
        if name not in book.entries:
            raise ZooError(
                f"This needs a second draft model, and models.yaml names no {name}.", "draft.second"
            )
        return self._open(name, book.entries[name].folder())

    def _open(self, name: str, folder: Path) -> LoadedModel:
        model = self.load_weights(folder, self._forward_of(folder))
        _same_words(self, name, folder, model)
        return model

    def _forward_of(self, folder: Path) -> Forward:
        """Return the implementation of the forward pass for a further model: the one that models.yaml names
        for it, else the one that it names for the target, where they can run it. Raises ZooError."""
        book = register()
        named = [entry for entry in book.entries.values() if entry.path == folder]
        own = book.entries.get(self.name)
        for entry in (*named, *([] if own is None else [own])):
            if entry.backend:
                with suppress(ZooError):
                    asked = Entry(folder.name, path=folder, backend=entry.backend)
                    return chosen_for(asked, book.backends, folder, self.device)
        return first_supporting_forward(book.backends, folder)

    def load_weights(self, folder: Path, backend: Forward) -> LoadedModel:
        """Return a checkpoint folder's weights for this implementation of the forward pass. On a CPU their
        memory layout is the fastest one by measurement, or a fixed one if these models were loaded with
        ``deterministic``. Raises ZooError."""
        return load_once(
            folder, self.device, backend.name, backend.load, self.deterministic and backend.times_layouts
        )

    @cached_property
    def tokenizer(self) -> Any:
        """The target's transformers tokenizer. Raises ZooError if it cannot be opened."""
        return open_tokenizer(self.folder)

    @cached_property
    def codec(self) -> Codec:
        """The target's codec: how a prompt becomes token ids, and what output tokens are for a person.
        Raises ZooError."""
        return cast(
            Codec, open_codec(self.folder, lambda: self.tokenizer)
        )  # pyright takes no cached property for a member

    @property
    def token_bytes(self) -> TokenTable:
        """The map from token ids to bytes."""
        return self.codec.table

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """The token ids that end an answer."""
        return end_tokens(self.folder, self.tokenizer)

    @cached_property
    def generation_defaults(self) -> dict[str, Any]:
        """Sampling settings that the model's generation_config.json recommends."""
        return generation_defaults(self.folder)

    @cached_property
    def notes(self) -> list[str]:
        """Notes to display next to the target's name (zoo.model_notes)."""
        return model_notes(self.folder)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The header fields of a trace that describe the models: target, draft, tokenizer, output, env."""
        model = self.model
        target = {
            "name": self.name,
            "layers": model.layers,
            "hidden": model.hidden,
            "vocab": model.vocab,
            "parameters": model.parameters,
            "nature": "; ".join(filter(None, (self.nature, *self.notes))),
            "backend": self.backend.name,
            "forward": self.forward,
        }
        draft = None if self.draft is None else {"name": self.draft_name, "parameters": self.draft.parameters}
        env = environment(self.device, getattr(model, "numbers", model.dtype))
        return {
            "target": target,
            "draft": draft,
            "tokenizer": self.name,
            "output": self.codec.output,
            "env": env,
        }

    def trace_facts(self, method: Method) -> dict[str, Any]:
        """Return the trace header fields for a run of a method. A middle model, or a draft model of the
        method's own, is the draft."""
        own = [need for need in sorted(method.needs) if need == "middle" or need.startswith("draft:")]
        role = next((need for need in own if need in self.role_folders), None)
        if role is None:
            return self.facts
        try:
            model, folder = self.model_for(role), self.role_folders[role]
            name = f"{self.name}-{folder.name}" if folder.parent.name == FOLDER else folder.name
            return self.facts | {
                "draft": None if model is None else {"name": name, "parameters": model.parameters}
            }
        except ZooError:  # it cannot be opened: the run reports it
            return self.facts

    def open_target(self) -> CachedTarget:
        """Open the target for one run, with a KV cache of its own."""
        target = self.open_model(self.model)
        target.expect(self.rows)
        if self.picture is not None:
            target.set_picture(self.picture)
        return target

    def with_picture(self, image: str | None) -> Loaded:
        """Return these models with a picture (as picture_input.read_data_url returns it) before every
        prompt; None: without a picture. Raises ZooError if the target reads no pictures."""
        if image is not None and self.codec.picture_size is None:
            raise ZooError(
                f"{self.name} reads no pictures; choose a target that does, such as specviz-vision.",
                "picture.target",
            )
        other = copy.copy(self)
        other.picture = (
            None
            if image is None or self.codec.picture_size is None
            else picture_pixels(image, *self.codec.picture_size)
        )
        return other

    def open_model(self, model: LoadedModel) -> Any:
        """Open a model with a KV cache of its own, with classifier-free guidance if ``guidance`` is not 1."""
        target = model.open()
        if self.guidance == 1 or self.codec.unconditional_ids is None:
            return target
        if "guide" in target.capabilities:
            cast(GuidableTarget, target).guide(self.guidance, self.codec.unconditional_ids)
            return target
        return GuidedTarget(
            target, model.open(), self.codec.unconditional_ids, self.guidance, self.codec.tokens
        )

    def with_guidance(self, scale: float) -> Loaded:
        """Return these models with classifier-free guidance of this scale. Raises ZooError if the target
        was not trained on prompts without words."""
        if self.codec.unconditional_ids is None:
            raise ZooError(
                f"guidance_scale needs a target that was also trained without its prompt, such as specviz-pictures; {self.name} "
                "was not.",
                "guidance.target",
            )
        other = copy.copy(self)
        other.guidance = scale
        other.__dict__.pop("capabilities", None)  # of the target that was not guided
        return other

    @property
    def conversation(self) -> str:
        """A name that is equal for models whose KV cache can be reused in a later turn of the
        conversation."""
        return self.name if self.guidance == 1 else f"{self.name}, guidance {self.guidance:g}"

    @property
    def loop(self) -> Any:
        """The decoding loop that this target needs for methods without a loop of their own; None: the
        ordinary one."""
        return self.backend.loop()

    @property
    def forward(self) -> str:
        """How a forward pass runs: "compiled" (one call of a compiled function), "eager", "static" (static
        shapes), or "captured" (static shapes in a CUDA graph)."""
        return "compiled" if self.compiled else getattr(self.model, "forward", "eager")

    @property
    def compiled(self) -> bool:
        """Whether a forward pass is one call of a compiled function, with threads of its own."""
        return getattr(self.model, "compiled", None) is not None

    def kit(self) -> Kit:
        """Return the Kit of a new run."""
        return Kit(self)

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """What methods may require of these models: capabilities of the target, its heads, draft models,
        datastores and codec."""
        more = frozenset[str]()
        if self.draft_name:
            more = sizes_of_draft(
                register(), self.draft_name, lambda folder: not draft_problem(self.folder, folder)
            )
        own = self.open_target().capabilities - single_layer_lacks(read_json(self.folder, "config.json"))
        return (
            own
            | datastore_capabilities(self.stores, self._mark)
            | self.heads.capabilities
            | role_capabilities(self.other_vocab_folder, self.role_folders)
            | more
            | codec_capabilities(self.folder)
            | half_model_capabilities(self.folder, self.role_folders.get("middle", self.draft_folder))
        )

    def knob_limits(self, method: Method) -> dict[str, float]:
        """Return {knob: highest value} for the knobs that these models limit, for example if there is no
        second draft model."""
        return knob_limits(method, self.capabilities, self.draft is not None)

    def _mark(self) -> str:
        """The fingerprint of the vocabulary; empty without a tokenizer, so that no datastore fits."""
        try:
            return vocabulary_mark(self.tokenizer)
        except ZooError:
            return ""

    def unsupported_reason(self, method: Method) -> str | None:
        """Return why the method cannot run on these models; None if it can."""
        return _text_problem(self.folder) or unsupported_reason(
            method,
            self.name,
            self.capabilities,
            self.draft is not None,
            self.draft_problem,
            self.heads.problems,
        )


def load(
    target: str | None = None,
    draft: str | None = None,
    device: str = "auto",
    *,
    named_only: bool = False,
    deterministic: bool = False,
) -> Loaded:
    """Load a target and its draft model. Raises ZooError.

    target, draft: a name of models.yaml, a checkpoint folder in Hugging Face format, a GGUF file, or
    org/name@commit; None: the default target, or the draft that the target is paired with; draft "none": no
    draft. named_only: accept names of models.yaml alone (for input from the page). deterministic: fix the
    memory layout of the weights and the number of threads instead of measuring which is fastest, so that a
    run with Session's ``deterministic`` gives the same bits in every process on this machine; slower."""
    on = read_device(device)
    use_cores(deterministic)
    book, entry, folder, backend, chosen = _asked_for(target, draft, named_only, on)
    model = load_once(folder, on, backend.name, backend.load, deterministic and backend.times_layouts)
    place = entry.path or folder  # the path as other entries give it, also if its shards are split
    heads = heads_of(book, entry.name, place, model.hidden, model.vocab, on)
    loaded = Loaded(
        entry.name,
        folder,
        model,
        backend,
        on,
        stores=_stores(book, entry, folder),
        heads=heads,
        deterministic=deterministic,
        nature=entry.nature,
        other_vocab_folder=usable_with_own_words(others.folder_of(book, entry.name, place)),
        role_folders=usable(folder, trained_drafts.roles_of(book, entry.name, place)),
    )
    try:
        if chosen:
            _pair(loaded, book, book.find(chosen, named_only))
            loaded.role_folders |= usable(
                folder, _between(book, book.find(chosen), entry.middle if draft is None else "")
            )
    except ZooError as error:
        if draft is not None:
            raise
        loaded.draft_problem = str(error)  # the target runs without its usual draft
        log.info("%s runs without its draft model: %s", entry.name, error)
    set_thread_count(thread_count(), loaded.compiled)
    return loaded


def _asked_for(
    target: str | None,
    draft: str | None,
    named_only: bool = False,
    on: torch.device | None = None,
    fetch: bool = True,
) -> tuple[Register, Entry, Path, Forward, str]:
    """Return models.yaml, the target's entry, folder and forward, and the draft's name ("" for none).
    Raises ZooError.

    on: the device it must fit on; fetch: download the weights of a hub model, not only its configuration.
    """
    book = register()
    entry = book.find(target, named_only)
    if on is not None:
        require_memory(entry, on)
    folder = entry.folder() if fetch else entry.config_folder()
    chosen = entry.draft if draft is None else "" if str(draft).strip().lower() == "none" else draft
    return book, entry, folder, chosen_for(entry, book.backends, folder, on), chosen


def _pair(loaded: Loaded, book: Register, entry: Entry) -> None:
    require_memory(entry, loaded.device)
    folder = entry.folder()
    model = loaded.load_weights(folder, chosen_for(entry, book.backends, folder, loaded.device))
    _same_words(loaded, entry.name, folder, model)
    loaded.draft = model
    loaded.draft_name = entry.name
    loaded.draft_folder = folder


def _same_words(loaded: Loaded, name: str, folder: Path, model: Any) -> None:
    problem = vocabulary_problem((loaded.name, loaded.folder, loaded.vocab), (name, folder, model.vocab))
    if problem:
        raise ZooError(problem, "draft.vocabulary")


def _stores(book: Register, entry: Entry, folder: Path) -> dict[str, Path]:
    """Return the datastores that fit a target; they hold text."""
    return book.stores_of(entry.name) if "output:text" in codec_capabilities(folder) else {}


def _text_problem(folder: Path) -> str | None:
    """Return why a target cannot read or write text, as a sentence; None if it can, or if its output is no
    text."""
    problem = tokenizer_problem(folder) if "output:text" in codec_capabilities(folder) else None
    return f"{problem}." if problem else None


def _between(book: Register, draft: Entry, middle: str) -> dict[str, Path]:
    """Return the folders of the middle model that models.yaml names, and of the small model that drafts for
    it (or for the draft), if present."""

    def there(name: str) -> Path | None:
        entry = book.entries.get(name)
        return entry.path if entry and entry.path and (entry.path / "config.json").is_file() else None

    places = {"middle": there(middle)}
    places["small"] = there(book.entries[middle].draft if places["middle"] else draft.draft)
    return {role: place for role, place in places.items() if place}


def _is_local(entry: Entry) -> bool:
    """Return whether the weights of an entry lie on this machine."""
    return entry.installed() or bool(entry.hub) and local_files(entry) is not None


@dataclass(frozen=True)
class Survey:
    """Facts about a target and a draft model that are not loaded: the target's name and notes;
    unsupported_reason(method): why it cannot run, or None; knob_limits(method): {knob: highest value}."""

    name: str
    notes: list[str]
    unsupported_reason: Callable[[Method], str | None]
    knob_limits: Callable[[Method], dict[str, float]]

    def __call__(self, method: Method) -> str | None:
        return self.unsupported_reason(method)


def survey(target: str | None = None, draft: str | None = None) -> Survey:
    """Describe a target and a draft model from their configurations, without loading them. Raises
    ZooError."""
    book, entry, folder, backend, chosen = _asked_for(target, draft, fetch=False)
    config = read_json(folder, "config.json")
    place = entry.path or folder
    heads = heads_of(book, entry.name, place, *hidden_and_vocab_size(config), fetch=False)
    stores = datastore_capabilities(_stores(book, entry, folder), lambda: vocabulary_fingerprint(folder))
    capabilities = backend.capabilities(config) - single_layer_lacks(config) | stores | heads.capabilities
    known = _is_local(
        entry
    )  # a model that is not fetched has no tokenizer here with which others could be compared
    problem = ""
    more = trained_drafts.roles_of(book, entry.name, place)
    middle = None
    try:
        if chosen:
            found = book.find(chosen)
            middle = found.config_folder()
            more |= _between(book, found, entry.middle if draft is None else "")
            if known and _is_local(found):
                problem = draft_problem(folder, found.folder(), (entry.name, found.name)) or ""
    except ZooError as error:
        problem = str(error)
    if chosen and not problem:
        capabilities |= sizes_of_draft(
            book, book.find(chosen).name, lambda other: not (known and draft_problem(folder, other))
        )
    more = usable(folder, more) if known else more
    capabilities |= role_capabilities(
        usable_with_own_words(others.folder_of(book, entry.name, place)), more
    ) | codec_capabilities(folder)
    capabilities |= half_model_capabilities(folder, more.get("middle", middle))
    words = _text_problem(folder) if known else None

    def reason(method: Method) -> str | None:
        return words or unsupported_reason(
            method, entry.name, capabilities, bool(chosen) and not problem, problem, heads.problems
        )

    return Survey(
        entry.name,
        model_notes(folder),
        reason,
        lambda method: knob_limits(method, capabilities, bool(chosen) and not problem),
    )
