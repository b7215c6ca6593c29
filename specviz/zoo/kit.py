"""The argument of Method.build: the loaded models of one run, each with a KV cache of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..core import Target
from ..core.errors import code_of
from ..drafters.heads.own_tables import read_own_tables
from ..drafters.heads.reduced_output import read_draft_tokens
from ..drafters.vocabulary.bridge import Bridge
from ..indexes.earlier_answers import Memory
from ..indexes.store import Store, StoreError, vocabulary_mark
from ..models.heads import HeadWeights
from ..targets.base import CachedTarget
from . import other_vocabulary as others
from .draft_model import DraftModel
from .registry import ZooError
from .requirements import requirement_message
from .trained_heads import body_of, needed, network_of
from .weight_cache import load_once


@dataclass
class Kit:
    """The argument of Method.build for one run: the target, and other models by role, each with its own KV
    cache.

    ``opened``: every model of the run, the target first; ``context``: number of tokens that fit into the
    context of all models on which the text depends; ``memory``: earlier answers of the same visitor;
    ``predicted``: tokens of a text that the caller expects the answer to resemble; ``weight_folders``: of
    the draft models, heads and datastores that were opened."""

    loaded: Any  # the Loaded of pair.py
    opened: list[CachedTarget | DraftModel] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    predicted: tuple[int, ...] = ()
    weight_folders: list[Path] = field(default_factory=list[Path])

    def __post_init__(self):
        self.target = self.loaded.open_target()
        self.vocab = self.loaded.vocab
        self.codec = self.loaded.codec
        self.context = self.loaded.context
        self.opened.append(self.target)

    def open(self, role: str, required: bool = False) -> Target:
        """Open another model by role, with a KV cache of its own. Raises ZooError if there is none.

        Roles: "draft": the target's draft model; "draft:<kind>": a draft model trained by a paper's method;
        "middle": a model between target and draft model in size, else the draft model; "small": the draft
        model of the middle model; "wide", "deep": other sizes of the draft model; "deepest": "deep" if it
        exists, else the draft model; "target": the target's weights with another KV cache; "other_draft": a
        draft model of another vocabulary, whose logits have its own width.

        required: the text depends on the model, so that the run ends if it fails; any other model only
        stops drafting (draft_model.py)."""
        if role == others.ROLE and self.loaded.other_vocab_folder is not None:
            self.weight_folders.append(self.loaded.other_vocab_folder)
        if role in ("target", others.ROLE):
            model = self.loaded.open_target() if role == "target" else self.loaded.other_model.open()
            if role != "target":
                folder = self.loaded.other_vocab_folder
                model = DraftModel(model, model.vocab, folder.name if folder is not None else role)
            self.opened.append(model)
            return self.opened[-1]
        if role == "deepest":
            role = "deep" if "size:deep" in self.loaded.capabilities else "draft"
        if role in ("wide", "deep"):
            found = self.loaded.other_size(role)
        else:
            found = self.loaded.model_for(role)
        if found is None:
            raise ZooError(
                f"This method {requirement_message(role, self.loaded.name, self.loaded.draft_problem)}.",
                "method.needs_draft",
            )
        folder = self.loaded.folder_for(role)
        self.weight_folders += [] if folder is None else [folder]
        model = self.loaded.open_model(found)
        self.context = min(self.context, model.context) if required else self.context
        model = (
            model
            if required and model.vocab == self.vocab
            else DraftModel(model, self.vocab, self.loaded.name_for(role))
        )
        self.opened.append(model)
        return model

    @property
    def caption(self) -> tuple[int, ...]:
        """Tokens that name what the picture before the prompt shows; empty without a picture."""
        return self.target.caption

    def draft_ready(self) -> bool:
        """Return whether every draft model of the run can draft in the next round."""
        return all([model.ready() for model in self.opened if isinstance(model, DraftModel)])  # noqa: C419 (each is asked)

    def draft_problems(self) -> list[dict[str, Any]]:
        """Return why draft models stopped drafting: {model, reason ("context" or "overflow"), tokens of the
        text}."""
        return [model.problem for model in self.opened if isinstance(model, DraftModel) and model.problem]

    def bridge(self, role: str) -> Bridge:
        """Return the map between the target's vocabulary and that of the draft model with another
        vocabulary. Raises ZooError if there is none."""
        loaded = self.loaded
        return others.bridge(loaded.folder, loaded.other_vocab_folder, loaded.vocab, loaded.other_model.vocab)

    def head(self, kind: str) -> torch.nn.Module:
        """Return the trained head of a kind, an nn.Module whose weights are shared by all runs. Raises
        ZooError if there is none."""
        loaded = self.loaded
        if kind not in loaded.heads.folders:
            raise ZooError(
                f"This method {needed(kind, loaded.name, loaded.heads.problems)}.", "method.needs_head"
            )

        def read_head(folder: Path, _: torch.device) -> torch.nn.Module:
            body = body_of(loaded.name, loaded.model, loaded.folder)
            head = network_of(kind).load(folder, body)
            head.draft_tokens, head.use_int8 = read_draft_tokens(folder, body.vocab), body.use_int8
            head.own_embedding, head.own_output = read_own_tables(
                HeadWeights(folder, body), head, self.target, body.vocab
            )
            for part in head.modules():
                getattr(part, "fused", None)  # lay the weights out now, not within the first run
            return head

        self.weight_folders.append(loaded.heads.folders[kind])
        use = f"head:{kind} {loaded.folder.resolve()}"
        return load_once(loaded.heads.folders[kind], loaded.device, use, read_head, loaded.deterministic)

    def close(self) -> None:
        """Release every KV cache."""
        for model in self.opened:
            model.close()

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text that is part of an answer. The text of a special token in it stays
        plain text."""
        return self.loaded.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token."""
        return self.loaded.token_bytes(token)

    def ends_line(self, token: int) -> bool:
        """Return whether a token's bytes contain a line break."""
        return b"\n" in self.loaded.token_bytes(token)

    def open_store(self, name: str) -> Store:
        """Open a datastore of text by name. Raises ZooError if there is none, or if it is damaged or made
        for another tokenizer."""
        if name not in self.loaded.stores:
            raise ZooError(
                f"There is no datastore {name!r}; models.yaml names {', '.join(self.loaded.stores) or 'none'}.",
                "datastore.unknown",
            )
        self.weight_folders.append(self.loaded.stores[name])
        try:
            return Store.open(self.loaded.stores[name], vocabulary_mark(self.loaded.tokenizer))
        except StoreError as error:
            raise ZooError(str(error), code_of(error)) from None
