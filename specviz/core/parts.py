"""The parts a method is made of, and what passes between them in one round.

Ask what a part needs, never who it is: a target lists what it ``provides``, a drafter what it ``needs``.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Protocol, Sequence

import torch
from torch import Tensor

from .sampling import argmax_tokens
from .state import State
from .draft_steps import DraftSteps
from .tree import CHOSEN, DraftTree


@dataclass(frozen=True)
class Scores:
    """Target logits [1 + nodes, vocab]: row 0 the root, row i+1 node i. ``taps``: "final", "layer:k" -> [1 + nodes, d].

    ``at`` is the absolute position of row 0. From ``sync``: taps hold every row fed, logits may hold the last one only, and
    ``fed`` counts the rows. best: the likeliest token of each row, where they were read from a device all at once; foreseen: what the
    verifier foresaw there; seconds: what the pass took, asked once it is over, None where the host waited for nothing else.
    """

    logits: Tensor
    hidden_states: dict[str, Tensor] = field(default_factory=dict)
    at: int = 0
    num_computed: int = 0
    best: tuple[int, ...] | None = None
    precomputed: Any = field(default=None, repr=False, compare=False)
    seconds: Callable[[], float] | None = field(default=None, repr=False, compare=False)

    def top(self, row: int) -> int:
        """The likeliest token of a row, the first of several as argmax has them."""
        return argmax_tokens(self.logits[row:row + 1])[0] if self.best is None else self.best[row]

    def tops(self, rows: Sequence[int]) -> list[int]:
        return argmax_tokens(self.logits[list(rows)]) if self.best is None else [self.best[row] for row in rows]


@dataclass(frozen=True)
class Decision:
    """Why one node was accepted or refused: accepted iff draw < accept. law/residual [vocab]: the target law it was held
    against (after earlier refusals) and the law after this refusal; kept for views, may be None."""

    node: int
    rule: str
    target_prob: float
    draft_prob: float | None
    accept: float
    draw: float | None
    verdict: str  # "accepted" | "rejected" | "skipped"
    probs: Tensor | None = field(default=None, repr=False, compare=False)
    residual: Tensor | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Verdict:
    """The accepted path (node indices from the root down) and the token after it, drawn from ``law`` [vocab].

    kind: "bonus" | "correction" | "plain" | "accepted" (cut at an end token or the limit) | "unchecked" | "forced" | "small".
    """

    path: tuple[int, ...]
    token: int
    kind: str
    decisions: tuple[Decision, ...] = ()
    probs: Tensor | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Step:
    """One draft step, for a policy that decides when to stop: the token just kept, its law [vocab], its depth (0 first)."""

    token: int
    probs: Tensor
    depth: int
    hidden: Tensor | None = None


def never_stop(step: Step) -> bool:
    return False


@dataclass(frozen=True)
class StopBelowProbability:
    """Stop after a token to which the draft gives a chance below ``least``. Since it looks at one number only, a model that writes many
    tokens in one call sees to it by itself."""

    least: float

    def __call__(self, step: Step) -> bool:
        return self.takes(float(step.probs[step.token]))

    def takes(self, prob: float) -> bool:
        """Asked once for each token, in order."""
        return prob < self.least


@dataclass(frozen=True)
class Budget:
    """How much to draft this round. gamma: greatest depth; width: children a node; nodes: most nodes; arm: which choice of a
    bandit; stop: asked after each token is kept (a token it looked at stays: dropping it would bias the output)."""

    gamma: int = 4
    width: int = 1
    nodes: int = 64
    arm: int = 0
    stop: Callable[[Step], bool] = never_stop


@dataclass(frozen=True)
class Outcome:
    """A round as parts learn from it. kept[i] is the row of scores that predicted committed[i]: zip(kept, committed) pairs the
    feature at t with the token at t+1. seconds: plan, draft, verify, judge, commit, observe on the engine's clock."""

    tree: DraftTree
    scores: Scores
    verdict: Verdict
    budget: Budget
    committed: tuple[int, ...]
    kept: tuple[int, ...]
    seconds: dict[str, float]
    began: float = 0.0


class Early(Protocol):
    """The first layers of a target, leaving their work in the target's own scratch."""

    def step(self, tree: DraftTree, start: int) -> Tensor:
        """States [rows, d] at the exit, for the root and all nodes (start 0) or for the nodes from start on."""

    def kv(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values [kv_heads, rows, head_dim] that a layer below the exit holds of the text, the root and the last step's nodes."""


class Target(Protocol):
    """A causal language model with its cache; targets and draft models alike.

    The cache holds tokens[:-1]; the last token is the un-cached root of the next round. Nobody else touches keys and values.
    provides: of "tree", "rewind", "tap:final", "tap:layer", "entry", "embed", "head", "kv", "early", "skip", "fuzzy", "lean", "batch"
    (``score_many(targets, trees, starts)``: as each one's score() of its tree, in one pass, for targets of the same ``weights``),
    "write" (``write(after, count, heat, roll, least)``: as ``count`` score()s of a chain that grows by a token each, in one call).
    """

    capabilities: frozenset[str]
    vocab: int
    context: int

    def capture(self, names: frozenset[str]) -> None:
        """Ask for states along with scores: "final" (after the last norm), "layer:k" (input of layer k, before its norm)."""

    def expect(self, rows: int) -> None:
        """At most so many rows will be scored at once, as far as is known: a hint for a target of fixed shapes."""

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Make the cache hold tokens[:-1]: keep what agrees, drop the rest, feed what is missing; Scores of the rows fed."""

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Logits of the root and every node. Rows before node ``start`` already lie in scratch from the call before."""

    def learning(self) -> Target:
        """This model with weights of its own, which may change: ``weights``, the leaves that gradients reach; ``logits(tokens)``
        [n, vocab] of a text, with gradients; ``renew()`` after they have changed."""

    def commit(self, verdict: Verdict) -> None:
        """Keep root and path; the verdict's token becomes the root. Afterwards sync(state.tokens) does nothing."""

    def close(self) -> None:
        """Give the cache's memory back."""


class Drafter:
    """Proposes a tree. ``taps``: states it wants from the target; ``needs``: what the target must provide;
    ``restartable``: it follows any state.tokens, also a hypothetical continuation."""

    hidden_states: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    restartable: bool = True

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        """A run begins; prefill holds the rows of the prompt that were fed just now (maybe not all, maybe none)."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        """A tree of depth at most budget.gamma under state.tokens[-1]."""
        return DraftTree()

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        """``propose`` for a batch: yields the passes of its own model, is sent their Scores and returns the tree, so that the passes
        of many requests can be one. Whoever has these says ``propose`` as ``by_itself`` of them, and whoever changes the one below
        such a class changes the other; without them the whole proposal is one step."""
        return self.propose(state, budget)
        yield

    def observe(self, state: State, outcome: Outcome) -> None:
        """The round is over and state.tokens holds what was committed."""


class Policy:
    """How much to draft."""

    hidden_states: frozenset[str] = frozenset()

    def plan(self, state: State) -> Budget:
        return Budget()

    def observe(self, outcome: Outcome) -> None:
        """Learn from the round."""


class JointPolicy(Policy):
    """One policy for all requests of a batch: they share the one of the request that came first.

    What a request is given may depend on the others, which their own dice draw; never on what its own dice have yet to draw.
    """

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        """A budget for each request of the round."""
        raise TypeError(f"{type(self).__name__} does not say how to plan")

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        """The trees that are scored: the same, or what of them fits into the batch's rows."""
        return trees

    def learn_all(self, states: Sequence[State], outcomes: Sequence[Outcome]) -> None:
        """Learn from a round of the batch; the seconds of each outcome are those of the whole batch's drafting and pass."""

    def plan(self, state: State) -> Budget:
        return self.plan_all([state])[0]


class Verifier:
    """Accepts a path and draws the token after it. ``labels``: the kinds of draws it judges lawfully; ``title``: for people."""

    hidden_states: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset({CHOSEN})
    title: str = ""

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        raise TypeError(f"{type(self).__name__} does not say how to verify")

    def precompute(self, tree: DraftTree, scores: Scores, state: State) -> Any:
        """What ``verify`` may come to need of scores on a device, before it is waited for: its numbers ``asked`` [n] are read into ``told``
        with everything else, and it comes back as ``scores.foreseen``. None: this rule reads as it goes."""

    def check(self, tree: DraftTree) -> None:
        """Refuse a tree with draws this rule would judge wrongly."""
        found = {tree.label(i) for i in range(len(tree)) if i not in tree.probes}
        alien = found - self.labels
        if alien:
            others = ", ".join(compatible_verifiers(found)) or "no verifier here"
            raise IncompatibleVerifier(f"{self.title or type(self).__name__} judges {_and(self.labels)}; the drafter proposed {_and(alien)}: "
                               f"lawful is {others}")


def compatible_verifiers(labels) -> list[str]:
    """The titles of all verifiers that judge draws of these kinds."""
    found, work = set(), [Verifier]
    while work:
        kind = work.pop()
        work += kind.__subclasses__()
        if kind.title and kind.labels >= set(labels):
            found.add(kind.title)
    return sorted(found)


class IncompatibleVerifier(ValueError):
    """A verifier was given draws whose law it does not follow; the output would be biased."""


def _and(words) -> str:
    return " and ".join(sorted(words))


@dataclass(frozen=True)
class Parts:
    """A method, built. ``loop`` None means the ordinary draft-then-verify loop."""

    drafter: Drafter
    policy: Policy
    verifier: Verifier
    loop: Callable[["Parts", Target, State], Iterator[Any]] | None = None
    helpers: dict[str, Any] = field(default_factory=dict)

    @property
    def hidden_states(self) -> frozenset[str]:
        return self.drafter.hidden_states | self.policy.hidden_states | self.verifier.hidden_states


def has_nan(x: Tensor) -> bool:
    """Whether a row of logits is broken. A sum carries one NaN through, and is far quicker than looking at each number."""
    return bool(torch.isnan(x.sum()))
