"""Continuous batching: every request drafts and verifies with its own parts, and all draft trees are scored
in one forward pass.

A request joins between two rounds and leaves when it has finished. Tokens are packed without padding, so no
request waits for another one's tokens (BASS, Qian et al. 2404.15778; EMS-SD, Ni et al. 2405.07542). Each
request has its own random streams and KV cache, so its output does not depend on the batch.
``batch_of_one`` is the same loop for a single request.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core import (
    Budget,
    Clock,
    DraftTree,
    ForwardPass,
    JointPolicy,
    Outcome,
    Parts,
    Proposal,
    Scores,
    State,
    Target,
    clip,
    conclude,
    open_run,
    within,
)
from ..core.errors import InvalidUse
from ..trace.events import Event, Prefilled, round_events
from .speculate import emit_rounds, start_run

OWN_LAYERS = frozenset({"early", "skip", "layer_parallel", "draft_path"})


def unbatchable_reason(parts: Parts) -> str | None:
    """Return why a method with these parts cannot share forward passes with other requests, as the end of a
    sentence; None if it can."""
    if parts.loop is not None and not isinstance(parts.loop, BatchOfOne):
        return "has its own decoding loop"
    if parts.drafter.needs & OWN_LAYERS:
        return "drafts with the target's own layers, which run for one request at a time"
    return None


@dataclass(eq=False)
class Request:
    """One request of a batch. target: a target with its own KV cache, over the weights that the batch
    shares."""

    parts: Parts
    target: Target
    state: State


class Batch:
    """Requests that decode together, with one clock. Requests with a joint policy share the policy of the
    first one, so they must use the same method. joint: where these policies are kept, so that the next
    batch can use what they have learned."""

    def __init__(self, clock: Clock | None = None, joint: dict[type, JointPolicy] | None = None):
        self.clock, self.requests = clock or Clock(), []
        self._joint: dict[type, JointPolicy] = {} if joint is None else joint

    def join(self, parts: Parts, target: Target, state: State) -> tuple[Request, Scores]:
        """Prefill a request and add it to the batch; it takes part in rounds from the next one on. Return
        it and the Scores of its prefill. Raises InvalidUse (a ValueError) for parts that cannot be
        batched."""
        reason = unbatchable_reason(parts)
        if reason:
            raise InvalidUse(f"the method cannot be batched: it {reason}", "method.not_batchable")
        state.clock = self.clock
        prefill = open_run(parts, target, state)
        return self.take(parts, target, state), prefill

    def take(self, parts: Parts, target: Target, state: State) -> Request:
        """Add a request whose prompt is already prefilled, and return it."""
        if isinstance(parts.policy, JointPolicy):
            parts = replace(parts, policy=self._joint.setdefault(type(parts.policy), parts.policy))
        self.requests.append(Request(parts, target, state))
        return self.requests[-1]

    def leave(self, request: Request) -> None:
        """Remove a request, finished or not. Its KV cache is not freed."""
        self.requests.remove(request)

    def round(self, requests: Sequence[Request] | None = None) -> list[tuple[Request, Outcome]]:
        """Run one round for all unfinished requests, or only for those of ``requests``; return each with
        its Outcome."""
        live, now = [request for request in self.requests if not request.state.done], self.clock.now
        live = live if requests is None else [request for request in live if request in requests]
        if not live:
            return []
        t0 = now()
        groups = [
            (policy, [i for i, r in enumerate(live) if r.parts.policy is policy])
            for policy in self._joint.values()
        ]
        joint: dict[int, Budget] = {}  # by request, from policies that plan for a batch
        for policy, members in groups:
            joint |= zip(members, policy.plan_all([live[i].state for i in members]) if members else ())
        budgets = [
            within(joint[i] if i in joint else r.parts.policy.plan(r.state), r.target, r.state)
            for i, r in enumerate(live)
        ]
        t1 = now()
        trees = draft_all(live, budgets)
        for policy, members in groups:
            for i, tree in zip(
                members,
                policy.share([live[i].state for i in members], [trees[i] for i in members])
                if members
                else (),
            ):
                trees[i] = tree
        t2 = now()
        scores = score_all([ForwardPass(request.target, tree) for request, tree in zip(live, trees)])
        t3 = now()
        outcomes = []
        for request, budget, tree, scored in zip(live, budgets, trees, scores):
            # every request waits for all drafts and for the shared pass, so each is charged the full times
            mine = Proposal(budget, tree, t0, t1 - t0, t2 - t1)
            outcomes.append(conclude(request.parts, request.target, request.state, mine, scored, t3 - t2))
        for policy, members in groups:
            if members:
                policy.learn_all([live[i].state for i in members], [outcomes[i] for i in members])
        return list(zip(live, outcomes))


def draft_all(live: Sequence[Request], budgets: Sequence[Budget]) -> list[DraftTree]:
    """Return every request's draft tree, cut to its limits. Drafters that draft step by step run in
    lockstep: their n-th passes are merged into one pass of the draft model."""
    under_way = {
        i: r.parts.drafter.steps(r.state, budget) for i, (r, budget) in enumerate(zip(live, budgets))
    }
    scores: dict[int, Scores | None] = dict.fromkeys(under_way)
    trees: dict[int, DraftTree] = {}
    while under_way:
        asked = {}
        for i, steps in [*under_way.items()]:
            try:
                asked[i] = steps.send(scores[i])
                while asked[i].alone:  # the fast path of a single request is slower than one pass for all
                    asked[i] = steps.send(asked[i].run() if len(live) == 1 else None)
            except StopIteration as over:
                trees[i] = clip(over.value, live[i].state)
                asked.pop(i, None)
                del under_way[i]
        scores = dict(zip(asked, score_all([*asked.values()])))
    return [trees[i] for i in range(len(live))]


def score_all(passes: Sequence[ForwardPass]) -> list[Scores]:
    """Run the forward passes and return their Scores, in order; passes over the same weights are batched
    where the model supports it."""
    groups: dict[Any, list[int]] = {}
    for i, asked in enumerate(passes):
        groups.setdefault(asked.model.weights if "batch" in asked.model.capabilities else i, []).append(i)
    out: dict[int, Scores] = {}
    for members in groups.values():
        mine = [passes[i] for i in members]
        if len(mine) == 1:
            out[members[0]] = mine[0].run()
            continue
        models = [getattr(asked.model, "scoring_model", asked.model) for asked in mine]
        out |= zip(
            members,
            models[0].score_many(models, [asked.tree for asked in mine], [asked.start for asked in mine]),
        )
    return [out[i] for i in range(len(passes))]


class BatchOfOne:
    """Decoding loop that runs a batched method for a single request."""

    def __call__(self, parts: Parts, target: Target, state: State) -> Generator[Event]:
        yield from start_run(parts, target, state)
        yield from emit_rounds(self._rounds(parts, target, state), state)

    def _rounds(self, parts: Parts, target: Target, state: State) -> Generator[Iterable[Event]]:
        while not state.done:
            yield round_events(self.round(parts, target, state), state)

    def round(self, parts: Parts, target: Target, state: State) -> Outcome:
        """Run one round of the only request."""
        batch = Batch(state.clock)
        batch.take(parts, target, state)
        return batch.round()[0][1]


class SharedBatch:
    """Decoding loop of one request that shares its forward passes with others. Only this request's events
    are emitted; an annotation ("note") reports the progress of all.

    others: (parts, target, state) of each, prefilled at the start; names: display names of the prompts,
    this request's first. The run ends with this request; requests that finish earlier leave the batch.
    """

    def __init__(self, others: Sequence[tuple[Parts, Target, State]], names: Sequence[str]):
        self.others, self.names = others, list(names)

    def __call__(self, parts: Parts, target: Target, state: State) -> Generator[Event]:
        batch, t0 = Batch(state.clock), state.clock.now()
        mine, prefill = batch.join(parts, target, state)
        everybody = [mine, *(batch.join(*other)[0] for other in self.others)]
        state.clock.pause()
        yield Prefilled(t0, state.clock.now(), prefill.num_computed or len(prefill.logits))
        state.clock.resume()
        yield from emit_rounds(self._rounds(batch, everybody), state)

    def _rounds(self, batch: Batch, everybody: list[Request]) -> Generator[Iterable[Event]]:
        state, began = everybody[0].state, batch.clock.now()
        while not state.done:
            outcomes = dict(batch.round())
            for request in everybody[1:]:
                request.state.notes.clear()
            state.note(
                "class",
                prompts=self.names,
                written=[len(r.state.tokens) - r.state.start for r in everybody],
                rows=[1 + len(outcomes[r].tree) if r in outcomes else 0 for r in everybody],
                done=[r.state.done for r in everybody],
                seconds=round(batch.clock.now() - began, 6),
            )
            yield round_events(outcomes[everybody[0]], state)


batch_of_one = BatchOfOne()
