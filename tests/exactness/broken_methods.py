"""Deliberately wrong variants, each next to the right one. They look plausible, most of them were shipped
somewhere, and at temperature 0 most write the right tokens. They live here and nowhere else; the checks
must catch every one."""

from __future__ import annotations

from dataclasses import replace

import torch

from specviz.core import CHOSEN, IID, WITHOUT_REPLACEMENT, Decision, Drafter, Sampling, TreeBuilder, Verdict
from specviz.drafters.combined.fusion import MultiDrafter, merge_trees_with_sources
from specviz.drafters.heads.online import LearningBlock
from specviz.drafters.model.chain import DraftChain
from specviz.drafters.parallel.blocks import SampledJacobi
from specviz.policies import AdaptiveVerification
from specviz.policies.goodput import OPENING
from specviz.targets.tiny import TinyTarget
from specviz.trees import Scorer
from specviz.verifiers import BlockVerification, TokenRejection


# --- verifiers ---------------------------------------------------------------------------------------------------------
class Walk(TokenRejection):
    """The right rule, at temperature 0 too: without the product's short cut, so that what varies it shows
    there as well."""

    def verify(self, tree, scores, state):
        path = []
        node = -1
        decisions = []
        while True:
            probs, hit = state.sampling.probs(scores.logits[node + 1]), None
            for child in tree.children(node):
                decisions.append(self.test(tree, child, probs, state))
                if decisions[-1].verdict == "accepted":
                    hit = child
                    break
                probs = decisions[-1].residual
            if hit is None:
                kind = "correction" if tree.children(node) else "bonus"
                return Verdict(tuple(path), state.rng.pick("verify", probs), kind, tuple(decisions), probs)
            node = hit
            path.append(node)


class NoResidual(Walk):
    """After a refusal the correction is drawn from p itself: the refused token gets a second chance."""

    def test(self, tree, child, p, state):
        return replace(super().test(tree, child, p, state), residual=p)


class BonusFromDraft(Walk):
    """When everything was accepted, the draft's distribution gives the next token too."""

    def verify(self, tree, scores, state):
        verdict = super().verify(tree, scores, state)
        if verdict.kind != "bonus" or not verdict.path:
            return verdict
        return replace(verdict, token=state.rng.pick("verify", tree.draft_probs(verdict.path[-1])))


class BaseRow(Walk):
    """Siblings drawn without replacement are all held against the distribution of the first one."""

    def test(self, tree, child, p, state):
        return super().test(replace(tree, drawn=tuple(IID for _ in tree.drawn)), child, p, state)


class NoTemperature(Walk):
    """The target's distribution is taken before temperature and top-p, the draft's after."""

    def verify(self, tree, scores, state):
        state = replace(state, sampling=Sampling(float(state.sampling.temperature > 0)))
        return super().verify(tree, scores, state)


class AlwaysAccept(Walk):
    """Whatever was drafted is kept."""

    def test(self, tree, child, p, state):
        return Decision(child, "always", 1.0, None, 1.0, None, "accepted", p)


class DrawsAnew(TokenRejection):
    """REST's published rule: at each node a token is drawn and looked for among the children; where it is
    none of them, the token that is written is drawn anew, so what was drafted has two chances."""

    def verify(self, tree, scores, state):
        node, path = -1, []
        while True:
            probs = state.sampling.probs(scores.logits[node + 1])
            drawn = state.rng.pick("verify", probs)
            hit = next((child for child in tree.children(node) if tree.tokens[child] == drawn), None)
            if hit is None:
                return Verdict(
                    tuple(path),
                    state.rng.pick("verify", probs) if tree.children(node) else drawn,
                    "correction",
                    (),
                    probs,
                )
            node = hit
            path.append(node)


class FirstFailure(BlockVerification):
    """Block verification that walks from the front and stops at the first token whose own test fails."""

    def verify(self, tree, scores, state):
        distributions = [state.sampling.probs(row) for row in scores.logits]
        r, path = 1.0, []
        for i in range(len(tree)):
            q, x = tree.draft_probs(i), tree.tokens[i]
            r = min(1.0, r * float(distributions[i][x] / q[x]))
            if i + 1 < len(tree):
                mass = float((r * distributions[i + 1] - tree.draft_probs(i + 1)).clamp(min=0).sum())
                accept = mass / (mass + 1 - r) if mass + 1 - r > 1e-14 else 1.0
            else:
                accept = r
            if not state.rng.flip("verify", accept)[0]:
                break
            path.append(i)
        return Verdict(
            tuple(path), state.rng.pick("verify", self.left(tree, distributions, path)), "correction"
        )

    @staticmethod
    def left(tree, distributions, path):
        n, r = len(path), 1.0
        for i in path:
            r = min(1.0, r * float(distributions[i][tree.tokens[i]] / tree.draft_probs(i)[tree.tokens[i]]))
        rest = (
            distributions[n] if n == len(tree) else (r * distributions[n] - tree.draft_probs(n)).clamp(min=0)
        )
        return rest / rest.sum() if float(rest.sum()) > 1e-14 else distributions[n]


# --- drafters ----------------------------------------------------------------------------------------------------------
class Children(Drafter):
    """``count`` children under the root: the draft's best (chosen), or drawn. The small part that the wrong
    ones vary."""

    def __init__(self, model, how: str, count: int):
        self.model = model
        self.how = how
        self.count = count

    def propose(self, state, budget):
        build = TreeBuilder()
        if budget.gamma > 0:
            self.model.sync(state.tokens)
            logits = Scorer(self.model).logits(build, (-1,))[0]
            self.fill(build, logits, state.sampling.probs(logits), state)
        return build.tree()

    def fill(self, build, logits, probs, state):
        draw = -1 if self.how == CHOSEN else build.begin(probs, self.how)
        for token in self.tokens(logits, probs, state):
            build.add(token, -1, draw)

    def tokens(self, logits, probs, state):
        if self.how == CHOSEN:
            return logits.topk(self.count).indices.tolist()
        out = []
        for _ in range(min(self.count, int((probs > 0).sum()))):
            out.append(state.rng.pick("draft", probs))
            if self.how == WITHOUT_REPLACEMENT:
                probs = probs.clone()
                probs[out[-1]] = 0
                probs = probs / probs.sum()
        return out


class TopkAsDrawn(Children):
    """Top-k children that claim to be draws from the draft's softmax."""

    def fill(self, build, logits, probs, state):
        draw = build.begin(probs, IID)
        for token in logits.topk(self.count).indices.tolist():
            build.add(token, -1, draw)


class WarmDistribution(Children):
    """Drawn at the run's temperature, recorded at temperature 1."""

    def fill(self, build, logits, probs, state):
        draw = build.begin(logits.softmax(-1), IID)
        for token in self.tokens(logits, probs, state):
            build.add(token, -1, draw)


class StaleGuesses(SampledJacobi):
    """Speculative Jacobi whose guesses stay as they were drawn, with the newest pass's distribution as
    theirs."""

    def start(self, state, target, prefill):
        super().start(state, target, prefill)
        self.kept = ()

    def propose(self, state, budget):
        tree = super().propose(state, budget)
        drawn = min(len(self.kept), 0 if self.rows is None else len(self.rows), len(tree))
        return replace(tree, tokens=(*self.kept[:drawn], *tree.tokens[drawn:]))

    def observe(self, state, outcome):
        super().observe(state, outcome)
        self.kept = outcome.tree.tokens[len(outcome.verdict.path) + 1 :]


class Told(Drafter):
    """Chosen children that do not look at the draft: the last tokens of the text, as a lookup would find
    them."""

    def __init__(self, count: int = 1):
        self.count = count

    def propose(self, state, budget):
        build = TreeBuilder()
        for token in list(dict.fromkeys(reversed(state.tokens)))[: self.count] if budget.gamma > 0 else ():
            build.add(token, -1)
        return build.tree()


class Union(MultiDrafter):
    """The right fusion."""

    def propose(self, state, budget):
        return merge_trees_with_sources([drafter.propose(state, budget) for drafter in self.drafters])[0]


class ChosenFirst(MultiDrafter):
    """The chosen child comes first; a drawn twin of it finds its node taken and only lends it its
    distribution."""

    def propose(self, state, budget):
        drawn, chosen = (drafter.propose(state, budget) for drafter in self.drafters)
        tree = replace(chosen, probs=drawn.probs, drawn=drawn.drawn)
        for i in range(len(drawn)):
            twin = next((c for c in range(len(tree)) if tree.tokens[c] == drawn.tokens[i]), None)
            if twin is None:
                tree = tree.add(drawn.tokens[i], -1, drawn.draw[i])
            else:
                tree = replace(
                    tree, draw=tuple(drawn.draw[i] if c == twin else k for c, k in enumerate(tree.draw))
                )
        return tree


class TwinsMerged(MultiDrafter):
    """Two drafts that draw the same token share one node, with the distribution of the first."""

    def propose(self, state, budget):
        first, second = (drafter.propose(state, budget) for drafter in self.drafters)
        tree = first
        for i in range(len(second)):
            if second.tokens[i] not in first.tokens:
                tree, draw = tree.begin(second.draft_probs(i), IID)
                tree = tree.add(second.tokens[i], -1, draw)
        return tree


class DropsTheTokenItLookedAt(DraftChain):
    """Drafting stops at a token the draft did not believe in, and that token is not sent."""

    kept = False

    def propose(self, state, budget):
        looked = []

        def doubtful(step):
            looked.append(float(step.probs[step.token]) < 0.4)
            return looked[-1]

        tree = super().propose(state, replace(budget, stop=doubtful))
        if self.kept or not looked or not looked[-1]:
            return tree
        return tree.keep(range(len(tree) - 1), by_token=False)


class KeepsTheTokenItLookedAt(DropsTheTokenItLookedAt):
    """The right one: whatever the rule looked at is verified."""

    kept = True


class CutByTokens(DraftChain):
    """A chain cut where its joint probability gets low: a choice that saw the tokens it drops."""

    demoted = False

    def propose(self, state, budget):
        tree = super().propose(state, budget)
        keep = 0
        joint = 1.0
        for i in range(len(tree)):
            joint *= float(tree.draft_probs(i)[tree.tokens[i]])
            keep += joint >= 0.35
        return tree.keep(range(keep), by_token=self.demoted)


class CutAndDemoted(CutByTokens):
    """The right one: what is left counts as chosen."""

    demoted = True


class LearnsBeforeVerification(LearningBlock):
    """Takes its step after the draft is drawn, and records what the trained head then says of these tokens:
    no longer the distribution they were drawn from."""

    def __init__(self, head, every, rate):
        super().__init__(head, 10**6, rate)  # observe() collects the rows, propose() learns

    def propose(self, state, budget):
        tree = super().propose(state, budget)
        if not len(tree) or not self.learner.rounds:
            return tree
        self.learner.learn(self.full, state)
        self.use_trained()
        logits = self.scores(state, len(tree)).block.logits
        return replace(tree, probs=state.sampling.probs(logits).to(tree.probs))


# --- policies ----------------------------------------------------------------------------------------------------------
class FixedLimit(AdaptiveVerification):
    """The right rule with a threshold that no measured time moves: a place is verified if the draft's top-1
    probabilities up to it promise enough."""

    def __init__(self):
        super().__init__(2, uncut=0)
        self.rounds = len(OPENING)
        self.model.slope, self.model.intercepts = 1.0, [0.0, 0.0]

    def _choose(self, states):
        self.budget, self.limit, self.step_limit = 2, 0.45, 0.0


class RankByDrawnToken(FixedLimit):
    """A place is verified if the tokens drawn up to it are probable enough in the draft: which tokens are
    verified then depends on what they are."""

    def confidence(self, step):
        return float(step.probs[step.token])


# --- targets -----------------------------------------------------------------------------------------------------------
class FirstRowsKept(TinyTarget):
    """Keeps as many rows as the path is long, from the front, instead of the path's own."""

    def _gather(self, past, rows):
        pass


class PositionsByRow(TinyTarget):
    """A node's position is its place in the tree instead of its depth."""

    def _forward(self, rows):
        shape = replace(rows.shape, depth=torch.arange(rows.lo, len(rows.tree) + 1))
        rows.__dict__["shape"] = shape
        return super()._forward(rows)
