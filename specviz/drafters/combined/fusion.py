"""Combine the drafts of several drafters: merge them into one tree (RASD, Quan et al. 2503.03434), or use
the first drafter that proposes something (the hybrids of SAM-Decoding, Hu et al. 2411.10666; CopySpec,
Dumitru et al. 2502.08923; and SuffixDecoding, Oliaro et al. 2411.04975)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder, never_stop
from ...core.errors import InvalidUse


def merge_trees(trees: Sequence[DraftTree]) -> DraftTree:
    """Return the union of draft trees under one root; see ``merge_trees_with_sources``."""
    return merge_trees_with_sources(trees)[0]


def merge_trees_with_sources(trees: Sequence[DraftTree]) -> tuple[DraftTree, list[tuple[int, ...]]]:
    """Return the union of draft trees under one root, and for each of its nodes the indices of the trees
    that contain it. A verifier that is exact for each tree is exact for the union.

    A sampled node stays a separate node with its distribution, before all chosen siblings, also if a
    sibling has the same token. A chosen node is merged with a sibling with the same token of an earlier
    tree. Raises InvalidUse, a ValueError, for trees with nodes that are no candidates
    (``DraftTree.probes``) or that enter as hidden states (``DraftTree.inputs``).
    """
    if any(tree.probes or tree.inputs for tree in trees):
        raise InvalidUse("a tree with probes cannot be fused", "fusion.probes")
    builder = TreeBuilder()
    offset = [0]
    for tree in trees:
        for label, probs in zip(tree.drawn, () if tree.probs is None else tree.probs):
            builder.begin(probs, label)
        offset.append(len(builder.drawn))
    groups: list[tuple[int, list]] = [
        (-1, [(i, -1) for i in range(len(trees))])
    ]  # (node of the union, source nodes merged into it)
    for node, members in groups:
        children = [(i, child) for i, member in members for child in trees[i].children(member)]
        joined: dict[int, list] = {}
        for i, child in children:
            if trees[i].draw[child] >= 0:
                group = [(i, child)]
                new = builder.add(
                    trees[i].tokens[child],
                    node,
                    trees[i].draw[child] + offset[i],
                    origin=_origin(trees[i], child),
                )
                joined.setdefault(trees[i].tokens[child], group)
                groups.append((new, group))
        for i, child in children:
            token = trees[i].tokens[child]
            if trees[i].draw[child] < 0 and token in joined:
                joined[token].append((i, child))
            elif trees[i].draw[child] < 0:
                joined[token] = [(i, child)]
                groups.append((builder.add(token, node, origin=_origin(trees[i], child)), joined[token]))
    owners = dict(groups)
    return builder.tree(), [tuple(sorted({i for i, _ in owners[node]})) for node in range(len(builder))]


def _origin(tree: DraftTree, node: int):
    return tree.origin[node] if node < len(tree.origin) else None


class MultiDrafter(Drafter):
    """Base class of drafters that run several drafters on the same text: it starts all of them and lets all
    of them observe."""

    def __init__(self, *drafters: Drafter):
        self.drafters = drafters
        self.hidden_states = frozenset().union(*(d.hidden_states for d in drafters))
        self.needs = frozenset().union(*(d.needs for d in drafters))
        self.restartable = all(d.restartable for d in drafters)

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        for drafter in self.drafters:
            drafter.start(state, target, prefill)

    def observe(self, state: State, outcome: Outcome) -> None:
        for drafter in self.drafters:
            drafter.observe(state, outcome)


class DraftUnion(MultiDrafter):
    """Drafter that proposes the union of the trees of several drafters."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return merge_trees([drafter.propose(state, budget) for drafter in self.drafters])


class FirstSufficientDraft(MultiDrafter):
    """Drafter that asks several drafters in order and uses the first draft with at least ``enough`` nodes,
    else the last one's. The notes of a draft that is not used are dropped with it."""

    def __init__(self, *drafters: Drafter, enough: int = 1):
        super().__init__(*drafters)
        self.enough = enough

    def propose(self, state: State, budget: Budget) -> DraftTree:
        for place, drafter in enumerate(self.drafters):
            before = len(state.notes)
            tree = drafter.propose(state, budget)
            if len(tree) >= self.enough or place == len(self.drafters) - 1:
                state.note("arm", arm=place, of=len(self.drafters))
                return tree
            if len(tree):
                del state.notes[before:]
        return DraftTree()


class LongMatches(MultiDrafter):
    """Drafter that keeps the drafts of ``lookup`` that continue at least ``match`` equal tokens of context
    (``lookup.matched``, as here), and drops the others with their notes."""

    def __init__(self, lookup: Any, match: int):
        super().__init__(lookup)
        self.lookup, self.match = lookup, match

    @property
    def matched(self) -> int:
        """Number of context tokens that matched before the last proposal."""
        return self.lookup.matched

    def propose(self, state: State, budget: Budget) -> DraftTree:
        before = len(state.notes)
        tree = self.lookup.propose(state, budget)
        if self.matched >= self.match:
            return tree
        del state.notes[before:]
        return DraftTree()


class BudgetLimited(MultiDrafter):
    """Drafter that runs another drafter with the round's budget limited to ``limits``; see
    ``limit_budget``."""

    def __init__(self, drafter: Drafter, limits: Budget):
        super().__init__(drafter)
        self.limits = limits

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.drafters[0].propose(state, limit_budget(budget, self.limits))


class LookupOrDraft(MultiDrafter):
    """Drafter that uses the draft of ``lookup`` if the match it was copied from has at least ``match``
    tokens (``lookup.matched``), else that of the drafter ``other``, with the round's budget limited to
    ``limits``."""

    def __init__(self, lookup: Any, other: Drafter, match: int, limits: Budget):
        super().__init__(lookup, BudgetLimited(other, limits))
        self.lookup, self.match = lookup, match

    def propose(self, state: State, budget: Budget) -> DraftTree:
        lookup, other = self.lookup, self.drafters[1]
        before = len(state.notes)
        tree = lookup.propose(state, budget)
        sure = len(tree) > 0 and lookup.matched >= self.match
        if not sure:
            del state.notes[before:]
            tree = other.propose(state, budget)
        state.note("arm", arm=int(not sure), of=2)
        return tree


def limit_budget(budget: Budget, limits: Budget) -> Budget:
    """Return the round's budget with gamma, width and nodes limited to those of ``limits``. The stop
    function is that of ``limits`` if it has one."""
    return replace(
        budget,
        gamma=min(budget.gamma, limits.gamma),
        width=min(budget.width, limits.width),
        nodes=min(budget.nodes, limits.nodes),
        stop=budget.stop if limits.stop is never_stop else limits.stop,
    )
