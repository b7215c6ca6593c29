"""Policies: how much to draft."""
from .bandit import Bandit, Exp3, Ucb
from .cost import CostRatio
from .fixed import Fixed
from .stopping import Confidence, Entropy, Heuristic

__all__ = ["Bandit", "Confidence", "CostRatio", "Entropy", "Exp3", "Fixed", "Heuristic", "Ucb"]
