"""What the tests of the loops share: a way to run a method's loop over the toys, and models that are tables
of distributions."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from specviz.core import Clock, Sampling, State
from specviz.core.threads import set_thread_count, thread_count
from specviz.loops import speculate
from specviz.methods import catalogue
from specviz.trace.events import Committed, Noted

from ..exactness.toys import TinyTarget
from ..methods.toys import Rows

MINE = (
    "pearl",
    "specdec",
    "bild",
    "entropy_adaptive",
    "contrastive_decoding",
    "proxy_decoding",
    "specreason",
)


@contextmanager
def cores(count: int):
    """torch believes that so many cores are ours."""
    before = thread_count()
    set_thread_count(count)
    try:
        yield
    finally:
        set_thread_count(before)


def ticks() -> Clock:
    """A clock that goes on by one second whenever it is read."""
    count = itertools.count()
    return Clock(lambda: float(next(count)))


def decode(key, kit, prompt, limit, sampling=Sampling(), knobs=None, **state):
    """The state and the events of a whole run of a method of the catalogue."""
    method = catalogue()[key]
    parts = method.build(kit, **method.read_knobs(knobs or {}))
    state = State(list(prompt), sampling, limit=limit, **state)
    return state, list((parts.loop or speculate)(parts, kit.target, state))


def notes(events, kind):
    return [event.data for event in events if isinstance(event, Noted) and event.kind == kind]


def commits(events):
    return [event for event in events if isinstance(event, Committed)]


class ProbabilityRows(Rows):
    """A model that is a function from tokens to a distribution, and follows what is committed."""

    def score(self, tree, start=0):
        self.tree = tree
        return super().score(tree, start)

    def commit(self, verdict):
        self.tokens += [*(self.tree.tokens[i] for i in verdict.path), verdict.token]


@dataclass
class Tables:
    """A kit of two models that are distributions: large(tokens) and small(tokens) -> [vocab]. A step ends
    with token 0."""

    large: object
    small: object
    vocab: int
    opened: list = field(default_factory=list)

    def __post_init__(self):
        self.target = ProbabilityRows(self.large, self.vocab)

    def open(self, role, required=False):
        self.opened.append(ProbabilityRows(self.small, self.vocab))
        return self.opened[-1]

    def piece(self, token):
        return b"." if token == 0 else b"x"


def probs(vocab, **token_probs):
    """A distribution [vocab] with these chances ("t3" is token 3), the rest spread over the other tokens."""
    named = {int(name[1:]): prob for name, prob in token_probs.items()}
    rest = (1 - sum(named.values())) / (vocab - len(named))
    return torch.tensor([named.get(i, rest) for i in range(vocab)], dtype=torch.float64)


def with_pieces(kit):
    """The toy kit of the exactness tests, with a text for every token: tokens 0 and 1 end a step."""
    kit.piece = lambda token: b"." if token < 2 else b"x"
    return kit


def same_cache(model, fresh: TinyTarget) -> float:
    """How far a model's rows are from a fresh prefill of the tokens it says it holds."""
    model.flush()
    fresh.sync([*model.cached_tokens, 0])
    return max(
        (
            float((a - b).abs().max())
            for i in range(model.layers)
            for a, b in zip(model.kv(i), fresh.kv(i))
            if a.numel()
        ),
        default=0.0,
    )
