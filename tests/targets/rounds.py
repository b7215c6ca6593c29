"""Random rounds on a target, each held against the network's own forward without a cache of ours."""

from __future__ import annotations

import random

import torch
from transformers import DynamicCache

from specviz.core import DraftTree, TreeBuilder, Verdict
from specviz.models.pretrained import cache_argument


class Reference:
    """A transformers network asked plainly: logits [tokens, vocab] and each layer's keys and values [heads,
    tokens, width]."""

    def __init__(self, net):
        self.net = net

    @torch.inference_mode()
    def __call__(self, tokens):
        cache = DynamicCache()  # without a config: full layers, nothing is dropped at a window
        logits = self.net(
            input_ids=torch.tensor([tokens]), use_cache=True, **{cache_argument(self.net): cache}
        ).logits[0]
        return logits, [(layer.keys[0], layer.values[0]) for layer in cache.layers]


def apart(a, b) -> float:
    """Largest difference, in units of the largest value (at least 1): float32 rounds relative to what it
    adds up."""
    return float((a - b).abs().max()) / max(1.0, float(b.abs().max())) if b.numel() else 0.0


def random_tree(source: random.Random, vocab: int, nodes: int, depth: int, probes: int = 0) -> DraftTree:
    """Candidates anywhere under the root, twins allowed, then probes below them."""
    tree, depths = TreeBuilder(), []
    for _ in range(nodes):
        at = source.choice([-1] + [i for i, d in enumerate(depths) if d < depth]) if depth else -1
        tree.add(source.randrange(vocab), at)
        depths.append(1 if at < 0 else depths[at] + 1)
    for _ in range(probes):
        tree.add(source.randrange(vocab), source.randrange(-1, nodes), probe=True)
    return tree.tree()


def score_in_pieces(target, tree: DraftTree, source: random.Random):
    """Score a tree as a drafter grows it: some first nodes, then more, then all."""
    scores = target.score(DraftTree())
    cuts = sorted(source.sample(range(1, len(tree)), min(2, len(tree) - 1))) + [len(tree)]
    before = 0
    for cut in cuts:
        part = DraftTree(
            tree.tokens[:cut],
            tree.parents[:cut],
            tree.draw[:cut],
            probes=frozenset(p for p in tree.probes if p < cut),
        )
        scores = target.score(part, start=before)
        before = cut
    return scores


def play_rounds(
    target, reference, cache_of, poison, rounds: int, seed: int, start: int = 20, pieces: bool = True
):
    """Play random rounds; yields (relative error of logits, of the cache, what happened) for each.

    Full acceptance, full refusal, a cut at an end token inside the draft, a path cut by the length limit,
    rewinds to a shorter or another text, a jump to a longer text and plain steps all occur; stale slots are
    poisoned before every round.
    """
    source, vocab = random.Random(seed), target.vocab
    tokens = [source.randrange(vocab) for _ in range(start)]
    target.sync(tokens)
    for _ in range(rounds):
        if len(tokens) > target.context - 8:
            tokens = tokens[: source.randrange(2, 30)]
            target.sync(tokens)
        poison(target)
        room = target.context - len(tokens)
        tree = random_tree(source, vocab, source.randrange(0, 12), min(5, room - 1), source.randrange(3))
        if source.random() < 0.3:
            tree = DraftTree.chain(tuple(source.randrange(vocab) for _ in range(source.randrange(1, 6))))
        if source.random() < 0.2:  # a tree that is thought better of
            target.score(random_tree(source, vocab, 3, min(2, room - 1)))
        grown = pieces and len(tree) > 1 and source.random() < 0.4
        scores = score_in_pieces(target, tree, source) if grown else target.score(tree)
        assert scores.first_position == len(tokens) - 1 and scores.logits.shape == (len(tree) + 1, vocab)
        path = tree.path(source.choice([i for i in range(-1, len(tree)) if i not in tree.probes]))
        probe = [p for p in sorted(tree.probes) if tree.parents[p] == (path[-1] if path else -1)][:1]
        want, rows = reference(tokens + [tree.tokens[i] for i in path + probe])
        error = apart(scores.logits[[0] + [i + 1 for i in path + probe]], want[len(tokens) - 1 :])
        held = cache_of(target)
        worst = max(
            apart(a, b[:, : len(tokens) - 1]) for have, full in zip(held, rows) for a, b in zip(have, full)
        )
        assert all(k.shape[1] == len(tokens) - 1 for k, _ in held)
        happened = source.choice(["full", "refused", "path", "cut", "synced", "rewound", "jumped"])
        tokens = _continue(target, tokens, tree, path, happened, source)
        yield error, worst, happened


def _continue(target, tokens, tree, path, happened, source):
    vocab = target.vocab
    if happened == "refused":
        path = []
    if happened == "full":
        leaves = [i for i in range(len(tree)) if i not in tree.probes and not tree.children(i)]
        path = tree.path(source.choice(leaves)) if leaves else []
    last = source.randrange(vocab)
    if happened == "cut" and path:  # an end token or the limit: an accepted token is the round's last
        last, path = tree.tokens[path[-1]], path[:-1]
    after = tokens + [tree.tokens[i] for i in path] + [last]
    if happened == "synced":  # as a draft model follows: by tokens, without a verdict
        target.sync(after)
    elif happened == "rewound":
        after = tokens[: source.randrange(1, len(tokens))] + [last]
        target.sync(after)
    elif happened == "jumped":
        after = after[:-1] + [source.randrange(vocab) for _ in range(source.randrange(2, 9))]
        after = after[: target.context]
        target.sync(after)
    else:
        target.commit(Verdict(tuple(path), last, "plain"))
        passes = target.passes
        assert target.sync(after).num_computed == 0 and target.passes == passes
    return after
