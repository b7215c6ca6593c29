"""Drafts that are the target's own guesses, made in parallel and corrected from pass to pass.

``BlockJacobi``: Jacobi inside a block, Gauss-Seidel between blocks (Santilli et al. 2305.10427). ``SampledJacobi``: speculative
Jacobi decoding, whose guesses are draws (Teng et al. 2410.01699). ``JacobiTree``: several guesses a place and a retrieved chain,
TR-Jacobi (Wang et al. 2406.17404). ``Units``: lexical unit decoding (Sun et al. 2405.15208).
"""
from __future__ import annotations

import random

from torch import Tensor

from ...core import IID, Budget, DraftTree, Drafter, Origin, Outcome, Scores, State, Target, TreeBuilder, select_rows
from ...trees import Shape, best, draw_one
from ..several.fused import join
from ...indexes.suffix_automaton import Grams


class BlockJacobi(Drafter):
    """The answer in blocks of ``size`` places; a block is corrected until all of it stands, then the next one is begun.

    fill: what a new block is filled with, "last token" or "prompt".
    """

    restartable = False  # its guesses are about the text the target has read

    def __init__(self, size: int, fill: str = "last token"):
        self.size, self.fill = size, fill
        self.guesses: list[int] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.guesses = []

    def propose(self, state: State, budget: Budget) -> DraftTree:
        written = len(state.tokens) - state.start
        room = min(budget.gamma, self.size - written % self.size)
        block = self.guesses[:room]
        for place in range(len(block), room):
            block.append(state.tokens[-1] if self.fill == "last token" else state.tokens[place % len(state.tokens)])
        if room > 0:
            state.note("grid", block=block, carried=min(len(self.guesses), room), at=len(state.tokens), number=written // self.size)
        return DraftTree.chain(block)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.guesses = outcome.scores.tops(range(len(outcome.verdict.path) + 1, len(outcome.scores.logits)))


class SampledJacobi(Drafter):
    """A window of budget.gamma guesses. What was refused is drawn anew from the law that the pass before gave its place, and
    that law is what it is tested with; new places are filled with tokens of the text, which are chosen."""

    restartable = False  # its guesses are about the text the target has read

    def __init__(self):
        self.rows: Tensor | None = None  # logits [places, vocab] of the last pass behind what was accepted

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.rows = None

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build, tokens = TreeBuilder(), state.tokens
        for row in self.rows[:budget.gamma] if self.rows is not None else ():
            token, probs = draw_one(row, state)  # drawn here, not when the row was seen: a draft depends on no older dice
            build.add(token, len(build) - 1, build.begin(probs, IID))
        drawn = len(build)
        for place in range(drawn, budget.gamma):
            at = place % len(tokens)
            build.add(tokens[at], place - 1, origin=Origin("context", at, at + 1))
        if len(build):
            state.note("grid", block=list(build.tokens), carried=drawn, at=len(tokens), number=0)
        return build.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        self.rows = outcome.scores.logits[len(outcome.verdict.path) + 1:]


class JacobiTree(Drafter):
    """A tree of the last pass's best tokens, place by place, joined with a chain copied from the text.

    shape: the tree to fill; wide: tokens kept a place; chain: most tokens copied; match: most tokens of the end that are matched.
    """

    restartable = False  # its guesses are about the text the target has read

    def __init__(self, shape: Shape, wide: int = 10, chain: int = 5, match: int = 3):
        self.shape, self.wide, self.chain, self.text = shape, wide, chain, Grams(match)
        self.places: list[list[int]] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.places = []
        self.text.clear()
        self.text.settle(state.tokens)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        known = len(self.places)
        tree, owners = join([self.fill(state, budget), self.copied(state, budget)])
        if len(tree):
            names = {(0,): "guess", (1,): "retrieved", (0, 1): "both"}
            state.note("fused", by=[names[who] for who in owners], places=known)
        return tree

    def fill(self, state: State, budget: Budget) -> DraftTree:
        """The shape, each depth filled with the guesses of its place; unknown places hold different tokens of the text, as many as
        a known one has guesses."""
        build, at = TreeBuilder(), {-1: -1}
        shape = self.shape.within(budget.gamma, budget.width)
        rolls = random.Random(f"{state.sampling.seed}/{len(state.tokens)}/fill")  # its own dice: the verifier's are not looked at
        words = list(dict.fromkeys(state.tokens))
        for place, (parent, rank, depth) in enumerate(zip(shape.parents, shape.ranks, shape.depths)):
            while depth > len(self.places):
                self.places.append(rolls.sample(words, min(self.wide, len(words))))
            known = self.places[depth - 1]
            if parent in at and rank < len(known):
                at[place] = build.add(known[rank], at[parent])
        return build.tree()

    def copied(self, state: State, budget: Budget) -> DraftTree:
        build, tokens = TreeBuilder(), state.tokens
        self.text.follow(tokens)
        end, _ = self.text.match()
        for at in range(end, min(end + min(self.chain, budget.gamma), len(tokens)) if end else end):
            build.add(tokens[at], len(build) - 1, origin=Origin("context", at, at + 1))
        return build.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        """The rows behind the refused end of the best path guess the places after the token that was written instead."""
        self.text.settle(state.tokens)
        tree, path = outcome.tree, outcome.verdict.path
        node, rows = path[-1] if path else -1, []
        while tree.children(node):  # first children: the likeliest ones
            node = tree.children(node)[0]
            rows.append(node + 1)
        self.places = best(select_rows(outcome.scores.logits, rows), self.wide)[1].tolist() if rows else []


class Units(Drafter):
    """A lexical unit: tokens that the last pass was sure of although their neighbours were still blank. They are written
    without a test, and blanks behind them are read in the same pass.

    blanks: places read ahead; sure: least probability of a token of a unit.
    """

    restartable = False  # its guesses are about the text the target has read

    def __init__(self, blanks: int, sure: float):
        self.blanks, self.sure = blanks, sure
        self.unit: list[int] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.unit, self.token_probs = [], []

    def propose(self, state: State, budget: Budget) -> DraftTree:
        build = TreeBuilder()
        for token in self.unit[:budget.gamma]:
            build.add(token, len(build) - 1)
            if token in state.stop:
                break
        self.size = len(build)
        blank = state.tokens[-1]  # the paper trains a token for it; an end token would make the model sure of a new line
        for _ in range(self.blanks):
            build.add(blank, len(build) - 1, probe=True)
        state.note("unit", tokens=list(build.tokens[:self.size]), chances=self.token_probs[:self.size], blanks=self.blanks)
        return build.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        self.unit, self.token_probs = [], []
        if len(outcome.verdict.path) < self.size:
            return  # the run ended inside the unit
        distributions = outcome.scores.logits[self.size + 1:].softmax(-1)
        last = state.tokens[-1]
        for prob, token in zip(*(x.tolist() for x in distributions.max(-1))):
            if prob < self.sure or token == last:  # a repeated token is how a blank looks when it knows nothing
                break
            self.unit.append(token)
            self.token_probs.append(round(prob, 4))
            last = token
