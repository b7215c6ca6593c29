"""A certificate over whole sampled answers: it tests whether every token follows the target's distribution
at its position.

The randomised probability integral transform (PIT, Rosenblatt 1952) of a token, with the tokens ordered by
probability, is uniform on [0, 1] iff the token was sampled from that distribution, whatever precedes it. So
the PIT values of all tokens of all answers are independent and uniform iff the answers follow the target's
distribution. Distributions are recomputed by plain scoring, one pass per answer.

Values are also tested by the origin of the token. Accepted tokens and corrections are only uniform
together, because which of the two a token is depends on the token. Whether a position has a draft does not
depend on it, so bonus tokens, and tokens without a draft, are uniform separately. Any order that is fixed
before the token is sampled is valid; for a sampled chain, the order by the ratio of target to draft
probability finds verification errors sooner ("ratio"), and the order by id finds draws that share their
random numbers ("number").

Tokens of several origins are also tested separately by betting (token_bets.py), which is powerful if the
distribution is flat. A token that the verification rejected and that is emitted nevertheless has
probability 0: the residual distribution is 0 there.

The numbers that the verifier reports of its decisions are recomputed, too (decision_checks.py).

Answers are generated at several settings, also with a high temperature; ``power`` is the probability with
which each mistake would be found. If a test is suspicious, twice and four times as many tokens are
generated (LOOKS): p-values of betting are valid at any stopping time, and those of uniformity are corrected
for the number of looks."""

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
from .certificate import PROMPTS, encode, logit_noise
from .decision_checks import DecisionChecks
from .statistics import uniformity_p_values
from .token_bets import APART, DRAFTED, NodeTest, Token, bet

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

TOKENS = 2400  # tokens of all answers
LOOKS = (1, 2, 4)  # multiples of them after which the tests are read
SUSPICIOUS = (
    0.005,
    0.4,
)  # smallest p-value of uniformity, and of betting, below which more tokens are generated
LENGTH = 48  # tokens of an answer at most
CHANCE = 1e-4  # probability that a correct method fails
BINS = 20  # bins of the histogram
GROUPS = ("all", "drafted", "bonus", "plain", "other")
RATIO = "ratio"  # test of the PIT values of tokens ordered by probability ratio
NUMBER = "number"  # test of the PIT values of tokens ordered by token id
DRAWN = "draws"  # test of the uniform numbers of decisions
NOISE = 4  # tolerance of reported probabilities, as a multiple of the noise of the logits
WIDER = 1e-3  # tolerance of top-p: rounding may move a token across the cut
# draft depth (None: the method's default) and sampling: short drafts, so that a whole draft is often
# accepted; low temperatures, where few tokens are probable, and high ones, where no token dominates;
# filters, outside which a token has probability 0; long drafts, whose last tokens are seldom reached
SETTINGS = (
    (1, Sampling(0.7)),
    (1, Sampling(1.5, top_p=0.9)),
    (2, Sampling(1.0)),
    (None, Sampling(0.9, top_p=0.9)),
    (2, Sampling(1.5)),
    (1, Sampling(1.2, top_k=8)),
    (6, Sampling(0.8)),
    (5, Sampling(1.0)),
)
RULES = (
    "ratio",
    "match",
)  # after a rejection by one of these the residual distribution is 0 at the rejected token
PROMPTS_OPEN = (
    "Write ten random words.",
    "Invent a name for a new city, a drink and a song.",
)  # answers of high entropy
DEPTHS = ("gamma", "depth", "block", "window", "length", "most")  # knobs that set the draft depth
TEXTS = {  # parts of a report's detail, by identifier
    "impossible": " {count} of them have probability 0 under the target.",
    "worst": " Largest deviation: {group}.",
    "reported": " {wrong} of {decided} decisions report numbers that plain scoring does not give.",
}


@dataclass
class PitValues:
    """PIT values of tokens in the order in which they were generated, with the origin of each token.
    values, ratios, numbers: by the three orders; impossible: number of tokens of probability 0; apart: bets
    by origin; checks: of the reported decisions."""

    values: list[float] = field(default_factory=list)
    how: list[str] = field(default_factory=list)
    impossible: int = 0
    ratios: list[float | None] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    apart: dict[str, TestMartingale] = field(
        default_factory=lambda: {kind: TestMartingale(why) for kind, why in APART.items()}
    )
    checks: DecisionChecks = field(default_factory=DecisionChecks)

    def group(self, name: str) -> list[float]:
        """Return the values of one test: those of an origin, of all tokens, or in one of the other orders."""
        if name == RATIO:
            return [value for value in self.ratios if value is not None]
        if name in (NUMBER, DRAWN):
            return self.numbers if name == NUMBER else self.checks.draws
        return (
            self.values
            if name == "all"
            else [value for value, how in zip(self.values, self.how) if how == name]
        )

    def first(self, count: int) -> PitValues:
        """Return the first ``count`` values. A number of values that is fixed before is needed: one that
        depends on the answers' lengths would not give exactly uniform values."""
        return replace(
            self,
            values=self.values[:count],
            how=self.how[:count],
            ratios=self.ratios[:count],
            numbers=self.numbers[:count],
        )

    def report(self) -> dict[str, Any]:
        """Return {p, samples, histogram, impossible, groups: {name: {p, samples, histogram}}, apart: {kind:
        {p, samples, power, against}}, decisions: {decided, wrong, failed}}. p is corrected for the number
        of tests: one half of the level is spent on uniformity, for every look, and one on betting."""
        groups = {name: self.group(name) for name in (*GROUPS, RATIO, NUMBER, DRAWN)}
        found = {
            name: uniformity_p_values(values, serial=name in ("all", DRAWN))
            for name, values in groups.items()
        }
        tests = 2 * len(groups) + 2
        even = tests * len(LOOKS) * min((p for ps in found.values() for p in ps), default=1.0)
        won = len(self.apart) * min((m.p for m in self.apart.values() if m.p is not None), default=1.0)
        p = 0.0 if self.impossible or self.checks.failed else min(1.0, 2 * even, 2 * won)
        apart = {
            kind: {
                "p": m.p,
                "samples": len(m.gains),
                "power": m.power(CHANCE / (2 * len(self.apart))),
                "against": m.alternative,
            }
            for kind, m in self.apart.items()
            if m.gains
        }
        decisions = {
            "decided": self.checks.decided.total(),
            "wrong": self.checks.wrong.total(),
            "failed": self.checks.failed,
        }
        return {
            "p": p,
            "samples": len(self.values),
            "histogram": histogram(self.values),
            "impossible": self.impossible,
            "apart": apart,
            "decisions": decisions,
            "groups": {
                name: {
                    "p": min(found[name], default=None),
                    "samples": len(values),
                    "histogram": histogram(values),
                }
                for name, values in groups.items()
                if values
            },
        }


def needs_more_tokens(report: dict[str, Any]) -> bool:
    """Return whether a report is suspicious: whether more tokens may turn it into a failure."""
    even = min((group["p"] for group in report["groups"].values() if group["p"] is not None), default=1.0)
    won = min((kind["p"] for kind in report["apart"].values()), default=1.0)
    return report["p"] >= CHANCE and (even < SUSPICIOUS[0] or won < SUSPICIOUS[1])


def histogram(values: Sequence[float]) -> list[int]:
    """Count the values in each bin of [0, 1]."""
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, int(value * BINS))] += 1
    return counts


def certify_answers(
    loaded: Loaded,
    key: str | Method,
    prompts: Sequence[str | list[int]] | None = None,
    tokens: int = TOKENS,
    knobs: dict[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Generate answers with a method (a key or a Method) at SETTINGS, and test their tokens. Raises
    ValueError for invalid knobs.

    status: "pass"; "fail" (a correct method fails with probability CHANCE); "not applicable" (the method is
    not exact); "unavailable". Other fields as in ``PitValues.report``, and ``detail``, a sentence."""
    method = catalogue()[key] if isinstance(key, str) else key
    missing = loaded.unsupported_reason(method)
    if missing:
        return {"status": "unavailable", "detail": missing}
    if method.exactness != "exact":
        return {
            "status": "not applicable",
            "detail": f"{method.title} is {method.exactness}: it does not promise the target's distribution.",
        }
    method.read_knobs(knobs or {})
    prompts = prompts or loaded.codec.prompts[: len(PROMPTS)] or (*PROMPTS, *PROMPTS_OPEN)
    places, texts = PitValues(), [encode(loaded, prompt) for prompt in prompts]
    writers = [
        answer_generators(
            loaded,
            method,
            draft_depth_knobs(method, depth) | (knobs or {}),
            texts,
            replace(sampling, seed=seed * len(SETTINGS) + i),
        )
        for i, (depth, sampling) in enumerate(SETTINGS)
    ]  # no two answers share random numbers
    places.checks.tolerance += NOISE * logit_noise(loaded.open_target(), texts[0])
    for look in LOOKS:
        while len(places.values) < look * tokens:
            for writer in writers:
                next(writer)(places)
        report = places.first(look * tokens).report()
        if not needs_more_tokens(report):
            break
    return conclude(report)


def conclude(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report with its status and a sentence (``detail``)."""
    passed = report["p"] >= CHANCE
    counts = ", ".join(
        f"{report['groups'][name]['samples']} {name}" for name in GROUPS[1:] if name in report["groups"]
    )
    words = f"{report['samples']} tokens of whole answers ({counts}): p = {report['p']:.2g}."
    if report["decisions"]["failed"]:
        words += TEXTS["reported"].format(**report["decisions"])
    if report["impossible"]:
        words += TEXTS["impossible"].format(count=report["impossible"])
    elif not passed:
        tried = {
            name: group["p"]
            for name, group in report["groups"].items()
            if group["p"] is not None and name != "all"
        }
        tried |= {
            kind: kind_["p"] for kind, kind_ in report["apart"].items() if kind_["p"] < tried.get(kind, 1.0)
        }
        words += TEXTS["worst"].format(group=min(tried, key=tried.__getitem__)) if tried else ""
    words += "".join(
        f" {kind.capitalize()} ({one['samples']}): {one['against']} would be found with {one['power']:.0%}."
        for kind, one in report["apart"].items()
    )
    return {"status": "pass" if passed else "fail", **report, "detail": words}


def draft_depth_knobs(method: Method, depth: int | None) -> dict[str, Any]:
    """Return the values of a method's draft length knobs for drafts of this depth, within the knobs'
    ranges; empty for None."""
    if depth is None:
        return {}
    return {
        knob.name: min(max(depth, int(knob.low)), int(knob.high))
        for knob in method.knobs
        if knob.name in DEPTHS
        and isinstance(knob.default, int)
        and knob.low is not None
        and knob.high is not None
    }


def answer_generators(
    loaded: Loaded,
    method: Method,
    knobs: dict[str, Any],
    prompts: Sequence[list[int]],
    sampling: Sampling,
    length: int = LENGTH,
) -> Iterator[Any]:
    """Yield one function per prompt, over and over. Calling it with PitValues generates an answer to the
    prompt and adds its tokens."""
    kit = loaded.kit()
    parts = method.build(kit, **method.read_knobs(knobs))
    scorer = loaded.open_target()
    seed = 0
    recorder, earlier = (
        RecordingVerifier(parts.verifier),
        dict[int, int](),
    )  # first token of the last answer by prompt
    parts = replace(parts, verifier=recorder)

    def write(places: PitValues) -> None:
        ids = prompts[seed % len(prompts)]
        state = State(
            list(ids),
            replace(sampling, seed=1_000_003 * sampling.seed + seed),
            stop=loaded.end_tokens,
            limit=min(length, loaded.context - len(ids)),
        )
        with torch.inference_mode():
            how, drafts = [], []
            with closing((parts.loop or speculate)(parts, kit.target, state)) as events:
                for event in events:
                    if isinstance(event, Committed):
                        how += ["accepted"] * (len(event.tokens) - 1) + [event.kind]
                        drafts += recorder.drafted(len(event.tokens))
            tokens = state.tokens[len(ids) :]
            places.how += [_group(kind) for kind in how[: len(tokens)]]
            rng = torch.Generator().manual_seed(state.sampling.seed ^ 0xBE7)
            for i, place in enumerate(
                token_positions(scorer, ids, tokens, state.sampling, [draft.probs for draft in drafts])
            ):
                there = place.value is not None and not any(
                    test.token == tokens[i] and not test.accepted for test in drafts[i].tests
                )
                places.impossible += not there
                places.values.append(1.0 if place.value is None else place.value)
                places.ratios.append(place.ratio)
                places.numbers.append(place.number)
                token = Token(
                    tokens[i],
                    how[i],
                    place.probs,
                    place.raw,
                    state.tokens[len(ids) + i - 1],
                    loaded.end_tokens,
                    drafts[i].probs if drafts[i].by_ratio else None,
                    drafts[i].tests,
                    i == 0,
                    earlier.get(seed % len(prompts)),
                    drafts[i].depth,
                    i,
                )
                places.checks.add(token, *bet(places.apart, token, rng), drafts[i].sampled)
            if tokens:
                earlier[seed % len(prompts)] = tokens[0]

    while True:
        yield write
        seed += 1


class TokenPosition(NamedTuple):
    """The distribution at a token's position, and the token's PIT values. probs, raw [vocab]: the target's
    distribution, and the same without temperature and filters; value: with the most probable tokens first
    (None if the token has probability 0); ratio: with the tokens of the largest ratio of target to draft
    probability first (None without the draft distribution); number: with the tokens of the lowest id
    first."""

    probs: Tensor
    raw: Tensor
    value: float | None
    ratio: float | None
    number: float


def token_positions(
    target: Target,
    prompt: list[int],
    tokens: list[int],
    sampling: Sampling,
    drafts: Sequence[Tensor | None] = (),
) -> Iterator[TokenPosition]:
    """Yield the position of each token of an answer. drafts: the draft distribution [vocab] at each
    position where one is known. The random numbers are seeded by ``sampling`` and separate from the
    run's."""
    target.capture(frozenset())
    target.sync(prompt)
    logits = target.score(DraftTree.chain(tokens[:-1])).logits[: len(tokens)]
    distributions = sampling.probs(logits).double().cpu()
    distributions /= distributions.sum(-1, keepdim=True)
    raw = logits.double().softmax(-1).cpu()
    wider = replace(
        sampling, top_p=min(1.0, sampling.top_p + WIDER), top_k=sampling.top_k and sampling.top_k + 1
    ).probs(logits)
    within = torch.rand(
        len(tokens), generator=torch.Generator().manual_seed(sampling.seed ^ 0x5EED), dtype=torch.float64
    ).tolist()
    for i, token in enumerate(tokens):
        draft = drafts[i] if i < len(drafts) else None
        known = draft if draft is not None and draft.shape == distributions[i].shape else None
        value = (
            _place(distributions[i], distributions[i], token, within[i])
            if float(wider[i, token]) > 0
            else None
        )
        worth = None if known is None else distributions[i] / known.double().cpu().clamp(min=1e-30)
        number = min(1.0, float(distributions[i, :token].sum()) + within[i] * float(distributions[i, token]))
        ratio = None if worth is None else _place(distributions[i], worth, token, within[i])
        yield TokenPosition(distributions[i], raw[i], value, ratio, number)


def _place(probs: Tensor, worth: Tensor, token: int, within: float) -> float:
    """Return a token's PIT value with the tokens of largest worth first (ties: the lower id)."""
    first = worth > worth[token]
    first[:token] |= worth[:token] == worth[token]
    return min(1.0, float(probs[first].sum()) + within * float(probs[token]))


class DraftAtToken(NamedTuple):
    """The draft at a token's position. probs [vocab]: the draft distribution of a sampled chain, else None;
    by_ratio: rejection sampling tested the round's tokens; tests: those at this position by RULES; depth:
    number of tokens before it in the round; sampled [vocab]: the distribution from which the verifier
    reports to have sampled the token after the accepted ones."""

    probs: Tensor | None
    by_ratio: bool
    tests: tuple[NodeTest, ...]
    depth: int
    sampled: Tensor | None


class RecordingVerifier:
    """A verifier that wraps another one and records its last draft tree and verdict."""

    def __init__(self, verifier: Verifier):
        self._verifier = verifier
        self._tree = DraftTree()
        self._verdict = Verdict((), 0, "plain")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier, name)

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        """Verify with the wrapped verifier; record tree and verdict."""
        self._tree, self._verdict = tree, self._verifier.verify(tree, scores, state)
        return self._verdict

    def drafted(self, count: int) -> list[DraftAtToken]:
        """Return the draft at each of the round's ``count`` tokens. Distributions are those of sampled
        chains only: in a tree, the sampled tokens may decide which node's distribution applies."""
        tree, self._tree = self._tree, DraftTree()
        path, decisions = self._verdict.path, self._verdict.decisions
        drawn = len(tree) > 0 and all(
            tree.parents[i] == i - 1 and tree.draft_probs(i) is not None for i in range(len(tree))
        )
        by_ratio = bool(decisions) and all(one.rule == "ratio" for one in decisions)
        aligned = (
            len(tree) > 0 and count <= len(path) + 1
        )  # the round's tokens are the path's and the one after it
        found = []
        for i in range(count):
            before = [
                tree.tokens[node] for node in path[:i]
            ]  # also below duplicate siblings of the accepted nodes
            here = [
                one
                for one in decisions
                if aligned and one.rule in RULES and _tokens_above(tree, one.node) == before
            ]
            tests = tuple(
                NodeTest(
                    tree.tokens[one.node],
                    tree.draft_probs(one.node),
                    one.verdict == "accepted",
                    one.accept,
                    one.draw,
                )
                for one in here
                if one.verdict in ("accepted", "rejected")
            )
            sampled = (
                self._verdict.probs
                if aligned and i == len(path) and (tests or self._verdict.kind == "bonus")
                else None
            )
            found.append(
                DraftAtToken(
                    tree.draft_probs(i) if drawn and i < len(tree) else None, by_ratio, tests, i, sampled
                )
            )
        return found


def _tokens_above(tree: DraftTree, node: int) -> list[int]:
    """Return the tokens from the root's child to a node's parent."""
    return [tree.tokens[above] for above in tree.path(node)[:-1]]


def _group(kind: str) -> str:
    return "drafted" if kind in DRAFTED else kind if kind in GROUPS else "other"
