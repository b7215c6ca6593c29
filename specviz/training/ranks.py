"""Train and calibrate heads that fill a fixed tree (Medusa, Hydra): loss, replayed acceptance, and the best
tree for this machine.

Acceptance is computed from ranks: the rank of the target's token among each head's most probable tokens. A
tree is accepted up to the first token whose rank it does not contain. Up to there the heads' context is the
target's own text, so replaying answers gives the same acceptance as a run, greedily and at temperature
1."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ..core import DraftTree
from ..drafters.heads.shapes import calibrated_shape, expected_length
from ..trees import Shape
from ..zoo.backends import first_supporting_forward
from ..zoo.registry import register
from . import losses
from .data import TASKS
from .draft import collate
from .features import Batch, Features
from .text_answers import Answer

NEVER = 10**6  # the rank of a token that no head was asked for
NEARLY = 0.93  # of the most tokens a second that a tree promises: as good
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63)  # trees that are tried

# (batch, index) -> (which of batch.where are answered, states [m, hidden] of head ``index`` for its output
# matrix)
HeadStates = Callable[[Batch, int], tuple[Tensor, Tensor]]


class Heads(Protocol):
    """Heads that each predict one token further ahead. accuracy [heads][ranks]: the share of answers'
    tokens that have this rank in this head's prediction; nodes: number of nodes of the calibrated tree."""

    accuracy: list[list[float]]
    nodes: int

    def __len__(self) -> int: ...

    def matrix(self, index: int, targets: Tensor) -> Tensor:
        """Return the output matrix [vocab, hidden] of head ``index``; ``targets``: the target's lm_head."""
        ...


def loss(model: Heads, head_states: HeadStates, features: Features, batch: Batch, hparams: dict) -> Tensor:
    """Return the mean distillation loss of all heads; the loss of head i is multiplied by ``loss_decay`` **
    i."""
    total: Any = 0.0  # a tensor from the first term on
    weights = 0.0
    top = slice(hparams.get("leaders"))
    for index in range(len(model)):
        kept, states = head_states(batch, index)
        if not len(kept):  # nothing of this batch is so far ahead
            continue
        head, weight = model.matrix(index, features.head), hparams["loss_decay"] ** index
        one = losses.distil(
            states,
            head,
            batch.top_ids[kept, top],
            batch.top_logp[kept, top],
            batch.labels[kept],
            hparams["hard_label_weight"],
            negatives=hparams.get("negatives", 0),
        )
        total, weights = total + weight * one, weights + weight
    return total / weights


@torch.inference_mode()
def token_ranks(
    model: Heads, head_states: HeadStates, features: Features, answers: list[Answer]
) -> list[Tensor]:
    """Return for every answer a tensor [heads, tokens]: the rank of each of its tokens in each head's
    prediction, 0 for the most probable."""
    found = []
    for answer in answers:
        batch = features.states(collate([answer], len(answer.ids), features.device))
        rows = torch.full((len(model), len(batch.labels)), NEVER)
        for index in range(len(model)):
            kept, states = head_states(batch, index)
            logits = states.float() @ model.matrix(index, features.head).float().T
            label = logits.gather(1, batch.labels[kept][:, None])
            rows[index, kept.cpu()] = (logits > label).sum(1).cpu()
        found.append(rows)
    return found


def rank_accuracy(found: list[Tensor], count: int) -> list[list[float]]:
    """Return [heads][ranks]: the share of tokens that have this rank in this head's prediction, for the
    first ``count`` ranks. found: as ``token_ranks`` returns it."""
    together = torch.cat(found, 1)
    asked = (together < NEVER).sum(1).clamp(min=1)
    return [
        [round(float((row == rank).sum() / all), 5) for rank in range(count)]
        for row, all in zip(together, asked)
    ]


def replay_tree_rounds(found: list[Tensor], shape: Shape) -> dict:
    """Replay rounds with one tree over the answers. Return {"block_efficiency", "by_position"}. found: as
    ``token_ranks`` returns it; shape: the tree."""
    below = {(parent, rank): i for i, (parent, rank) in enumerate(zip(shape.parents, shape.ranks))}
    depth = max(shape.depths, default=0)
    rounds = committed = 0
    at = [[0, 0] for _ in range(depth)]  # accepted, tried at each position
    for rows in (one.tolist() for one in found):
        place, length = 0, len(rows[0])
        while place < length:
            node, taken = -1, 0
            while taken < depth and place + taken < length:
                at[taken][1] += 1
                node = below.get((node, rows[taken][place + taken]))
                if node is None:
                    break
                at[taken][0] += 1
                taken += 1
            rounds += 1
            committed += min(taken + 1, length - place)
            place += taken + 1
    return {
        "block_efficiency": round(committed / max(1, rounds), 4),
        "by_position": [round(hit / max(1, all), 4) for hit, all in at],
    }


def measure(model: Heads, head_states: HeadStates, features: Features, shape: Shape) -> dict[str, float]:
    """Return the mean accepted length, averaged over the tasks, on held-out answers, greedy and at
    temperature 1. The recipe's ``measure_rows`` limits the number of answers."""
    out, all_of_them = {}, features.heldout
    heldout = all_of_them[
        :: max(1, len(all_of_them) // features.hparams.get("measure_rows", len(all_of_them)))
    ]
    for mode, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        chosen = [[a for a in heldout if a.task == task and a.temperature == temperature] for task in TASKS]
        each = [
            replay_tree_rounds(token_ranks(model, head_states, features, some), shape)["block_efficiency"]
            for some in chosen
            if some
        ]
        out[f"block_efficiency_{mode}"] = round(sum(each) / max(1, len(each)), 4)
    return out


def calibrate(model: Heads, head_states: HeadStates, features: Features, hparams: dict) -> Shape:
    """Measure ``accuracy`` on training answers and choose ``nodes``, the number of nodes of the fastest
    tree; store both in the model and return the tree."""
    answers = features.own.answers
    some = answers[:: max(1, len(answers) // hparams["calibrate"])]
    model.accuracy = rank_accuracy(token_ranks(model, head_states, features, some), hparams["ranks"])
    model.nodes = hparams["nodes"] or best_node_count(model.accuracy, pass_seconds(features.path))
    return calibrated_shape(model.accuracy, model.nodes)


def best_node_count(table: list[list[float]], seconds: dict[int, float]) -> int:
    """Return the number of nodes of the tree with the most expected tokens per second. table: accuracy
    [heads][ranks]; seconds: {nodes: measured seconds of a target pass}.

    Of nearly equal trees the largest is chosen, because drafting and verification have a fixed cost per
    round that is not counted here."""
    speed = {
        nodes: expected_length(table, calibrated_shape(table, nodes)) / time
        for nodes, time in seconds.items()
    }
    return max(nodes for nodes in speed if speed[nodes] >= NEARLY * max(speed.values()))


def pass_seconds(path: Path, repeats: int = 7) -> dict[int, float]:
    """Return {nodes: seconds of a target pass with a tree of that size} on this machine, each the shortest
    of several runs."""
    target = first_supporting_forward(register().backends, path).load(path, torch.device("cpu")).open()
    target.sync([i % target.vocab for i in range(64)])
    best: dict[int, float] = dict.fromkeys(SIZES, float("inf"))
    for _ in range(repeats):
        for nodes in SIZES:
            tree = DraftTree(tuple(i % target.vocab for i in range(nodes)), (-1,) * nodes, (-1,) * nodes)
            began = time.perf_counter()
            target.score(tree)
            best[nodes] = min(best[nodes], time.perf_counter() - began)
            target.flush()
    return best
