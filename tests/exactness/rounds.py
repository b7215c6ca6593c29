"""One round without a network: distributions from a table, a tree drawn honestly on a given shape, a
verifier, the distribution of what comes out."""

from __future__ import annotations

import itertools
import random

import torch

from specviz.core import CHOSEN, WITHOUT_REPLACEMENT, DraftTree, Sampling, Scores, State, TreeBuilder, Verdict

from .enumeration import Distribution, every
from .toys import random_probs

FREE = Sampling(1.0)
Groups = tuple[
    tuple[str, int], ...
]  # siblings: (how, how many) one after the other, e.g. (("iid", 1), ("chosen", 2))


class World:
    """Random distributions of target and draft after every prefix; ``zeros`` tokens of each are
    impossible."""

    def __init__(self, vocab: int, seed: int = 0, zeros: int = 0):
        self.vocab = vocab
        self.seed = seed
        self.zeros = zeros
        self._known: dict[tuple, torch.Tensor] = {}

    def target(self, prefix) -> torch.Tensor:
        return self._probs("target", tuple(prefix))

    def draft(self, prefix, which: int = 0) -> torch.Tensor:
        """Every group of siblings has a draft of its own."""
        return self._probs(f"draft {which}", tuple(prefix))

    def _probs(self, who, prefix):
        if (who, prefix) not in self._known:
            self._known[who, prefix] = random_probs(
                random.Random(f"{self.seed}/{who}/{prefix}"), self.vocab, self.zeros
            )
        return self._known[who, prefix]


class Stationary(World):
    """The same two distributions everywhere: the reference's golden numbers are for these."""

    def __init__(self, p, q):
        super().__init__(len(p))
        self.p, self.q = (torch.tensor(x, dtype=torch.float64) for x in (p, q))

    def target(self, prefix):
        return self.p

    def draft(self, prefix, which=0):
        return self.q


def grow(world: World, shape: tuple[Groups, ...], state: State) -> DraftTree:
    """A tree with shape[d] under every node of depth d, each token drawn from (or chosen by) the world's
    draft."""
    build, level = TreeBuilder(), [(-1, ())]
    for groups in shape:
        below = []
        for parent, prefix in level:
            for which, (how, count) in enumerate(groups):
                below += siblings(build, parent, prefix, how, count, world.draft(prefix, which), state)
        level = below
    return build.tree()


def siblings(build, parent, prefix, how, count, probs, state):
    draw = -1 if how == CHOSEN else build.begin(probs, how)
    tokens = probs.topk(count).indices.tolist() if how == CHOSEN else []
    for _ in range(count if how != CHOSEN else 0):
        if float(probs.sum()) <= 0:
            break
        tokens.append(state.rng.pick("draft", probs / probs.sum()))
        if how == WITHOUT_REPLACEMENT:
            probs = probs.clone()
            probs[tokens[-1]] = 0
    return [(build.add(token, parent, draw), (*prefix, token)) for token in tokens]


def score(world: World, tree: DraftTree) -> Scores:
    prefixes = [()] + [tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree))]
    return Scores(torch.stack([world.target(prefix).log() for prefix in prefixes]))


def play_once(world: World, shape, verifier, rng, draw=grow) -> tuple[DraftTree, Verdict]:
    state = State([0], FREE, rng)
    tree = draw(world, shape, state)
    verifier.check(tree)
    return tree, verifier.verify(tree, score(world, tree), state)


def probs_of_round(world: World, shape, verifier, draw=grow) -> tuple[Distribution, float, int]:
    """The distribution of the first len(shape) + 1 tokens when the round's output is continued by the
    target itself; draft tokens expected to be accepted; how many ways the round can end."""
    written: Distribution = {}
    accepted, endings = 0.0, 0
    for (tree, verdict), prob in every(lambda rng: play_once(world, shape, verifier, rng, draw)):
        tokens = (*(tree.tokens[i] for i in verdict.path), verdict.token)
        written[tokens] = written.get(tokens, 0.0) + prob
        accepted, endings = accepted + prob * len(verdict.path), endings + 1
    probs: Distribution = {}
    for tokens, prob in written.items():
        for tail in itertools.product(range(world.vocab), repeat=len(shape) + 1 - len(tokens)):
            whole = tokens + tail
            odds = prob * product(world, whole, len(tokens))
            probs[whole] = probs.get(whole, 0.0) + odds
    return probs, accepted, endings


def target_probs(world: World, count: int) -> Distribution:
    return {whole: product(world, whole, 0) for whole in itertools.product(range(world.vocab), repeat=count)}


def product(world: World, tokens, first: int) -> float:
    odds = 1.0
    for i in range(first, len(tokens)):
        odds *= float(world.target(tokens[:i])[tokens[i]])
    return odds
