"""Train a draft head while it drafts, on the target's distributions along the text (Test-Time Speculation,
2605.09329).

Verification computes the target's hidden states and distributions at every committed token anyway. They are kept,
and after every few rounds a copy of the head takes a distillation step on them, as its recipe does on stored
answers. Then the copy reads the text's last hidden states again, with its new weights. Every draft token is
verified, so the output stays exact.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...core import CapableTarget, Outcome, Scores, State, select_rows
from .features import FeatureDrafter, FeatureModel
from .masked_block import BlockChain
from .reduced_output import output_rows, reduced_head, target_for_drafting

WINDOW = 256  # tokens that a step reads, and that the head reads again after it
ROLLOUT = 3  # tokens that an EAGLE head predicts from its own states in a step of training
BLOCKS = 16  # blocks of a step, for a block drafter
DECAY = 0.8  # the loss of a token k places ahead is multiplied by DECAY^k
CLIP = 1.0  # gradient norm clip

_tables: WeakKeyDictionary[Any, tuple[Tensor, Tensor | None]] = WeakKeyDictionary()

# predictions of some tokens ahead: (output states [m, hidden], indices [m] into the target's rows)
Predicted = list[tuple[Tensor, Tensor]]


class HeadLearner:
    """A copy of a draft head that learns from the target's rows of the text.

    head: the trained head, unchanged; predict(net, lesson): its predictions along the text, one entry for each
    place ahead; every: rounds for one step of training; rate: AdamW's learning rate."""

    def __init__(self, head: Any, predict: Callable[[Any, Lesson], Predicted], every: int, rate: float):
        self.head = head
        self.net = trainable_copy(head)
        self.predict = predict
        self.every = every
        self.updates = 0
        self.rounds = 0  # since the last step
        self.states: Tensor | None = None  # [n, width] of the text's last tokens before the root
        self.first = 0  # position of the first of them
        self.logits: list[Tensor] = []  # of the target, [rows, vocab] of each round since the last step
        with torch.inference_mode(False):
            self.optimiser = torch.optim.AdamW(self.net.parameters(), lr=rate, weight_decay=0.0)

    def start(self, states: Tensor, tokens: list[int]) -> None:
        """Begin a run with the hidden states [n, width] of the text's last tokens before the root."""
        self.states = states[-WINDOW:]
        self.first = len(tokens) - 1 - len(self.states)
        self.logits = []
        self.rounds = 0

    def append(self, states: Tensor, logits: Tensor) -> None:
        """Append the hidden states [n, width] and the target's logits [n, vocab] of committed tokens."""
        assert self.states is not None  # start() comes first
        joined = torch.cat([self.states, states])
        self.first += len(joined[:-WINDOW])
        self.states = joined[-WINDOW:]
        self.logits.append(logits.clone())
        self.rounds += 1

    def learn(self, target: CapableTarget, state: State) -> dict[str, Any]:
        """Take one training step on the rows since the last step; return figures for the note: the mean overlap,
        sum of min(p, q), of the target's distribution with the head's as it came ("before") and as it was until
        now ("now"), and the number of rows."""
        assert self.states is not None
        tokens = state.tokens
        matrix, columns = output_matrix(target, self.head)
        with torch.inference_mode(False), torch.enable_grad():
            logits = torch.cat(self.logits)[-len(self.states) :].clone()
            embeds = target.embed(tokens[self.first + 1 :]).clone()
            kind = next(self.net.parameters()).dtype
            lesson = Lesson(
                embeds.to(kind),
                self.states.clone().to(kind),
                tokens[self.first : -1],
                target,
                len(self.states) - len(logits),
            )
            wanted = (logits if columns is None else logits[:, columns]).to(kind)
            now, loss = self._loss(self.net, lesson, wanted, matrix.to(kind), columns)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), CLIP)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            with torch.no_grad(), state.clock.paused():  # it is only shown
                before, _ = self._loss(self.head, lesson, wanted, matrix.to(kind), columns)
        self.net.__dict__.pop("fused", None)  # the inference layout of the old weights
        self.logits = []
        self.rounds = 0
        self.updates += 1
        return {"before": before, "now": now, "rows": len(logits)}

    def _loss(
        self, net: Any, lesson: Lesson, wanted: Tensor, matrix: Tensor, columns: Tensor | None
    ) -> tuple[float, Tensor]:
        """Return the mean overlap of the first place ahead, and the cross-entropy with the target's distributions
        over all places. wanted [rows, columns]: the target's logits."""
        total = wanted.new_zeros(())
        weights = 0.0
        overlap = 0.0
        for ahead, (states, rows) in enumerate(self.predict(net, lesson)):
            if not len(rows):
                break
            p = wanted[rows].softmax(-1)
            log_q = logits_of(net, states, matrix, columns).log_softmax(-1)
            if ahead == 0:
                overlap = round(float(torch.minimum(p, log_q.detach().exp()).sum(-1).mean()), 4)
            total = total - DECAY**ahead * (p * log_q.clamp(min=-1e4)).sum(-1).mean()
            weights += DECAY**ahead
        return overlap, total / max(weights, 1e-9)


class Lesson:
    """What a step reads: embeds [n, hidden] of the tokens after those with hidden states ``states`` [n, width];
    tokens: those n tokens; target; at: index of the first of them whose target row is known."""

    def __init__(self, embeds: Tensor, states: Tensor, tokens: list[int], target: CapableTarget, at: int):
        self.embeds = embeds
        self.states = states
        self.tokens = tokens
        self.target = target
        self.at = at


def trainable_copy(head: Any) -> Any:
    """Return a copy of a head's network with weights that can be trained, in 32 bits or more; without what was
    computed from the weights for inference."""
    computed = {id(head.__dict__["fused"]): None} if "fused" in head.__dict__ else {}
    for part in head.modules():
        if "forward" in part.__dict__:  # packed in eight bits
            computed[id(part.__dict__["forward"])] = None
    with torch.inference_mode(False):
        made = copy.deepcopy(head, computed)
        for part in made.modules():
            part.__dict__.pop("fused", None)
            part.__dict__.pop("forward", None)
        weights = list(made.parameters())
        if weights[0].dtype in (torch.float16, torch.bfloat16):
            made = made.float()
        for weight in made.parameters():
            weight.data = weight.data.clone()
            weight.requires_grad_(True)
    return made


def output_matrix(target: CapableTarget, head: Any) -> tuple[Tensor, Tensor | None]:
    """Return the rows [columns, hidden] of the output matrix that a head drafts with, and their token ids; None:
    all of the vocabulary. Computed once for each head."""
    if head not in _tables:
        drafting = target_for_drafting(target, head)
        restricted = reduced_head(drafting)
        columns = None if restricted is None else restricted.tokens
        with torch.inference_mode(False):
            _tables[head] = output_rows(target, columns).clone(), columns
    return _tables[head]


def logits_of(net: Any, states: Tensor, matrix: Tensor, columns: Tensor | None) -> Tensor:
    """Return a head's logits [m, columns] of output states [m, hidden], with a graph for gradients."""
    if getattr(net, "lm_head", None) is not None:
        own = net.draft_logits(states) if hasattr(net, "draft_logits") else net.lm_head(states)
        tokens = getattr(net, "tokens", None)
        if tokens is None:
            return own if columns is None else own[:, columns]
        wide = own.new_full((len(own), matrix.shape[0] if columns is None else net.vocab), -1e4)
        wide = wide.index_copy(-1, tokens, own)
        return wide if columns is None else wide[:, columns]
    if not getattr(net, "norm_output", True):
        states = net.norm(states)
    return states @ matrix.T


def eagle_predictions(net: Any, lesson: Lesson) -> Predicted:
    """Return the predictions of an EAGLE or EAGLE-3 head over a rollout on its own states: row t predicts what the
    target's row t + 1 does."""
    found: Predicted = []
    n = len(lesson.states)
    for step, out in enumerate(net(lesson.embeds[None], lesson.states[None], ROLLOUT)):
        rows = torch.arange(max(lesson.at - 1, step, 0), n - 1)
        found.append((out[0, rows], rows + 1 - lesson.at))
    return found


def block_predictions(net: Any, lesson: Lesson) -> Predicted:
    """Return the predictions of a block drafter for blocks spread over the rows: place j of a block after token a
    predicts what the target's row a + j does."""
    n = len(lesson.states)
    anchors = torch.linspace(lesson.at, n - 1, min(BLOCKS, n - lesson.at)).long().unique()
    ids = torch.full((len(anchors), net.block), net.mask_token)
    ids[:, 0] = torch.tensor(lesson.tokens)[anchors]
    embeds = lesson.target.embed(ids.flatten().tolist()).clone().to(lesson.states)
    out = net(lesson.states[None], embeds.unflatten(0, ids.shape)[None], anchors[None].to(embeds.device))[0]
    out = out if net.anchored else out[:, 1:]
    found: Predicted = []
    for ahead in range(out.shape[1]):
        inside = anchors + ahead < n
        found.append((out[inside, ahead], (anchors + ahead)[inside] - lesson.at))
    return found


class LearningFeatures(FeatureDrafter):
    """Drafter with an EAGLE or EAGLE-3 head that learns while it drafts. every: rounds for one step; rate: AdamW's
    learning rate."""

    def __init__(self, head: Any, grow: Callable[[FeatureModel], Any], every: int, rate: float):
        super().__init__(head, grow)
        self.learner = HeadLearner(head, eagle_predictions, every, rate)

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.full = target
        super().start(state, target, prefill)
        self.learner.start(self.model.read_features(prefill), state.tokens)

    def observe(self, state: State, outcome: Outcome) -> None:
        super().observe(state, outcome)
        states = select_rows(self.model.read_features(outcome.scores), outcome.kept)
        if not distil(self.learner, self.full, state, outcome, states):
            return
        model, learner = self.model, self.learner
        model.net = learner.net
        model.rows = learner.net.open()
        assert learner.states is not None
        model.restart(learner.states, learner.first)


class LearningBlock(BlockChain):
    """Drafter of a block drafter's chain that learns while it drafts. every: rounds for one step; rate: AdamW's
    learning rate."""

    def __init__(self, head: Any, every: int, rate: float):
        super().__init__(head)
        self.learner = HeadLearner(head, block_predictions, every, rate)

    def start(self, state: State, target: CapableTarget, prefill: Scores) -> None:
        self.full = target
        super().start(state, target, prefill)
        self.learner.start(self._joined(prefill), state.tokens)

    def observe(self, state: State, outcome: Outcome) -> None:
        super().observe(state, outcome)
        states = select_rows(self._joined(outcome.scores), outcome.kept)
        if distil(self.learner, self.full, state, outcome, states):
            self.use_trained()

    def use_trained(self) -> None:
        """Draft with the trained weights from now on, and read the text's last hidden states again."""
        self.net = self.learner.net
        self.rows = self.net.open()
        self.rows.restart(self.learner.first)
        self.read, self._waiting = [], [self.learner.states]


def distil(
    learner: HeadLearner, target: CapableTarget, state: State, outcome: Outcome, states: Tensor
) -> bool:
    """Give a learner the committed tokens of a round and attach the note "distilled"; return whether it took a
    training step. states [n, width]: the hidden states of these tokens that the head reads."""
    logits = outcome.scores.model_logits
    learner.append(states, select_rows(logits, outcome.kept))
    shown: dict[str, Any] = {}
    stepped = learner.rounds >= learner.every
    if stepped:
        shown = learner.learn(target, state)
    state.note("distilled", updates=learner.updates, waiting=learner.rounds, every=learner.every, **shown)
    return stepped
