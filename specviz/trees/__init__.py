"""Draft trees: fixed shapes, growth level by level, sampled tokens with their distributions."""
from .device_tree import DeviceTree
from .draws import best, best_of_all, draw_one, draw_some, first_duplicates, one_hot, pick, with_temperature
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
from .shapes import MEDUSA, RECYCLING, Shape, product, sparse

__all__ = [name for name in dir() if not name.startswith("_")]
