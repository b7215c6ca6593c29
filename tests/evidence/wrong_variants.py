"""Speculative decoding with one mistake each: seldom, small or late ones, which the certificate must catch
nevertheless.

A variant reports what it did, except where ``silent``: then its decisions state the right numbers and only
the tokens are wrong. REGISTRY holds all of them, with those of other test files;
``python -m tests.evidence.wrong_variants`` writes what catches each, and after how many tokens, to
docs/certificate.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specviz.core import (
    IID,
    WITHOUT_REPLACEMENT,
    BadWords,
    Decision,
    DraftTree,
    LogitBias,
    Method,
    Parts,
    Penalties,
    Processors,
    State,
    Verdict,
)
from specviz.core.logits_processors import TokenMask
from specviz.drafters.model.chain import DraftChain, DraftShape
from specviz.evidence import whole_answers as whole
from specviz.evidence.drafted_tokens import AGAINST as DRAFT_BETS
from specviz.evidence.drafted_tokens import other_rule
from specviz.evidence.small_target import SmallTarget
from specviz.evidence.verify_settings import Alternating
from specviz.policies import Fixed
from specviz.targets.tiny import TinyTarget
from specviz.trees import full_tree
from specviz.verifiers import TokenRejection

from ..exactness.broken_methods import Children, FirstRowsKept, PositionsByRow
from ..exactness.test_broken_methods import CASES, chain, parts
from .test_certificate import PROMPTS, Loaded

DEEP = 3  # depth from which the late mistakes are made; the first draft token has depth 0


class Wrong(TokenRejection):
    """The right rule; every step of it can be replaced. rate: the acceptance probability; left: the
    residual distribution."""

    silent = False

    def verify(self, tree, scores, state):
        path = []
        node = -1
        decisions = []
        while True:
            p = self.target(scores.logits[node + 1], state, len(path))
            children = tree.children(node)
            for child in children:
                decisions.append(self.decide(tree, child, p, state, len(path)))
                if decisions[-1].verdict == "accepted":
                    path.append(child)
                    node = child
                    break
                p = decisions[-1].remaining
            else:
                kind = "correction" if children else "bonus" if len(tree) else "plain"
                return self.end(
                    Verdict(tuple(path), state.rng.pick("verify", p), kind, tuple(decisions), p),
                    tree,
                    scores,
                    state,
                )

    def decide(self, tree: DraftTree, child: int, p: Tensor, state: State, depth: int) -> Decision:
        x, q = tree.tokens[child], tree.draft_probs(child)
        right = float(p[x]) if q is None else min(1.0, float(p[x]) / float(q[x]))
        rate = self.rate(right, tree, child, p, state, depth)
        ok, u = self.flip(state, rate)
        rest = None if ok else self.left(p, q, x, depth)
        drawn = None if q is None else float(q[x])
        reported = right if self.silent else rate
        return Decision(
            child,
            "match" if q is None else "ratio",
            float(p[x]),
            drawn,
            reported,
            None if self.silent else u,
            "accepted" if ok else "rejected",
            p,
            rest,
        )

    def target(self, logits: Tensor, state: State, depth: int) -> Tensor:
        return state.sampling.probs(logits)

    def flip(self, state: State, rate: float) -> tuple[bool, float | None]:
        return state.rng.flip("verify", rate)

    def rate(self, right: float, tree: DraftTree, child: int, p: Tensor, state: State, depth: int) -> float:
        return right

    def left(self, p: Tensor, q: Tensor | None, x: int, depth: int) -> Tensor:
        if q is None:
            q = torch.nn.functional.one_hot(torch.tensor(x), len(p)).to(p.dtype)
        return norm((p - q).clamp(min=0))

    def end(self, verdict: Verdict, tree: DraftTree, scores, state: State) -> Verdict:
        return verdict


def norm(p: Tensor) -> Tensor:
    return p / p.sum()


class Often(Wrong):
    factor = 1.15

    def rate(self, right, tree, child, p, state, depth):
        return min(1.0, self.factor * right)


class OftenSilent(Often):
    silent = True


class Seldom(Often):
    factor, silent = 0.85, True


class DeepAccept(Wrong):
    silent, least = True, DEEP

    def rate(self, right, tree, child, p, state, depth):
        return 1.0 if depth >= self.least else right


class DeeperAccept(DeepAccept):
    least = DEEP + 1


class DeepOften(Wrong):
    silent = True

    def rate(self, right, tree, child, p, state, depth):
        return right + 0.5 * (1 - right) if depth >= DEEP else right


class DeepNoResidual(Wrong):
    silent = True

    def left(self, p, q, x, depth):
        return p if depth >= DEEP else super().left(p, q, x, depth)


class DeepBonus(Wrong):
    def end(self, verdict, tree, scores, state):
        deep = verdict.kind == "bonus" and len(verdict.path) >= DEEP
        return replace(verdict, token=int(verdict.probs.argmax())) if deep else verdict


class DeepWarm(Wrong):
    silent = True

    def target(self, logits, state, depth):
        return logits.softmax(-1) if depth >= DEEP else super().target(logits, state, depth)


class EveryEighth(Wrong):
    silent = True

    def rate(self, right, tree, child, p, state, depth):
        return 1.0 if state.round % 8 == 7 else right


class Late(Wrong):
    """From the 24th token of an answer on."""

    silent = True

    def verify(self, tree, scores, state):
        self.start = min(getattr(self, "start", len(state.tokens)), len(state.tokens))
        self.now = len(state.tokens) - self.start
        return super().verify(tree, scores, state)

    def rate(self, right, tree, child, p, state, depth):
        return 1.0 if self.now >= 24 else right


class Sharper(Wrong):
    """The target at nine tenths of its temperature."""

    silent = True

    def target(self, logits, state, depth):
        return replace(state.sampling, temperature=0.9 * state.sampling.temperature).probs(logits)


class SharperBonus(Wrong):
    def end(self, verdict, tree, scores, state):
        if verdict.kind != "bonus":
            return verdict
        p = replace(state.sampling, temperature=0.6 * state.sampling.temperature).probs(
            scores.logits[(verdict.path or (-1,))[-1] + 1]
        )
        return replace(verdict, token=state.rng.pick("verify", p))


class BestResidual(Wrong):
    def left(self, p, q, x, depth):
        rest = super().left(p, q, x, depth)
        return torch.nn.functional.one_hot(rest.argmax(), len(p)).to(p.dtype)


class UnsignedResidual(Wrong):
    silent = True

    def left(self, p, q, x, depth):
        return norm((p - q).abs()) if q is not None else super().left(p, q, x, depth)


class OthersResidual(Wrong):
    """What was refused is left out, all others keep their share."""

    silent = True

    def left(self, p, q, x, depth):
        p = p.clone()
        p[x] = 0
        return norm(p) if float(p.sum()) > 0 else p + 1 / len(p)


class DraftCorrection(Wrong):
    silent = True

    def left(self, p, q, x, depth):
        return q if q is not None else super().left(p, q, x, depth)


class OneUniform(Wrong):
    """One uniform number for all tests of a round."""

    def verify(self, tree, scores, state):
        self.u = state.rng.flip("verify", 0.5)[1]
        return super().verify(tree, scores, state)

    def flip(self, state, rate):
        return self.u < rate, self.u


class NoCoin(Wrong):
    silent = True

    def flip(self, state, rate):
        return rate >= 0.5, None


class NeighbourDraft(Wrong):
    """The draft probability of the place before."""

    silent = True

    def rate(self, right, tree, child, p, state, depth):
        q = tree.draft_probs(tree.parents[child] if tree.parents[child] >= 0 else child)
        x = tree.tokens[child]
        return right if q is None else min(1.0, float(p[x]) / max(float(q[x]), 1e-9))


class RareDropped(Wrong):
    """Tokens below a hundredth are never written."""

    silent = True

    def target(self, logits, state, depth):
        p = super().target(logits, state, depth)
        return norm(p.masked_fill(p < 0.01, 0.0))


class FirstGreedy(Wrong):
    """The first token of each answer is the most probable one, if it is a correction or a bonus."""

    silent = True

    def target(self, logits, state, depth):
        p = super().target(logits, state, depth)
        return (
            torch.nn.functional.one_hot(p.argmax(), len(p)).to(p.dtype)
            if state.round == 0 and depth == 0
            else p
        )


class NucleusLate(Wrong):
    """Filters apply before the temperature."""

    silent = True

    def target(self, logits, state, depth):
        keep = replace(state.sampling, temperature=1.0).probs(logits) > 0
        return norm(replace(state.sampling, top_p=1.0, top_k=0).probs(logits) * keep)


class SharedNumbers(DraftChain):
    """The draft is sampled with the uniform numbers that verification uses next."""

    def propose(self, state, budget):
        rng = state.rng
        state.rng = Shared(rng)
        try:
            return super().propose(state, budget)
        finally:
            state.rng = rng


class Shared:
    def __init__(self, rng):
        self.rng, self.used = rng, 0

    def pick(self, stream, probs):
        self.used += 1
        u = self.rng.ahead("verify", self.used)[-1]
        return min(
            int(torch.searchsorted(probs.cumsum(-1), torch.tensor(u, dtype=probs.dtype))), len(probs) - 1
        )

    def __getattr__(self, name):
        return getattr(self.rng, name)


def method(drafter: Callable, verifier=TokenRejection, gamma: int | None = None) -> Method:
    """A method of the wrong parts whose draft length is a knob, as speculative decoding's is."""
    from specviz.methods import catalogue

    right = catalogue()["speculative"]
    return replace(
        right,
        key="it",
        title="It",
        build=lambda kit, **knobs: replace(
            right.build(kit, **knobs), drafter=drafter(kit), verifier=verifier()
        ),
    )


CHAIN = {
    "often": Often,
    "often, silent": OftenSilent,
    "seldom": Seldom,
    "deep: accepted": DeepAccept,
    "deeper: accepted": DeeperAccept,
    "deep: often": DeepOften,
    "deep: no residual": DeepNoResidual,
    "deep: bonus": DeepBonus,
    "deep: warm": DeepWarm,
    "every eighth round": EveryEighth,
    "late": Late,
    "sharper": Sharper,
    "sharper bonus": SharperBonus,
    "best residual": BestResidual,
    "unsigned residual": UnsignedResidual,
    "others' residual": OthersResidual,
    "correction from the draft": DraftCorrection,
    "one uniform a round": OneUniform,
    "no coin": NoCoin,
    "neighbour's draft": NeighbourDraft,
    "rare tokens dropped": RareDropped,
    "first greedy": FirstGreedy,
    "filters before temperature": NucleusLate,
}


# --- drafted tokens and what is recorded for them -----------------------------------------------------------------------
class OtherDraft(Children):
    """A first child that is sampled from another distribution than the one recorded for it."""

    def fill(self, build, logits, probs, state):
        draw = build.begin(self.recorded(logits, state), IID)
        build.add(state.rng.pick("draft", self.sampled(logits, state)), -1, draw)

    def recorded(self, logits, state):
        return state.sampling.probs(logits)

    def sampled(self, logits, state):
        return state.sampling.probs(logits)


class FiltersNotRecorded(OtherDraft):
    """The draft is sampled through top-k and top-p, and recorded without them."""

    def recorded(self, logits, state):
        return replace(state.sampling, top_k=0, top_p=1.0).probs(logits)


class FiltersOnlyRecorded(FiltersNotRecorded):
    """The reverse."""

    def recorded(self, logits, state):
        return OtherDraft.recorded(self, logits, state)

    def sampled(self, logits, state):
        return FiltersNotRecorded.recorded(self, logits, state)


class ColderDraft(OtherDraft):
    """Sampled at three quarters of the recorded temperature."""

    def sampled(self, logits, state):
        return replace(state.sampling, temperature=0.75 * state.sampling.temperature).probs(logits)


class NucleusDraft(OtherDraft):
    """Sampled with top-p 0.95, which is not recorded."""

    def sampled(self, logits, state):
        return replace(state.sampling, top_p=0.95 * state.sampling.top_p).probs(logits)


class RelabelledDraw(Children):
    """Two siblings with the label of the other kind."""

    def fill(self, build, logits, probs, state):
        draw = build.begin(probs, IID if self.how == WITHOUT_REPLACEMENT else WITHOUT_REPLACEMENT)
        for token in self.tokens(logits, probs, state):
            build.add(token, -1, draw)


# --- siblings --------------------------------------------------------------------------------------------------------
class OtherSiblingRule(Wrong):
    """Later siblings are verified by the rule of the other kind of siblings."""

    def decide(self, tree, child, p, state, depth):
        self.other = other_rule(tree, child)
        return super().decide(tree, child, p, state, depth)

    def rate(self, right, tree, child, p, state, depth):
        if self.other is None:
            return right
        x = tree.tokens[child]
        return min(1.0, float(p[x]) / max(float(self.other[x]), 1e-12))

    def left(self, p, q, x, depth):
        rest = (p - (q if self.other is None else self.other)).clamp(min=0)
        return norm(rest) if float(rest.sum()) > 1e-12 else p


class SilentOtherSiblingRule(OtherSiblingRule):
    silent = True


# --- bonus tokens ----------------------------------------------------------------------------------------------------
class BonusFrom(Wrong):
    """The bonus token is sampled from another distribution; what is reported is the right one."""

    def end(self, verdict, tree, scores, state):
        if verdict.kind != "bonus":
            return verdict
        path = verdict.path
        row = scores.model_logits[(path or (-1,))[-1] + 1]
        return replace(
            verdict, token=state.rng.pick("verify", self.bonus(verdict.probs, row, tree, path, state))
        )

    def bonus(self, probs, row, tree, path, state):
        return probs


class NeverSecond(BonusFrom):
    """The bonus token is never the second best."""

    def bonus(self, probs, row, tree, path, state):
        probs = probs.clone()
        probs[probs.topk(2).indices[1]] = 0
        return norm(probs)


class SecondMovedToThird(BonusFrom):
    """Half of the second best token's probability goes to the third."""

    def bonus(self, probs, row, tree, path, state):
        probs = probs.clone()
        _, second, third = probs.topk(3).indices
        probs[third] += probs[second] / 2
        probs[second] /= 2
        return probs


class Unprocessed(BonusFrom):
    """Some of the request's processors are missing on the bonus token."""

    missing: tuple[type, ...] = (Penalties, LogitBias, BadWords, TokenMask)

    def bonus(self, probs, row, tree, path, state):
        if not state.processors:
            return probs
        kept = Processors([one for one in state.processors.processors if not isinstance(one, self.missing)])
        tokens = tuple(tree.tokens[node] for node in path)
        return state.sampling.probs(kept.rows(row[None], [self.seen(tokens)], state.tokens, state.start)[0])

    def seen(self, path):
        return path


class NoPenalties(Unprocessed):
    missing = (Penalties,)


class NoBias(Unprocessed):
    missing = (LogitBias,)


class NoBadWords(Unprocessed):
    missing = (BadWords,)


class NoGrammar(Unprocessed):
    missing = (Alternating,)


class StaleProcessors(Unprocessed):
    """The processors of the bonus token have not seen the last draft token."""

    missing = ()

    def seen(self, path):
        return path[:-1]


class BlindProcessors(StaleProcessors):
    """The processors of the bonus token see the text only, no draft tokens."""

    def seen(self, path):
        return ()


# --- passes ----------------------------------------------------------------------------------------------------------
class SeesSibling(TinyTarget):
    """A node also attends to its preceding sibling."""

    def _forward(self, rows):
        sees = rows.shape.sees.clone()
        for node in range(rows.lo if rows.lo else 0, len(rows.tree)):
            siblings = rows.tree.children(rows.tree.parents[node])
            at = siblings.index(node) if node in siblings else 0
            if at and node + 1 >= rows.lo:
                sees[node + 1 - rows.lo, siblings[at - 1] + 1] = True
        rows.__dict__["shape"] = replace(rows.shape, sees=sees, all_seen=False)
        return super()._forward(rows)


class ForgetsGrandparent(TinyTarget):
    """A node does not attend to its parent's parent."""

    def _forward(self, rows):
        sees = rows.shape.sees.clone()
        for node in range(len(rows.tree)):
            parent = rows.tree.parents[node]
            if parent >= 0 and node + 1 >= rows.lo and len(rows.tree.children(-1)) > 1:
                sees[node + 1 - rows.lo, rows.tree.parents[parent] + 1] = False
        rows.__dict__["shape"] = replace(rows.shape, sees=sees, all_seen=False)
        return super()._forward(rows)


def tree_method(verifier=TokenRejection) -> Method:
    return one_method(
        lambda kit: Parts(DraftShape(kit.open("draft"), full_tree((2, 2)), False), Fixed(2, 2, 8), verifier())
    )


def one_method(build) -> Method:
    return Method("it", "It", "", "test", build)


def siblings(cls, how, count=2):
    return lambda kit: cls(kit.open("draft"), how, count)


@dataclass(frozen=True)
class Variant:
    """A wrong variant. target: the class of its target; share: how far the draft is on the way to the
    target."""

    method: Method
    target: type = TinyTarget
    share: float = 0.3

    def loaded(self):
        return Loaded(share=self.share, sharp=1.2, target=self.target)


VARIANTS = {name: method(chain, verifier) for name, verifier in CHAIN.items()} | {
    "shared numbers": method(lambda kit: SharedNumbers(kit.open("draft"))),
}
NEW = {
    "draft: top-k and top-p not recorded": Variant(one_method(parts(siblings(FiltersNotRecorded, IID, 1)))),
    "draft: top-k and top-p only recorded": Variant(one_method(parts(siblings(FiltersOnlyRecorded, IID, 1)))),
    "draft: sampled colder than recorded": Variant(one_method(parts(siblings(ColderDraft, IID, 1)))),
    "draft: top-p 0.95 not recorded": Variant(one_method(parts(siblings(NucleusDraft, IID, 1)))),
    "siblings drawn without replacement, recorded as independent": Variant(
        one_method(parts(siblings(RelabelledDraw, WITHOUT_REPLACEMENT)))
    ),
    "siblings drawn independently, recorded as without replacement": Variant(
        one_method(parts(siblings(RelabelledDraw, IID)))
    ),
    "siblings without replacement verified as independent": Variant(
        one_method(parts(siblings(Children, WITHOUT_REPLACEMENT, 3), OtherSiblingRule))
    ),
    "siblings without replacement verified as independent, silent": Variant(
        one_method(parts(siblings(Children, WITHOUT_REPLACEMENT, 3), SilentOtherSiblingRule))
    ),
    "independent siblings verified as without replacement": Variant(
        one_method(parts(siblings(Children, IID, 3), OtherSiblingRule))
    ),
    "independent siblings verified as without replacement, silent": Variant(
        one_method(parts(siblings(Children, IID, 3), SilentOtherSiblingRule))
    ),
    "bonus: never the second best": Variant(method(chain, NeverSecond)),
    "bonus: half of the second best moved to the third": Variant(method(chain, SecondMovedToThird)),
    "bonus: no processors": Variant(method(chain, Unprocessed)),
    "bonus: no penalties": Variant(method(chain, NoPenalties)),
    "bonus: no biases": Variant(method(chain, NoBias)),
    "bonus: no bad words": Variant(method(chain, NoBadWords)),
    "bonus: no grammar": Variant(method(chain, NoGrammar)),
    "bonus: processors one token late": Variant(method(chain, StaleProcessors)),
    "bonus: processors see no draft tokens": Variant(method(chain, BlindProcessors)),
    "mask: a node sees its preceding sibling": Variant(tree_method(), SeesSibling),
    "mask: a node does not see its parent's parent": Variant(tree_method(), ForgetsGrandparent),
    "cache: first rows kept": Variant(tree_method(), FirstRowsKept),
    "positions by row": Variant(tree_method(), PositionsByRow),
}


def registry() -> dict[str, Variant]:
    """Return all wrong variants, also those of the other test files, by name."""
    from .test_whole_answers import WRONG

    distributions = {name: Variant(one_method(case.wrong)) for name, case in CASES.items()}
    return {
        **{f"chain: {name}": Variant(one) for name, one in VARIANTS.items()},
        **NEW,
        **{f"whole answers: {name}": Variant(one) for name, one in WRONG.items()},
        **{f"distribution: {name}": one for name, one in distributions.items()},
    }


STEPS = (120, 240, 480, 900, 1800, whole.TOKENS, 2 * whole.TOKENS)  # tokens after which the tests are read


class Found(NamedTuple):
    """What caught a variant. tokens: after how many tokens, None: not at all; tests: the names of the tests
    that failed."""

    tokens: int | None
    tests: tuple[str, ...]


def failed_tests(report: dict[str, Any]) -> list[str]:
    """Return the names of the tests by which a report fails: "impossible", "impossible drafts", "order of
    siblings", "reported decisions", "rows of passes"; groups of uniformity, bets, and settings ("setting: ...")."""
    checks = {
        "impossible": report["impossible"],
        "impossible drafts": report["impossible_drafts"],
        "order of siblings": report["disordered_drafts"],
        "reported decisions": report["decisions"]["failed"],
        "rows of passes": report["rows"]["failed"],
    }
    found = [name for name, failed in checks.items() if failed]
    tests = 2 * (len(whole.GROUPS) + len(whole.RANKS) + 3) + 2  # as in PitValues.p, on a half of the level
    level = whole.CHANCE / 4
    ps = {
        f"uniformity: {name}": group["p"] * tests * len(whole.LOOKS)
        for name, group in report["groups"].items()
        if group["p"] is not None
    }
    kinds = len(whole.APART) + len(DRAFT_BETS)
    ps |= {f"bets: {name}": kind["p"] * kinds for name, kind in report["apart"].items()}
    found += sorted((name for name, p in ps.items() if p < level), key=ps.__getitem__)
    settings = report.get("settings", ())
    found += [
        f"setting: {one['request']}, temperature {one['temperature']:g}"
        for one in sorted(settings, key=lambda one: one["p"])
        if one["p"] * len(settings) * 2 < whole.CHANCE
    ]
    return found


def find(variant: Variant, steps=STEPS) -> Found:
    """Generate answers until the certificate fails."""
    certificate = whole.AnswerCertificate(variant.loaded(), variant.method, PROMPTS)
    for tokens in steps:
        certificate.extend(tokens)
        report = certificate.report()
        if report["p"] < whole.CHANCE:
            return Found(tokens, tuple(failed_tests(report)))
    return Found(None, ())


RIGHT = ("speculative", "rsd_c", "prompt_lookup")  # methods whose answers the power is estimated from


def powers() -> list[tuple[str, str, str, int, float]]:
    """Return (method, test, main alternative, observations, power) of each kind of bet, and of the masks,
    on the small target after TOKENS tokens."""
    found = []
    for key in RIGHT:
        report = whole.certify_answers(SmallTarget(), key, SmallTarget.prompts)
        assert report["status"] == "pass", report["detail"]
        for kind, one in report["apart"].items():
            found.append((key, f"bets: {kind}", one["against"], one["samples"], one["power"]))
        if report["rows"]["power"] is not None:
            seen = "a node that sees its preceding sibling"
            rows = report["rows"]
            found.append((key, "rows of passes", seen, rows["siblings"], rows["power"]))
    best: dict[str, tuple[str, str, str, int, float]] = {}
    for one in found:
        if one[1] not in best or one[4] > best[one[1]][4]:
            best[one[1]] = one
    return list(best.values())


def table(found: dict[str, Found], power: list[tuple[str, str, str, int, float]]) -> str:
    """Return the page of docs/ with one line for each variant, and the power of each test, as Markdown."""
    rows = [
        f"| {name} | {one.tokens or 'not caught'} | {', '.join(one.tests[:3])} |"
        for name, one in found.items()
    ]
    tests = [f"| {test} | {why} | {key} | {count} | {share:.0%} |" for key, test, why, count, share in power]
    return "\n".join([*HEAD, *rows, "", *POWER_HEAD, *tests, ""])


POWER_HEAD = (
    "## Power",
    "",
    f"The probability with which each test would find its main mistake, estimated from the answers of a right method on the small "
    f"target ({whole.TOKENS} tokens). Seldom mistakes, and those at deep positions, are found later.",
    "",
    "| test | mistake | method | observations | power |",
    "|---|---|---|---:|---:|",
)


HEAD = (
    "# What the certificate catches",
    "",
    "`specviz verify` tests a method's answers against the target's distribution. Each line below is speculative "
    "decoding with one mistake; it runs on a target of twelve tokens, and the certificate is read after "
    + ", ".join(map(str, STEPS))
    + " tokens. A method without a mistake fails with probability "
    + f'{whole.CHANCE:g}. "Silent": the verifier reports the right numbers. The names of the tests are explained in '
    "`specviz/evidence/whole_answers.py`. Written by `python -m tests.evidence.wrong_variants`.",
    "",
    "| mistake | tokens | caught by |",
    "|---|---:|---|",
)


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = registry()
    found = {}
    for name, variant in chosen.items():
        found[name] = find(variant)
        print(name, found[name], flush=True)
    (Path(__file__).parents[2] / "docs" / "certificate.md").write_text(
        table(found, powers()), encoding="utf-8"
    )
