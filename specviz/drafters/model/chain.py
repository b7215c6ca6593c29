"""Drafting with a small language model that has its own cache (Leviathan et al. 2211.17192; Chen et al. 2302.01318).

The model follows any state.tokens: ``sync`` keeps what agrees and drops the rest, so nothing here ever rolls back.
"""
from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ...core import (IID, Alone, StopBelowProbability, Budget, Drafter, DraftTree, Scores, State, Step, Steps, Target, TreeBuilder, run_alone, token_tensor,
                     never, read, check_distributions)
from ...trees import Scorer, Shape, chosen_children, draw_one, drawn_children, grow_shape, heated, one_hot
from ...trees.growth import Children


class WithModel(Drafter):
    """Whatever drafts with a model of its own. The model reads the prompt when the target does: both are prefill."""

    def __init__(self, model: Target):
        self.model = model

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.model.sync(state.tokens)


class DraftChain(WithModel):
    """One path, each token drawn from the draft model's law at the run's sampling. piece: tokens that are written before somebody is
    asked whether to go on."""

    piece = 2

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return run_alone(self.steps(state, budget))

    def steps(self, state: State, budget: Budget) -> Steps:
        build, scorer, node = TreeBuilder(), Scorer(self.model), -1
        if budget.gamma > 0:
            self.model.sync(state.tokens)
            written = yield Alone(partial(self._write, build, state, budget))
            if written:
                return build.tree()
        for depth in range(budget.gamma):
            scores = yield scorer.ask(build, (node,))
            logits, states = scores.logits[-1], scores.hidden_states.get("final")
            token, probs = draw_one(logits, state)
            node = build.add(token, node, build.begin(probs, IID))
            # at temperature 0 the law is one-hot and says nothing about confidence: a policy gets the draft's own belief
            hidden = None if states is None else states[-1]
            if budget.stop is not never and budget.stop(Step(token, belief(logits, probs, state), depth, hidden)):
                break
        return build.tree()

    def _write(self, build: TreeBuilder, state: State, budget: Budget) -> bool:
        """The chain in few calls of the model, where it can write by itself; whether it was written. Who ends it by more than a token's
        chance is asked after each piece, since a token behind the end is in vain."""
        sampling, model = state.sampling, self.model
        if "write" not in model.capabilities or not (sampling.greedy or sampling.whole):
            return False
        stop, rng, temperature = budget.stop, state.rng, 0.0 if sampling.greedy else sampling.temperature
        sure = stop if isinstance(stop, StopBelowProbability) else None
        piece = budget.gamma if stop is never or sure else self.piece
        roll = lambda count: (rng.uniforms if stop is never else rng.ahead)("draft", count)  # noqa: E731
        while len(build) < budget.gamma:
            before, ended = len(build), False
            written = model.write(build.tokens, min(piece, budget.gamma - before), temperature, roll, sure.least if sure else None)
            if written is None:  # at the end of the context, or nothing was written
                return before > 0
            distributions = check_distributions(written.distributions) if temperature else one_hot(written.logits, torch.tensor(written.tokens)[:, None])
            for at, (token, probs) in enumerate(zip(written.tokens, distributions)):
                build.add(token, len(build) - 1, build.begin(probs, IID))
                if sure:
                    ended = sure.takes(written.token_probs[at])
                elif stop is not never:
                    ended = stop(Step(token, belief(written.logits[at], probs, state), before + at, written.states[at]))
                if ended:
                    break
            if temperature and stop is not never:  # a token that is not kept leaves its number to the next draft
                rng.uniforms("draft", len(build) - before)
            if ended:
                break
        return True


def drawn_apart(rows: Tensor, state: State, budget: Budget) -> DraftTree:
    """One path from logits [n, vocab] that one pass gave: no place knows what was drawn before it, so each draw's law is its row's."""
    build, sure = TreeBuilder(), []
    if rows.device.type != "cpu" and budget.stop is never and (state.sampling.greedy or not state.stop):
        return _drawn_afar(rows, state)
    for depth, logits in enumerate(rows):
        token, probs = draw_one(logits, state)
        build.add(token, len(build) - 1, build.begin(probs, IID))
        told = belief(logits, probs, state)
        sure.append(round(float(told[token]), 4))
        if token in state.stop or budget.stop is not never and budget.stop(Step(token, told, depth)):
            break
    state.note("masks", places=len(rows), chances=sure)
    return build.tree()


def _drawn_afar(rows: Tensor, state: State) -> DraftTree:
    """The same on a device, all places drawn before one is read; behind an end token nothing is kept."""
    made = [draw_one(logits, state) for logits in rows]
    told = torch.stack([belief(logits, probs, state) for logits, (_, probs) in zip(rows, made)])
    sure = read(told.gather(1, token_tensor(rows.device, [token for token, _ in made])[:, None])[:, 0])
    build = TreeBuilder()
    for token, probs in made:
        build.add(int(token), len(build) - 1, build.begin(probs, IID))
        if token in state.stop:
            break
    state.note("masks", places=len(rows), chances=[round(prob, 4) for prob in sure[:len(build)]])
    return build.tree()


class StateChain(DraftChain):
    """A chain whose steps also show the draft model's last states, the one that each token was drawn from, to the policy.

    hidden: how wide the policy takes them to be. Raises ValueError for a draft model that is not, or that does not show them.
    """

    def __init__(self, model: Target, hidden: int):
        super().__init__(model)
        if model.hidden != hidden:
            raise ValueError(f"what decides the length was trained on a draft model with states of {hidden} numbers, and those of this "
                             f"one have {model.hidden}")
        model.capture(frozenset({"final"}))


class DraftShape(WithModel):
    """A tree of a shape known beforehand. ``children``: how the children of a node are drawn (see trees/growth.py).

    Without ``drawn``, and at temperature 0, where a drawn tree would be a chain, they are the draft's most likely tokens, as
    MCSD and Sequoia have it. heat: the draft's own temperature, 0 for the run's.
    """

    def __init__(self, model: Target, shape: Shape, drawn: bool = True, children: Children = drawn_children, temperature: float = 0.0):
        super().__init__(model)
        self.shape, self.drawn, self.children, self.temperature = shape, drawn, children, temperature

    def propose(self, state: State, budget: Budget) -> DraftTree:
        shape = self.shape.within(budget.gamma, budget.width)
        if not len(shape):
            return DraftTree()
        self.model.sync(state.tokens)
        state = heated(state, self.temperature)
        return grow_shape(self.model, shape, state, self.children if self.drawn and not state.sampling.greedy else chosen_children)


def belief(logits, probs, state: State):
    """The draft model's distribution [vocab] as a policy reads it: the law drawn from, or plain softmax at temperature 0."""
    return logits.softmax(-1) if state.sampling.greedy else probs
