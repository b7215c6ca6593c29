"""Drafters: where draft tokens come from."""
from .dynamic import ConfidentTree, GreedyTree
from .jacobi import Jacobi
from .lookahead import Lookahead
from .lookup import PromptLookup
from .model import DraftChain, DraftShape
from .paths import DraftPaths, StochasticBeam
from .recycling import Recycling
from .sequoia import SequoiaTree
from .staged import Staged

__all__ = ["ConfidentTree", "DraftChain", "DraftPaths", "DraftShape", "GreedyTree", "Jacobi", "Lookahead", "PromptLookup",
           "Recycling", "SequoiaTree", "Staged", "StochasticBeam"]
