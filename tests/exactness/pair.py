"""A kit on two loaded models, for the tests on real forwards; what else a method asks for is a toy beside
them."""

from __future__ import annotations

from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.training.dense_store import with_states

from ..drafters.vocabulary import toys as bridges
from ..models import tiny
from .toys import DRAFTS, ToyCodec, store


class Pair:
    """texts: rows of tokens for the datastores."""

    def __init__(self, model, draft, vocab, texts):
        self.model = model
        self.draft = draft
        self.vocab = vocab
        self.texts = texts
        self.target = model.open()
        self.predicted = tuple(texts[-1])
        self.codec = ToyCodec(vocab)
        self.caption = (1, 0)

    def open(self, role, required=False):
        if role == "other_draft":
            return TinyTarget(bridges.other_net(TinyNet(self.vocab, 7)), self.target.context)
        assert role in DRAFTS, f"there is no model for the role {role!r} here"
        return self.draft.open()

    def bridge(self, role):
        return bridges.bridge(self.vocab)

    def piece(self, token):
        return b"." if token < self.vocab // 5 else b"x"

    def encode(self, text):
        return [byte % self.vocab for byte in text.encode()[:4]]

    def ends_line(self, token):
        return token == 3

    def head(self, kind):
        return tiny.head(kind, tiny.body(self.target))

    def open_store(self, role):
        plain = store(role, self.texts)
        return with_states(plain, self.model.open(), 4) if role == "dense" else plain
