"""The certificate over whole sampled answers: is every written token where the target's own law puts it?

A token's place in the law at its own position, most likely token first, is a point in the interval of its mass; drawn evenly in
there it is uniform on [0, 1] exactly when the token was drawn from that law, whatever stands before it (the randomised probability
integral transform; Rosenblatt 1952). So all places of all answers are independent and uniform exactly when the answers follow the
target's law. The laws are computed anew by plain scoring of the text that was written, one forward an answer.

The places are also looked at by how a token came about. What was accepted and what corrected a refusal are uniform only together:
which of the two a token is depends on the token. Whether a draft stands at a position at all does not, so a bonus and a token
written without a draft are uniform by themselves.

Any order that is known before the token is drawn would do. Under a drawn chain there is one that shows soonest where its draws
were judged wrongly: by how much less the draft thinks of a token than the target. Those places are tested as well ("ratio").
"""
from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Iterator, Sequence

import torch
from torch import Tensor

from ..core import DraftTree, Method, Sampling, Scores, State, Target, Verdict, Verifier
from ..loops import speculate
from ..methods import catalogue
from ..trace.events import Committed
from .certificate import PROMPTS, encode
from .statistics import uniformity

TOKENS, LENGTH = 2400, 48  # tokens in all, and of one answer at most
CHANCE = 1e-4  # a right method fails as often as this
BINS = 20  # of the histogram
DRAFTED = ("accepted", "correction")
GROUPS = ("all", "drafted", "bonus", "plain", "other")
RATIO = "ratio"
WIDER = 1e-3  # of top-p: a token this near to the cut may be on the other side when more rows are computed together
# how deep to draft (None: as the method does by itself) and how to draw: short drafts, so that all of one is often accepted; away
# from temperature 1, where mistakes show sooner because few tokens are likely
SETTINGS = ((1, Sampling(0.7)), (2, Sampling(1.0)), (None, Sampling(0.9, top_p=0.9)), (2, Sampling(0.7)))
DEPTHS = ("gamma", "depth", "block", "window", "length", "most")  # knobs that say how many tokens ahead a draft goes


@dataclass
class Places:
    """Places of written tokens in the target's laws, in the order they were written, and how each token came about."""

    values: list[float] = field(default_factory=list)
    how: list[str] = field(default_factory=list)
    impossible: int = 0
    ratios: list[float | None] = field(default_factory=list)

    def group(self, name: str) -> list[float]:
        if name == RATIO:
            return [value for value in self.ratios if value is not None]
        return self.values if name == "all" else [value for value, how in zip(self.values, self.how) if how == name]

    def first(self, count: int) -> Places:
        """The first so many: a fixed number of them is uniform, one that depends on how long the answers were is not quite."""
        return Places(self.values[:count], self.how[:count], self.impossible, self.ratios[:count])

    def told(self) -> dict[str, Any]:
        """{p, samples, histogram, groups: {name: {p, samples, histogram}}, impossible}: p is corrected for the number of tests."""
        groups = {name: self.group(name) for name in (*GROUPS, RATIO)}
        found = {name: uniformity(values, serial=name == "all") for name, values in groups.items()}
        worst = min((p for tests in found.values() for p in tests), default=1.0)
        tests = 2 * len(groups) + 1
        p = 0.0 if self.impossible else min(1.0, tests * worst)
        return {"p": p, "samples": len(self.values), "histogram": histogram(self.values), "impossible": self.impossible,
                "groups": {name: {"p": min(found[name], default=None), "samples": len(values), "histogram": histogram(values)}
                           for name, values in groups.items() if values}}


def histogram(values: Sequence[float]) -> list[int]:
    """How many lie in each of the bins of [0, 1]."""
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, int(value * BINS))] += 1
    return counts


def answers(loaded: Any, key: str | Method, prompts: Sequence[str | list[int]] | None = None, tokens: int = TOKENS,
            knobs: dict[str, Any] | None = None, seed: int = 0) -> dict[str, Any]:
    """Write answers with a method (its key, or a Method that no catalogue lists) at SETTINGS, and test the places of their tokens.

    status: "pass"; "fail" (a right method fails once in 1 / CHANCE times); "not applicable" (the method promises no law);
    "unavailable". Else as ``Places.told``, and ``detail``, a sentence. Raises ValueError for knobs that do not fit.
    """
    method = catalogue()[key] if isinstance(key, str) else key
    missing = loaded.why_not(method)
    if missing:
        return {"status": "unavailable", "detail": missing}
    if method.exactness != "exact":
        return {"status": "not applicable",
                "detail": f"{method.title} is {method.exactness}: it does not promise the target's distribution."}
    method.read_knobs(knobs or {})
    places, texts = Places(), [encode(loaded, prompt) for prompt in prompts or PROMPTS]
    walks = [written(loaded, method, short(method, depth) | (knobs or {}), texts, replace(sampling, seed=seed * len(SETTINGS) + i))
             for i, (depth, sampling) in enumerate(SETTINGS)]  # no two answers share their dice
    while len(places.values) < tokens:
        for walk in walks:
            next(walk)(places)
    return judged(places.first(tokens))


def judged(places: Places) -> dict[str, Any]:
    """The verdict over places, with a sentence."""
    told = places.told()
    passed = told["p"] >= CHANCE
    counts = ", ".join(f"{group['samples']} {name}" for name, group in told["groups"].items() if name not in ("all", RATIO))
    words = f"{told['samples']} tokens of whole answers ({counts}): p = {told['p']:.2g}."
    if places.impossible:
        words += f" {places.impossible} of them the target never writes."
    elif not passed:
        tried = {name: group["p"] for name, group in told["groups"].items() if group["p"] is not None and name != "all"}
        words += f" Furthest off: {min(tried, key=tried.get)}." if tried else ""
    return {"status": "pass" if passed else "fail", **told, "detail": words}


def short(method: Method, depth: int | None) -> dict[str, Any]:
    """The knobs that make a method draft ``depth`` tokens ahead, as far as their ranges let them; none for None."""
    if depth is None:
        return {}
    return {knob.name: min(max(depth, int(knob.low)), int(knob.high)) for knob in method.knobs
            if knob.name in DEPTHS and isinstance(knob.default, int)}


def written(loaded: Any, method: Method, knobs: dict[str, Any], prompts: Sequence[list[int]], sampling: Sampling,
            length: int = LENGTH) -> Iterator[Any]:
    """Answers without end, prompt after prompt: each item, called with Places, writes one and adds the places of its tokens."""
    kit = loaded.kit()
    parts, judge, seed = method.build(kit, **method.read_knobs(knobs)), loaded.open_target(), 0
    watch = Watch(parts.verifier)
    parts = replace(parts, verifier=watch)

    def write(places: Places) -> None:
        ids = prompts[seed % len(prompts)]
        state = State(list(ids), replace(sampling, seed=1_000_003 * sampling.seed + seed), stop=loaded.end_tokens,
                      limit=min(length, loaded.context - len(ids)))
        with torch.inference_mode():
            how, drafts = [], []
            with closing((parts.loop or speculate)(parts, kit.target, state)) as events:
                for event in events:
                    if isinstance(event, Committed):
                        how += ["accepted"] * (len(event.tokens) - 1) + [event.kind]
                        drafts += watch.distributions(len(event.tokens))
            tokens = state.tokens[len(ids):]
            places.how += [_group(kind) for kind in how[:len(tokens)]]
            for place, ratio in places_of(judge, ids, tokens, state.sampling, drafts):
                places.impossible += place is None
                places.values.append(1.0 if place is None else place)
                places.ratios.append(ratio)

    while True:
        yield write
        seed += 1


def places_of(target: Target, prompt: list[int], tokens: list[int], sampling: Sampling,
              drafts: Sequence[Tensor | None] = ()) -> Iterator[tuple[float | None, float | None]]:
    """Where each token lies in the target's law at its position: most likely token first (None where the law has no room for it),
    and, where ``drafts`` has the draft's law [vocab] of that position, the likelier than the draft thinks first (else None).
    The draws within a token's mass are seeded by ``sampling``, apart from every draw of the run."""
    target.capture(frozenset())
    target.sync(prompt)
    logits = target.score(DraftTree.chain(tokens[:-1])).logits[:len(tokens)]
    distributions = sampling.probs(logits).double().cpu()
    distributions /= distributions.sum(-1, keepdim=True)
    wider = replace(sampling, top_p=min(1.0, sampling.top_p + WIDER), top_k=sampling.top_k and sampling.top_k + 1).probs(logits)
    within = torch.rand(len(tokens), generator=torch.Generator().manual_seed(sampling.seed ^ 0x5EED), dtype=torch.float64).tolist()
    for i, token in enumerate(tokens):
        draft = drafts[i] if i < len(drafts) else None
        known = draft is not None and draft.shape == distributions[i].shape
        yield (_place(distributions[i], distributions[i], token, within[i]) if float(wider[i, token]) > 0 else None,
               _place(distributions[i], distributions[i] / draft.double().cpu().clamp(min=1e-30), token, within[i]) if known else None)


def _place(probs: Tensor, worth: Tensor, token: int, within: float) -> float:
    """A token's place in its law when the tokens of most worth come first (of equal ones, the lower number)."""
    first = worth > worth[token]
    first[:token] |= worth[:token] == worth[token]
    return min(1.0, float(probs[first].sum()) + within * float(probs[token]))


class Watch:
    """A verifier, watched: what it was asked to judge last."""

    def __init__(self, verifier: Verifier):
        self._verifier, self._tree = verifier, DraftTree()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier, name)

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        self._tree = tree
        return self._verifier.verify(tree, scores, state)

    def distributions(self, count: int) -> list[Tensor | None]:
        """The laws that a drawn chain was drawn from, of the round's ``count`` tokens. Only of chains: in a tree the tokens drawn
        may decide whose law stands at a place, and then the order would know of the token."""
        tree, self._tree = self._tree, DraftTree()
        drawn = len(tree) > 0 and all(tree.parents[i] == i - 1 and tree.draft_probs(i) is not None for i in range(len(tree)))
        return [tree.draft_probs(i) if drawn and i < len(tree) else None for i in range(count)]


def _group(kind: str) -> str:
    return "drafted" if kind in DRAFTED else kind if kind in GROUPS else "other"
