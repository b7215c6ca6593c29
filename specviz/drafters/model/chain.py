"""Drafting with a small language model that has its own cache (Leviathan et al. 2211.17192; Chen et al.
2302.01318).

``sync`` brings the draft model's KV cache to any state.tokens and drops what differs, so no explicit
rollback is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor

from ...core import (
    IID,
    Budget,
    CapableTarget,
    Drafter,
    DraftingModel,
    DraftSteps,
    DraftTree,
    Scores,
    State,
    Step,
    StopBelowProbability,
    Target,
    TreeBuilder,
    UnbatchedCall,
    check_distributions,
    is_on_device,
    never_stop,
    read,
    run_alone,
    token_tensor,
)
from ...core.errors import InvalidUse
from ...trees import (
    Scorer,
    Shape,
    chosen_children,
    drawn_children,
    grow_shape,
    one_hot_rows,
    sample_token,
    with_temperature,
)
from ...trees.growth import ChildRule


class ModelDrafter(Drafter):
    """Base class of drafters that use a draft model. The draft model prefills the prompt at the start of a
    run."""

    def __init__(self, model: DraftingModel):
        self.model = model

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.model.sync(state.tokens)


class DraftChain(ModelDrafter):
    """Drafter of a chain: each token is sampled from the draft model with the run's sampling parameters
    (Leviathan et al. 2211.17192).

    piece: number of tokens that the draft model generates in one call of its own loop before the budget's
    stop function is called."""

    piece = 2

    def propose(self, state: State, budget: Budget) -> DraftTree:
        return run_alone(self.steps(state, budget))

    def steps(self, state: State, budget: Budget) -> DraftSteps:
        builder = TreeBuilder()
        scorer = Scorer(self.model)
        node = -1
        if budget.gamma > 0:
            self.model.sync(state.tokens)
            written = yield UnbatchedCall(partial(self._write, builder, state, budget))
            if written:
                return builder.tree()
        for depth in range(budget.gamma):
            scores = yield scorer.forward_pass(builder, (node,))
            logits, states = (
                state.process_draft_row(scores.logits[-1], builder.tokens),
                scores.hidden_states.get("final"),
            )
            self.keep(partial(torch.unsqueeze, logits, 0))
            token, probs = sample_token(logits, state)
            node = builder.add(token, node, builder.begin(probs, IID))
            # at temperature 0 the distribution is one-hot and carries no confidence: a policy gets the
            # softmax instead
            hidden = None if states is None else states[-1]
            if budget.stop is not never_stop and budget.stop(
                Step(token, policy_probs(logits, probs, state), depth, hidden)
            ):
                break
        return builder.tree()

    def keep(self, rows: Callable[[], Tensor]) -> None:
        """Called with a function that returns the draft model's logits [n, vocab] of the next n tokens of a
        chain, until the draft model reads further text."""

    def _write(self, builder: TreeBuilder, state: State, budget: Budget) -> bool:
        """Draft the chain with the draft model's own generation loop if it has one; return whether it did.
        Stop functions that need more than a token's probability are called after each piece, because tokens
        after the stop are wasted."""
        sampling, model = (
            state.sampling,
            cast(CapableTarget, self.model),
        )  # whatever drafts a chain states its capabilities
        if (
            "draft_chain" not in model.capabilities
            or state.processors
            or not (sampling.greedy or sampling.unfiltered)
        ):
            return False
        stop = budget.stop
        rng = state.rng
        temperature = 0.0 if sampling.greedy else sampling.temperature
        sure = stop if isinstance(stop, StopBelowProbability) else None
        piece = budget.gamma if stop is never_stop or sure else self.piece
        draw_uniforms = lambda count: (rng.uniforms if stop is never_stop else rng.ahead)("draft", count)  # noqa: E731
        while len(builder) < budget.gamma:
            before, ended = len(builder), False
            written = model.draft_chain(
                builder.tokens,
                min(piece, budget.gamma - before),
                temperature,
                draw_uniforms,
                sure.min_prob if sure else None,
            )
            if written is None:  # end of the context, or nothing generated
                return before > 0
            self.keep(lambda written=written: written.logits)
            if state.saves_draft_logits:
                state.save_draft_logits(
                    written.logits,
                    [[*builder.tokens, *written.tokens[:at]] for at in range(len(written.tokens))],
                )
            distributions = (
                check_distributions(written.distributions)
                if temperature
                else one_hot_rows(written.tokens, model.vocab)
            )
            for at, (token, probs) in enumerate(zip(written.tokens, distributions)):
                builder.add(token, len(builder) - 1, builder.begin(probs, IID))
                if sure:
                    ended = sure.stops_after(written.token_probs[at])
                elif stop is not never_stop:
                    ended = stop(
                        Step(
                            token,
                            policy_probs(written.logits[at], probs, state),
                            before + at,
                            written.states[at],
                        )
                    )
                if ended:
                    break
            if (
                temperature and stop is not never_stop
            ):  # random numbers of dropped tokens are reused by the next draft
                rng.uniforms("draft", len(builder) - before)
            if ended:
                break
        return True


def draw_independent(rows: Tensor, state: State, budget: Budget) -> DraftTree:
    """Return a chain of n draft tokens, each sampled independently from its own row of the logits ``rows``
    [n, vocab] of one forward pass. The chain ends early after an end token or where budget.stop says so."""
    builder, sure = TreeBuilder(), []
    if (
        is_on_device(rows)
        and not state.processors
        and budget.stop is never_stop
        and (state.sampling.greedy or not state.stop)
    ):
        return _draw_on_device(rows, state)
    for depth, row in enumerate(rows):
        logits = state.process_draft_row(row, builder.tokens)
        token, probs = sample_token(logits, state)
        builder.add(token, len(builder) - 1, builder.begin(probs, IID))
        with state.clock.paused():
            sure.append(round(float(policy_probs(logits, probs, state)[token]), 4))
        if (
            token in state.stop
            or budget.stop is not never_stop
            and budget.stop(Step(token, policy_probs(logits, probs, state), depth))
        ):
            break
    state.note("masks", places=len(rows), chances=sure)
    return builder.tree()


def _draw_on_device(rows: Tensor, state: State) -> DraftTree:
    """Do the same on a device with one synchronisation: draw all positions, then cut after an end token."""
    made = [sample_token(logits, state) for logits in rows]
    row_probs = torch.stack([policy_probs(logits, probs, state) for logits, (_, probs) in zip(rows, made)])
    sure = read(row_probs.gather(1, token_tensor(rows.device, [token for token, _ in made])[:, None])[:, 0])
    builder = TreeBuilder()
    for token, probs in made:
        builder.add(int(token), len(builder) - 1, builder.begin(probs, IID))
        if token in state.stop:
            break
    state.save_draft_logits(rows, [builder.tokens[:at] for at in range(len(builder))])
    state.note("masks", places=len(rows), chances=[round(prob, 4) for prob in sure[: len(builder)]])
    return builder.tree()


class StateChain(DraftChain):
    """Drafter of a chain that passes the draft model's final hidden state of each draft step to the policy.

    hidden: the hidden size that the policy was trained for. Raises InvalidUse, a ValueError, for a draft
    model of another size.
    """

    def __init__(self, model: CapableTarget, hidden: int):
        super().__init__(model)
        if model.hidden != hidden:
            raise InvalidUse(
                f"the length predictor was trained on a draft model with hidden size {hidden}, and this one has "
                f"{model.hidden}",
                "draft_length.hidden_size",
            )
        model.capture(frozenset({"final"}))


class DraftShape(ModelDrafter):
    """Drafter of a tree of a fixed shape, filled by a draft model with one forward pass per level.

    children: the child rule (trees/growth.py) by which a node's children are sampled; drawn: False: the
    children are the draft model's top-k tokens instead, as in MCSD and Sequoia, which is always so at
    temperature 0; temperature: of drafting; 0: the run's.
    """

    def __init__(
        self,
        model: DraftingModel,
        shape: Shape,
        drawn: bool = True,
        children: ChildRule = drawn_children,
        temperature: float = 0.0,
    ):
        super().__init__(model)
        self.shape = shape
        self.drawn = drawn
        self.children = children
        self.temperature = temperature

    def propose(self, state: State, budget: Budget) -> DraftTree:
        shape = self.shape.within(budget.gamma, budget.width)
        if not len(shape):
            return DraftTree()
        self.model.sync(state.tokens)
        state = with_temperature(state, self.temperature)
        return grow_shape(
            self.model,
            shape,
            state,
            self.children if self.drawn and not state.sampling.greedy else chosen_children,
        )


def policy_probs(logits, probs, state: State):
    """Return the distribution [vocab] passed to a policy: ``probs``, from which the token was sampled, or
    at temperature 0 the softmax of ``logits``."""
    return logits.softmax(-1) if state.sampling.greedy else probs
