"""Verifiers: accept a path of the draft tree and sample the token after it."""

from .block_verification import BlockVerification
from .judge import JudgeDecoding
from .kseq import KSeq
from .lantern import Lantern
from .lenience import Lenient, Mixture, UncertaintyTolerant
from .multi_step import MultiStep
from .spechub import SpecHub
from .token_rejection import TokenRejection
from .traversal import Traversal
from .typical_acceptance import Typical

__all__ = [
    "BlockVerification",
    "JudgeDecoding",
    "KSeq",
    "Lantern",
    "Lenient",
    "Mixture",
    "MultiStep",
    "SpecHub",
    "TokenRejection",
    "Traversal",
    "Typical",
    "UncertaintyTolerant",
]
