"""Nested sub-models of one network: its first layers with the final norm and output matrix form a smaller
network (sorted training, Valipour et al. 2309.00255; S2D 2407.01955). Training and drafting read their
layer counts from here."""

from __future__ import annotations


def sub_model_layers(layers: int) -> tuple[int, ...]:
    """Return the layer counts of the sub-models: half, three quarters and all of the layers (the paper's 6,
    9 and 12), without duplicates, smallest first."""
    return tuple(sorted({max(1, layers // 2), max(1, 3 * layers // 4), layers}))
