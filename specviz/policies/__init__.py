"""Policies: how much to draft."""
from .fixed import Fixed

__all__ = ["Fixed"]
