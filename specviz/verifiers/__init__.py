"""Verifiers: which drafted tokens are kept, and the law of the token after them."""
from .block import BlockVerification
from .hub import SpecHub
from .kseq import KSeq
from .judged import Judged
from .lossy import Lenient, Typical
from .merged import MultiStep
from .token import TokenRejection
from .traversal import Traversal

__all__ = ["BlockVerification", "Judged", "KSeq", "Lenient", "MultiStep", "SpecHub", "TokenRejection", "Traversal", "Typical"]
