"""Draft trees: fixed shapes, growth level by level, sampled tokens with their distributions."""

from .device_tree import DeviceTree
from .draws import (
    first_duplicates,
    one_hot,
    one_hot_rows,
    pick,
    sample_token,
    sample_without_replacement,
    top_k,
    top_k_entries,
    top_log_probs,
    top_probs,
    top_with_sum,
    with_temperature,
)
from .growth import (
    HUB,
    Scorer,
    chosen_children,
    drawn_children,
    fill_shape,
    grow_shape,
    hub_children,
    independent_children,
    top_and_one_children,
)
from .sequoia import SequoiaPlan
from .shapes import MEDUSA, RECYCLING, Shape, full_tree, sparse_tree

__all__ = [name for name in dir() if not name.startswith("_")]
