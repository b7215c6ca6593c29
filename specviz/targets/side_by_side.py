"""Which layers run side by side, approximately (EasySpec, Wu et al. 2502.02493): a draft made of a model's own weights.

The first and the last layer run as ever. Between them layers go in groups; the attentions of a group all read what entered the
group, so they need not wait for each other, and the feed-forwards follow in order.
"""
from __future__ import annotations


def groups_of(layers: int, size: int) -> list[list[int]]:
    """Layers that run together, in order: the first and the last alone, those between in groups of ``size``."""
    middle = list(range(1, layers - 1))
    grouped = [middle[i:i + size] for i in range(0, len(middle), size)]
    return [[0], *grouped, [layers - 1]] if layers > 1 else [[0]]
