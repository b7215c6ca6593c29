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

The numbers that the verifier reports of its decisions are recomputed, too (decision_checks.py); so are
single rows of its forward passes (pass_checks.py). Drafted tokens are tested under the distribution that
is recorded for them (drafted_tokens.py).

Answers are generated at several settings (verify_settings.py), each of which is also tested by itself; a
method that can run on it is certified on a small target beside the chosen one, too (small_target.py).
``power`` is the probability with which each mistake would be found. If a test is suspicious, twice and four times as many tokens are
generated (LOOKS): p-values of betting are valid at any stopping time, and those of uniformity are corrected
for the number of looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from ..core import DraftTree, Method, Processors, Sampling, Scores, State, Target, Verdict, Verifier
from ..loops import speculate
from ..methods import catalogue
from ..trace.events import Committed
from .betting import TestMartingale
from .certificate import PROMPTS, encode, logit_noise, next_logits
from .decision_checks import DecisionChecks
from .drafted_tokens import RANKS, DraftedTokens, other_rule
from .pass_checks import CHAIN, ROOT, SIBLINGS, PassChecks
from .pass_checks import NOISE as ROW_NOISE
from .small_target import SmallTarget, runs_on_small_target
from .statistics import uniformity_p_values
from .token_bets import APART, DRAFTED, NodeTest, Token, bet
from .verify_settings import SETTINGS, MakeProcessors, request_processors

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

TOKENS = 3600  # tokens of all answers
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
RULES = (
    "ratio",
    "match",
)  # after a rejection by one of these the residual distribution is 0 at the rejected token
PROBES = 3  # rows of an answer's draft trees off the accepted paths that are compared, at most
PROBED = 0.4  # probability that a round gives one
PROMPTS_OPEN = (
    "Write ten random words.",
    "Invent a name for a new city, a drink and a song.",
)  # answers of high entropy
DEPTHS = ("gamma", "depth", "block", "window", "length", "most")  # knobs that set the draft depth
TEXTS = {  # parts of a report's detail, by identifier
    "impossible": " {count} of them have probability 0 under the target.",
    "worst": " Largest deviation: {group}.",
    "drafted": " {count} drafted tokens have probability 0 under the distribution recorded for them.",
    "disordered": " {count} sampled nodes stand after a chosen sibling.",
    "rows": " {wrong} of {checked} rows of its passes differ from plain scoring.",
    "setting": " Smallest p-value of a setting: {p:.2g} (draft depth {depth}, temperature {temperature:g}, {request}).",
    "small": " On the small target: {detail}",
    "mask": " A node that sees its preceding sibling would be found with {power:.0%} ({count} rows).",
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
    drafts: DraftedTokens = field(default_factory=DraftedTokens)
    passes: PassChecks = field(default_factory=PassChecks)

    @classmethod
    def merged(cls, parts: Sequence[PitValues]) -> PitValues:
        """Return the values, bets and checks of several settings together."""
        out = cls()
        for part in parts:
            out.values += part.values
            out.how += part.how
            out.ratios += part.ratios
            out.numbers += part.numbers
            out.impossible += part.impossible
            out.checks.merge(part.checks)
            out.passes.merge(part.passes)
            out.drafts.impossible += part.drafts.impossible
            out.drafts.disordered += part.drafts.disordered
            for rank, values in part.drafts.ranks.items():
                out.drafts.ranks[rank] += values
            for kind, test in part.bets().items():
                out.bets()[kind].merge(test)
        return out

    def bets(self) -> dict[str, TestMartingale]:
        """Return the bets on the answers' tokens and on drafted tokens."""
        return self.apart | self.drafts.apart

    def group(self, name: str) -> list[float]:
        """Return the values of one test: those of an origin, of all tokens, or in one of the other orders."""
        if name == RATIO:
            return [value for value in self.ratios if value is not None]
        if name in (NUMBER, DRAWN):
            return self.numbers if name == NUMBER else self.checks.draws
        if name in RANKS:
            return self.drafts.ranks[name]
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

    @property
    def p(self) -> float:
        """The p-value of all tests."""
        return self._tests()[0]

    def _tests(self) -> tuple[float, dict[str, list[float]], dict[str, list[float]]]:
        groups = {name: self.group(name) for name in (*GROUPS, *RANKS, RATIO, NUMBER, DRAWN)}
        found = {
            name: uniformity_p_values(values, serial=name in ("all", DRAWN))
            for name, values in groups.items()
        }
        tests = 2 * len(groups) + 2
        even = tests * len(LOOKS) * min((p for ps in found.values() for p in ps), default=1.0)
        bets = self.bets()
        won = len(bets) * min((m.p for m in bets.values() if m.p is not None), default=1.0)
        broken = self.impossible or self.drafts.impossible or self.drafts.disordered
        broken = broken or self.checks.failed or self.passes.failed
        return (0.0 if broken else min(1.0, 2 * even, 2 * won)), found, groups

    def report(self) -> dict[str, Any]:
        """Return {p, samples, histogram, impossible, groups: {name: {p, samples, histogram}}, apart: {kind:
        {p, samples, power, against}}, decisions: {decided, wrong, failed}, rows: {checked, wrong, failed,
        power, siblings}, impossible_drafts,
        disordered_drafts}. p is corrected for the number of tests: one half of the level
        is spent on uniformity, for every look, and one on betting."""
        p, found, groups = self._tests()
        bets = self.bets()
        apart = {
            kind: {
                "p": m.p,
                "samples": len(m.gains),
                "power": m.power(CHANCE / (4 * len(bets))),
                "against": m.alternative,
            }
            for kind, m in bets.items()
            if m.gains
        }
        decisions = {
            "decided": self.checks.decided.total(),
            "wrong": self.checks.wrong.total(),
            "failed": self.checks.failed,
        }
        rows = {
            "checked": self.passes.checked.total(),
            "wrong": self.passes.wrong.total(),
            "failed": self.passes.failed,
            "power": self.passes.power,
            "siblings": self.passes.checked[SIBLINGS],
        }
        return {
            "p": p,
            "samples": len(self.values),
            "histogram": histogram(self.values),
            "impossible": self.impossible,
            "apart": apart,
            "decisions": decisions,
            "rows": rows,
            "impossible_drafts": self.drafts.impossible,
            "disordered_drafts": self.drafts.disordered,
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
    certificate = AnswerCertificate(
        loaded, method, [encode(loaded, prompt) for prompt in prompts], knobs, seed
    )
    for look in LOOKS:
        certificate.extend(look * tokens)
        report = certificate.report()
        if not needs_more_tokens(report):
            break
    return conclude(report)


class AnswerCertificate:
    """A certificate in progress: answers of a method at SETTINGS, and the tests of their tokens. prompts:
    token ids. Raises ValueError for invalid knobs."""

    def __init__(
        self,
        loaded: Loaded,
        method: Method,
        prompts: Sequence[list[int]],
        knobs: dict[str, Any] | None = None,
        seed: int = 0,
    ):
        noise = logit_noise(loaded.open_target(), prompts[0])
        self.parts = [PitValues() for _ in SETTINGS]
        self.writers: list[Iterator[Any]] = []
        for i, (depth, sampling, request) in enumerate(SETTINGS):
            self.parts[i].checks.tolerance += NOISE * noise
            self.parts[i].passes.tolerance += ROW_NOISE * noise
            self.writers.append(
                answer_generators(
                    loaded,
                    method,
                    draft_depth_knobs(method, depth) | (knobs or {}),
                    prompts,
                    replace(sampling, seed=seed * len(SETTINGS) + i),  # no two answers share random numbers
                    processors=request_processors(loaded, prompts, request),
                )
            )
        self._quota = 0

    def extend(self, tokens: int) -> None:
        """Generate answers until there are this many tokens, as many at each setting."""
        self._quota = -(-tokens // len(SETTINGS))
        for part, writer in zip(self.parts, self.writers):
            while len(part.values) < self._quota:
                next(writer)(part)

    def report(self) -> dict[str, Any]:
        """Return the report of all settings together, with those of single settings: {..., settings: [{p,
        depth, temperature, request}]}. One half of the level is spent on single settings."""
        parts = [part.first(self._quota) for part in self.parts]
        report = PitValues.merged(parts).report()
        settings = [
            {"p": part.p, "depth": depth, "temperature": sampling.temperature, "request": request}
            for part, (depth, sampling, request) in zip(parts, SETTINGS)
        ]
        single = len(settings) * min(one["p"] for one in settings)
        return report | {"p": min(1.0, 2 * report["p"], 2 * single), "settings": settings}


def certify_with_small_target(
    loaded: Loaded, key: str | Method, knobs: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Certify a method on the loaded target and, if it can run there, on a small one, where distributions
    are flat and rounding errors far smaller than any mistake. Fields as in ``certify_answers``; small: the
    report of the small target, or None."""
    answer = certify_answers(loaded, key, knobs=knobs)
    method = catalogue()[key] if isinstance(key, str) else key
    if answer["status"] not in ("pass", "fail") or not runs_on_small_target(method):
        return answer | {"small": None}
    small = certify_answers(cast("Any", SmallTarget()), method, SmallTarget.prompts, knobs=knobs)
    failed = "fail" in (answer["status"], small["status"])
    return answer | {
        "status": "fail" if failed else "pass",
        "small": small,
        "detail": answer["detail"] + TEXTS["small"].format(detail=small["detail"]),
    }


def conclude(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report with its status and a sentence (``detail``)."""
    passed = report["p"] >= CHANCE
    counts = ", ".join(
        f"{report['groups'][name]['samples']} {name}" for name in GROUPS[1:] if name in report["groups"]
    )
    words = f"{report['samples']} tokens of whole answers ({counts}): p = {report['p']:.2g}."
    if report["impossible_drafts"]:
        words += TEXTS["drafted"].format(count=report["impossible_drafts"])
    if report["disordered_drafts"]:
        words += TEXTS["disordered"].format(count=report["disordered_drafts"])
    if report["rows"]["failed"]:
        words += TEXTS["rows"].format(**report["rows"])
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
            TEXTS["setting"].format(**min(report["settings"], key=lambda one: one["p"]))
            for _ in report.get("settings", ())[:1]
        )
    words += "".join(
        f" {kind.capitalize()} ({one['samples']}): {one['against']} would be found with {one['power']:.0%}."
        for kind, one in report["apart"].items()
    )
    if report["rows"]["power"] is not None:
        words += TEXTS["mask"].format(power=report["rows"]["power"], count=report["rows"]["siblings"])
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
    processors: MakeProcessors = lambda: None,
) -> Iterator[Any]:
    """Yield one function per prompt, over and over. Calling it with PitValues generates an answer to the
    prompt and adds its tokens. processors: makes the logits processors of an answer."""
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
            processors=processors(),
        )
        recorder.begin(places.drafts, state.sampling.seed)
        with torch.inference_mode():
            how, drafts = [], []
            with closing((parts.loop or speculate)(parts, kit.target, state)) as events:
                for event in events:
                    if isinstance(event, Committed):
                        how += ["accepted"] * (len(event.tokens) - 1) + [event.kind]
                        drafts += recorder.drafted(event.tokens)
            tokens = state.tokens[len(ids) :]
            places.how += [_group(kind) for kind in how[: len(tokens)]]
            rng = torch.Generator().manual_seed(state.sampling.seed ^ 0xBE7)
            for i, place in enumerate(
                token_positions(
                    scorer,
                    ids,
                    tokens,
                    state.sampling,
                    [draft.probs for draft in drafts],
                    processors(),
                )
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
                    place.unprocessed,
                    drafts[i].chosen,
                )
                row = drafts[i].row
                if row is not None:
                    places.passes.add(drafts[i].row_kind, row, place.logits)
                places.checks.add(token, *bet(places.apart, token, rng), drafts[i].sampled)
            for probe in recorder.probes:
                plain = next_logits(scorer, probe.tokens)
                places.passes.add(SIBLINGS if probe.sibling is not None else CHAIN, probe.row, plain)
                if probe.sibling is not None:
                    seen = [*probe.tokens[:-1], probe.sibling, probe.tokens[-1]]
                    places.passes.add_fault(plain.clone(), next_logits(scorer, seen))
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
    first; logits [vocab]: the target's own; unprocessed [vocab]: the distribution without logits
    processors, None if there are none."""

    probs: Tensor
    raw: Tensor
    value: float | None
    ratio: float | None
    number: float
    logits: Tensor
    unprocessed: Tensor | None


def token_positions(
    target: Target,
    prompt: list[int],
    tokens: list[int],
    sampling: Sampling,
    drafts: Sequence[Tensor | None] = (),
    processors: Processors | None = None,
) -> Iterator[TokenPosition]:
    """Yield the position of each token of an answer. drafts: the draft distribution [vocab] at each
    position where one is known; processors: the request's logits processors. The random numbers are
    seeded by ``sampling`` and separate from the run's."""
    target.capture(frozenset())
    target.sync(prompt)
    tree = DraftTree.chain(tokens[:-1])
    scores = target.score(tree)
    own = scores.logits[: len(tokens)]
    processed = processors.scores(tree, scores, prompt, len(prompt)) if processors else scores
    logits = processed.logits[: len(tokens)]
    unprocessed = sampling.probs(own).double().cpu() if processors else None
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
        without = None if unprocessed is None else unprocessed[i]
        yield TokenPosition(distributions[i], raw[i], value, ratio, number, own[i], without)


def _place(probs: Tensor, worth: Tensor, token: int, within: float) -> float:
    """Return a token's PIT value with the tokens of largest worth first (ties: the lower id)."""
    first = worth > worth[token]
    first[:token] |= worth[:token] == worth[token]
    return min(1.0, float(probs[first].sum()) + within * float(probs[token]))


class DraftAtToken(NamedTuple):
    """The draft at a token's position. probs [vocab]: the draft distribution of a sampled chain, else None;
    by_ratio: rejection sampling tested the round's tokens; tests: those at this position by RULES; depth:
    number of tokens before it in the round; sampled [vocab]: the distribution from which the verifier
    reports to have sampled the token after the accepted ones; row [vocab], row_kind: the logits of the row
    that predicted the token, and its kind for PassChecks, None if unknown; chosen: the draft tokens at this
    position, if all of the round's were chosen."""

    probs: Tensor | None
    by_ratio: bool
    tests: tuple[NodeTest, ...]
    depth: int
    sampled: Tensor | None
    row: Tensor | None
    row_kind: str
    chosen: frozenset[int]


class Probe(NamedTuple):
    """A row of a draft tree's pass off the accepted path. tokens: the text that it follows; sibling: the
    token of the node's preceding sibling, or None; row [vocab]: its logits."""

    tokens: list[int]
    sibling: int | None
    row: Tensor


class RecordingVerifier:
    """A verifier that wraps another one and records its last draft tree and verdict, and what is tested of
    drafted tokens and of the passes over them."""

    def __init__(self, verifier: Verifier):
        self._verifier = verifier
        self._scores: Scores | None = None
        self.begin(DraftedTokens(), 0)
        self._tree = DraftTree()
        self._verdict = Verdict((), 0, "plain")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier, name)

    def begin(self, drafts: DraftedTokens, seed: int) -> None:
        """Begin an answer. drafts: takes its drafted tokens; seed: of the tests' own random numbers."""
        self._drafts = drafts
        self._rng = torch.Generator().manual_seed(seed ^ 0xD4AF7)
        self._known: dict[int, list[Tensor]] = {}
        self.probes: list[Probe] = []

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        """Verify with the wrapped verifier; record tree and verdict."""
        if not state.sampling.greedy:
            self._drafts.add(tree, state.sampling, self._rng, self._known, len(state.tokens))
            self._probe(tree, scores, state)
        verdict = self._verifier.verify(tree, scores, state)
        self._tree, self._scores, self._verdict = tree, scores, verdict
        return verdict

    def _probe(self, tree: DraftTree, scores: Scores, state: State) -> None:
        """Take the logits of a random node of the tree, of a later sibling if there is one."""
        if len(self.probes) >= PROBES or float(torch.rand(1, generator=self._rng)) > PROBED:
            return
        kind = _row_kinds(tree)
        nodes = [node for node in range(len(tree)) if node not in tree.probes and tree.tokens[node] >= 0]
        nodes = [node for node in nodes if _later(tree, node)] or nodes
        if not nodes or len(scores.model_logits) <= len(tree):
            return
        node = nodes[int(torch.randint(len(nodes), (1,), generator=self._rng))]
        siblings = tree.children(tree.parents[node])
        sibling = tree.tokens[siblings[siblings.index(node) - 1]] if _later(tree, node) else None
        text = [*state.tokens, *(tree.tokens[i] for i in tree.path(node))]
        if kind[node] == CHAIN or sibling is not None:
            self.probes.append(Probe(text, sibling, scores.model_logits[node + 1].clone()))

    def drafted(self, committed: Sequence[int]) -> list[DraftAtToken]:
        """Return the draft at each of the round's committed tokens. Distributions are those of sampled
        chains only: in a tree, the sampled tokens may decide which node's distribution applies."""
        count = len(committed)
        tree, self._tree = self._tree, DraftTree()
        scores, self._scores = self._scores, None
        path, decisions = self._verdict.path, self._verdict.decisions
        drawn = len(tree) > 0 and all(
            tree.parents[i] == i - 1 and tree.draft_probs(i) is not None for i in range(len(tree))
        )
        by_ratio = bool(decisions) and all(one.rule == "ratio" for one in decisions)
        aligned = (
            len(tree) > 0 and count <= len(path) + 1
        )  # the round's tokens are the path's and the one after it
        kinds = _row_kinds(tree)
        follows = (
            scores is not None
            and count <= len(path) + 1
            and [tree.tokens[node] for node in path[:count]] == list(committed[: len(path)])
        )
        chosen = follows and all(draw < 0 for draw in tree.draw)
        found = []
        for i in range(count):
            above = path[i - 1] if 0 < i <= len(path) else -1
            row = scores.model_logits[above + 1].clone() if scores is not None and follows else None
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
                    other_rule(tree, one.node),
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
                    tree.draft_probs(i) if drawn and i < len(tree) else None,
                    by_ratio,
                    tests,
                    i,
                    sampled,
                    row,
                    ROOT if above < 0 else kinds[above],
                    frozenset(tree.tokens[node] for node in tree.children(above))
                    if chosen and i <= len(path)
                    else frozenset(),
                )
            )
        return found


def _later(tree: DraftTree, node: int) -> bool:
    """Return whether a node has an earlier sibling."""
    return tree.children(tree.parents[node])[0] != node


def _row_kinds(tree: DraftTree) -> list[str]:
    """Return the kind of each node's row for PassChecks."""
    kinds: list[str] = []
    for node, parent in enumerate(tree.parents):
        above = parent >= 0 and kinds[parent] == SIBLINGS
        siblings = tree.children(parent)
        later = bool(siblings) and node in siblings and siblings[0] != node
        kinds.append(SIBLINGS if above or later else CHAIN)
    return kinds


def _tokens_above(tree: DraftTree, node: int) -> list[int]:
    """Return the tokens from the root's child to a node's parent."""
    return [tree.tokens[above] for above in tree.path(node)[:-1]]


def _group(kind: str) -> str:
    return "drafted" if kind in DRAFTED else kind if kind in GROUPS else "other"
