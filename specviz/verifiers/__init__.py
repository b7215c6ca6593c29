"""Verifiers: which drafted tokens are kept, and the law of the token after them."""
from .block import BlockVerification
from .token import TokenRejection
from .traversal import Traversal

__all__ = ["BlockVerification", "TokenRejection", "Traversal"]
