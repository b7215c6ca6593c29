"""Groups of layers that run in parallel, as an approximate draft model without extra weights (EasySpec, Wu
et al. 2502.02493).

The first and the last layer run unchanged. All attention layers of a group read the state that enters the
group, so they are independent of each other; the feed-forward layers follow in order.
"""

from __future__ import annotations


def groups_of(layers: int, size: int) -> list[list[int]]:
    """Return the groups of layer indices in order: the first and the last layer alone, the others in groups
    of ``size``."""
    middle = list(range(1, layers - 1))
    grouped = [middle[i : i + size] for i in range(0, len(middle), size)]
    return [[0], *grouped, [layers - 1]] if layers > 1 else [[0]]
