"""Draft trees: fixed shapes, growth level by level, honest draws."""
from .draws import best, draw_one, draw_some
from .growth import Scorer, chosen_children, drawn_children, grow_shape
from .shapes import RECYCLING, Shape, product, sparse

__all__ = ["RECYCLING", "Scorer", "Shape", "best", "chosen_children", "draw_one", "draw_some", "drawn_children", "grow_shape",
           "product", "sparse"]
