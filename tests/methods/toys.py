"""Small things to test methods on: a loop over a scripted target, random numbers that enumerate every run,
distributions of three tokens."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import torch

from specviz.core import Clock, RandomStreams, Sampling, Scores, State, Verdict, open_run, play
from specviz.targets.tiny import TinyNet, TinyTarget

from ..exactness.toys import ToyCodec


class Script:
    """Random streams that replay a plan and note how likely it was; ``every`` walks all plans. Bulk
    uniforms cannot be enumerated: they are the same numbers in every plan, for methods whose distribution
    is exact whatever they are."""

    def __init__(self, plan, seed=0):
        self.plan = plan
        self.used = 0
        self.prob = 1.0
        self.sizes = []
        self.source = random.Random(seed)

    def uniform_tensor(self, stream, shape, device="cpu"):
        count = torch.Size(shape).numel()
        return torch.tensor([self.source.random() for _ in range(count)], dtype=torch.float64).reshape(shape)

    def _next(self, options):
        if len(options) == 1:
            return options[0][0]
        if self.used == len(self.plan):
            self.plan.append(0)
        value, prob = options[self.plan[self.used]]
        self.sizes.append(len(options))
        self.used += 1
        self.prob *= prob
        return value

    def pick(self, stream, probs):
        return self._next([(i, x) for i, x in enumerate(probs.tolist()) if x > 1e-13])

    def flip(self, stream, accept):
        if accept >= 1 - 1e-13:
            return True, None
        if accept <= 1e-13:
            return False, None
        return self._next([(True, accept), (False, 1 - accept)]), None


def every(run, seed=0):
    """(result, chance) of each way run(random numbers) can go."""
    plan = []
    while True:
        rng = Script(plan, seed)
        yield run(rng), rng.prob
        plan = rng.plan[: rng.used]
        while plan and plan[-1] + 1 >= rng.sizes[len(plan) - 1]:
            plan.pop()
        if not plan:
            return
        plan[-1] += 1


def probs_of(run, seed=0):
    out = {}
    for result, prob in every(run, seed):
        out[result] = out.get(result, 0.0) + prob
    return out


def distance(a, b):
    """Total variation of two distributions given as dicts."""
    return 0.5 * sum(abs(a.get(k, 0) - b.get(k, 0)) for k in {*a, *b})


class Rows:
    """A target whose logits are a fixed function of the tokens before: no cache to speak of, counts its
    rows."""

    capabilities = frozenset({"tree", "rewind"})

    def __init__(self, probs, vocab):
        self.probs = probs
        self.vocab = vocab
        self.context = 10**6
        self.tokens = []
        self.rows = 0

    def capture(self, names):
        pass

    def sync(self, tokens):
        self.tokens = list(tokens)
        return Scores(torch.zeros(0, self.vocab, dtype=torch.float64))

    def score(self, tree, start=0):
        self.rows += len(tree) + 1 - (start + 1 if start else 0)
        paths = [[]] + [[tree.tokens[j] for j in tree.path(i)] for i in range(len(tree))]
        return Scores(torch.stack([self.probs(self.tokens + path).log() for path in paths]))

    def commit(self, verdict: Verdict):
        pass


def kit(vocab=4, share=0.85, seed=0):
    """A target and a draft of it that is right now and then."""
    net = TinyNet(vocab, seed)
    small = TinyNet(vocab, seed + 7).interpolate(net, share)
    return SimpleNamespace(
        vocab=vocab,
        net=net,
        target=TinyTarget(net),
        open=lambda role: TinyTarget(small),
        open_store=no_store,
        codec=ToyCodec(vocab),
    )


def no_store(name: str):
    raise ValueError(f"there is no store {name}")


def run(method, kit, prompt, count, sampling=Sampling(), rng=None, stop=frozenset(), **knobs):
    """The tokens a method writes, and its outcomes; the cache is checked against the committed tokens each
    round."""
    parts = method.build(kit, **method.read_knobs(knobs))
    ticks = (
        itertools.count()
    )  # a clock that counts its readings: methods that learn from time repeat themselves
    state = State(
        list(prompt),
        sampling,
        rng or RandomStreams(1),
        count,
        stop=stop,
        clock=Clock(lambda: float(next(ticks))),
    )
    target, outcomes = TinyTarget(kit.net, 128), []
    open_run(parts, target, state)
    while not state.done:
        outcomes.append(play(parts, target, state))
        assert target.cached_tokens == state.tokens[:-1]
    return state.tokens[len(prompt) :], outcomes


def greedy(net, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(net.logits(tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def joint(net, prompt, count, sampling):
    """The target's distribution of the next ``count`` tokens."""
    out = {}
    for tail in itertools.product(range(net.vocab), repeat=count):
        rows = sampling.probs(net.logits([*prompt, *tail]))[len(prompt) - 1 :]
        out[tail] = float(torch.stack([rows[i, x] for i, x in enumerate(tail)]).prod())
    return out


def table(vocab, seed):
    """A distribution for every context, peaked now and then."""

    def probs(tokens):
        source = torch.Generator().manual_seed(seed + sum((x + 1) * 11**i for i, x in enumerate(tokens)))
        return (2 * torch.randn(vocab, generator=source, dtype=torch.float64)).softmax(-1)

    return probs


def round_probs(propose, verifier, target, depth, seed=0):
    """The distribution of the first ``depth`` tokens when one round (propose(state) -> tree, judged against
    ``target``) is completed by plain draws; the expected accepted length; the chance that the first token
    was drafted."""
    out = {}
    accepted = 0.0
    first = 0.0

    def one(rng):
        state = State([0], Sampling(1.0), rng)
        tree = propose(state)
        rows = [[]] + [[tree.tokens[j] for j in tree.path(i)] for i in range(len(tree))]
        verifier.check(tree)
        verdict = verifier.verify(tree, Scores(torch.stack([target(r) for r in rows]).log()), state)
        return tuple(tree.tokens[i] for i in verdict.path) + (verdict.token,), len(verdict.path)

    for (tokens, length), prob in every(one, seed):
        accepted, first = accepted + prob * length, first + prob * (length > 0)
        tails = {tokens[:depth]: prob}
        for _ in range(depth - len(tokens)):
            tails = {t + (x,): c * float(p) for t, c in tails.items() for x, p in enumerate(target(list(t)))}
        for t, c in tails.items():
            out[t] = out.get(t, 0.0) + c
    return out, accepted, first


def target_probs(target, vocab, depth):
    out = {(): 1.0}
    for _ in range(depth):
        out = {t + (x,): c * float(p) for t, c in out.items() for x, p in enumerate(target(list(t)))}
    return out
