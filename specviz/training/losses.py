"""Losses: cross-entropy on labels, and distillation from the target's stored top tokens.

Distillation is a divergence between the target's and the draft's distribution, by default forward KL
(Hinton et al., 1503.02531). All tokens outside the top tokens are merged into one outcome: a lower bound
that needs about 32 stored values per position instead of the whole vocabulary.

In these small models the output matrix dominates the cost. So output matrix, loss and gradient are one
autograd function over chunks of positions: the logits of a chunk stay in the processor's cache, which is
four times faster on a CPU than separate operations.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from . import divergences

CHUNK = 128  # positions whose logits are in memory at a time; 512 took 1.3 times as long
CHUNK_ON_ACCELERATOR = 8192
JOINED = 8  # chunks in one product for the gradient of the output matrix, which is as large as the matrix
FLOOR = 1e-6  # half-precision leaders may add up to a hair over one; it also bounds the gradient


def next_token(hidden: Tensor, head: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of labels [n] under logits hidden [n, d] @ head [vocab, d].T; head: the
    output matrix."""
    return HeadLoss.apply(hidden, head, labels, 1.0, None, None)


def distil(
    hidden: Tensor,
    head: Tensor,
    top_ids: Tensor,
    top_logp: Tensor,
    labels: Tensor,
    hard_label_weight: float = 0.0,
    divergence: str = "forward_kl",
    rng: torch.Generator | None = None,
    negatives: int = 0,
) -> Tensor:
    """Return the mean divergence of the draft's distribution from the target's, over the target's top
    tokens and one outcome for all others, plus ``hard_label_weight`` times the cross-entropy on labels [n].

    hidden [n, d], head [vocab, d]: the draft's hidden states and output matrix; top_ids, top_logp [n, top]:
    the target's top tokens and log-probabilities; divergence: a key of divergences.NAMED; rng: for a
    divergence that samples; negatives: 0 uses the whole vocabulary, else that many tokens are drawn to
    represent all tokens that are neither labels nor top tokens (sampled softmax, 1412.2007)."""
    log_weights = None
    if negatives:
        rows, log_weights = sampled_rows(len(head), torch.cat([top_ids.flatten(), labels]), negatives)
        head = head[rows]
        top_ids = torch.searchsorted(rows, top_ids)
        labels = torch.searchsorted(rows, labels)
    return HeadLoss.apply(
        hidden,
        head,
        labels,
        hard_label_weight,
        top_ids,
        top_logp,
        partial(divergences.NAMED[divergence], rng=rng),
        log_weights,
    )


def sampled_rows(vocab: int, named: Tensor, negatives: int) -> tuple[Tensor, Tensor]:
    """Choose the vocabulary entries of a sampled softmax: the ``named`` tokens, and at most ``negatives``
    uniform draws from all others. Return (ids [rows] in ascending order, log importance weights [rows]:
    minus the log-probability of being drawn, 0 for ``named``).

    The random seed is derived from ``named``, so that a resumed run draws the same tokens."""
    named = named.unique()
    rng = torch.Generator().manual_seed(int(named.sum()) * 31 + len(named))
    drawn = torch.randint(vocab, (negatives,), generator=rng).to(named.device).unique()
    rows = torch.cat([named, drawn[~torch.isin(drawn, named)]])
    chance = -math.expm1(negatives * math.log1p(-1 / vocab))  # probability that a token is among the draws
    weights = torch.zeros(len(rows), device=rows.device)
    weights[len(named) :] = -math.log(chance)
    order = rows.argsort()
    return rows[order], weights[order]


class HeadLoss(torch.autograd.Function):
    """Output matrix, loss and gradient as one autograd function: ``apply`` returns the mean loss over n
    positions.

    With w = ``hard_label_weight``, q the draft's distribution, s the divergence's gradient with respect to
    log q on the top tokens, and r its gradient on the rest, whose probability is m: dL/dz = (w + r / m -
    sum(s) - r) q + (s - q r / m on the top tokens, 0 elsewhere) - w [label]."""

    @staticmethod
    def forward(
        ctx,
        hidden,
        head,
        labels,
        hard_label_weight,
        top_ids,
        top_logp,
        divergence: Any = None,
        log_weights=None,
    ):
        """Compute the mean loss, and the gradients with respect to ``hidden`` and ``head``, chunk by
        chunk."""
        kind = (
            torch.get_autocast_dtype(hidden.device.type)
            if torch.is_autocast_enabled(hidden.device.type)
            else head.dtype
        )
        with torch.autocast(hidden.device.type, enabled=False):
            weight = head.to(kind)
            states = hidden.to(kind)
            to_hidden = torch.empty_like(states)
            to_head = (
                torch.zeros_like(head, dtype=torch.float32) if ctx.needs_input_grad[1] else None
            )  # None: a frozen head
            total, count = torch.zeros((), device=hidden.device), len(labels)
            size = CHUNK if hidden.device.type == "cpu" else CHUNK_ON_ACCELERATOR
            slopes: list[Tensor] = []
            for first in range(0, count, size):
                part = slice(first, first + size)
                leaders = None if top_ids is None else (top_ids[part], top_logp[part], divergence)
                logits = states[part] @ weight.T
                logits = logits if log_weights is None else logits.float() + log_weights
                loss, slope = chunk(logits, labels[part], hard_label_weight, leaders)
                total += loss
                if any(ctx.needs_input_grad):
                    slope = (slope / count).to(kind)
                    to_hidden[part] = slope @ weight
                    if to_head is not None:
                        slopes.append(slope)
                        if len(slopes) == JOINED or first + size >= count:
                            joined = slice(first - size * (len(slopes) - 1), first + size)
                            to_head += torch.cat(slopes).T @ states[joined]
                            slopes.clear()
        ctx.save_for_backward(to_hidden.to(hidden.dtype), None if to_head is None else to_head.to(head.dtype))
        return total / count

    @staticmethod
    def backward(ctx, scale):
        """Scale the stored gradients."""
        to_hidden, to_head = ctx.saved_tensors
        return (
            to_hidden * scale,
            None if to_head is None else to_head * scale,
            None,
            None,
            None,
            None,
            None,
            None,
        )


def chunk(
    logits: Tensor, labels: Tensor, hard_label_weight: float, leaders: tuple[Tensor, Tensor, Callable] | None
) -> tuple[Tensor, Tensor]:
    """Return (summed loss, its gradient with respect to the logits) of one chunk of positions. logits [n,
    vocab] is overwritten by the gradient; leaders: (top_ids, top_logp, divergence), or None for
    cross-entropy on labels alone."""
    z = logits.float()
    z = z.sub_(z.amax(-1, keepdim=True))
    at_label = z.gather(1, labels[:, None])
    at_top = None if leaders is None else z.gather(1, leaders[0])
    q = z.exp_()
    size = q.sum(-1, keepdim=True)
    q = q.div_(size)
    loss, scale = -hard_label_weight * (at_label - size.log()).sum(), torch.full_like(size, hard_label_weight)
    if leaders is not None and at_top is not None:
        ids, logp, divergence = leaders
        logp, logq = with_rest(logp), with_rest(at_top - size.log())
        value, slopes = divergence(logp, logq)
        rest = slopes[:, -1:] / logq[:, -1:].exp()
        push = slopes[:, :-1] - rest * logq[:, :-1].exp()
        loss, scale = loss + value.sum(), scale + rest - slopes.sum(-1, keepdim=True)
    slope = q.mul_(scale)
    if leaders is not None:
        slope.scatter_add_(1, ids, push)
    slope.scatter_add_(1, labels[:, None], torch.full_like(at_label, -hard_label_weight))
    return loss, slope


def with_rest(logs: Tensor) -> Tensor:
    """Return log-probabilities of top tokens [n, top] with one more column: the log of the remaining
    probability."""
    return torch.cat([logs, (1 - logs.exp().sum(-1, keepdim=True)).clamp(min=FLOOR).log()], 1)
