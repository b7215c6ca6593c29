"""What stands behind the word "exact": for each method of the catalogue where its greedy equality, its
distribution and its wrong variants are tested. ``python -m tests.exactness.statistical_tests`` prints the
table; test_evidence.py asserts that no cell of it is empty.

The wrong variants are made of the method's own parts: each is one class put in front of the drafter's or
the verifier's, so that the loop, the policy and everything else stay the method's, and the check is the one
that test_distribution makes.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from specviz.core import IID, Drafter, Method, Parts, Sampling
from specviz.targets.fast import FastModel, FastTarget

from . import test_architectures, test_distribution
from .enumeration import distance, joint, probs_of_engine
from .toys import CAPABILITIES, PROMPT, begin, methods, small_knobs, toy_of

LEAST = 1e-3  # a distribution further off than this is caught; a right one is within 1e-12


class Forgives:
    """The residual is forgotten: after a refusal the token is drawn from the target's distribution, so the
    refused one has two chances."""

    def verify(self, tree, scores, state):
        verdict = super().verify(tree, scores, replace(state, rng=Quiet(state.rng)))
        if verdict.kind == "accepted":  # nothing was drawn
            return verdict
        probs = state.sampling.probs(scores.logits[verdict.path[-1] + 1 if verdict.path else 0])
        return replace(verdict, token=state.rng.pick("verify", probs), probs=probs)


class Boasts:
    """What is proposed says that it was drawn from another distribution: a drawn token from one nearer to
    even, a chosen one from an even one."""

    def propose(self, state, budget):
        tree = super().propose(state, budget)
        return tree if self.proposes_in_steps() else self.boasted(tree)

    def steps(self, state, budget):
        tree = yield from super().steps(state, budget)
        return self.boasted(tree) if self.proposes_in_steps() else tree

    def proposes_in_steps(self):
        return (
            type(self).__mro__[2].steps is not Drafter.steps
        )  # then propose goes through them, else they through it

    def boasted(self, tree):
        if not len(tree):
            return tree
        vocab = self.vocab_of_the_toy
        even = torch.full((1, vocab), 1 / vocab, dtype=torch.float64)
        distributions = even if tree.probs is None else torch.cat([(tree.probs.double() + even) / 2, even])
        draw = tuple(
            len(distributions) - 1 if k < 0 and i not in tree.probes else k for i, k in enumerate(tree.draw)
        )
        return replace(tree, probs=distributions, draw=draw, drawn=(*tree.drawn, IID))


class Cools:
    """The target's distribution is taken at half the temperature."""

    def verify(self, tree, scores, state):
        return super().verify(
            tree,
            scores,
            replace(state, sampling=replace(state.sampling, temperature=state.sampling.temperature / 2)),
        )


class Quiet:
    """Random streams whose last pick is made by somebody else."""

    def __init__(self, rng):
        self._rng = rng

    def pick(self, stream, probs):
        return int(probs.argmax())

    def __getattr__(self, name):
        return getattr(self._rng, name)


WRONG = {
    "residual forgotten": ("verifier", Forgives),
    "another distribution claimed": ("drafter", Boasts),
    "wrong temperature": ("verifier", Cools),
}


def spoiled(parts: Parts, wrong: str, vocab: int) -> Parts:
    """The same parts, one of them wrong."""
    which, mixin = WRONG[wrong]
    part = getattr(parts, which)
    part.__class__ = type(mixin.__name__, (mixin, type(part)), {"vocab_of_the_toy": vocab})
    return parts


def drafts(method: Method) -> bool:
    return method.key != "autoregressive"


def wrongs(method: Method) -> list[str]:
    """The variants that say something about a method: without a draft there is neither a refusal nor a
    claim."""
    return list(WRONG) if drafts(method) else ["wrong temperature"]


def off(method: Method, wrong: str | None, warm: int, count: int, vocab: int = 3) -> float:
    """How far the distribution of ``count`` tokens is from the target's, as test_distribution measures it;
    ``wrong`` None: of the method as it is."""
    kit, sampling = toy_of(method, vocab, share=0.5, sharp=0.8), Sampling(1.0)
    parts = method.build(kit, **small_knobs(method)[0])
    parts = spoiled(parts, wrong, vocab) if wrong else parts
    state = begin(parts, kit, sampling, count, warm, prompt=[token % vocab for token in PROMPT])
    want = joint(kit.net.logits, state.tokens, count, sampling, vocab)
    probs, _ = probs_of_engine(parts, kit.target, state, count, shared=(kit.net, kit.small))
    return distance(probs, want)


def caught(method: Method, wrong: str) -> float:
    """How far a wrong variant is off on the first toy that tells: a new run or an older one, two tokens or
    three."""
    far = 0.0
    for count, warm in ((2, 0), (2, 2), (3, 0), (3, 2)):
        far = max(far, off(method, wrong, warm, count))
        if far > LEAST:
            break
    return far


def architectures(method: Method) -> list[str]:
    """The real networks on which test_architectures plays the method greedily. What only some of
    transformers' lend is left out, so there may be more."""
    at, found = [m.key for m in test_architectures.METHODS].index(method.key), []
    for kind, (name, model) in enumerate(test_architectures.KINDS):
        offered = CAPABILITIES | (FastTarget.capabilities if model is FastModel else {"tree", "rewind"})
        if method.needs <= offered and test_architectures.takes(kind, at):
            found.append(f"{name} ({model.__name__.removesuffix('Model')})")
    return found


def settings(params, key: str) -> int:
    """How many of a test's cases are about a method."""
    return sum(case.values[0].key == key for case in params)


def main() -> None:
    print(
        "| method | greedy, on networks | distribution, settings enumerated | wrong variants: how far off |\n|---|---|---|---|"
    )
    for method in methods("exact"):
        reported = "; ".join(f"{wrong} {caught(method, wrong):.3f}" for wrong in wrongs(method))
        print(
            f"| {method.key} | {', '.join(architectures(method))} | {settings(test_distribution.EXACT, method.key)} | {reported} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
