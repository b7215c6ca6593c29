"""Parallel decoding by fixed-point iteration: the target's predictions for many positions, corrected in
each forward pass.

``BlockJacobi``: Jacobi inside a block, Gauss-Seidel between blocks (Santilli et al. 2305.10427).
``SampledJacobi``: speculative Jacobi decoding, whose guesses are samples (Teng et al. 2410.01699).
``JacobiTree``: several guesses per position and a retrieved chain, TR-Jacobi (Wang et al. 2406.17404).
``LexicalUnits``: lexical unit decoding (Sun et al. 2405.15208).
"""

from __future__ import annotations

import random

from torch import Tensor

from ...core import (
    IID,
    Budget,
    Drafter,
    DraftTree,
    Origin,
    Outcome,
    Scores,
    State,
    Target,
    TreeBuilder,
    select_rows,
)
from ...indexes.suffix_automaton import NgramIndexes
from ...trees import Shape, sample_token, top_k
from ..combined.fusion import merge_trees_with_sources


class BlockJacobi(Drafter):
    """Drafter by Jacobi iteration within blocks of ``size`` positions; the next block starts when the
    current one has converged (Santilli et al. 2305.10427). The draft is a chain of the guesses for the
    block's remaining positions.

    fill: initial guesses of a block: "last token" repeats it, "prompt" takes tokens of the prompt.
    """

    restartable = False  # guesses belong to the target's last pass

    def __init__(self, size: int, fill: str = "last token"):
        self.size, self.fill = size, fill
        self.guesses: list[int] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.guesses = []

    def propose(self, state: State, budget: Budget) -> DraftTree:
        written = len(state.tokens) - state.start
        room = min(budget.gamma, self.size - written % self.size)
        block = self.guesses[:room]
        for position in range(len(block), room):
            block.append(
                state.tokens[-1] if self.fill == "last token" else state.tokens[position % len(state.tokens)]
            )
        if room > 0:
            state.note(
                "grid",
                block=block,
                carried=min(len(self.guesses), room),
                at=len(state.tokens),
                number=written // self.size,
            )
        return DraftTree.chain(block)

    def observe(self, state: State, outcome: Outcome) -> None:
        self.guesses = outcome.scores.tops(range(len(outcome.verdict.path) + 1, len(outcome.scores.logits)))


class SampledJacobi(Drafter):
    """Drafter by speculative Jacobi decoding (Teng et al. 2410.01699): a chain of budget.gamma guesses. A
    guess is sampled from the distribution that the target's previous pass gave at its position, and
    verified with that distribution. Positions that no pass has scored yet are filled by ``init``.

    init: "context" (tokens of the text in order), "left" (repeat the token before), "above" (repeat the
    token one row of the output's grid before), "sample" (sample from the distribution of the position to
    the left), "random" (any of ``tokens``), "auto" ("left" on a grid, else "context"). columns: of the
    output's grid; 0 without one, then "above" is "left". A sampled guess carries its distribution; the
    others are chosen nodes.
    """

    restartable = False  # guesses belong to the target's last pass

    def __init__(self, init: str = "auto", columns: int = 0, tokens: range = range(0)):
        self.init = init if init != "auto" else "left" if columns else "context"
        self.columns, self.tokens = columns, tokens
        self.rows: Tensor | None = (
            None  # logits [positions, vocab] of the last pass after the accepted prefix
        )

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.rows = None

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder, tokens = TreeBuilder(), state.tokens
        for row in self.rows[: budget.gamma] if self.rows is not None else ():
            token, probs = sample_token(
                row, state
            )  # sampled now, so that the draft depends on this round's random numbers only
            builder.add(token, len(builder) - 1, builder.begin(probs, IID))
        drawn = len(builder)
        for position in range(drawn, budget.gamma):
            self.fill(builder, position, state)
        if len(builder):
            state.note("grid", block=list(builder.tokens), carried=drawn, at=len(tokens), number=0)
        return builder.tree()

    def fill(self, builder: TreeBuilder, position: int, state: State) -> None:
        """Add to ``builder`` a guess for ``position`` of the chain, which the last pass did not score."""
        if self.init == "sample" and self.rows is not None and len(self.rows):
            token, probs = sample_token(self.rows[-1], state)
            builder.add(token, position - 1, builder.begin(probs, IID))
        elif self.init == "random" and len(self.tokens):
            rng = random.Random(
                f"{state.sampling.seed}/{len(state.tokens) + position}/fill"
            )  # apart from the run's random streams
            builder.add(rng.choice(self.tokens), position - 1)
        elif self.init == "context":
            at = position % len(state.tokens)
            builder.add(state.tokens[at], position - 1, origin=Origin("context", at, at + 1))
        else:
            builder.add(self.neighbour(builder, position, state), position - 1)

    def neighbour(self, builder: TreeBuilder, position: int, state: State) -> int:
        """Return the token before ``position`` of the chain; with "above", and in the first column of the
        grid, the token one row before."""
        written = len(state.tokens) - state.start + position
        back = (
            self.columns
            if self.columns
            and written >= self.columns
            and (self.init == "above" or not written % self.columns)
            else 1
        )
        return builder.tokens[position - back] if position >= back else state.tokens[position - back]

    def observe(self, state: State, outcome: Outcome) -> None:
        self.rows = outcome.scores.logits[len(outcome.verdict.path) + 1 :]


class JacobiTree(Drafter):
    """Drafter of a tree by TR-Jacobi (Wang et al. 2406.17404): the top tokens of the target's last pass at
    each position fill a tree, which is merged with a chain copied from the context.

    shape: of the tree; tokens_per_position: top tokens kept per position; chain: maximum number of copied
    tokens; match: maximum match length."""

    restartable = False  # guesses belong to the target's last pass

    def __init__(self, shape: Shape, tokens_per_position: int = 10, chain: int = 5, match: int = 3):
        self.shape = shape
        self.tokens_per_position = tokens_per_position
        self.chain = chain
        self.text = NgramIndexes(match)
        self.places: list[list[int]] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.places = []
        self.text.clear()
        self.text.extend(state.tokens)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        known = len(self.places)
        tree, owners = merge_trees_with_sources(
            [self.fill(state, budget), self.copy_from_context(state, budget)]
        )
        if len(tree):
            names = {(0,): "guess", (1,): "retrieved", (0, 1): "both"}
            state.note("fused", by=[names[who] for who in owners], places=known)
        return tree

    def fill(self, state: State, budget: Budget) -> DraftTree:
        """Return the tree with each depth filled with the guesses for its position; positions without
        guesses get random tokens of the context."""
        builder, at = TreeBuilder(), {-1: -1}
        shape = self.shape.within(budget.gamma, budget.width)
        rolls = random.Random(f"{state.sampling.seed}/{len(state.tokens)}/fill")  # a separate random stream
        words = list(dict.fromkeys(state.tokens))
        for position, (parent, rank, depth) in enumerate(zip(shape.parents, shape.ranks, shape.depths)):
            while depth > len(self.places):
                self.places.append(rolls.sample(words, min(self.tokens_per_position, len(words))))
            known = self.places[depth - 1]
            if parent in at and rank < len(known):
                at[position] = builder.add(known[rank], at[parent])
        return builder.tree()

    def copy_from_context(self, state: State, budget: Budget) -> DraftTree:
        """Return the chain that followed the longest suffix of the context that occurred before; empty
        without a match."""
        builder, tokens = TreeBuilder(), state.tokens
        self.text.follow(tokens)
        end, _ = self.text.match()
        for at in range(end, min(end + min(self.chain, budget.gamma), len(tokens)) if end else end):
            builder.add(tokens[at], len(builder) - 1, origin=Origin("context", at, at + 1))
        return builder.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        """Keep the top-k tokens of the rows after the accepted path as guesses for the next positions."""
        self.text.extend(state.tokens)
        tree, path = outcome.tree, outcome.verdict.path
        node, rows = path[-1] if path else -1, []
        while tree.children(node):  # first children are the most probable
            node = tree.children(node)[0]
            rows.append(node + 1)
        self.places = (
            top_k(select_rows(outcome.scores.logits, rows), self.tokens_per_position)[1].tolist()
            if rows
            else []
        )


class LexicalUnits(Drafter):
    """Drafter by lexical unit decoding (Sun et al. 2405.15208). The target's pass scores ``blanks`` filler
    tokens after the text; the tokens that it predicts there with probability at least ``min_prob`` are
    drafted in the next round, and accepted without verification. New fillers are scored in the same pass,
    as nodes that are no candidates.
    """

    restartable = False  # guesses belong to the target's last pass

    def __init__(self, blanks: int, min_prob: float):
        self.blanks, self.min_prob = blanks, min_prob
        self.unit: list[int] = []

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.unit, self.token_probs = [], []

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        for token in self.unit[: budget.gamma]:
            builder.add(token, len(builder) - 1)
            if token in state.stop:
                break
        self.size = len(builder)
        blank = state.tokens[-1]  # the paper trains a blank token; an end token would bias the model
        for _ in range(self.blanks):
            builder.add(blank, len(builder) - 1, probe=True)
        state.note(
            "unit",
            tokens=list(builder.tokens[: self.size]),
            chances=self.token_probs[: self.size],
            blanks=self.blanks,
        )
        return builder.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        self.unit, self.token_probs = [], []
        if len(outcome.verdict.path) < self.size:
            return  # the run ended inside the unit
        distributions = outcome.scores.logits[self.size + 1 :].softmax(-1)
        last = state.tokens[-1]
        for prob, token in zip(*(x.tolist() for x in distributions.max(-1))):
            if prob < self.min_prob or token == last:  # a repeated token indicates an uninformed blank
                break
            self.unit.append(token)
            self.token_probs.append(round(prob, 4))
            last = token
