"""Horizontal cascade of CS Drafting (Chen et al. 2312.11462): a good drafter drafts the first tokens, a
cheap one the later tokens, which are rarely accepted."""

from __future__ import annotations

from dataclasses import replace

from ...core import Budget, Drafter, DraftTree, State
from ...core.errors import InvalidUse
from .fusion import MultiDrafter


class Cascade(MultiDrafter):
    """Drafter of a chain: up to ``count`` tokens from the drafter ``first``, and, if it drafts that many,
    further tokens from the drafter ``tail``, up to budget.gamma in all (CS Drafting, Chen et al.
    2312.11462). ``tail`` must be restartable and propose chosen tokens, without a draft distribution;
    otherwise InvalidUse is raised for the former."""

    def __init__(self, first: Drafter, tail: Drafter, count: int):
        if not tail.restartable:
            raise InvalidUse("the tail of a cascade must be able to continue unverified text", "cascade.tail")
        super().__init__(first, tail)
        self.first = first
        self.tail = tail
        self.count = count

    def propose(self, state: State, budget: Budget) -> DraftTree:
        head = self.first.propose(state, replace(budget, gamma=min(self.count, budget.gamma)))
        left = budget.gamma - len(head)
        if (
            left <= 0
            or len(head) < min(self.count, budget.gamma)
            or (len(head) and head.tokens[-1] in state.stop)
        ):
            return head
        further = state.fork(head.tokens, limit=len(state.tokens) + len(head) - state.start + left + 1)
        tail = self.tail.propose(further, replace(budget, gamma=left, width=1))
        state.notes += further.notes
        if len(head) + len(tail):
            state.note("fused", by=["draft"] * len(head) + ["retrieved"] * len(tail))
        return append_chain(head, tail)


def append_chain(head: DraftTree, tail: DraftTree) -> DraftTree:
    """Return the chain ``head`` continued by the chain ``tail``. The tokens of ``tail`` must be chosen
    nodes: without a draft distribution that they were sampled from."""
    n = len(head)
    origin = (
        (*head.origin, *(None for _ in range(n - len(head.origin))), *tail.origin)
        if tail.origin
        else head.origin
    )
    return replace(
        head,
        tokens=head.tokens + tail.tokens,
        parents=head.parents + tuple(parent + n for parent in tail.parents),
        draw=head.draw + (-1,) * len(tail),
        origin=origin,
    )
