"""Speculative decoding with one deliberate mistake, tested live with the same two certificates as every
method.

Each mistake is the correct part with one line changed. The broken methods are not in the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core import (
    IID,
    Decision,
    Drafter,
    DraftTree,
    Method,
    Parts,
    Sampling,
    Scores,
    State,
    Target,
    TreeBuilder,
    Verdict,
)
from ..drafters.model.chain import DraftChain
from ..evidence.certificate import PROMPTS, greedy
from ..loops import speculate
from ..loops.batched import batch_of_one
from ..policies import AdaptiveVerification, Fixed
from ..policies.goodput import OPENING
from ..run.request import SessionError, read_integer
from ..trace.events import Event
from ..trees import Scorer
from ..verifiers import TokenRejection
from .distribution_test import SAMPLES, tested
from .mistakes import MISTAKES, Mistake

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

GAMMA = {"bonus_from_draft": 1}  # short drafts, so that bonus tokens are frequent
USUAL = 2
TOKENS = 48  # tokens of each text of the greedy certificate
TEXTS = 2  # texts of it
LIMIT = 0.3  # smallest survival of a token that is verified, where tokens are chosen
SHARP = Sampling(0.7)  # mistakes show sooner if few tokens are probable
NONE = Mistake("none", "Nothing is broken", "The method as it should be, for comparison.", "Both stay green.")


class ArgmaxAsDrawn(DraftChain):
    """A drafter with a mistake: it proposes the draft model's top-1 token, but declares it as a sample from
    the draft distribution."""

    def propose(self, state, budget):
        """Draft a chain of top-1 tokens."""
        build = TreeBuilder()
        scorer = Scorer(self.model)
        node = -1
        if budget.gamma > 0:
            self.model.sync(state.tokens)
        for _ in range(budget.gamma):
            logits = scorer.logits(build, (node,))[0]
            node = build.add(int(logits.argmax()), node, build.begin(state.sampling.probs(logits), IID))
        return build.tree()


class NoResidual(TokenRejection):
    """A verifier with a mistake: after a rejection it samples from the target's distribution instead of the
    residual distribution."""

    def test(self, tree, child, p, state):
        """Test a child; a rejection leaves the target's distribution."""
        decision = super().test(tree, child, p, state)
        return replace(decision, residual=p) if decision.verdict == "rejected" else decision


class FirstUnchecked(TokenRejection):
    """A verifier with a mistake: it accepts the first draft token without a test, and verifies the others
    correctly."""

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        """Accept the first token of a chain, and test the others."""
        path = []
        decisions = []
        node = -1
        while True:
            p, children = state.sampling.probs(scores.logits[node + 1]), tree.children(node)
            if not children:
                return Verdict(
                    tuple(path),
                    state.rng.pick("verify", p),
                    "bonus" if path else "plain",
                    tuple(decisions),
                    p,
                )
            child = children[0]
            decision = (
                Decision(child, "unchecked", float(p[tree.tokens[child]]), None, 1.0, None, "accepted", p)
                if node < 0
                else self.test(tree, child, p, state)
            )
            decisions.append(decision)
            if decision.verdict == "rejected":
                return Verdict(
                    tuple(path),
                    state.rng.pick("verify", decision.residual),
                    "correction",
                    tuple(decisions),
                    decision.residual,
                )
            path.append(child)
            node = child


class BonusFromDraft(TokenRejection):
    """A verifier with a mistake: it samples the bonus token from the draft model."""

    def __init__(self, model: Target):
        self.model = model

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        """Verify; replace a bonus token by one of the draft model."""
        verdict = super().verify(tree, scores, state)
        if verdict.kind != "bonus":
            return verdict
        self.model.sync([*state.tokens, *(tree.tokens[i] for i in verdict.path)])
        probs = state.sampling.probs(self.model.score(DraftTree()).logits[0])
        return replace(verdict, token=state.rng.pick("verify", probs), probs=probs)


class FixedThreshold(AdaptiveVerification):
    """Adaptive verification with a threshold that does not depend on measured times."""

    def __init__(self, most: int = USUAL):
        super().__init__(most, uncut=0)
        self.rounds = len(OPENING)
        self.model.slope, self.model.intercepts = 1.0, [0.0] * most  # take the draft at its word

    def _choose(self, states):
        self.budget, self.limit, self.step_limit = self.max_gamma, LIMIT, 0.0


class RankByDrawnToken(FixedThreshold):
    """A policy with a mistake: it chooses tokens by the draft probability of the drawn token itself."""

    def confidence(self, step):
        """Return the probability of the token that was drawn."""
        return float(step.probs[step.token])


class StaleCacheTarget:
    """A target with a mistake: it keeps rejected tokens in its KV cache."""

    capabilities: frozenset[str]  # these three are the model's own, by __getattr__
    vocab: int
    context: int

    def __init__(self, model: Target):
        self._model, self._tree = model, DraftTree()
        self._written: list[int] = []
        self._read: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def capture(self, names: frozenset[str]) -> None:
        self._model.capture(names)

    def expect(self, rows: int) -> None:
        self._model.expect(rows)

    def close(self) -> None:
        self._model.close()

    def sync(self, tokens) -> Scores:
        same = self._written and list(tokens[: len(self._written)]) == self._written
        self._read = [*self._read, *tokens[len(self._written) :]] if same else list(tokens)
        self._written = list(tokens)
        return self._follow()

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        self._tree = tree
        return self._model.score(tree, start)

    def commit(self, verdict: Verdict) -> None:
        self._written += [*(self._tree.tokens[i] for i in verdict.path), verdict.token]
        self._read += [*self._tree.tokens, verdict.token]
        self._follow()

    def _follow(self) -> Scores:
        if len(self._read) >= self._model.context:  # the stale tokens fill the cache: start over
            self._read = list(self._written)
        return self._model.sync(self._read)


def _stale_cache_loop(parts: Parts, target: Target, state: State) -> Generator[Event]:
    return speculate(parts, StaleCacheTarget(target), state)


# mistake -> (draft model -> drafter, verifier, loop)
Built = tuple[Drafter, TokenRejection, Any]
BUILT: dict[str, Callable[[Target], Built]] = {
    NONE.key: lambda draft: (DraftChain(draft), TokenRejection(), None),
    "argmax_as_drawn": lambda draft: (ArgmaxAsDrawn(draft), TokenRejection(), None),
    "no_residual": lambda draft: (DraftChain(draft), NoResidual(), None),
    "first_unchecked": lambda draft: (DraftChain(draft), FirstUnchecked(), None),
    "cache_not_rolled_back": lambda draft: (DraftChain(draft), TokenRejection(), _stale_cache_loop),
    "rank_by_drawn_token": lambda draft: (DraftChain(draft), TokenRejection(), batch_of_one),
    "bonus_from_draft": lambda draft: (DraftChain(draft), BonusFromDraft(draft), None),
}


def broken(key: str) -> Method:
    """Return speculative decoding with the mistake that has this key."""

    def build(kit: Any) -> Parts:
        drafter, verifier, loop = BUILT[key](kit.open("draft"))
        policy = RankByDrawnToken() if key == "rank_by_drawn_token" else Fixed(GAMMA.get(key, USUAL))
        return Parts(drafter, policy, verifier, loop=loop or speculate)

    mistake = {m.key: m for m in (NONE, *MISTAKES.values())}[key]
    return Method(
        key=key,
        title=mistake.title,
        paper="",
        family="Mistake",
        summary=mistake.why,
        build=build,
        needs=frozenset({"draft"}),
    )


def break_it(loaded: Loaded, payload: dict[str, Any], stop: Callable[[], bool]) -> Iterator[Any]:
    """Test a mistake. payload {mistake, samples?} -> {mistake, title, why, watch, greedy, distribution,
    caught, verdict}, yielded repeatedly. greedy: result of certificate.greedy plus ``equal``; distribution:
    result of distribution_test.distribution; verdict: a sentence."""
    key = payload.get("mistake")
    if not isinstance(key, str) or key not in BUILT:
        raise SessionError(f"There is no such mistake; there are {', '.join(BUILT)}.", "lab.mistake")
    method, samples = broken(key), read_integer("samples", payload.get("samples", SAMPLES), 20, SAMPLES)
    missing = loaded.unsupported_reason(method)
    if missing:
        raise SessionError(missing, "method.missing")
    mistake = MISTAKES.get(key, NONE)
    found: dict[str, Any] = {
        "mistake": key,
        "title": mistake.title,
        "why": mistake.why,
        "watch": mistake.watch,
        "greedy": None,
        "distribution": None,
        "caught": None,
        "verdict": "",
    }
    yield "Comparing greedy text with plain decoding."
    result = greedy(loaded, method, PROMPTS[:TEXTS], TOKENS)
    found["greedy"] = result | {"equal": result["status"] in ("identical", "near_tie")}
    yield found | {}
    for probs in tested(loaded, method, {}, PROMPTS[0], SHARP, samples, stop):
        found["distribution"] = probs
        found |= _verdict(found["greedy"]["equal"], probs["verdict"])
        yield found | {}


def _verdict(equal: bool, probs: str) -> dict[str, Any]:
    """Summarise both certificates."""
    if probs == "open":
        return {"caught": None if equal else True, "verdict": ""}
    if probs == "fail":
        words = "Caught. Greedy text alone would have missed it." if equal else "Caught by both checks."
    elif probs == "few" and equal:
        return {
            "caught": None,
            "verdict": "Nothing was found, in too few samples to say that nothing is there.",
        }
    else:
        words = (
            "Neither check found anything."
            if equal
            else "Caught by the greedy text; its first tokens still follow the distribution."
        )
    return {"caught": probs == "fail" or not equal, "verdict": words}
