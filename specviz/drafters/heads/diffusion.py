"""Draft a block with a masked diffusion model in T steps (SpecDiff, Christopher et al. 2408.05636)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...core import (
    IID,
    Budget,
    CapableTarget,
    Drafter,
    DraftTree,
    Scores,
    State,
    Step,
    TreeBuilder,
    common_prefix_length,
    never_stop,
)
from ...trees import first_duplicates, sample_token
from ...trees.draws import path_tokens
from ..model.chain import policy_probs


class DiffusionDraft(Drafter):
    """Drafter of a chain with a masked diffusion model: a block of masked positions is filled in ``steps``
    forward passes (SpecDiff, Christopher et al. 2408.05636).

    order "left_to_right": every pass fills the leftmost masked positions. A token is sampled from its
    position's distribution given all tokens before it, which is recorded, so token rejection is exact.
    "random": each pass fills every masked position with the same probability (the reverse process of MDLM,
    Sahoo et al. 2406.07524), the last pass all that are left. The distribution of such a token given those
    before it is not known, because it may depend on tokens to its right. So with more than one step the
    tokens are chosen nodes, each accepted with its target probability.
    """

    needs = frozenset({"embed"})

    def __init__(self, head: Any, steps: int = 1, order: str = "left_to_right"):
        self.net = head
        self.rows = head.open()
        self.passes = steps
        self.order = order
        self._text: list[int] = []  # tokens in the KV cache

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.target = target
        self._read(state.tokens[:-1])

    def propose(self, state: State, budget: Budget) -> DraftTree:
        count = min(budget.gamma, self.net.block)
        if count < 1:
            return DraftTree()
        return (
            self._random(state, count)
            if self.order == "random" and self.passes > 1
            else self._in_order(state, count, budget)
        )

    def _in_order(self, state: State, count: int, budget: Budget) -> DraftTree:
        """Fill the leftmost positions step by step and record the distribution from which each token is
        sampled."""
        builder, shown, ended = TreeBuilder(), [], False
        for upto in _ends(count, self.passes):
            logits, first = (
                self._logits(state, [*builder.tokens, *[None] * (count - len(builder))]),
                len(builder),
            )
            for position in range(first, upto):
                row = state.process_draft_row(logits[position], builder.tokens)
                token, probs = sample_token(row, state)
                builder.add(token, position - 1, builder.begin(probs, IID))
                ended = token in state.stop or (
                    budget.stop is not never_stop
                    and budget.stop(Step(token, policy_probs(row, probs, state), position))
                )
                if ended:
                    break
            shown.append(list(range(first, len(builder))))
            if ended:
                break
        return _noted(builder, shown, self.order, state)

    def _random(self, state: State, count: int) -> DraftTree:
        """Fill positions in random order; their tokens are chosen nodes."""
        tokens: list[int | None] = [None] * count
        shown = []
        for step in range(self.passes):
            logits, hidden = (
                self._logits(state, tokens),
                [i for i, token in enumerate(tokens) if token is None],
            )
            kept = 1 - 1 / (self.passes - step)  # s / t for times 1, (T - 1) / T, ..., 0
            shown.append(
                [
                    position
                    for position in hidden
                    if step + 1 == self.passes or not state.rng.flip("reveal", kept)[0]
                ]
            )
            for position in shown[-1]:
                tokens[position] = sample_token(logits[position], state)[0]
            if None not in tokens:
                break
        builder = TreeBuilder()
        for position, token in enumerate(tokens):
            assert token is not None  # the last step fills every position
            builder.add(token, position - 1)
        return _noted(builder, shown, self.order, state)

    def _logits(self, state: State, tokens: list[Any]) -> Tensor:
        """Return logits [positions, vocab] of a block; tokens: of each position, None where it is masked."""
        text, device = state.tokens[:-1], self.rows.net.device
        held = common_prefix_length(self._text, text)
        self.rows.crop(held)
        block = [state.tokens[-1], *(0 if token is None else int(token) for token in tokens)]
        masked = torch.tensor([False, *(token is None for token in tokens)], device=device)
        with torch.inference_mode():
            embeds = self.target.embed([*text[held:], *block])
            logits = self.rows.block(embeds[: len(text) - held], embeds[len(text) - held :], masked)
        self._text = text
        return logits[:-1]

    def _read(self, text: list[int]) -> None:
        """Bring the diffusion model's KV cache to a text."""
        held = common_prefix_length(self._text, text)
        self.rows.crop(held)
        if len(text) > held:
            with torch.inference_mode():
                self.rows.text(self.target.embed(text[held:]))
        self._text = list(text)


class DiffusionPaths(DiffusionDraft):
    """Drafter of ``chains`` sequences sampled from one forward pass of a masked diffusion model
    (SpecDiff-2, 2511.00606).

    Positions are independent given the text, so sequences with a common prefix are independent after it.
    Equal prefixes remain separate nodes. In a run at temperature 0 they are sampled at temperature 1,
    because all would be equal otherwise, and equal prefixes are merged."""

    def __init__(self, head: Any, chains: int):
        super().__init__(head)
        self.chains = chains

    def propose(self, state: State, budget: Budget) -> DraftTree:
        count = min(budget.gamma, self.net.block)
        builder = TreeBuilder()
        tips = [-1] * self.chains
        if count < 1:
            return builder.tree()
        logits = self._logits(state, [None] * count)
        greedy = state.sampling.greedy
        nodes = {}
        sampling = replace(state.sampling, temperature=1.0) if greedy else state.sampling
        for position in range(count):
            alike = first_duplicates(builder, tips)
            rows = {
                i: state.process_draft_row(logits[position], path_tokens(builder, tips[i]))
                for i in sorted(set(alike))
            }
            paths = {i: sampling.probs(row) for i, row in rows.items()}
            drawn = [(tip, state.rng.pick("draft", paths[i])) for i, tip in zip(alike, tips)]
            if greedy:
                nodes |= {key: builder.add(key[1], key[0]) for key in dict.fromkeys(drawn)}
                tips = [nodes[key] for key in drawn]
            else:
                draws = {i: builder.begin(probs, IID) for i, probs in paths.items()}
                tips = [builder.add(token, tip, draws[i]) for i, (tip, token) in zip(alike, drawn)]
        return _noted(builder, [list(range(len(builder)))], "chains", state)


def _ends(count: int, steps: int) -> list[int]:
    """Return how many positions are filled after each of at most ``steps`` passes, as evenly as possible."""
    return sorted({-(-count * (step + 1) // steps) for step in range(steps)} | {count})


def _noted(builder: TreeBuilder, shown: list[list[int]], order: str, state: State) -> DraftTree:
    tree = builder.tree()
    step_of = {position: step for step, places in enumerate(shown) for position in places}
    state.note(
        "diffusion",
        order=order,
        passes=len(shown),
        steps=[step_of[position] for position in range(len(tree))],
    )
    return tree
