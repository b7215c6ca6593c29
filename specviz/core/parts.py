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
    """Result of a target's forward pass over a draft tree: logits [1 + nodes, vocab], row 0 for the root,
    row i + 1 for node i.

    hidden_states: captured states, "final" or "layer:k" -> [1 + nodes, hidden]; first_position: of row 0 in
    the text. As the result of ``sync``, the hidden states cover the ``num_computed`` tokens that it
    computed, and the logits possibly only the last of them.

    best: argmax of each row, where they were read from a device; precomputed: result of the verifier's
    ``precompute``; seconds: function that returns the duration of the pass once it has finished, None if
    the host waited for nothing else; raw_logits: the model's own logits, where logits processors changed
    ``logits``.
    """

    logits: Tensor
    hidden_states: dict[str, Tensor] = field(default_factory=lambda: {})
    first_position: int = 0
    num_computed: int = 0
    best: tuple[int, ...] | None = None
    precomputed: Any = field(default=None, repr=False, compare=False)
    seconds: Callable[[], float] | None = field(default=None, repr=False, compare=False)
    raw_logits: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def model_logits(self) -> Tensor:
        """The model's own logits [1 + nodes, vocab], before logits processors."""
        return self.logits if self.raw_logits is None else self.raw_logits

    def top(self, row: int) -> int:
        """Return the argmax token of a row of logits; if several logits are equal, the first."""
        from .sampling import argmax_tokens

        return argmax_tokens(self.logits[row : row + 1])[0] if self.best is None else self.best[row]

    def tops(self, rows: Sequence[int]) -> list[int]:
        """Return the argmax token of each of these rows of logits."""
        from .sampling import argmax_tokens

        return (
            argmax_tokens(self.logits[list(rows)]) if self.best is None else [self.best[row] for row in rows]
        )


@dataclass(frozen=True)
class Decision:
    """The test of one draft node by a verifier: the node is accepted iff draw < accept.

    rule: name of the verification rule; target_prob, draft_prob: probability of the node's token under
    target and draft (None: not drawn); accept: acceptance probability; draw: the uniform random number,
    None in a deterministic rule.

    probs [vocab]: the target distribution that the node was tested against, after the rejection of earlier
    siblings; residual [vocab]: the distribution that remains after this node's rejection. Both are only for
    display and may be None.
    """

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
        """The residual distribution [vocab]; only for a decision that rejects its node."""
        assert self.residual is not None
        return self.residual


@dataclass(frozen=True)
class Verdict:
    """The result of verification: ``path``, the accepted nodes from the root down, and ``token``, the next
    token, sampled from ``probs`` [vocab].

    kind of the next token: "bonus" (the whole draft was accepted), "correction" (in place of a rejected
    token), "plain" (there was no draft), "accepted" (the path was cut at an end token or the limit),
    "unchecked", "forced" or "small" (see docs/TRACE.md). decisions: the tests of the nodes.
    """

    path: tuple[int, ...]
    token: int
    kind: str
    decisions: tuple[Decision, ...] = ()
    probs: Tensor | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Outcome:
    """The result of a round, from which drafter and policy learn.

    committed: the round's new tokens; kept[i]: the row of ``scores`` that predicted committed[i], so
    zip(kept, committed) pairs the hidden state at position t with the token at t + 1; seconds: duration of
    each phase (plan, draft, verify, judge, commit, observe) on the engine's clock, where "judge" is the
    verifier; began: start of the round on that clock.
    """

    tree: DraftTree
    scores: Scores
    verdict: Verdict
    budget: Budget
    committed: tuple[int, ...]
    kept: tuple[int, ...]
    seconds: dict[str, float]
    began: float = 0.0


class EarlyLayers(Protocol):
    """The first layers of a target as a draft model (Kangaroo, LayerSkip). Keys, values and hidden states
    of the draft tokens stay in the target's KV cache after the committed ones, and verification continues
    from them."""

    def step(self, tree: DraftTree, start: int) -> Tensor:
        """Run the first layers over the tree and return the hidden states [rows, hidden] that leave them:
        for the root and all nodes if ``start`` is 0, else for the nodes from ``start`` on."""
        ...

    def kv(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys and values, each [kv_heads, rows, head_dim], of one of these layers: of the text, the
        root and the nodes of the last step."""
        ...


class Target(Protocol):
    """A causal language model with its own KV cache, for one run. Draft models implement the same protocol.

    The KV cache holds the committed tokens[:-1]; the last token is the root of the next round, which is not
    cached yet. ``score`` appends the root and the draft nodes after the committed rows ("draft rows");
    ``commit`` keeps the accepted ones and drops the others. No other part accesses keys and values. vocab:
    size of the vocabulary; context: longest text in tokens.

    ``capabilities`` lists what else the model can do (a part declares those that it uses in its ``needs``):

      tree             score a tree with branches in one pass; without it, chains only rewind           drop
      committed tokens (sync to a shorter or different text) tap:final, tap:layer   return hidden states
      after the final norm, or at the input of a layer (``capture``) entry            replace the hidden
      states of draft nodes at a layer (``DraftTree.inputs``) embed, head      give access to the embedding
      matrix (``embed``), and to final norm and output matrix (``norm``, ``head``) kv               copy
      keys and values out of the cache early, skip, layer_parallel, sublayers   draft with a part of its own
      layers partial_cache    draft with a part of its own KV cache learning         give a copy with
      trainable weights batch            score trees of several targets with the same ``weights`` in one
      pass (``score_many``) draft_chain      generate a chain of draft tokens in one call draft_path
      draft through a second set of trained weights over its own KV cache experts          report which
      sparse experts a pass used state:decay, state:groups   recurrent states instead of keys and values
      (Mamba-2; grouped linear attention) scales, guide    paint a picture scale by scale; with
      classifier-free guidance of its own

    The target's codec (zoo/codec.py) adds what it writes and reads: "sequence", "output:text",
    "output:patches", "codebook", "grid", "input:picture".
    """

    capabilities: frozenset[str]
    vocab: int
    context: int

    def capture(self, names: frozenset[str]) -> None:
        """Request hidden states along with the logits of every pass: "final" (after the final norm),
        "layer:k" (input of layer k, before its norm)."""

    def expect(self, rows: int) -> None:
        """Announce that a forward pass will have at most ``rows`` positions (the root and the draft nodes);
        a hint for a target with static shapes."""

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Bring the KV cache to tokens[:-1]: keep the common prefix, drop the rest, and compute the missing
        tokens. The last token becomes the root. Return the Scores of the computed tokens."""
        ...

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return logits of the root and every node of a draft tree. The first ``start`` nodes must be those
        of the previous call: their draft rows are still in the KV cache and are not computed again."""
        ...

    def commit(self, verdict: Verdict) -> None:
        """Keep the root and the accepted path in the KV cache and drop all other draft rows. The verdict's
        token becomes the new root; a following sync(state.tokens) computes nothing."""

    def close(self) -> None:
        """Free the KV cache. The target can be used again after a ``sync``."""


class ScoringModel(Protocol):
    """A model that scores a growing draft tree after a text: a Target, or a trained draft head on one."""

    def score(self, tree: DraftTree, start: int = 0, /) -> Scores:
        """Return the Scores of the tree, as ``Target.score`` does."""
        ...


class DraftingModel(ScoringModel, Protocol):
    """A model that a drafter drafts with: a Target, or anything else that can sync to a text and score
    draft trees after it."""

    def sync(self, tokens: list[int], /) -> Any:
        """Bring the model's cache to tokens[:-1], so that trees under the last token can be scored."""
        ...


class CapableTarget(Target, Protocol):
    """A Target with all members that its ``capabilities`` may promise. A part may use such a member only if
    it lists the capability in its ``needs``.

    layers, hidden: number of layers and width of the network; weights: equal objects for targets that can
    share a forward pass ("batch"); cached_tokens: the committed tokens whose keys and values are cached;
    state_bytes: size of all recurrent states ("state:decay"); group: positions per group of grouped linear
    attention ("state:groups"); prefix_id: identifies rows before the first token that are not tokens, such
    as a picture's; equal for equal rows, empty without any.
    """

    cached_tokens: list[int]
    prefix_id: str
    group: int

    @property
    def state_bytes(self) -> int:
        """Bytes of all recurrent states. Capability "state:decay"."""
        ...

    @property
    def layers(self) -> int:
        """Number of layers."""
        ...

    @property
    def hidden(self) -> int:
        """Width of the hidden states."""
        ...

    @property
    def weights(self) -> Any:
        """The model whose weights this target uses; targets with the same one can share a forward pass."""
        ...

    def embed(self, ids: Sequence[int] | Tensor, /) -> Tensor:
        """Return the token embeddings [n, hidden]. Capability "embed"."""
        ...

    def norm(self, states: Tensor, /) -> Tensor:
        """Apply the final norm to hidden states [n, hidden] of any layer; the result is an input of
        ``head``. Capability "head"."""
        ...

    def head(self, states: Tensor, /) -> Tensor:
        """Multiply hidden states [n, hidden], to which the final norm has already been applied, by the
        output matrix (lm_head); return logits [n, vocab]. Capability "head"."""
        ...

    def kv(self, layer: int, /) -> tuple[Tensor, Tensor]:
        """Return a copy of the keys and values of a layer's committed tokens, each [kv_heads, tokens,
        head_dim]. Capability "kv"."""
        ...

    def early(self, exit: int, /) -> EarlyLayers:
        """Return the layers before layer ``exit`` as a draft model. Capability "early"."""
        ...

    def skipping(self, sublayers: Iterable[int], /) -> SkippingTarget:
        """Return a view of the target that skips these sublayers (2i: attention of layer i, 2i + 1: its
        feed-forward), with a KV cache of its own. Capability "skip"."""
        ...

    def sublayers(self, count: int, /) -> Any:
        """Return a runner (targets.sublayers.Sublayers) that sends the last ``count`` committed tokens
        through single sublayers. Capability "sublayers"."""
        ...

    def experts_read(self) -> Any:
        """Return which experts the rows of the last forward pass used (targets.experts.ExpertsRead); None
        before the first pass and after a batched one. Capability "experts"."""
        ...

    def layer_parallel(self, size: int, /) -> CapableTarget:
        """Return a view of the target in which groups of ``size`` layers read the same input (EasySpec).
        Capability "layer_parallel"."""
        ...

    def partial_cache(self, keep: Any, /) -> CapableTarget:
        """Return a view of the target that attends to the part of the KV cache that ``keep`` selects
        (targets/cache_selection.py). Capability "partial_cache"."""
        ...

    def draft_path(self, path: Any, /) -> Any:
        """Return draft passes through a trained second path (targets.draft_path), over this target's KV
        cache. Capability "draft_path"."""
        ...

    def score_many(
        self, targets: Any, trees: Sequence[DraftTree], starts: Sequence[int] = (), /
    ) -> list[Scores]:
        """Return ``target.score(tree, start)`` for each target and its tree, computed in one pass over the
        shared weights; ``starts`` default to 0. Capability "batch"."""
        ...

    def draft_chain(
        self,
        after: Sequence[int],
        count: int,
        temperature: float,
        draw_uniforms: Callable[[int], list[float]],
        min_prob: float | None = None,
        /,
    ) -> Any:
        """Generate a chain of ``count`` draft tokens after the draft tokens ``after`` in one call
        (targets.fast.GeneratedTokens). draw_uniforms(n): returns n uniform random numbers; min_prob: stop
        after a token with a probability below it. None if the caller has to draft pass by pass. Capability
        "draft_chain"."""
        ...

    def survival(self) -> list[float]:
        """Return, for each row of the last scored tree, the share of the committed recurrent state that its
        decay leaves. Capability "state:decay"."""
        ...

    def groups(self) -> list[int]:
        """Return, for each row of the last scored tree, the index of its group of positions. Capability
        "state:groups"."""
        ...

    def learning(self) -> TrainableTarget:
        """Return a copy of the target with trainable weights. Capability "learning"."""
        ...

    def flush(self) -> None:
        """Compute the committed tokens whose forward pass ``sync`` deferred to the next ``score``."""

    def drop_draft_rows(self) -> None:
        """Drop the draft rows, so that the next ``score`` computes root and nodes again. Committed tokens
        stay cached."""


class SkippingTarget(CapableTarget, Protocol):
    """A view of a target that skips the sublayers listed in ``skip`` (2i: attention of layer i, 2i + 1: its
    feed-forward); the list may be changed between passes."""

    skip: frozenset[int]


class TrainableTarget(CapableTarget, Protocol):
    """A copy of a target whose ``weights`` are leaf tensors that require gradients."""

    def logits(self, tokens: Sequence[int], /) -> Tensor:
        """Return the logits [n, vocab] of a text from its beginning, with gradients."""
        ...

    def drop_outdated(self) -> None:
        """Drop everything computed with the old weights. Call it after each optimiser step; the next
        ``sync`` computes the whole text."""


class Drafter:
    """Base class of drafters: proposes a draft tree in each round.

    hidden_states: names of the target's hidden states to capture ("final", "layer:k"); needs: capabilities
    that the target must have; restartable: it can draft after any tokens, also after a hypothetical
    continuation of the text.
    """

    hidden_states: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    restartable: bool = True

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        """Begin a run. prefill: Scores of the prompt tokens that were computed now; with a reused KV cache
        these are only the last tokens of the prompt, or none."""

    def propose(self, state: State, budget: Budget) -> DraftTree:
        """Return a draft tree of depth at most budget.gamma under the root state.tokens[-1]."""
        from .tree import DraftTree

        return DraftTree()

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        """Draft as a generator, for batches: yield the forward passes of the draft model, receive their
        Scores, and return the draft tree.

        A loop over a batch merges the passes of many requests. A class that overrides this defines
        ``propose`` as ``run_alone(self.steps(...))``, and a subclass overrides both or neither. The default
        yields no passes.
        """
        return self.propose(state, budget)
        yield

    def observe(self, state: State, outcome: Outcome) -> None:
        """Update the drafter after a round; state.tokens already holds the committed tokens."""


class Policy:
    """Base class of policies: decides how much to draft in each round. hidden_states: names of the target's
    hidden states to capture."""

    hidden_states: frozenset[str] = frozenset()

    def plan(self, state: State) -> Budget:
        """Return the budget of the next round's draft."""
        return Budget()

    def observe(self, outcome: Outcome) -> None:
        """Update the policy after a round."""


class JointPolicy(Policy):
    """Base class of policies that plan for all requests of a batch together. The policy object of the first
    request is used for all.

    A request's budget may depend on the other requests' drafts, but never on its own future random numbers.
    """

    def plan_all(self, states: Sequence[State]) -> list[Budget]:
        """Return the budget of each request for this round."""
        raise TypeError(f"{type(self).__name__} does not say how to plan")

    def share(self, states: Sequence[State], trees: list[DraftTree]) -> list[DraftTree]:
        """Return the draft trees to score: unchanged, or cut to fit the batch's token budget."""
        return trees

    def learn_all(self, states: Sequence[State], outcomes: Sequence[Outcome]) -> None:
        """Update the policy after a round of the batch. The seconds in each outcome are those of the whole
        batch."""

    def plan(self, state: State) -> Budget:
        """Return the budget of a single request, planned as a batch of one."""
        return self.plan_all([state])[0]


class Verifier:
    """Base class of verifiers (rejection sampling, typical acceptance, ...): accepts a path of the draft
    tree and samples the next token.

    labels: how draft tokens may have been produced (core/draft_labels.py) for this rule to be unbiased;
    title: name for people; hidden_states: names of the target's hidden states to capture.
    """

    hidden_states: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset({CHOSEN})
    title: str = ""

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        """Return the accepted path and the next token. tree: the draft; scores: target logits for its root
        and nodes, after logits processors."""
        raise TypeError(f"{type(self).__name__} does not say how to verify")

    def precompute(self, tree: DraftTree, scores: Scores, state: State) -> Any:
        """Compute on the device everything that ``verify`` may need, so that a round synchronises once.
        None: ``verify`` reads values as it needs them.

        The result has a tensor ``asked`` [n] on the device. Before ``verify`` runs, it is copied to the
        host in one transfer with all other pending values and stored in the result as ``values``;
        ``verify`` finds the result in ``scores.precomputed``.
        """

    def check(self, tree: DraftTree) -> None:
        """Raise IncompatibleVerifier if the tree has nodes with a label that this rule would verify with
        bias."""
        found = {tree.label(i) for i in range(len(tree)) if i not in tree.probes}
        unknown = found - self.labels
        if unknown:
            others = ", ".join(compatible_verifiers(found)) or "no verifier here"
            raise IncompatibleVerifier(
                f"{self.title or type(self).__name__} verifies {_and(self.labels)}; the drafter proposed "
                f"{_and(unknown)}: compatible is {others}",
                "verifier.incompatible",
            )


def compatible_verifiers(labels: Iterable[str]) -> list[str]:
    """Return the titles of all verifiers that are unbiased for draft nodes with these labels
    (core/draft_labels.py)."""
    found: set[str] = set()
    work = [Verifier]
    while work:
        kind = work.pop()
        work += kind.__subclasses__()
        if kind.title and kind.labels >= set(labels):
            found.add(kind.title)
    return sorted(found)


class IncompatibleVerifier(CodedError, ValueError):
    """Error: a verifier was given draft tokens, produced in a way that it cannot verify without bias."""


def _and(words: Iterable[str]) -> str:
    return " and ".join(sorted(words))


@dataclass(frozen=True)
class Parts:
    """The parts of a method, as its build() returns them. loop: generator function that decodes; None for
    the ordinary loop, loops.speculate; helpers: further objects that a special loop uses, by name."""

    drafter: Drafter
    policy: Policy
    verifier: Verifier
    loop: Callable[[Parts, CapableTarget, State], Generator[Any]] | None = None
    helpers: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def hidden_states(self) -> frozenset[str]:
        """Names of all hidden states of the target that the parts need captured."""
        return self.drafter.hidden_states | self.policy.hidden_states | self.verifier.hidden_states


def has_nan(x: Tensor) -> bool:
    """Return whether any of the logits is NaN. The sum propagates one NaN and is much faster than an
    elementwise test."""
    return bool(x.sum().isnan())
