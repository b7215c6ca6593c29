"""Every way a run of the real engine can go, with its probability: the distribution of the output, exactly.

The random numbers are scripted: each decision takes the outcome the plan names, and asks for a new one
where the plan ends. Between rounds the whole run (parts, target, cache, state) is copied, so that rounds
two runs share are played once.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Hashable, Iterator

import torch

from specviz.core import Parts, Sampling, State

from .toys import player

Distribution = dict[Hashable, float]
NOTHING = 1e-14  # outcomes less likely than this are left out


class Script:
    """Random streams that replay a plan of outcomes; ``chance`` is the probability of what was replayed."""

    def __init__(self, plan: list[int]):
        self.plan = plan
        self.sizes = []
        self.prob = 1.0
        self.last: list[tuple] = []  # the outcomes of the decision taken last, when a verifier drew a token

    def pick(self, stream: str, probs) -> int:
        assert abs(float(probs.sum()) - 1) < 1e-5, "a distribution must sum to one"
        options = [(i, p) for i, p in enumerate(probs.tolist()) if p > NOTHING]
        token = self._take(options)
        self.last = options if stream == "verify" else []
        return token

    def all_of_last(self) -> list[tuple]:
        """The outcomes of the decision taken last, this one among them; the others will not be played any
        more."""
        if len(self.last) > 1:
            self.sizes[-1] = self.plan[len(self.sizes) - 1] + 1
        return self.last

    def flip(self, stream: str, accept: float) -> tuple[bool, None]:
        assert 0 <= accept <= 1 + 1e-9
        self.last = []
        return self._take([(ok, p) for ok, p in ((True, accept), (False, 1 - accept)) if p > NOTHING]), None

    def uniform_tensor(self, stream: str, shape: tuple[int, ...], device="cpu"):
        """Bulk uniforms are not enumerated: the same numbers in every plan, for methods whose distribution
        is exact whatever they are."""
        self.drawn = getattr(self, "drawn", 0) + 1
        return torch.rand(shape, generator=torch.Generator().manual_seed(self.drawn), dtype=torch.float64)

    def _take(self, options: list[tuple]):
        at = len(self.sizes)
        if len(options) == 1:
            self.prob *= options[0][1]
            return options[0][0]
        if at == len(self.plan):
            self.plan.append(0)
        self.sizes.append(len(options))
        outcome, prob = options[self.plan[at]]
        self.prob *= prob
        return outcome


def every(run: Callable[[Script], object]) -> Iterator[tuple[object, float]]:
    """(result, probability) of each way run(random numbers) can go."""
    plan: list[int] = []
    while True:
        rng = Script(plan)
        result = run(rng)
        yield result, rng.prob
        plan = rng.plan[: len(rng.sizes)]
        while plan and plan[-1] + 1 == rng.sizes[len(plan) - 1]:
            plan.pop()
        if not plan:
            return
        plan[-1] += 1


def probs_of(run: Callable[[Script], Hashable]) -> Distribution:
    out: Distribution = {}
    for result, prob in every(run):
        out[result] = out.get(result, 0.0) + prob
    return out


class TooMany(RuntimeError):
    """A run has more endings than the test has time for."""


def probs_of_engine(
    parts: Parts,
    target,
    state: State,
    count: int,
    after_round=lambda target, state, outcome, prob: None,
    shared=(),
    most: int = 10**9,
) -> tuple[Distribution, int]:
    """The distribution of the next ``count`` tokens of a run, and how many endings it has.

    The run is opened already. after_round is called once for each way a round can end; ``shared``: objects
    (weights) that the copies have in common. Raises TooMany beyond ``most`` endings.
    """
    first = len(state.tokens)
    probs = {}
    endings = 0
    keep = {id(x): x for x in shared}

    def go(run, prob):
        nonlocal endings
        if len(run[2].tokens) - first >= count or run[2].done:
            add(run[2].tokens, prob)
            return

        def once(rng):
            with torch.inference_mode(False):  # weights that learn are copied as such
                parts, target, state = again = copy.deepcopy(run, dict(keep))
            state.rng = rng
            outcome = player(parts)(parts, target, state)
            state.rng, drawn = None, dict(rng.last)
            if (
                len(state.tokens) - first < count
                or outcome.verdict.token not in drawn
                or outcome.verdict.kind == "accepted"
            ):
                after_round(target, state, outcome, prob * rng.prob)
                return again
            # nothing follows, so the last token's distribution is counted whole instead of token by token
            before = prob * rng.prob / drawn[outcome.verdict.token]
            after_round(target, state, outcome, before)
            for token, odds in rng.all_of_last():
                add([*state.tokens[:-1], token], before * odds)
            return None

        for again, odds in every(once):
            if again is not None:
                go(again, prob * odds)

    def add(tokens, prob):
        nonlocal endings
        tail = tuple(tokens[first : first + count])
        probs[tail], endings = probs.get(tail, 0.0) + prob, endings + 1
        if endings > most:
            raise TooMany(f"more than {most} endings")

    state.rng = None
    go((parts, target, state), 1.0)
    return probs, endings


def joint(
    logits: Callable, prompt: list[int], count: int, sampling: Sampling, vocab: int, stop=frozenset()
) -> Distribution:
    """What plain decoding writes: the distribution of ``count`` tokens, shorter where an end token comes.
    logits(tokens) -> all rows."""
    out: Distribution = {}
    for tail in itertools.product(range(vocab), repeat=count):
        distributions = sampling.probs(logits([*prompt, *tail]))[len(prompt) - 1 :]
        prob, end = 1.0, count
        for i, token in enumerate(tail):
            prob *= float(distributions[i, token])
            if token in stop:
                end = i + 1
                break
        if any(tail[end:]):  # one of the continuations after the end stands for all
            continue
        out[tail[:end]] = out.get(tail[:end], 0.0) + prob
    return out


def distance(a: Distribution, b: Distribution) -> float:
    """Total variation."""
    return 0.5 * sum(abs(a.get(k, 0.0) - b.get(k, 0.0)) for k in {*a, *b})
