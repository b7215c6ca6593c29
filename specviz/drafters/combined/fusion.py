"""Combine the drafts of several drafters: merge them into one tree (RASD, Quan et al. 2503.03434), or use the first
drafter that proposes something (the hybrids of SAM-Decoding, Hu et al. 2411.10666; CopySpec, Dumitru et al. 2502.08923;
and SuffixDecoding, Oliaro et al. 2411.04975)."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder, never_stop
from ...core.errors import InvalidUse


def fuse(trees: Sequence[DraftTree]) -> DraftTree:
    """Return the union of draft trees under one root; see ``join``."""
    return join(trees)[0]


def join(trees: Sequence[DraftTree]) -> tuple[DraftTree, list[tuple[int, ...]]]:
    """Return the union of trees under one root, valid for every verifier that accepts each of them, and the source trees of each node.

    A sampled node stays a separate node with its distribution, before all deterministic siblings: duplicate sampled siblings are two
    proposals. A deterministic node is merged with an equal sibling of an earlier tree. Raises ValueError for trees with probes or
    entries.
    """
    if any(tree.probes or tree.inputs for tree in trees):
        raise InvalidUse("a tree with probes cannot be fused", "fusion.probes")
    build = TreeBuilder()
    offset = [0]
    for tree in trees:
        for label, probs in zip(tree.drawn, () if tree.probs is None else tree.probs):
            build.begin(probs, label)
        offset.append(len(build.drawn))
    groups: list[tuple[int, list]] = [(-1, [(i, -1) for i in range(len(trees))])]  # (node of the union, source nodes merged into it)
    for node, members in groups:
        children = [(i, child) for i, member in members for child in trees[i].children(member)]
        joined: dict[int, list] = {}
        for i, child in children:
            if trees[i].draw[child] >= 0:
                group = [(i, child)]
                new = build.add(trees[i].tokens[child], node, trees[i].draw[child] + offset[i], origin=_origin(trees[i], child))
                joined.setdefault(trees[i].tokens[child], group)
                groups.append((new, group))
        for i, child in children:
            token = trees[i].tokens[child]
            if trees[i].draw[child] < 0 and token in joined:
                joined[token].append((i, child))
            elif trees[i].draw[child] < 0:
                joined[token] = [(i, child)]
                groups.append((build.add(token, node, origin=_origin(trees[i], child)), joined[token]))
    owners = dict(groups)
    return build.tree(), [tuple(sorted({i for i, _ in owners[node]})) for node in range(len(build))]


def _origin(tree: DraftTree, node: int):
    return tree.origin[node] if node < len(tree.origin) else None


class MultiDrafter(Drafter):
    """Base class of drafters that run several drafters on the same text."""

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
    """Propose the union of the drafts of all drafters."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return fuse([drafter.propose(state, budget) for drafter in self.drafters])


class FirstSufficientDraft(MultiDrafter):
    """Use the first drafter that proposes at least ``enough`` nodes; if none does, the last one."""

    def __init__(self, *drafters: Drafter, enough: int = 1):
        super().__init__(*drafters)
        self.enough = enough

    def propose(self, state: State, budget: Budget) -> DraftTree:
        for place, drafter in enumerate(self.drafters):
            tree = drafter.propose(state, budget)
            if len(tree) >= self.enough or place == len(self.drafters) - 1:
                state.note("arm", arm=place, of=len(self.drafters))
                return tree
        return DraftTree()


class BudgetLimited(MultiDrafter):
    """Run a drafter with a budget of its own, within that of the round."""

    def __init__(self, drafter: Drafter, own: Budget):
        super().__init__(drafter)
        self.own = own

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.drafters[0].propose(state, within(budget, self.own))


class LookupOrDraft(MultiDrafter):
    """Use the lookup's draft if its match (``lookup.matched``) has at least ``match`` tokens, else the other drafter within its own
    budget."""

    def __init__(self, lookup: Any, other: Drafter, match: int, own: Budget):
        super().__init__(lookup, BudgetLimited(other, own))
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


def within(budget: Budget, own: Budget) -> Budget:
    """Limit the round's budget to another budget's sizes; the other one's stop function replaces the round's if it has one."""
    return replace(budget, gamma=min(budget.gamma, own.gamma), width=min(budget.width, own.width), nodes=min(budget.nodes, own.nodes),
                   stop=budget.stop if own.stop is never_stop else own.stop)
