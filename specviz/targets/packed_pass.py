"""One forward pass for the trees of several sequences: ragged batches without padding (BASS, Qian et al.
2404.15778; EMS-SD, Ni et al. 2405.07542).

The rows of all sequences are concatenated, so that every matrix is read once for all of them. Each sequence
has its own cache and tree, so no sequence's cache is padded, however much the accepted lengths differ, and
a sequence joins or leaves the batch from one pass to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core import DraftTree, Scores
from ..core.errors import InvalidUse
from ..core.work_time import work_seconds
from .llama import LlamaTarget, run_compiled
from .rows import Rows

PackedSequence = tuple[LlamaTarget, Rows, slice]  # a sequence, its rows, and their place in the packed pass


def score_packed(
    targets: Sequence[LlamaTarget], trees: Sequence[DraftTree], starts: Sequence[int] = ()
) -> list[Scores]:
    """Return ``target.score(tree, start)`` for each target and its tree, computed in one pass over their
    shared weights; starts default to 0.

    The pass's duration is divided among the targets' ``busy`` in proportion to their rows. Raises
    InvalidUse (a ValueError) for targets with different weights or a repeated target; after a failed pass,
    each target must be synced again.
    """
    if (
        len({id(target) for target in targets}) < len(targets)
        or len({id(target.model) for target in targets}) > 1
    ):
        raise InvalidUse("a batch needs distinct sequences over the same weights", "target.batch")
    runs = [
        (target, tree, target._rows_to_run(tree, start))
        for target, tree, start in zip(targets, trees, starts or [0] * len(trees))
    ]
    lanes, at = [], 0
    for target, _, rows in runs:
        if rows is not None:
            lanes.append((target, rows, slice(at, at + len(rows.ids))))
            at += len(rows.ids)
    began = work_seconds()
    try:
        with torch.inference_mode():
            logits, hidden_states = _forward(lanes) if lanes else (torch.empty(0), [])
    except BaseException:
        for target in targets:
            target.root = None
            target._drop()
        raise
    took = work_seconds() - began
    given = iter(zip(lanes, hidden_states))
    out = []
    for target, tree, rows in runs:
        if rows is None:
            out.append(target._held(tree))
            continue
        (_, _, mine), states = next(given)
        target.busy += took * len(rows.ids) / at
        target.passes += 1
        out.append(target._scored(tree, rows, logits[mine], states))
    return out


def _forward(lanes: list[PackedSequence]) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Return logits of all rows, and the captured hidden states of each sequence."""
    model, hidden_states = lanes[0][0].model, [{} for _ in lanes]
    for target, *_ in lanes:
        target.work = None  # early-exit work is not reused: all rows run through all layers
    x = torch.cat([target._embed(rows) for target, rows, _ in lanes])
    if model.compiled is not None:
        compiled = [(target, rows, target.sequence_rows(rows)) for target, rows, _ in lanes]
        return run_compiled(model, compiled, x, 0, len(x))
    rotation, masks = (
        torch.cat([target._rotation(rows) for target, rows, _ in lanes]),
        [target._mask(rows) for target, rows, _ in lanes],
    )
    looked_into = [
        any(name != "final" for name in target._want) or bool(rows.tree.inputs) for target, rows, _ in lanes
    ]
    for i, block in enumerate(model.blocks):
        if any(looked_into):
            x = torch.cat(
                [
                    target._enter(rows, i, x[mine], states)
                    for (target, rows, mine), states in zip(lanes, hidden_states)
                ]
            )
        q, new = model.project(block, x, rotation)
        q = q.view(model.kv_heads, model.group, len(x), model.head_dim)
        y = torch.cat([_attend(lane, i, q, new, mask) for lane, mask in zip(lanes, masks)], dim=2)
        x = model.transform(block, model.join(block, x, y.reshape(1, model.kv_heads, -1, model.head_dim)))
    x = model.norm_output(x)
    for (target, _, mine), states in zip(lanes, hidden_states):
        if "final" in target._want:
            states["final"] = model.final_states(x[mine])
    logits = model.output(x)
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return logits, hidden_states


def _attend(lane: PackedSequence, layer: int, q: Tensor, new: Tensor, mask: Tensor | None) -> Tensor:
    """Write keys and values of one sequence to its slots and return its attention, [kv_heads, group, rows,
    head_dim].

    q [kv_heads, group, all rows, head_dim]; new [2, kv_heads, all rows, head_dim].
    """
    target, rows, mine = lane
    n, at = len(rows.ids), rows.past + rows.lo
    slots = target.slots[layer]
    slots.narrow(2, at, n).copy_(new[:, :, mine])
    asked = q[:, :, mine].reshape(1, q.shape[0], q.shape[1] * n, q.shape[3])
    found = target.model.attention(target.model.blocks[layer], asked, slots.narrow(2, 0, at + n), mask)
    return found.view(q.shape[0], q.shape[1], n, q.shape[3])
