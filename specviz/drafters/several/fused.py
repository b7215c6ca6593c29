"""Several drafters for one round: one tree of all (RASD, Quan et al. 2503.03434), or the first that has something to say
(the hybrid of SAM-Decoding, Hu et al. 2411.10666; of CopySpec, Dumitru et al. 2502.08923; of SuffixDecoding, Oliaro et al.
2411.04975).
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Sequence

from ...core import Budget, Drafter, DraftTree, Outcome, Scores, State, Target, TreeBuilder, never


def fuse(trees: Sequence[DraftTree]) -> DraftTree:
    """The union of trees under one root; see ``join``."""
    return join(trees)[0]


def join(trees: Sequence[DraftTree]) -> tuple[DraftTree, list[tuple[int, ...]]]:
    """The union of trees under one root, lawful for every verifier that judges each; and which trees each node stands for.

    A drawn node stays a node of its own, with its law, before all chosen siblings: two drawn twins are two proposals. A chosen
    node joins an equal sibling, drawn or chosen, of an earlier tree; its children go on below it. Trees with probes or entries
    are not taken (ValueError).
    """
    if any(tree.probes or tree.inputs for tree in trees):
        raise ValueError("a tree with probes cannot be fused")
    build = TreeBuilder()
    offset = [0]
    for tree in trees:
        for k, label in enumerate(tree.drawn):
            build.begin(tree.probs[k], label)
        offset.append(len(build.drawn))
    groups: list[tuple[int, list]] = [(-1, [(i, -1) for i in range(len(trees))])]  # node of the union, the nodes that are joined in it
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


class Several(Drafter):
    """Drafters that follow the same run."""

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


class Fused(Several):
    """One tree of everything that is proposed."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return fuse([drafter.propose(state, budget) for drafter in self.drafters])


class Preferred(Several):
    """The proposal of the first drafter that proposes at least ``enough`` nodes; otherwise the last one's."""

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


class Limited(Several):
    """A drafter with a budget of its own below the round's."""

    def __init__(self, drafter: Drafter, own: Budget):
        super().__init__(drafter)
        self.own = own

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return self.drafters[0].propose(state, within(budget, self.own))


class Overridden(Several):
    """The lookup's proposal where at least ``match`` tokens stand behind it, else the other drafter's, in a budget of its own.
    ``lookup`` says in ``matched`` how many there are."""

    def __init__(self, lookup: Any, other: Drafter, match: int, own: Budget):
        super().__init__(lookup, Limited(other, own))
        self.match = match

    def propose(self, state: State, budget: Budget) -> DraftTree:
        lookup, other = self.drafters
        told = len(state.notes)
        tree = lookup.propose(state, budget)
        sure = len(tree) > 0 and lookup.matched >= self.match
        if not sure:
            del state.notes[told:]
            tree = other.propose(state, budget)
        state.note("arm", arm=int(not sure), of=2)
        return tree


def within(budget: Budget, own: Budget) -> Budget:
    """The round's budget, held to another one's sizes, and ended by its stop if it has one."""
    return replace(budget, gamma=min(budget.gamma, own.gamma), width=min(budget.width, own.width), nodes=min(budget.nodes, own.nodes),
                   stop=budget.stop if own.stop is never else own.stop)
