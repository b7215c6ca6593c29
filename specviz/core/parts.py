"""The parts of a method (target, drafter, policy, verifier), and the data they exchange in one round.

No code branches on the class of a part: a target lists its ``capabilities``, a drafter what it ``needs``.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .budget import Budget
from .draft_labels import CHOSEN
from .errors import CodedError

if TYPE_CHECKING:  # so that the catalogue of methods can be read without torch
    from torch import Tensor

    from .draft_steps import DraftSteps
    from .state import State
    from .tree import DraftTree


@dataclass(frozen=True)
class Scores:
    """Target logits [1 + nodes, vocab]: row 0 the root, row i+1 node i. ``hidden_states``: "final", "layer:k" -> [1 + nodes, d].

    ``at`` is the absolute position of row 0. From ``sync``: hidden_states hold every token computed, logits may hold the last row
    only, and ``num_computed`` counts the tokens. best: argmax of each row, where all were read from a device at once; precomputed:
    the verifier's ``precompute`` result; seconds: duration of the forward pass, asked once it is over; None where the host waited
    for nothing else. raw_logits: the model's own logits, where logits processors changed ``logits``.
    """

    logits: Tensor
    hidden_states: dict[str, Tensor] = field(default_factory=lambda: {})
    at: int = 0
    num_computed: int = 0
    best: tuple[int, ...] | None = None
    precomputed: Any = field(default=None, repr=False, compare=False)
    seconds: Callable[[], float] | None = field(default=None, repr=False, compare=False)
    raw_logits: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def model_logits(self) -> Tensor:
        """The model's logits before any processor."""
        return self.logits if self.raw_logits is None else self.raw_logits

    def top(self, row: int) -> int:
        """Return the argmax of a row; of equal logits the first."""
        from .sampling import argmax_tokens

        return argmax_tokens(self.logits[row:row + 1])[0] if self.best is None else self.best[row]

    def tops(self, rows: Sequence[int]) -> list[int]:
        from .sampling import argmax_tokens

        return argmax_tokens(self.logits[list(rows)]) if self.best is None else [self.best[row] for row in rows]


@dataclass(frozen=True)
class Decision:
    """Why one node was accepted or rejected: accepted iff draw < accept. probs [vocab]: the target distribution it was tested
    against (after earlier rejections); residual [vocab]: the distribution after this rejection. Both are kept for views, may be None."""

    node: int
    rule: str
    target_prob: float
    draft_prob: float | None
    accept: float
    draw: float | None
    verdict: str  # "accepted" | "rejected" | "skipped"
    probs: Tensor | None = field(default=None, repr=False, compare=False)
    residual: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def remaining(self) -> Tensor:
        """The residual of a decision that rejects its node."""
        assert self.residual is not None
        return self.residual


@dataclass(frozen=True)
class Verdict:
    """The accepted path (node indices from the root down) and the token after it, drawn from ``probs`` [vocab].

    kind: "bonus" | "correction" | "plain" | "accepted" (cut at an end token or the limit) | "unchecked" | "forced" | "small".
    """

    path: tuple[int, ...]
    token: int
    kind: str
    decisions: tuple[Decision, ...] = ()
    probs: Tensor | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Outcome:
    """The result of a round, from which parts learn. kept[i] is the row of scores that predicted committed[i]: zip(kept, committed)
    pairs the feature at t with the token at t+1. seconds: plan, draft, verify, judge, commit, observe on the engine's clock."""

    tree: DraftTree
    scores: Scores
    verdict: Verdict
    budget: Budget
    committed: tuple[int, ...]
    kept: tuple[int, ...]
    seconds: dict[str, float]
    began: float = 0.0


class Early(Protocol):
    """The first layers of a target; their keys and values stay in the target's scratch, so that the verification continues them."""

    def step(self, tree: DraftTree, start: int) -> Tensor:
        """Return hidden states [rows, d] at the exit, for the root and all nodes (start 0) or for the nodes from start on."""
        ...

    def kv(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys and values [kv_heads, rows, head_dim] of a layer below the exit: text, root and the last step's nodes."""
        ...


class Target(Protocol):
    """A causal language model with its KV cache; targets and draft models alike.

    The KV cache holds tokens[:-1]; the last token is the un-cached root of the next round. No other part touches keys and values.
    capabilities: of "tree", "rewind", "tap:final", "tap:layer", "entry", "embed", "head", "kv", "early", "skip", "layer_parallel",
    "partial_cache", "batch" (``score_many(targets, trees, starts)``: as each one's score() of its tree, in one pass, for targets of the
    same ``weights``),
    "draft_chain" (``draft_chain(after, count, temperature, roll, least)``: drafts a chain of ``count`` tokens in one call).
    """

    capabilities: frozenset[str]
    vocab: int
    context: int

    def capture(self, names: frozenset[str]) -> None:
        """Capture hidden states along with scores: "final" (after the last norm), "layer:k" (input of layer k, before its norm)."""

    def expect(self, rows: int) -> None:
        """Expect at most ``rows`` tokens in a forward pass: a hint for a target of fixed shapes."""

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Bring the KV cache to tokens[:-1]: keep the common prefix, drop the rest, prefill what is missing. Returns Scores of the
        tokens computed."""
        ...

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return logits of the root and every node. Nodes before ``start`` are in scratch already from the call before."""
        ...

    def commit(self, verdict: Verdict) -> None:
        """Keep root and accepted path in the KV cache; the verdict's token becomes the root. sync(state.tokens) then does nothing."""

    def close(self) -> None:
        """Free the KV cache."""


class ScoringModel(Protocol):
    """A model that scores a growing tree under the text that it was brought to: a Target, or a head on one."""

    def score(self, tree: DraftTree, start: int = 0, /) -> Scores:
        """As ``Target.score``."""
        ...


class DraftingModel(ScoringModel, Protocol):
    """A model that a drafter drafts with: a Target, or anything else that follows a text and scores trees under it."""

    def sync(self, tokens: list[int], /) -> Any:
        """Follow a text."""
        ...


class CapableTarget(Target, Protocol):
    """A target with the members that its ``capabilities`` promise: a part may use those of the capabilities that it ``needs``.

    layers, hidden: number of layers and width of the network; weights: equal for targets that can share a pass ("batch").
    """

    cached_tokens: list[int]

    @property
    def layers(self) -> int: ...

    @property
    def hidden(self) -> int: ...

    @property
    def weights(self) -> Any: ...

    def embed(self, ids: Sequence[int] | Tensor, /) -> Tensor:
        """Return the embeddings [n, d] of tokens ("embed")."""
        ...

    def norm(self, states: Tensor, /) -> Tensor:
        """Apply the final norm ("head")."""
        ...

    def head(self, states: Tensor, /) -> Tensor:
        """Return the logits [n, vocab] of normed states [n, d] ("head")."""
        ...

    def kv(self, layer: int, /) -> tuple[Tensor, Tensor]:
        """Return keys and values [kv_heads, rows, head_dim] of a layer's cached tokens ("kv")."""
        ...

    def early(self, exit: int, /) -> Early:
        """Return the layers below ``exit`` ("early")."""
        ...

    def skipping(self, sublayers: Iterable[int], /) -> SkippingTarget:
        """Return a view without these sublayers (2i: attention of layer i, 2i + 1: its MLP), with a KV cache of its own ("skip")."""
        ...

    def layer_parallel(self, size: int, /) -> CapableTarget:
        """Return a view whose groups of ``size`` layers read the same input ("layer_parallel")."""
        ...

    def partial_cache(self, keep: Any, /) -> CapableTarget:
        """Return a view that attends to a selection of the KV cache ("partial_cache")."""
        ...

    def score_many(self, targets: Any, trees: Sequence[DraftTree], starts: Sequence[int] = (), /) -> list[Scores]:
        """Return each target's score() of its tree, in one pass ("batch")."""
        ...

    def draft_chain(self, after: Sequence[int], count: int, temperature: float, roll: Callable[[int], list[float]],
                    least: float | None = None, /) -> Any:
        """Draft a chain of ``count`` tokens in one call; None to draft pass by pass ("draft_chain")."""
        ...

    def learning(self) -> TrainableTarget:
        """Return a trainable copy."""
        ...

    def flush(self) -> None:
        """Compute tokens whose pass was deferred."""

    def forget(self) -> None:
        """Drop all cached tokens."""


class SkippingTarget(CapableTarget, Protocol):
    """A view of a target without some sublayers, which ``skip`` lists and may change."""

    skip: frozenset[int]


class TrainableTarget(CapableTarget, Protocol):
    """A copy of a target whose ``weights`` are the leaves that gradients reach."""

    def logits(self, tokens: Sequence[int], /) -> Tensor:
        """Return the logits [n, vocab] of a text, with gradients."""
        ...

    def renew(self) -> None:
        """Use the weights as they are now."""


class Drafter:
    """Proposes a draft tree. ``hidden_states``: names of target states to capture; ``needs``: capabilities the target must have;
    ``restartable``: it can draft after any state.tokens, including a hypothetical continuation."""

    hidden_states: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    restartable: bool = True

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        """Begin a run. prefill holds Scores of the prompt tokens computed just now (maybe not all, maybe none)."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        """Return a tree of depth at most budget.gamma under state.tokens[-1]."""
        from .tree import DraftTree

        return DraftTree()

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        """Draft in steps:
        ``propose`` for a batch: yield forward passes of the drafter's own model, receive their Scores and return the tree, so that
        passes of many requests can be merged. A class that overrides this defines ``propose`` as ``run_alone(self.steps(...))``, and a
        subclass overrides both or neither. The default is one step without passes."""
        return self.propose(state, budget)
        yield

    def observe(self, state: State, outcome: Outcome) -> None:
        """Learn from a finished round; state.tokens holds the committed tokens."""


class Policy:
    """Decides how much to draft in each round."""

    hidden_states: frozenset[str] = frozenset()

    def plan(self, state: State) -> Budget:
        return Budget()

    def observe(self, outcome: Outcome) -> None:
        """Learn from the round."""


class JointPolicy(Policy):
    """One policy shared by all requests of a batch: that of the first request.

    A request's budget may depend on the other requests' drafts, never on random draws of its own that are still to come.
    """

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        """Return a budget for each request of the round."""
        raise TypeError(f"{type(self).__name__} does not say how to plan")

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        """Return the trees to score: the same ones, or cut to fit the batch's token budget."""
        return trees

    def learn_all(self, states: Sequence[State], outcomes: Sequence[Outcome]) -> None:
        """Learn from a round of the batch; each outcome's seconds are those of the whole batch."""

    def plan(self, state: State) -> Budget:
        return self.plan_all([state])[0]


class Verifier:
    """Accepts a path and draws the token after it. ``labels``: the kinds of draws it verifies without bias; ``title``: for people."""

    hidden_states: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset({CHOSEN})
    title: str = ""

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        raise TypeError(f"{type(self).__name__} does not say how to verify")

    def precompute(self, tree: DraftTree, scores: Scores, state: State) -> Any:
        """Compute on the device all that ``verify`` may need, so that the round synchronises once.

        The result's numbers ``asked`` [n] are read into its ``values`` with everything else, and ``verify`` finds it as
        ``scores.precomputed``. None: the rule reads as it goes.
        """

    def check(self, tree: DraftTree) -> None:
        """Raise IncompatibleVerifier for a tree with draws that this rule would verify with bias."""
        found = {tree.label(i) for i in range(len(tree)) if i not in tree.probes}
        unknown = found - self.labels
        if unknown:
            others = ", ".join(compatible_verifiers(found)) or "no verifier here"
            raise IncompatibleVerifier(f"{self.title or type(self).__name__} verifies {_and(self.labels)}; the drafter proposed "
                                       f"{_and(unknown)}: compatible is {others}", "verifier.incompatible")


def compatible_verifiers(labels: Iterable[str]) -> list[str]:
    """Return the titles of all verifiers that accept draws of these kinds."""
    found: set[str] = set()
    work = [Verifier]
    while work:
        kind = work.pop()
        work += kind.__subclasses__()
        if kind.title and kind.labels >= set(labels):
            found.add(kind.title)
    return sorted(found)


class IncompatibleVerifier(CodedError, ValueError):
    """A verifier was given draws that it cannot verify; the output would be biased."""


def _and(words: Iterable[str]) -> str:
    return " and ".join(sorted(words))


@dataclass(frozen=True)
class Parts:
    """The built parts of a method. ``loop`` None means the ordinary draft-then-verify loop."""

    drafter: Drafter
    policy: Policy
    verifier: Verifier
    loop: Callable[[Parts, CapableTarget, State], Generator[Any]] | None = None
    helpers: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def hidden_states(self) -> frozenset[str]:
        return self.drafter.hidden_states | self.policy.hidden_states | self.verifier.hidden_states


def has_nan(x: Tensor) -> bool:
    """Return whether logits hold a NaN. The sum propagates one NaN and is much faster than an elementwise test."""
    return bool(x.sum().isnan())
