"""Toys on which every method of the catalogue runs: tiny nets, a kit, small knobs derived from the knobs'
own ranges."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from specviz.core import DraftTree, Knob, Method, Parts, Sampling, State, open_run, play
from specviz.indexes.store import Store
from specviz.indexes.suffix_array import PART, SuffixArray
from specviz.methods import catalogue, draft_kinds
from specviz.targets.experts import ExpertsRead
from specviz.targets.fast import FastTarget
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.training.dense_store import with_states

from ..drafters.vocabulary import toys as bridges
from ..models import tiny

PROMPT = [1, 2, 0, 2, 1, 2]
DRAFTS = {"target", "draft", "middle", "small", "wide", "deep", "deepest"} | {
    f"draft:{kind}" for kind in draft_kinds()
}
CAPABILITIES = (
    {"input:picture", "other_draft", "store:text", "store:dense", "codebook", "output:text", "middle:half"}
    | DRAFTS
    | tiny.PROVIDED
)
# by the knob's name, whatever the method; a knob not named here is set to 2, or to the bound of its range
# that is nearest
SMALL = {"models": 1, "nodes": 3, "ngram": 3, "least": 1, "hits": 9}
OWN_TARGET = {
    "experts": "test_experts",
    "state": "test_states",
}  # by the need's part before its colon: the file of its evidence
DEEP = {
    **SMALL,
    "gamma": 3,
    "depth": 3,
    "nodes": 5,
    "most": 3,
    "block": 3,
    "window": 3,
}  # drafts of up to three tokens


class ToyCodec:
    """A grid of two columns; the neighbours of a token are the next ones."""

    columns = 2

    def __init__(self, vocab: int):
        self.tokens = range(vocab)
        self.neighbours = np.array([[(i + k) % vocab for k in range(1, vocab)] for i in range(vocab)])


@dataclass
class Kit:
    """What Method.build() is given, on scripted nets. Every role is served by the same small net."""

    net: TinyNet
    small: TinyNet
    context: int = 96
    predicted: tuple[int, ...] = ()
    caption: tuple[int, ...] = (1, 0)
    opened: list[TinyTarget] = field(default_factory=list)

    def __post_init__(self):
        self.vocab, self.target, self.codec = (
            self.net.vocab,
            self.open_net(self.net),
            ToyCodec(self.net.vocab),
        )
        self.predicted = tuple(
            greedy(self.net.logits, [token % self.vocab for token in PROMPT], 8)[len(PROMPT) :]
        )

    def open_net(self, net: TinyNet) -> TinyTarget:
        self.opened.append((TinyExperts if isinstance(net, ExpertNet) else TinyTarget)(net, self.context))
        return self.opened[-1]

    def open(self, role: str, required: bool = False) -> TinyTarget:
        if role == "other_draft":
            return self.open_net(bridges.other_net(self.small))
        assert role in DRAFTS, (
            f"the toys have no model for the role {role!r}: add one to tests/exactness/toys.py"
        )
        return self.open_net(self.small)

    def bridge(self, role: str):
        return bridges.bridge(self.vocab)

    def piece(self, token: int) -> bytes:
        return b"." if token < self.vocab // 5 else b"x"

    def head(self, kind: str) -> torch.nn.Module:
        return tiny.head(kind, tiny.body(self.target))

    def open_store(self, role: str) -> Store:
        """What the target would write after each of its tokens."""
        plain = store(role, [greedy(self.net.logits, [first], 6) for first in range(self.vocab)])
        return with_states(plain, TinyTarget(self.net, self.context), 4) if role == "dense" else plain


class ExpertNet(TinyNet):
    """A net of four experts a layer, one of them with a negative routing scale; its reference computes all
    of them."""

    def __init__(self, *sizes, **how):
        super().__init__(*sizes, **how)
        source = torch.Generator().manual_seed(99)
        for layer in self.layers:
            layer["router"] = torch.randn(4, self.width, generator=source, dtype=torch.float64)
            layer["scale"] = torch.tensor([1.0, -0.8, 0.9, 1.1], dtype=torch.float64)

    def routed(self, layer, x):
        active = torch.relu(self.norm(x) @ layer["router"].T)
        return active * torch.rsqrt(active.square().mean(-1, keepdim=True) + 1e-6) * layer["scale"]

    def transform(self, layer, x, experts=range(4)):
        r, inner = (
            self.routed(layer, x),
            torch.nn.functional.silu(self.norm(x) @ layer["up"].T).unflatten(-1, (4, -1)),
        )
        out = layer["down"].repeat(1, 2).unflatten(-1, (4, -1))
        return sum((r[:, e : e + 1] * inner[:, e] @ out[:, e].T for e in experts), x)


class TinyExperts(TinyTarget):
    """Reads the experts that a row uses, and no others."""

    capabilities = TinyTarget.capabilities | {"experts"}

    def uses(self, r):
        return r != 0

    def run_layers(self, rows, layers):
        self.used = []
        return super().run_layers(rows, layers)

    def transformed(self, layer, x):
        self.used.append(self.uses(self.net.routed(layer, x)))
        return self.net.transform(layer, x, self.used[-1].any(0).nonzero().flatten().tolist())

    def experts_read(self):
        return ExpertsRead(torch.stack(self.used), 1000, 5000)


def store(role: str, texts: list[list[int]]) -> Store:
    return Store(
        role,
        SuffixArray.build(np.concatenate([np.array([*text, PART], np.uint32) for text in texts]), 8),
        {"bytes": 0, "build_seconds": 0.0},
    )


def toy(
    vocab: int,
    seed: int = 0,
    share: float = 0.7,
    sharp: float = 1.5,
    context: int = 96,
    layers: int = 2,
    kind=TinyNet,
) -> Kit:
    """A target and a draft that is ``share`` of the way from another net to it."""
    net, other = (kind(vocab, one, sharp=sharp, layers=layers) for one in (seed, seed + 7))
    return Kit(net, other.interpolate(net, share), context)


def toy_of(method: Method, vocab: int, **how) -> Kit:
    """The toy for a method: deep enough that layers between the first and the last can be left out or run
    side by side. With two layers nothing is left out, such a draft is the target itself, nothing is ever
    refused and no test of it could fail."""
    how = {"kind": ExpertNet} | how if "experts" in method.needs else how
    return toy(vocab, layers=4 if method.needs & {"skip", "layer_parallel"} else 2, **how)


def methods(*exactness: str) -> list[Method]:
    return [method for method in catalogue().values() if method.exactness in exactness]


def small_knobs(method: Method, table: dict = SMALL) -> list[dict]:
    """Every combination of choices and switches, with each number small; where knobs restrict each other,
    compatible combinations until each choice was there."""
    options = []
    for knob in method.knobs:
        values = knob.choices or ((False, True) if isinstance(knob.default, bool) else (small(knob, table),))
        options.append([(knob.name, value) for value in values])
    every = [dict(one) for one in itertools.product(*options)]
    if any(knob.only_with for knob in method.knobs):
        every, met = (
            [one for one in (made_lawful(method, knobs) for knobs in every) if one is not None],
            set(),
        )
        every.sort(
            key=lambda one: sum(value for value in one.values() if type(value) is int)
        )  # chains first: they are quick
        every = [
            one
            for one in every
            if len(met) < len(met := met | {(k.name, one[k.name]) for k in method.knobs if k.choices})
        ]
    return [method.read_knobs(one) for one in every]


def made_lawful(method: Method, knobs: dict) -> dict | None:
    """The knobs with numbers that go with their choices; None where two choices do not go together."""
    for knob in method.knobs:
        for choice, other, values in knob.only_with:
            if knobs[knob.name] == choice and knobs[other] not in values:
                if isinstance(values[0], str):
                    return None
                knobs = {**knobs, other: values[0]}
    return knobs


def small(knob: Knob, table: dict):
    if isinstance(knob.default, str):
        return knob.default
    value = min(max(table.get(knob.name, 2), knob.low), knob.high)
    return value if isinstance(knob.default, int) else (knob.low + knob.high) / 2


def any_knobs(method: Method, seed: int) -> dict:
    """Knobs anywhere in their ranges."""
    rng, out = random.Random(f"{method.key}/{seed}"), {}
    for knob in method.knobs:
        if knob.choices or isinstance(knob.default, bool):
            out[knob.name] = rng.choice(knob.choices or (False, True))
        elif isinstance(knob.default, str):
            out[knob.name] = knob.default
        elif isinstance(knob.default, int):
            out[knob.name] = rng.randint(int(knob.low), int(knob.high))
        else:
            out[knob.name] = rng.uniform(knob.low, knob.high)
    compatible_verifiers = made_lawful(method, out)
    return (
        any_knobs(method, seed + 1000)
        if compatible_verifiers is None
        else method.read_knobs(compatible_verifiers)
    )


def sample() -> set[str]:
    """Keys of the exact methods that ``make test`` tries in every way: the first of each family; ``make
    thorough`` tries all."""
    families: dict[str, list[str]] = {}
    for method in methods("exact"):
        if not needs_own_target(method):
            families.setdefault(method.family, []).append(method.key)
    return {min(keys) for keys in families.values()}


def needs_own_target(method: Method) -> bool:
    """Whether no target of the Llama family can serve the method, so that its evidence on real networks is
    in a file of its own (OWN_TARGET)."""
    return not method.needs <= FastTarget.capabilities | CAPABILITIES


def later(case, now: bool):
    """The case, left to ``make thorough`` unless it is tried now."""
    return case if now else pytest.param(*case.values, id=case.id, marks=pytest.mark.thorough)


def named(method: Method, knobs: dict):
    """A test's name that says the choices."""
    words = [str(knobs[k.name]) for k in method.knobs if k.choices or isinstance(k.default, bool)]
    return pytest.param(method, knobs, id="-".join([method.key, *words]))


def provided(method: Method, kit: Kit) -> None:
    missing = {need for need in method.needs if need not in CAPABILITIES | kit.target.capabilities}
    assert not missing, (
        f"the toys do not provide {missing}, so {method.key} is not covered: add it to tests/exactness/toys.py"
    )


def player(parts: Parts):
    """How one round of these parts is played: the ordinary way, or the way of a loop that has its own."""
    return getattr(parts.loop, "round", play)


def begin(
    parts: Parts, kit: Kit, sampling: Sampling, limit: int, warm: int = 0, prompt=PROMPT, **state
) -> State:
    """A run opened and, if asked, ``warm`` rounds old, so that pools and tables are filled; then ``limit``
    more tokens."""
    state = State(list(prompt), sampling, limit=10**6, **state)
    open_run(parts, kit.target, state)
    for _ in range(warm):
        player(parts)(parts, kit.target, state)
    for name, empty in (("pending", DraftTree()), ("prepared", {})):  # drawn ahead of their round
        if hasattr(
            parts.loop, name
        ):  # the distribution of what follows holds over all drafts, not given one that is drawn already
            setattr(parts.loop, name, empty)
    state.limit = len(state.tokens) - state.start + limit
    return state


def greedy(logits, prompt: list[int], count: int, stop=frozenset()) -> list[int]:
    """What plain decoding writes at temperature 0, from uncached logits(tokens) -> [tokens, vocab]."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < count and (len(tokens) == len(prompt) or tokens[-1] not in stop):
        tokens.append(int(logits(tokens)[-1].argmax()))
    return tokens


def cache_error(target, fresh, tokens: list[int]) -> float:
    """How far a target's keys and values are from a fresh prefill of the tokens; ``fresh`` is another
    target on its weights."""
    assert target.cached_tokens == tokens[:-1] and target.root == tokens[-1], (
        "the cache must hold the committed tokens but the last"
    )
    return kv_error(target, fresh, tokens)


def kv_error(target, fresh, tokens: list[int]) -> float:
    """Largest difference of the keys and values of tokens[:-1], which the target holds, from those of a
    fresh prefill."""
    fresh.close()
    fresh.sync(tokens)
    if len(tokens) < 2:
        return 0.0
    pairs = [(a, b) for layer in range(target.layers) for a, b in zip(target.kv(layer), fresh.kv(layer))]
    assert all(a.shape == b.shape for a, b in pairs)
    return max(float((a - b).abs().max()) for a, b in pairs)


def random_probs(rng: random.Random, vocab: int, zeros: int = 0) -> torch.Tensor:
    """A distribution [vocab] in double precision; ``zeros`` of its tokens are impossible."""
    probs = torch.tensor([rng.random() ** 2 + 0.02 for _ in range(vocab)], dtype=torch.float64)
    probs[rng.sample(range(vocab), zeros)] = 0
    return probs / probs.sum()
