"""The certificate over whole sampled answers: does every token follow the target's distribution at its position?

The randomised probability integral transform (Rosenblatt 1952) of a token, with the tokens ordered by probability, is uniform on [0, 1]
exactly if the token was sampled from that distribution, whatever precedes it. So the values of all tokens of all answers are independent
and uniform exactly if the answers follow the target's distribution. Distributions are recomputed by plain scoring, one pass per answer.

Values are also tested by the origin of the token. Accepted tokens and corrections are uniform only together, because which of the two a
token is depends on the token. Whether a position has a draft does not, so bonus tokens and tokens without a draft are uniform by
themselves. Any order that is fixed before the token is drawn is valid; for a sampled chain the order by the ratio of target to draft
probability finds verification errors sooner ("ratio").

Three kinds of tokens are also tested apart by betting (betting.py), which is powerful where the distribution is flat:

- bonus: tokens after a fully accepted draft, against "always the top-1 token" and against a sharper or flatter distribution;
- accepted: whether a tested draft token was accepted, against sum(min(p, q)), for chains verified by the ratio rule;
- correction: the token after a rejection, against the residual distribution norm((p - q)+), for the same chains.

The answers are written at settings with a high temperature, too, and ``power`` says with which probability each mistake would be found.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core import DraftTree, Method, Sampling, Scores, State, Target, Verdict, Verifier
from ..loops import speculate
from ..methods import catalogue
from ..trace.events import Committed
from .betting import FLOOR, TestMartingale
from .certificate import PROMPTS, encode
from .statistics import uniformity

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

TOKENS = 2400  # tokens of all answers
LENGTH = 48  # tokens of an answer at most
CHANCE = 1e-4  # probability that a correct method fails
BINS = 20  # bins of the histogram
DRAFTED = ("accepted", "correction")
GROUPS = ("all", "drafted", "bonus", "plain", "other")
RATIO = "ratio"
APART = {"bonus": "always the top-1 token", "accepted": "every tested draft token accepted",
         "correction": "sampled from the target's distribution instead of the residual one"}  # main alternative of each kind
WIDER = 1e-3  # tolerance of top-p: rounding may move a token across the cut
# draft depth (None: the method's default) and sampling: short drafts, so that a whole draft is often accepted; low temperatures, where
# few tokens are probable, and high ones, where no token dominates
SETTINGS = ((1, Sampling(0.7)), (1, Sampling(1.5)), (2, Sampling(1.0)), (None, Sampling(0.9, top_p=0.9)), (2, Sampling(1.5)))
PROMPTS_OPEN = ("Write ten random words.", "Invent a name for a new city, a drink and a song.")  # answers of high entropy
DEPTHS = ("gamma", "depth", "block", "window", "length", "most")  # knobs that set the draft depth
TEXTS = {  # parts of a report's detail, by identifier
    "impossible": " {count} of them have probability 0 under the target.",
    "worst": " Largest deviation: {group}.",
}


@dataclass
class TokenPlaces:
    """PIT values of tokens in the order they were generated, and the origin of each token."""

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
        """Return the first ``count`` values: a fixed number is uniform, one that depends on the lengths of the answers is not quite."""
        return replace(self, values=self.values[:count], how=self.how[:count], ratios=self.ratios[:count])

    def report(self) -> dict[str, Any]:
        """Return {p, samples, histogram, impossible, groups: {name: {p, samples, histogram}}, apart: {kind: {p, samples, power, against}}}.
        p is corrected for the number of tests."""
        groups = {name: self.group(name) for name in (*GROUPS, RATIO)}
        found = {name: uniformity(values, serial=name == "all") for name, values in groups.items()}
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
    """Write answers with a method (a key or a Method) at SETTINGS and test their tokens.

    status: "pass"; "fail" (a correct method fails with probability CHANCE); "not applicable" (the method is not exact); "unavailable".
    The rest as in ``TokenPlaces.report``, plus ``detail``, a sentence. Raises ValueError for invalid knobs.
    """
    method = catalogue()[key] if isinstance(key, str) else key
    missing = loaded.why_not(method)
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
    """Yield functions without end, cycling through the prompts: each one, called with TokenPlaces, writes an answer and adds its tokens."""
    kit = loaded.kit()
    parts, scorer, seed = method.build(kit, **method.read_knobs(knobs)), loaded.open_target(), 0
    recorder = RecordingVerifier(parts.verifier)
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
            for i, (probs, place, ratio) in enumerate(places_of(scorer, ids, tokens, state.sampling, [probs for probs, _ in drafts])):
                places.impossible += place is None
                places.values.append(1.0 if place is None else place)
                places.ratios.append(ratio)
                bet(places.apart, how[i], probs, drafts[i][0] if drafts[i][1] else None, tokens[i], rng)

    while True:
        yield write
        seed += 1


def bet(apart: dict[str, TestMartingale], kind: str, probs: Tensor, draft: Tensor | None, token: int, rng: torch.Generator) -> None:
    """Test one token by its origin. probs [vocab]: the target's distribution; draft [vocab]: that of a draft token tested by the ratio
    rule, else None; rng: for the simulated alternative."""
    def ratio(other: Tensor, null: Tensor, token: int) -> float:
        return float(other[token]) / max(float(null[token]), FLOOR)

    if kind == "bonus":
        top = int(probs.argmax())
        sharp, flat = (probs ** power for power in (2.0, 0.5))
        best = 1 / float(probs[top])
        apart["bonus"].bet({"top-1": best * (token == top), "sharper": ratio(sharp / sharp.sum(), probs, token),
                            "flatter": ratio(flat / flat.sum(), probs, token)}, best)
    elif draft is not None and draft.shape == probs.shape and kind in DRAFTED:
        draft = draft.double().cpu()
        rate, accepted = float(torch.minimum(probs, draft).sum()), kind == "accepted"
        low, high = max(rate, FLOOR), max(1 - rate, FLOOR)
        apart["accepted"].bet({"always": accepted / low, "more": (1 + rate) / 2 / low if accepted else (1 - rate) / 2 / high,
                               "less": rate / 2 / low if accepted else (1 - rate / 2) / high}, 1 / low)
        residual = (probs - draft).clamp(min=0)
        if not accepted and float(residual.sum()) > FLOOR:
            residual = residual / residual.sum()
            other = int(torch.multinomial(probs, 1, generator=rng))
            top = float(residual.max())
            apart["correction"].bet({"target": ratio(probs, residual, token), "top-1": (token == int(residual.argmax())) / top},
                                    ratio(probs, residual, other))


def places_of(target: Target, prompt: list[int], tokens: list[int], sampling: Sampling,
              drafts: Sequence[Tensor | None] = ()) -> Iterator[tuple[Tensor, float | None, float | None]]:
    """Yield for each token the target's distribution [vocab] at its position, the PIT value with the most probable tokens first (None if
    the token has probability 0), and, where ``drafts`` has the draft distribution [vocab], the value with the tokens of the largest
    ratio of target to draft probability first (else None). The random numbers are seeded by ``sampling`` and separate from the run's."""
    target.capture(frozenset())
    target.sync(prompt)
    logits = target.score(DraftTree.chain(tokens[:-1])).logits[:len(tokens)]
    distributions = sampling.probs(logits).double().cpu()
    distributions /= distributions.sum(-1, keepdim=True)
    wider = replace(sampling, top_p=min(1.0, sampling.top_p + WIDER), top_k=sampling.top_k and sampling.top_k + 1).probs(logits)
    within = torch.rand(len(tokens), generator=torch.Generator().manual_seed(sampling.seed ^ 0x5EED), dtype=torch.float64).tolist()
    for i, token in enumerate(tokens):
        draft = drafts[i] if i < len(drafts) else None
        known = draft if draft is not None and draft.shape == distributions[i].shape else None
        yield (distributions[i],
               _place(distributions[i], distributions[i], token, within[i]) if float(wider[i, token]) > 0 else None,
               None if known is None else
               _place(distributions[i], distributions[i] / known.double().cpu().clamp(min=1e-30), token, within[i]))


def _place(probs: Tensor, worth: Tensor, token: int, within: float) -> float:
    """Return a token's PIT value with the tokens of largest worth first (ties: the lower id)."""
    first = worth > worth[token]
    first[:token] |= worth[:token] == worth[token]
    return min(1.0, float(probs[first].sum()) + within * float(probs[token]))


class RecordingVerifier:
    """A verifier that records its last draft tree and the rules applied to it."""

    def __init__(self, verifier: Verifier):
        self._verifier, self._tree, self._by_ratio = verifier, DraftTree(), False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier, name)

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        verdict = self._verifier.verify(tree, scores, state)
        self._tree = tree
        self._by_ratio = bool(verdict.decisions) and all(one.rule == "ratio" for one in verdict.decisions)
        return verdict

    def drafted(self, count: int) -> list[tuple[Tensor | None, bool]]:
        """Return for each of the round's ``count`` tokens the distribution its draft was sampled from and whether the ratio rule tested it.
        Only for sampled chains: in a tree the sampled tokens may decide whose distribution stands at a position."""
        tree, self._tree = self._tree, DraftTree()
        drawn = len(tree) > 0 and all(tree.parents[i] == i - 1 and tree.draft_probs(i) is not None for i in range(len(tree)))
        return [(tree.draft_probs(i), self._by_ratio) if drawn and i < len(tree) else (None, False) for i in range(count)]


def _group(kind: str) -> str:
    return "drafted" if kind in DRAFTED else kind if kind in GROUPS else "other"
