"""Drafters: where draft tokens come from."""
from .jacobi import Jacobi
from .lookahead import Lookahead
from .lookup import PromptLookup
from .model import DraftChain, DraftShape
from .recycling import Recycling

__all__ = ["DraftChain", "DraftShape", "Jacobi", "Lookahead", "PromptLookup", "Recycling"]
