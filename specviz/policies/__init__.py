"""Policies: how much to draft."""
from .bandit import Bandit, Exp3, Ucb
from .cost import CostRatio
from .fixed import Fixed
from .learned import Classified, PredictedAcceptance
from .stopping import Confidence, Entropy, Heuristic

__all__ = ["Bandit", "Classified", "Confidence", "CostRatio", "Entropy", "Exp3", "Fixed", "Heuristic", "PredictedAcceptance", "Ucb"]
