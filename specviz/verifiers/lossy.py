"""Rules that accept more than the target's law allows, on purpose. What they give up is measured and noted as drift.

Lenience (Leviathan et al. 2211.17192, appendix): a drafted token passes as if the target liked it 1/l times as much. Typical
acceptance (Medusa, Cai et al. 2401.10774): a token passes when its probability is above a threshold that falls with entropy.
"""
from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ..core import DraftTree, Scores, State, Trial, Verdict, token_tensor
from .token import TokenRejection, follow_best


class Lenient(TokenRejection):
    """lenience: l in (0, 1]; 1 is exact. Drift: nats of KL(target's law, law really followed) at each place a token was tried; at
    temperature 0, where a token passes when its probability is at least l times the best one's, the log-probability given up.
    """

    title = "lenience (lossy)"

    def __init__(self, lenience: float = 0.5):
        self.lenience = lenience
        self._drift: list[float] = []

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        self._drift = []
        verdict = self._greedy(tree, scores, state) if state.sampling.greedy else super().verify(tree, scores, state)
        if self._drift:
            state.note("drift", nats=self._drift)
        return verdict

    def test(self, tree: DraftTree, child: int, p: Tensor, state: State) -> Trial:
        x, q = tree.tokens[child], tree.draft_probs(child)
        q = torch.zeros_like(p).index_fill_(0, torch.tensor([x], device=p.device), 1.0) if q is None else q
        accept = (p / (self.lenience * q)).nan_to_num_(nan=0.0, posinf=1.0).clamp_(max=1.0)
        rest = (p - q).clamp_(min=0)
        mass = float(rest.sum())
        rest = rest / mass if mass > 0 else p
        passed = q * accept
        self._drift.append(divergence(p, passed + (1 - passed.sum()).clamp_(min=0) * rest))
        ok, u = state.rng.flip("verify", float(accept[x]))
        verdict = "accepted" if ok else "rejected"
        return Trial(child, "lenient", float(p[x]), float(q[x]), float(accept[x]), u, verdict, p, None if ok else rest)

    def _greedy(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        node, path, trials = -1, [], []
        while True:
            belief = scores.logits[node + 1].float().softmax(-1)
            best = scores.top(node + 1)
            children, hit = tree.children(node), None
            for child in children:
                prob, most = belief.index_select(0, token_tensor(belief.device, [tree.tokens[child], best])).tolist()
                ok, u = state.rng.flip("verify", float(prob >= self.lenience * most))
                trials.append(Trial(child, "lenient", prob, None, float(ok), u, "accepted" if ok else "rejected", belief, belief))
                if ok:
                    self._drift.append(math.log(most / prob) if prob > 0 else math.inf)
                    hit = child
                    break
            if hit is None:
                probs = torch.zeros_like(belief)
                probs[best] = 1
                kind = "correction" if children else "bonus" if len(tree) else "plain"
                return Verdict(tuple(path), best, kind, tuple(trials), probs)
            path.append(hit)
            node = hit


class Typical(TokenRejection):
    """A token passes iff p(x) > min(floor, share * exp(-entropy of p)). At temperature 0 it is exact, as Medusa's rule is.

    last: the token after the path, "argmax", as the authors' fast mode has it; "typical", drawn from the tokens that would pass, as
    their other mode; or "distribution", drawn from the target's law.

    Of a tree the longest path that passes is kept, and of several the likeliest to the target. Drift: the log-probability each
    kept token gives up against the best one, in nats.
    """

    title = "typical acceptance (lossy)"

    def __init__(self, floor: float = 0.09, share: float = 0.3, last: str = "argmax"):
        self.floor, self.share, self.last = floor, share, last

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        if state.sampling.greedy:
            return follow_best(tree, scores, state)
        distributions, trials, ends = {}, {}, [(-1, 0.0)]  # nodes reached, and the log-probability of their paths
        for node, worth in ends:
            distributions[node] = p = state.sampling.probs(scores.logits[node + 1])
            children = tree.children(node)
            least = self.least(p) if children else 0.0
            for child in children:
                trials[child] = self._try(tree, child, p, least, state)
                if trials[child].verdict == "accepted":
                    ends.append((child, worth + math.log(trials[child].target_prob)))
        last = max(ends, key=lambda end: (len(tree.path(end[0])), end[1]))[0]
        path, probs = tuple(tree.path(last)), self.after(distributions[last])
        drift = [float((distributions[tree.parents[node]].max() / distributions[tree.parents[node]][tree.tokens[node]]).log()) for node in path]
        if drift:
            state.note("drift", nats=drift, threshold=self.least(distributions[tree.parents[last]]))
        told = tuple(replace(trial, verdict="skipped") if trial.verdict == "accepted" and node not in path else trial
                     for node, trial in trials.items())  # what would have passed but for a longer path
        kind = "correction" if tree.children(last) else "bonus" if len(tree) else "plain"
        return Verdict(path, state.rng.pick("verify", probs), kind, told, probs)

    def after(self, p: Tensor) -> Tensor:
        """The law [vocab] of the token after the path, where the target's is p."""
        if self.last == "distribution":
            return p
        kept = p * (p > self.least(p)) if self.last == "typical" else torch.zeros_like(p)
        if float(kept.sum()) <= 0:  # the argmax, and the typical tokens' where none is likely enough
            kept[int(p.argmax())] = 1
        return kept / kept.sum()

    def least(self, p: Tensor) -> float:
        """The probability that a token must be above where the target's law is p [vocab]."""
        return min(self.floor, self.share * float(torch.exp(torch.special.xlogy(p, p).sum())))

    @staticmethod
    def _try(tree: DraftTree, child: int, p: Tensor, least: float, state: State) -> Trial:
        x, q = tree.tokens[child], tree.draft_probs(child)
        ok, u = state.rng.flip("verify", float(p[x] > least))
        return Trial(child, "typical", float(p[x]), None if q is None else float(q[x]), float(ok), u,
                     "accepted" if ok else "rejected", p, None if ok else p)


def divergence(p: Tensor, e: Tensor) -> float:
    """KL(p, e) in nats of two laws [vocab]; where e is 0 though p is not, its smallest positive number stands in."""
    return max(0.0, float((p * (p / e.clamp(min=torch.finfo(e.dtype).tiny)).clamp(min=torch.finfo(p.dtype).tiny).log()).sum()))
