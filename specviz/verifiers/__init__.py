"""Verifiers: which drafted tokens are kept, and the law of the token after them."""
from .token import TokenRejection

__all__ = ["TokenRejection"]
