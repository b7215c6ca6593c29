"""Many requests in one loop: each is drafted for and judged by its own parts, and all their trees are scored in one pass.

A request joins between two rounds and leaves when it is done; none waits for another's tokens, because rows are packed and not
padded (BASS, Qian et al. 2404.15778; EMS-SD, Ni et al. 2405.07542). Each keeps its own dice and cache, so that it writes what it
writes alone. ``alone`` is the same loop for a single request.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterable, Iterator, Sequence

from ..core import (Budget, Clock, DraftTree, JointPolicy, Outcome, Parts, Pass, Proposal, Scores, State, Target, clip, conclude, open_run,
                    within)
from ..trace.events import Event, Prefilled, tell
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
    share the first one's. ``joint``: where these are kept, for a next batch that is to go on with what they have learned."""

    def __init__(self, clock: Clock | None = None, joint: dict[type, JointPolicy] | None = None):
        self.clock, self.requests = clock or Clock(), []
        self._joint: dict[type, JointPolicy] = {} if joint is None else joint

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
        budgets: list[Budget | None] = [None] * len(live)
        for policy, members in groups:
            for i, budget in zip(members, policy.plan_all([live[i].state for i in members]) if members else ()):
                budgets[i] = budget
        budgets = [within(r.parts.policy.plan(r.state) if b is None else b, r.target, r.state) for r, b in zip(live, budgets)]
        t1 = now()
        trees = draft_all(live, budgets)
        for policy, members in groups:
            for i, tree in zip(members, policy.share([live[i].state for i in members], [trees[i] for i in members]) if members else ()):
                trees[i] = tree
        t2 = now()
        scores = score_all([Pass(request.target, tree) for request, tree in zip(live, trees)])
        t3 = now()
        outcomes = []
        for request, budget, tree, scored in zip(live, budgets, trees, scores):
            # who is in a batch waits for all of its drafts and for its pass: these are each one's seconds
            mine = Proposal(budget, tree, t0, t1 - t0, t2 - t1)
            outcomes.append(conclude(request.parts, request.target, request.state, mine, scored, t3 - t2))
        for policy, members in groups:
            if members:
                policy.learn_all([live[i].state for i in members], [outcomes[i] for i in members])
        return list(zip(live, outcomes))


def draft_all(live: Sequence[Request], budgets: Sequence[Budget]) -> list[DraftTree]:
    """Everybody's draft, clipped. Drafters that draft in steps take them together: the n-th of each is one pass of their model."""
    under_way = {i: r.parts.drafter.steps(r.state, budget) for i, (r, budget) in enumerate(zip(live, budgets))}
    scores: dict[int, Scores | None] = dict.fromkeys(under_way)
    trees: dict[int, DraftTree] = {}
    while under_way:
        asked = {}
        for i, steps in [*under_way.items()]:
            try:
                asked[i] = steps.send(scores[i])
                while asked[i].alone:  # what is quicker by itself is not quicker than one pass for all
                    asked[i] = steps.send(asked[i].run() if len(live) == 1 else None)
            except StopIteration as over:
                trees[i] = clip(over.value, live[i].state)
                asked.pop(i, None)
                del under_way[i]
        scores = dict(zip(asked, score_all([*asked.values()])))
    return [trees[i] for i in range(len(live))]


def score_all(passes: Sequence[Pass]) -> list[Scores]:
    """The scores of each, those of the same weights in one pass where their targets can; else one after the other."""
    groups: dict[Any, list[int]] = {}
    for i, asked in enumerate(passes):
        groups.setdefault(asked.model.weights if "batch" in asked.model.capabilities else i, []).append(i)
    out: dict[int, Scores] = {}
    for members in groups.values():
        mine = [passes[i] for i in members]
        if len(mine) == 1:
            out[members[0]] = mine[0].run()
            continue
        models = [asked.model for asked in mine]
        out |= zip(members, models[0].score_many(models, [asked.tree for asked in mine], [asked.start for asked in mine]))
    return [out[i] for i in range(len(passes))]


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


class Among:
    """The loop of one request that shares its passes with others. The events are its own; a note says how far everybody is.

    others: (parts, target, state) of each, whose prompts are read together with this one's; names: what each prompt is called, this
    one's first. The run ends with this request; whoever is done before it leaves.
    """

    def __init__(self, others: Sequence[tuple[Parts, Target, State]], names: Sequence[str]):
        self.others, self.names = others, list(names)

    def __call__(self, parts: Parts, target: Target, state: State) -> Iterator[Event]:
        batch, t0 = Batch(state.clock), state.clock.now()
        mine, prefill = batch.join(parts, target, state)
        everybody = [mine, *(batch.join(*other)[0] for other in self.others)]
        state.clock.pause()
        yield Prefilled(t0, state.clock.now(), prefill.num_computed or len(prefill.logits))
        state.clock.resume()
        yield from told(self._rounds(batch, everybody), state)

    def _rounds(self, batch: Batch, everybody: list[Request]) -> Iterator[Iterable[Event]]:
        state, began = everybody[0].state, batch.clock.now()
        while not state.done:
            outcomes = dict(batch.round())
            for request in everybody[1:]:
                request.state.notes.clear()
            state.note("class", prompts=self.names, written=[len(r.state.tokens) - r.state.start for r in everybody],
                       rows=[1 + len(outcomes[r].tree) if r in outcomes else 0 for r in everybody],
                       done=[r.state.done for r in everybody], seconds=round(batch.clock.now() - began, 6))
            yield tell(outcomes[everybody[0]], state)


alone = Alone()
