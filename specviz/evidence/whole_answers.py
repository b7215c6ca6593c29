"""A certificate over whole sampled answers: it tests whether every token follows the target's distribution at its position.

The randomised probability integral transform (PIT, Rosenblatt 1952) of a token, with the tokens ordered by probability,
is uniform on [0, 1] iff the token was sampled from that distribution, whatever precedes it. So the PIT values of all
tokens of all answers are independent and uniform iff the answers follow the target's distribution. Distributions are
recomputed by plain scoring, one pass per answer.

Values are also tested by the origin of the token. Accepted tokens and corrections are only uniform together, because
which of the two a token is depends on the token. Whether a position has a draft does not depend on it, so bonus tokens,
and tokens without a draft, are uniform separately. Any order that is fixed before the token is sampled is valid; for a
sampled chain, the order by the ratio of target to draft probability finds verification errors sooner ("ratio").

Tokens of several origins are also tested separately by betting (token_bets.py), which is powerful if the distribution is flat. A token
that the verification rejected and writes all the same has probability 0: the residual distribution is 0 there.

Answers are generated at several settings, also with a high temperature; ``power`` is the probability with which each
mistake would be found.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..core import DraftTree, Method, Sampling, Scores, State, Target, Verdict, Verifier
from ..loops import speculate
from ..methods import catalogue
from ..trace.events import Committed
from .betting import TestMartingale
from .certificate import PROMPTS, encode
from .statistics import uniformity_p_values
from .token_bets import APART, DRAFTED, NodeTest, Token, bet

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

TOKENS = 2400  # tokens of all answers
LENGTH = 48  # tokens of an answer at most
CHANCE = 1e-4  # probability that a correct method fails
BINS = 20  # bins of the histogram
GROUPS = ("all", "drafted", "bonus", "plain", "other")
RATIO = "ratio"
WIDER = 1e-3  # tolerance of top-p: rounding may move a token across the cut
# draft depth (None: the method's default) and sampling: short drafts, so that a whole draft is often accepted; low temperatures, where
# few tokens are probable, and high ones, where no token dominates; filters, outside which a token has probability 0
SETTINGS = ((1, Sampling(0.7)), (1, Sampling(1.5, top_p=0.9)), (2, Sampling(1.0)), (None, Sampling(0.9, top_p=0.9)), (2, Sampling(1.5)),
            (1, Sampling(1.2, top_k=8)))
RULES = ("ratio", "match")  # after a rejection by one of these the residual distribution is 0 at the rejected token
PROMPTS_OPEN = ("Write ten random words.", "Invent a name for a new city, a drink and a song.")  # answers of high entropy
DEPTHS = ("gamma", "depth", "block", "window", "length", "most")  # knobs that set the draft depth
TEXTS = {  # parts of a report's detail, by identifier
    "impossible": " {count} of them have probability 0 under the target.",
    "worst": " Largest deviation: {group}.",
}


@dataclass
class TokenPlaces:
    """PIT values of tokens in the order in which they were generated, with the origin of each token."""

    values: list[float] = field(default_factory=list)
    how: list[str] = field(default_factory=list)
    impossible: int = 0
    ratios: list[float | None] = field(default_factory=list)
    apart: dict[str, TestMartingale] = field(default_factory=lambda: {kind: TestMartingale(why) for kind, why in APART.items()})

    def group(self, name: str) -> list[float]:
        if name == RATIO:
            return [value for value in self.ratios if value is not None]
        return self.values if name == "all" else [value for value, how in zip(self.values, self.how) if how == name]

    def first(self, count: int) -> TokenPlaces:
        """Return the first ``count`` values. A fixed number of values is uniform; a number that depends on the answers'
        lengths is not exactly."""
        return replace(self, values=self.values[:count], how=self.how[:count], ratios=self.ratios[:count])

    def report(self) -> dict[str, Any]:
        """Return {p, samples, histogram, impossible, groups: {name: {p, samples, histogram}}, apart: {kind: {p, samples, power, against}}}.
        p is corrected for the number of tests."""
        groups = {name: self.group(name) for name in (*GROUPS, RATIO)}
        found = {name: uniformity_p_values(values, serial=name == "all") for name, values in groups.items()}
        worst = min([p for tests in found.values() for p in tests] + [m.p for m in self.apart.values() if m.p is not None], default=1.0)
        tests = 2 * len(groups) + 1 + len(self.apart)
        p = 0.0 if self.impossible else min(1.0, tests * worst)
        apart = {kind: {"p": m.p, "samples": len(m.gains), "power": m.power(CHANCE / tests), "against": m.alternative}
                 for kind, m in self.apart.items() if m.gains}
        return {"p": p, "samples": len(self.values), "histogram": histogram(self.values), "impossible": self.impossible, "apart": apart,
                "groups": {name: {"p": min(found[name], default=None), "samples": len(values), "histogram": histogram(values)}
                           for name, values in groups.items() if values}}


def histogram(values: Sequence[float]) -> list[int]:
    """Count the values in each bin of [0, 1]."""
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, int(value * BINS))] += 1
    return counts


def answers(loaded: Loaded, key: str | Method, prompts: Sequence[str | list[int]] | None = None, tokens: int = TOKENS,
            knobs: dict[str, Any] | None = None, seed: int = 0) -> dict[str, Any]:
    """Generate answers with a method (a key or a Method) at SETTINGS, and test their tokens. Raises ValueError for
    invalid knobs.

    status: "pass"; "fail" (a correct method fails with probability CHANCE); "not applicable" (the method is not exact);
    "unavailable". Other fields as in ``TokenPlaces.report``, and ``detail``, a sentence.
    """
    method = catalogue()[key] if isinstance(key, str) else key
    missing = loaded.unsupported_reason(method)
    if missing:
        return {"status": "unavailable", "detail": missing}
    if method.exactness != "exact":
        return {"status": "not applicable",
                "detail": f"{method.title} is {method.exactness}: it does not promise the target's distribution."}
    method.read_knobs(knobs or {})
    prompts = prompts or loaded.codec.prompts[:len(PROMPTS)] or (*PROMPTS, *PROMPTS_OPEN)
    places, texts = TokenPlaces(), [encode(loaded, prompt) for prompt in prompts]
    writers = [answer_writer(loaded, method, short(method, depth) | (knobs or {}), texts, replace(sampling, seed=seed * len(SETTINGS) + i))
               for i, (depth, sampling) in enumerate(SETTINGS)]  # no two answers share random numbers
    while len(places.values) < tokens:
        for writer in writers:
            next(writer)(places)
    return conclude(places.first(tokens))


def conclude(places: TokenPlaces) -> dict[str, Any]:
    """Return the report with status and a sentence."""
    report = places.report()
    passed = report["p"] >= CHANCE
    counts = ", ".join(f"{group['samples']} {name}" for name, group in report["groups"].items() if name not in ("all", RATIO))
    words = f"{report['samples']} tokens of whole answers ({counts}): p = {report['p']:.2g}."
    if places.impossible:
        words += TEXTS["impossible"].format(count=places.impossible)
    elif not passed:
        tried = {name: group["p"] for name, group in report["groups"].items() if group["p"] is not None and name != "all"}
        tried |= {kind: kind_["p"] for kind, kind_ in report["apart"].items() if kind_["p"] < tried.get(kind, 1.0)}
        words += TEXTS["worst"].format(group=min(tried, key=tried.__getitem__)) if tried else ""
    words += "".join(f" {kind.capitalize()} ({one['samples']}): {one['against']} would be found with {one['power']:.0%}."
                     for kind, one in report["apart"].items())
    return {"status": "pass" if passed else "fail", **report, "detail": words}


def short(method: Method, depth: int | None) -> dict[str, Any]:
    """Return the knobs that set a method's draft depth, within their ranges; none for None."""
    if depth is None:
        return {}
    return {knob.name: min(max(depth, int(knob.low)), int(knob.high)) for knob in method.knobs
            if knob.name in DEPTHS and isinstance(knob.default, int) and knob.low is not None and knob.high is not None}


def answer_writer(loaded: Loaded, method: Method, knobs: dict[str, Any], prompts: Sequence[list[int]], sampling: Sampling,
                  length: int = LENGTH) -> Iterator[Any]:
    """Yield functions without end, one per prompt in turn. Each is called with a TokenPlaces, generates an answer, and
    adds its tokens."""
    kit = loaded.kit()
    parts, scorer, seed = method.build(kit, **method.read_knobs(knobs)), loaded.open_target(), 0
    recorder, earlier = RecordingVerifier(parts.verifier), dict[int, int]()  # first token of the last answer by prompt
    parts = replace(parts, verifier=recorder)

    def write(places: TokenPlaces) -> None:
        ids = prompts[seed % len(prompts)]
        state = State(list(ids), replace(sampling, seed=1_000_003 * sampling.seed + seed), stop=loaded.end_tokens,
                      limit=min(length, loaded.context - len(ids)))
        with torch.inference_mode():
            how, drafts = [], []
            with closing((parts.loop or speculate)(parts, kit.target, state)) as events:
                for event in events:
                    if isinstance(event, Committed):
                        how += ["accepted"] * (len(event.tokens) - 1) + [event.kind]
                        drafts += recorder.drafted(len(event.tokens))
            tokens = state.tokens[len(ids):]
            places.how += [_group(kind) for kind in how[:len(tokens)]]
            rng = torch.Generator().manual_seed(state.sampling.seed ^ 0xBE7)
            for i, place in enumerate(places_of(scorer, ids, tokens, state.sampling, [draft.probs for draft in drafts])):
                there = place.value is not None and not any(test.token == tokens[i] and not test.accepted for test in drafts[i].tests)
                places.impossible += not there
                places.values.append(1.0 if place.value is None else place.value)
                places.ratios.append(place.ratio)
                bet(places.apart, Token(tokens[i], how[i], place.probs, place.raw, state.tokens[len(ids) + i - 1], loaded.end_tokens,
                                        drafts[i].probs if drafts[i].by_ratio else None, drafts[i].tests, i == 0,
                                        earlier.get(seed % len(prompts))), rng)
            if tokens:
                earlier[seed % len(prompts)] = tokens[0]

    while True:
        yield write
        seed += 1


class Place(NamedTuple):
    """A token's position. probs, raw [vocab]: the target's distribution, and without temperature and filters; value: the token's PIT
    value with the most probable tokens first (None if it has probability 0); ratio: its PIT value with the tokens of the largest ratio of
    target to draft probability first (None without the draft distribution)."""

    probs: Tensor
    raw: Tensor
    value: float | None
    ratio: float | None


def places_of(target: Target, prompt: list[int], tokens: list[int], sampling: Sampling,
              drafts: Sequence[Tensor | None] = ()) -> Iterator[Place]:
    """Yield the position of each token; drafts: the draft distribution [vocab] where one is known. The random numbers are seeded by
    ``sampling`` and separate from the run's."""
    target.capture(frozenset())
    target.sync(prompt)
    logits = target.score(DraftTree.chain(tokens[:-1])).logits[:len(tokens)]
    distributions = sampling.probs(logits).double().cpu()
    distributions /= distributions.sum(-1, keepdim=True)
    raw = logits.double().softmax(-1).cpu()
    wider = replace(sampling, top_p=min(1.0, sampling.top_p + WIDER), top_k=sampling.top_k and sampling.top_k + 1).probs(logits)
    within = torch.rand(len(tokens), generator=torch.Generator().manual_seed(sampling.seed ^ 0x5EED), dtype=torch.float64).tolist()
    for i, token in enumerate(tokens):
        draft = drafts[i] if i < len(drafts) else None
        known = draft if draft is not None and draft.shape == distributions[i].shape else None
        value = _place(distributions[i], distributions[i], token, within[i]) if float(wider[i, token]) > 0 else None
        worth = None if known is None else distributions[i] / known.double().cpu().clamp(min=1e-30)
        yield Place(distributions[i], raw[i], value, None if worth is None else _place(distributions[i], worth, token, within[i]))


def _place(probs: Tensor, worth: Tensor, token: int, within: float) -> float:
    """Return a token's PIT value with the tokens of largest worth first (ties: the lower id)."""
    first = worth > worth[token]
    first[:token] |= worth[:token] == worth[token]
    return min(1.0, float(probs[first].sum()) + within * float(probs[token]))


class DraftOf(NamedTuple):
    """The draft at a token's position. probs [vocab]: of a sampled chain, else None; by_ratio: rejection sampling tested the round's
    tokens; tests: those at this position by RULES."""

    probs: Tensor | None
    by_ratio: bool
    tests: tuple[NodeTest, ...]


class RecordingVerifier:
    """A wrapper of a verifier that records its last draft tree and verdict."""

    def __init__(self, verifier: Verifier):
        self._verifier, self._tree, self._verdict = verifier, DraftTree(), Verdict((), 0, "plain")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier, name)

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        self._tree, self._verdict = tree, self._verifier.verify(tree, scores, state)
        return self._verdict

    def drafted(self, count: int) -> list[DraftOf]:
        """Return the draft at each of the round's ``count`` tokens. Distributions are those of sampled chains only: in a tree, the
        sampled tokens may decide which node's distribution applies."""
        tree, self._tree = self._tree, DraftTree()
        path, decisions = self._verdict.path, self._verdict.decisions
        drawn = len(tree) > 0 and all(tree.parents[i] == i - 1 and tree.draft_probs(i) is not None for i in range(len(tree)))
        by_ratio = bool(decisions) and all(one.rule == "ratio" for one in decisions)
        aligned = len(tree) > 0 and count <= len(path) + 1  # the round's tokens are the path's and the one after it
        found = []
        for i in range(count):
            parent = path[i - 1] if 0 < i <= len(path) else -1
            here = [one for one in decisions if aligned and one.rule in RULES and tree.parents[one.node] == parent]
            tests = tuple(NodeTest(tree.tokens[one.node], tree.draft_probs(one.node), one.verdict == "accepted") for one in here
                          if one.verdict in ("accepted", "rejected"))
            found.append(DraftOf(tree.draft_probs(i) if drawn and i < len(tree) else None, by_ratio, tests))
        return found


def _group(kind: str) -> str:
    return "drafted" if kind in DRAFTED else kind if kind in GROUPS else "other"
