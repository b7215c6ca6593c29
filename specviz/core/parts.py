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
    """Scores of a forward pass: target logits [1 + nodes, vocab], row 0 for the root, row i + 1 for node i.

    ``hidden_states``: "final" or "layer:k" -> [1 + nodes, d]; ``at``: absolute position of row 0. After ``sync`` the
    hidden states cover every computed token, the logits maybe only the last, and ``num_computed`` is the number of
    tokens.

    best: argmax of each row, if all were read from a device at once; precomputed: result of the verifier's
    ``precompute``; seconds: a function that returns the duration of the pass once it is over, None if the host waited
    for nothing else; raw_logits: the model's own logits, if logits processors changed ``logits``.
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
        """Return the argmax of a row; if several logits are equal, the first."""
        from .sampling import argmax_tokens

        return argmax_tokens(self.logits[row:row + 1])[0] if self.best is None else self.best[row]

    def tops(self, rows: Sequence[int]) -> list[int]:
        from .sampling import argmax_tokens

        return argmax_tokens(self.logits[list(rows)]) if self.best is None else [self.best[row] for row in rows]


@dataclass(frozen=True)
class Decision:
    """The test of one node: it is accepted iff draw < accept.

    probs [vocab]: the target distribution that the node was tested against, after earlier rejections; residual [vocab]:
    the distribution after this rejection. Both are only for display and may be None."""

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
        """The residual distribution; only for a decision that rejects its node."""
        assert self.residual is not None
        return self.residual


@dataclass(frozen=True)
class Verdict:
    """The result of verification: the accepted path (node indices from the root down) and the next token, sampled from
    ``probs`` [vocab].

    kind of the next token: "bonus" | "correction" | "plain" | "accepted" (the path was cut at an end token or the
    limit) | "unchecked" | "forced" | "small".
    """

    path: tuple[int, ...]
    token: int
    kind: str
    decisions: tuple[Decision, ...] = ()
    probs: Tensor | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Outcome:
    """The result of a round, from which drafter and policy learn. kept[i]: the row of scores that predicted
    committed[i]; zip(kept, committed) pairs the hidden state at position t with the token at t + 1. seconds: of plan,
    draft, verify, judge, commit and observe, on the engine's clock."""

    tree: DraftTree
    scores: Scores
    verdict: Verdict
    budget: Budget
    committed: tuple[int, ...]
    kept: tuple[int, ...]
    seconds: dict[str, float]
    began: float = 0.0


class Early(Protocol):
    """The first layers of a target as a draft model. Their keys and values stay in the target's scratch, and
    verification continues from them."""

    def step(self, tree: DraftTree, start: int) -> Tensor:
        """Return hidden states [rows, d] at the exit: for the root and all nodes if start is 0, else for the nodes from
        ``start`` on."""
        ...

    def kv(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys and values [kv_heads, rows, head_dim] of a layer below the exit: text, root and the last step's nodes."""
        ...


class Target(Protocol):
    """A causal language model with its KV cache: a target or a draft model.

    The KV cache holds tokens[:-1]; the last token is the uncached root of the next round. No other part accesses keys
    and values. capabilities: a subset of "tree", "rewind", "tap:final", "tap:layer", "entry", "embed", "head", "kv",
    "early", "skip", "layer_parallel", "learning", "partial_cache", "batch" (``score_many(targets, trees, starts)``: one pass for
    several targets with the same ``weights``), "draft_chain" (``draft_chain(after, count, temperature, roll, least)``:
    draft a chain of ``count`` tokens in one call).
    """

    capabilities: frozenset[str]
    vocab: int
    context: int

    def capture(self, names: frozenset[str]) -> None:
        """Capture hidden states along with scores: "final" (after the last norm), "layer:k" (input of layer k, before its norm)."""

    def expect(self, rows: int) -> None:
        """Announce that a forward pass will have at most ``rows`` tokens; a hint for a target with static shapes."""

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Bring the KV cache to tokens[:-1]: keep the common prefix, drop the rest, and compute the missing tokens.
        Return the Scores of the tokens computed."""
        ...

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return logits of the root and every node. Nodes before ``start`` were computed by the previous call and are
        still in the scratch."""
        ...

    def commit(self, verdict: Verdict) -> None:
        """Keep the root and the accepted path in the KV cache. The verdict's token becomes the new root; a following
        sync(state.tokens) does nothing."""

    def close(self) -> None:
        """Free the KV cache."""


class ScoringModel(Protocol):
    """A model that scores a growing tree under a text: a Target, or a trained head on one."""

    def score(self, tree: DraftTree, start: int = 0, /) -> Scores:
        """As ``Target.score``."""
        ...


class DraftingModel(ScoringModel, Protocol):
    """A model that a drafter drafts with: a Target, or anything else that can sync to a text and score trees under it."""

    def sync(self, tokens: list[int], /) -> Any:
        """Process the text, so that trees are scored under it."""
        ...


class CapableTarget(Target, Protocol):
    """A target with the members that its ``capabilities`` promise. A part may use a member only if it lists the
    capability in ``needs``.

    layers, hidden: number of layers and width of the network; weights: equal for targets that can share a forward pass
    ("batch"); state_bytes: of all states of a target with the capability "state:decay"; group: positions of a group,
    with "state:groups"; prefix_id: equal for targets with the same rows, such as a picture's, before the first token; empty
    without any.
    """

    cached_tokens: list[int]
    prefix_id: str
    group: int

    @property
    def state_bytes(self) -> int: ...

    @property
    def layers(self) -> int: ...

    @property
    def hidden(self) -> int: ...

    @property
    def weights(self) -> Any: ...

    def embed(self, ids: Sequence[int] | Tensor, /) -> Tensor:
        """Return the embeddings [n, d] of tokens. Capability "embed"."""
        ...

    def norm(self, states: Tensor, /) -> Tensor:
        """Apply the final norm to hidden states. Capability "head"."""
        ...

    def head(self, states: Tensor, /) -> Tensor:
        """Return the logits [n, vocab] of normalised hidden states [n, d]. Capability "head"."""
        ...

    def kv(self, layer: int, /) -> tuple[Tensor, Tensor]:
        """Return keys and values [kv_heads, rows, head_dim] of a layer's cached tokens. Capability "kv"."""
        ...

    def early(self, exit: int, /) -> Early:
        """Return the layers below ``exit`` as a draft model. Capability "early"."""
        ...

    def skipping(self, sublayers: Iterable[int], /) -> SkippingTarget:
        """Return a view of the target that skips these sublayers (2i: attention of layer i, 2i + 1: its MLP), with a KV
        cache of its own. Capability "skip"."""
        ...

    def sublayers(self, count: int, /) -> Any:
        """Return the last ``count`` committed tokens, to be run through single sublayers (targets.sublayers.Sublayers). Capability
        "sublayers"."""
        ...

    def experts_read(self) -> Any:
        """Return which experts the rows of the last forward pass used (targets.experts.ExpertsRead), None where no pass was recorded.
        Capability "experts"."""
        ...

    def layer_parallel(self, size: int, /) -> CapableTarget:
        """Return a view of the target in which the layers of a group of ``size`` read the same input. Capability
        "layer_parallel"."""
        ...

    def partial_cache(self, keep: Any, /) -> CapableTarget:
        """Return a view of the target that attends to a selection of the KV cache. Capability "partial_cache"."""
        ...

    def score_many(self, targets: Any, trees: Sequence[DraftTree], starts: Sequence[int] = (), /) -> list[Scores]:
        """Return each target's score() of its tree, computed in one pass. Capability "batch"."""
        ...

    def draft_chain(self, after: Sequence[int], count: int, temperature: float, roll: Callable[[int], list[float]],
                    least: float | None = None, /) -> Any:
        """Draft a chain of ``count`` tokens in one call; None if the caller has to draft pass by pass. Capability
        "draft_chain"."""
        ...

    def survival(self) -> list[float]:
        """Return the share of the committed state that each row of the last scored tree reads. Capability "state:decay"."""
        ...

    def groups(self) -> list[int]:
        """Return the group of positions of each row of the last scored tree. Capability "state:groups"."""
        ...

    def learning(self) -> TrainableTarget:
        """Return a copy of the target with trainable weights. Capability "learning"."""
        ...

    def flush(self) -> None:
        """Compute tokens whose forward pass was deferred."""

    def forget(self) -> None:
        """Drop all cached tokens."""


class SkippingTarget(CapableTarget, Protocol):
    """A view of a target that skips the sublayers listed in ``skip``; the list may be changed between passes."""

    skip: frozenset[int]


class TrainableTarget(CapableTarget, Protocol):
    """A copy of a target whose ``weights`` are leaf tensors with gradients."""

    def logits(self, tokens: Sequence[int], /) -> Tensor:
        """Return the logits [n, vocab] of a text, with gradients."""
        ...

    def renew(self) -> None:
        """Drop everything computed with old weights, after they changed."""


class Drafter:
    """Proposes a draft tree in each round. ``hidden_states``: names of the target's hidden states to capture;
    ``needs``: capabilities that the target must have; ``restartable``: it can draft after any tokens, also after a
    hypothetical continuation."""

    hidden_states: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    restartable: bool = True

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        """Begin a run. prefill: Scores of the prompt tokens that were computed now; a reused KV cache may make this a
        part of the prompt, or nothing."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        """Return a tree of depth at most budget.gamma under state.tokens[-1]."""
        from .tree import DraftTree

        return DraftTree()

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        """Draft as a generator, for batches: yield the forward passes of the draft model, receive their Scores, and
        return the tree.

        A batched loop merges the passes of many requests. A class that overrides this defines ``propose`` as
        ``run_alone(self.steps(...))``, and a subclass overrides both or neither. The default yields no passes."""
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
    """One policy for all requests of a batch: the policy of the first request is used.

    A request's budget may depend on the other requests' drafts, but never on its own future random numbers.
    """

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        """Return a budget for each request of the round."""
        raise TypeError(f"{type(self).__name__} does not say how to plan")

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        """Return the draft trees to score: unchanged, or cut to fit the batch's token budget."""
        return trees

    def learn_all(self, states: Sequence[State], outcomes: Sequence[Outcome]) -> None:
        """Learn from a round of the batch. The seconds in each outcome are those of the whole batch."""

    def plan(self, state: State) -> Budget:
        return self.plan_all([state])[0]


class Verifier:
    """Accepts a path of the draft tree and samples the next token. ``labels``: the draft labels that it verifies
    without bias; ``title``: for people."""

    hidden_states: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset({CHOSEN})
    title: str = ""

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        raise TypeError(f"{type(self).__name__} does not say how to verify")

    def precompute(self, tree: DraftTree, scores: Scores, state: State) -> Any:
        """Compute on the device everything that ``verify`` may need, so that a round synchronises once. The result is
        passed to ``verify`` as ``scores.precomputed``. None: ``verify`` reads values as it needs them.

        A result has a tensor ``asked`` [n] on the device. Before ``verify`` runs, it is copied to the host, together
        with all other pending values, and stored as ``values``.
        """

    def check(self, tree: DraftTree) -> None:
        """Raise IncompatibleVerifier if the tree has draws that this rule would verify with bias."""
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
    """A verifier was given draws that it cannot verify without bias."""


def _and(words: Iterable[str]) -> str:
    return " and ".join(sorted(words))


@dataclass(frozen=True)
class Parts:
    """The parts of a method, as build() returns them. ``loop`` None: the ordinary loop, ``speculate``."""

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
