"""Loops: how rounds follow each other. Nearly every method uses ``speculate``."""
from .pipelined import Pipelined
from .speculate import speculate

__all__ = ["Pipelined", "speculate"]
