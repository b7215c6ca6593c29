"""What a method is built from: the loaded pair, with a cache of its own for every model of the run."""
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from . import other_vocabulary as others
from ..core import Target
from ..drafters.vocabulary.bridge import Bridge
from ..indexes.earlier_answers import Memory
from ..indexes.store import Store, StoreError, vocabulary_mark
from .kept import once
from .padded_vocabulary import Fitted
from .registry import ZooError, register
from .requirements import sentence
from .trained_heads import body_of, needed, network_of


@dataclass
class Kit:
    """What Method.build is given for one run: a target, and other models by role, each with its own cache.

    ``opened``: every model of the run, the target first. ``memory``: what earlier runs of the same visitor left behind.
    ``predicted``: tokens of the text that the caller expects the answer to be like.
    """

    loaded: Any  # the Loaded of pair.py
    opened: list[Target] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    predicted: tuple[int, ...] = ()

    def __post_init__(self):
        self.target = self.loaded.open_target()
        self.vocab = self.loaded.vocab
        self.opened.append(self.target)

    def open(self, role: str) -> Target:
        """Another model by role: "draft"; "draft:<kind>", trained in a paper's own way; "middle", between target and draft,
        else the draft; "small", which drafts for the one in the middle; "wide" and "deep", other sizes of the draft; "deepest", "deep"
        where there is one, else the draft; "target", its weights again; "other_draft", of another vocabulary and in its own width.
        Raises ZooError with a sentence when there is none."""
        if role in ("target", others.ROLE):
            self.opened.append(self.loaded.open_target() if role == "target" else self.loaded.other_model.open())
            return self.opened[-1]
        if role == "deepest":
            role = "deep" if self.loaded.size_named("deep") in register().entries else "draft"
        if role in ("wide", "deep"):
            found = self.loaded.other_size(role)
        else:
            found = self.loaded.beside(role)
        if found is None:
            raise ZooError(f"This method {sentence(role, self.loaded.name, self.loaded.draft_problem)}.")
        model = found.open()
        self.opened.append(model)
        return model if model.vocab == self.vocab else Fitted(model, self.vocab)

    def bridge(self, role: str) -> Bridge:
        """Between the target's vocabulary and that of the other model of this role. Raises ZooError when there is none."""
        loaded = self.loaded
        return others.bridge(loaded.folder, loaded.other, loaded.vocab, loaded.other_model.vocab)

    def head(self, kind: str) -> torch.nn.Module:
        """The trained head of a kind: weights that all runs share. Raises ZooError with a sentence when there is none."""
        loaded = self.loaded
        if kind not in loaded.heads.folders:
            raise ZooError(f"This method {needed(kind, loaded.name, loaded.heads.problems)}.")
        def read_head(folder: Path, _: torch.device) -> torch.nn.Module:
            head = network_of(kind).load(folder, body_of(loaded.name, loaded.model, loaded.folder))
            for part in head.modules():
                getattr(part, "fused", None)  # stored as it drafts now, not within the first run
            return head

        return once(loaded.heads.folders[kind], loaded.device, f"head:{kind} {loaded.folder.resolve()}", read_head, loaded.deterministic)

    def close(self) -> None:
        """Give every cache back."""
        for model in self.opened:
            model.close()

    def encode(self, text: str) -> list[int]:
        """Token ids of a piece of text inside an answer; special-token text in it stays text."""
        return self.loaded.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)

    def piece(self, token: int) -> bytes:
        """The token's text."""
        return self.loaded.token_bytes(token)

    def ends_line(self, token: int) -> bool:
        """Whether the token's text holds a line break."""
        return b"\n" in self.loaded.token_bytes(token)

    def open_store(self, name: str) -> Store:
        """A datastore of text by name. Raises ZooError when there is none, or when it is damaged or of another tokenizer."""
        if name not in self.loaded.stores:
            raise ZooError(f"There is no datastore {name!r}; models.yaml names {', '.join(self.loaded.stores) or 'none'}.")
        try:
            return Store.open(self.loaded.stores[name], vocabulary_mark(self.loaded.tokenizer))
        except StoreError as error:
            raise ZooError(str(error)) from None
