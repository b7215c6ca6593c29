"""Loops: how rounds follow each other. Nearly every method uses ``speculate``."""
from .speculate import speculate

__all__ = ["speculate"]
