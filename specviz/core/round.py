"""One round of speculative decoding: plan, propose, clip, score, verify, cut, commit, observe. Only this
module calls drafter, target, policy and verifier together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from . import note_kinds as notes
from .errors import CodedError
from .lazy_scalars import clear_pending, is_on_device, plain, read
from .parts import Budget, Outcome, Parts, Scores, Target, Verdict, has_nan
from .state import State
from .tree import DraftTree

BROKEN = "the target's logits are not numbers: its weights are broken"


class BrokenModel(CodedError, RuntimeError):
    """The logits of the target, or of a second model whose logits decide about the text, are not numbers."""

    @classmethod
    def second(cls) -> BrokenModel:
        """Return the error for a second model."""
        return cls(
            "the second model's logits are not numbers: its weights are broken", "model.second_not_numbers"
        )


def open_run(parts: Parts, target: Target, state: State):
    """Prefill the prompt and start the drafter; return the prefill's Scores. Raises BrokenModel on NaN
    logits."""
    clear_pending()
    target.capture(parts.hidden_states)
    prefill = target.sync(state.tokens)
    if len(prefill.logits) and has_nan(prefill.logits[-1]):
        raise BrokenModel(BROKEN, "model.not_numbers")
    parts.drafter.start(state, target, prefill)
    return prefill


@dataclass(frozen=True)
class Proposal:
    """The first half of a round: budget and draft tree. began: start of the round on the engine's clock;
    plan, draft: seconds of these phases."""

    budget: Budget
    tree: DraftTree
    began: float
    plan: float
    draft: float


def play(parts: Parts, target: Target, state: State) -> Outcome:
    """Run one round and return its Outcome. The target must be synced to state.tokens; it is synced again
    when the round ends."""
    proposal = propose(parts, target, state)
    return conclude(parts, target, state, proposal, target.score(proposal.tree))


def propose(parts: Parts, target: Target, state: State) -> Proposal:
    """Ask the policy for a budget and the drafter for a draft tree, and cut both to the number of tokens
    that may still be generated."""
    now = state.clock.now
    t0 = now()
    budget = within(parts.policy.plan(state), target, state)
    t1 = now()
    tree = clip(parts.drafter.propose(state, budget), state)
    return Proposal(budget, tree, t0, t1 - t0, now() - t1)


def conclude(
    parts: Parts,
    target: Target,
    state: State,
    proposal: Proposal,
    scores: Scores,
    verify: float | None = None,
) -> Outcome:
    """Verify the draft, commit the result, and let drafter and policy learn from it. scores: the target's
    Scores of the tree; verify: seconds of the target's pass, None: all time since the draft was
    finished."""
    now = state.clock.now
    scores = state.process_scores(proposal.tree, scores)
    tree, scores = read_scores(
        proposal.tree, scores, lambda: parts.verifier.precompute(proposal.tree, scores, state)
    )
    t3 = now()
    draft, verify = _split_seconds(
        proposal, scores, t3 - proposal.began - proposal.plan - proposal.draft if verify is None else verify
    )
    parts.verifier.check(tree)
    verdict = _cut_at_stop(parts.verifier.verify(tree, scores, state), tree, state)
    t4 = now()
    target.commit(verdict)
    t5 = now()
    committed = tuple(tree.tokens[i] for i in verdict.path) + (verdict.token,)
    state.tokens += committed
    state.round += 1
    seconds = dict(plan=proposal.plan, draft=draft, verify=verify, judge=t4 - t3, commit=t5 - t4)
    kept = (0,) + tuple(i + 1 for i in verdict.path)
    outcome = Outcome(tree, scores, verdict, proposal.budget, committed, kept, seconds, proposal.began)
    learn(parts, state, outcome, len(tree), max(tree.depths, default=0), verify, draft)
    seconds["observe"] = now() - t5
    return outcome


def read_scores(
    tree: DraftTree, scores: Scores, precompute: Callable[[], Any] = lambda: None
) -> tuple[DraftTree, Scores]:
    """Read from the device all that a round needs of its forward pass, with one synchronisation: the tree's
    tokens and their draft probabilities, the argmax of each row, the verifier's precomputed values, and
    whether a logit is NaN. Raises BrokenModel."""
    logits = scores.logits
    if not is_on_device(logits):
        broken = has_nan(logits)
    else:
        precomputed = precompute()
        token_probs = tree.token_probs_on(logits.device)
        rows = len(logits)
        asked = [
            logits.argmax(-1),
            logits.sum().isnan()[None],
            *([] if token_probs is None else [token_probs]),
        ]
        asked += [] if precomputed is None else [precomputed.asked]
        values = read(torch.cat([part.double() for part in asked]))
        if precomputed is not None:
            precomputed.values = values[len(values) - len(precomputed.asked) :]
        broken, scores = (
            bool(values[rows]),
            replace(scores, best=tuple(map(int, values[:rows])), precomputed=precomputed),
        )
        probs = None if token_probs is None else tuple(values[rows + 1 : rows + 1 + len(tree)])
        tree = replace(tree, tokens=plain(tree.tokens), token_probs=probs)
    if broken:
        raise BrokenModel(BROKEN, "model.not_numbers")
    return tree, scores


def _split_seconds(proposal: Proposal, scores: Scores, verify: float) -> tuple[float, float]:
    """Return seconds of drafting and of verifying. A device runs asynchronously, so waiting for the pass
    includes waiting for the draft: time beyond the pass itself counts as drafting."""
    late = 0.0 if scores.seconds is None or not len(proposal.tree) else max(0.0, verify - scores.seconds())
    return proposal.draft + late, verify - late


def learn(
    parts: Parts, state: State, outcome: Outcome, nodes: int, depth: int, verify: float, draft: float
) -> None:
    """Let cost model, drafter and policy learn from a round. nodes: draft tokens that were scored in
    ``verify`` seconds; depth: draft steps that took ``draft`` seconds."""
    state.costs.learn(nodes, verify, depth, draft)
    charged = state.costs.charged(nodes, depth, outcome.seconds)
    seen = outcome if charged is outcome.seconds else replace(outcome, seconds=charged)
    parts.drafter.observe(state, seen)
    parts.policy.observe(seen)


def within(budget: Budget, target: Target, state: State) -> Budget:
    """Limit a budget to the tokens that may still be generated, and to chains if the target cannot score
    trees. The depth is 0 once the draft model cannot draft any more."""
    deepest = (
        max(0, min(budget.gamma, state.left - 1)) if state.draft_ready() else 0
    )  # the round also writes one token of the target's own
    return replace(budget, gamma=deepest, width=budget.width if "tree" in target.capabilities else 1)


def clip(tree: DraftTree, state: State) -> DraftTree:
    """Drop the nodes that cannot be written: those deeper than the number of tokens that may still be
    generated, and those below an end token. The cut depends on depths, and on tokens that are kept and
    verified, so the distributions of the remaining nodes are unchanged."""
    deepest = state.left - 1
    dropped = tree.after_end(state.stop)
    if len(tree) and max(tree.depths) > deepest:
        dropped |= {i for i, d in enumerate(tree.depths) if d > deepest and i not in tree.probes}
    if not dropped:
        return tree
    kept = [i for i in range(len(tree)) if i not in dropped and not dropped.intersection(tree.path(i))]
    state.notes = [(kind, notes.keep_nodes(kind, data, kept)) for kind, data in state.notes]
    return tree.keep(kept, by_token=False)


def _cut_at_stop(verdict: Verdict, tree: DraftTree, state: State) -> Verdict:
    """End the accepted path at an end token or at the limit; that token becomes the last one of the round."""
    tokens = [tree.tokens[i] for i in verdict.path]
    at = next((i for i, x in enumerate(tokens) if x in state.stop), len(tokens))
    at = min(at, state.left - 1)
    if at >= len(tokens):
        return verdict
    dropped = set(verdict.path[at + 1 :])
    decisions = tuple(
        t
        for t in verdict.decisions
        if t.node not in dropped and tree.parents[t.node] not in dropped | {verdict.path[at]}
    )
    return replace(
        verdict, path=verdict.path[:at], token=tokens[at], kind="accepted", decisions=decisions, probs=None
    )
