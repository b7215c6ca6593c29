"""Policies: how much to draft."""

from .adaptive_verification import AdaptiveVerification
from .bandit import Bandit, Exp3, Ucb
from .batch_budget import BatchTokenBudget
from .batch_lengths import BatchDraftLength, RaggedDraftLengths
from .cost_ratio import CostRatio
from .fixed import Fixed
from .goodput import Goodput
from .learned import Classified, PredictedAcceptance, PredictedLength
from .stopping import Confidence, Entropy, Heuristic

__all__ = [
    "AdaptiveVerification",
    "Bandit",
    "BatchDraftLength",
    "BatchTokenBudget",
    "Classified",
    "Confidence",
    "CostRatio",
    "Entropy",
    "Exp3",
    "Fixed",
    "Goodput",
    "Heuristic",
    "PredictedAcceptance",
    "PredictedLength",
    "RaggedDraftLengths",
    "Ucb",
]
