"""Many requests in one loop: each is drafted for and judged by its own parts, and all their trees are scored in one pass.

A request joins between two rounds and leaves when it is done; none waits for another's tokens, because rows are packed and not
padded (BASS, Qian et al. 2404.15778; EMS-SD, Ni et al. 2405.07542). Each keeps its own dice and cache, so that it writes what it
writes alone. ``alone`` is the same loop for a single request.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, Iterator

from ..core import Clock, DraftTree, JointPolicy, Outcome, Parts, Proposal, Scores, State, Target, conclude, open_run, propose
from ..trace.events import Event, tell
from .speculate import opening, told

OWN_LAYERS = frozenset({"early", "skip", "fuzzy"})


def why_not_batched(parts: Parts) -> str | None:
    """Why these parts cannot share passes with other requests, as the end of a sentence; None where they can."""
    if parts.loop is not None and not isinstance(parts.loop, Alone):
        return "plays its rounds in a loop of its own"
    if parts.drafter.needs & OWN_LAYERS:
        return "drafts with the target's own layers, which would run for each request by itself"
    return None


@dataclass(eq=False)
class Request:
    """One request of a batch. ``target``: its own cache, over the weights that the batch shares."""

    parts: Parts
    target: Target
    state: State


class Batch:
    """Requests that decode together, on one clock. Not for requests of different methods where their policies are joint: these
    share the first one's."""

    def __init__(self, clock: Clock | None = None):
        self.clock, self.requests = clock or Clock(), []
        self._joint: dict[type, JointPolicy] = {}

    def join(self, parts: Parts, target: Target, state: State) -> tuple[Request, Scores]:
        """Prefill a request and take it in; it plays from the next round on. Raises ValueError for parts that cannot be batched."""
        reason = why_not_batched(parts)
        if reason:
            raise ValueError(f"a method cannot be batched that {reason}")
        state.clock = self.clock
        prefill = open_run(parts, target, state)
        return self.take(parts, target, state), prefill

    def take(self, parts: Parts, target: Target, state: State) -> Request:
        """Take in a request whose prompt is read already."""
        if isinstance(parts.policy, JointPolicy):
            parts = replace(parts, policy=self._joint.setdefault(type(parts.policy), parts.policy))
        self.requests.append(Request(parts, target, state))
        return self.requests[-1]

    def leave(self, request: Request) -> None:
        """Take a request out, done or not; its cache stays its own."""
        self.requests.remove(request)

    def round(self) -> list[tuple[Request, Outcome]]:
        """One round of all requests that are not done."""
        live, now = [request for request in self.requests if not request.state.done], self.clock.now
        if not live:
            return []
        t0 = now()
        groups = [(policy, [i for i, r in enumerate(live) if r.parts.policy is policy]) for policy in self._joint.values()]
        budgets = [None] * len(live)
        for policy, members in groups:
            for i, budget in zip(members, policy.plan_all([live[i].state for i in members]) if members else ()):
                budgets[i] = budget
        t1 = now()
        proposals = [propose(r.parts, r.target, r.state, budget) for r, budget in zip(live, budgets)]
        trees = [proposal.tree for proposal in proposals]
        for policy, members in groups:
            for i, tree in zip(members, policy.share([live[i].state for i in members], [trees[i] for i in members]) if members else ()):
                trees[i] = tree
        t2 = now()
        scores = score_all(live, trees)
        t3 = now()
        outcomes = []
        for request, proposal, tree, scored in zip(live, proposals, trees, scores):
            # who is in a batch waits for all of its drafts and for its pass: these are each one's seconds
            mine = Proposal(proposal.budget, tree, t0, t1 - t0, t2 - t1)
            outcomes.append(conclude(request.parts, request.target, request.state, mine, scored, t3 - t2))
        for policy, members in groups:
            if members:
                policy.learn_all([live[i].state for i in members], [outcomes[i] for i in members])
        return list(zip(live, outcomes))


def score_all(live: list[Request], trees: list[DraftTree]) -> list[Scores]:
    """The trees' scores, in one pass where the target can; else one after the other."""
    targets = [request.target for request in live]
    if len(live) > 1 and all("batch" in target.provides for target in targets):
        return targets[0].score_many(targets, trees)
    return [target.score(tree) for target, tree in zip(targets, trees)]


class Alone:
    """The loop of a batched method for one request: a batch of one."""

    def __call__(self, parts: Parts, target: Target, state: State) -> Iterator[Event]:
        yield from opening(parts, target, state)
        yield from told(self._rounds(parts, target, state), state)

    def _rounds(self, parts: Parts, target: Target, state: State) -> Iterator[Iterable[Event]]:
        while not state.done:
            yield tell(self.round(parts, target, state), state)

    def round(self, parts: Parts, target: Target, state: State) -> Outcome:
        """One round of the only request."""
        batch = Batch(state.clock)
        batch.take(parts, target, state)
        return batch.round()[0][1]


alone = Alone()
