"""Decoding loops: generators that run a method's parts on a target and yield events. Nearly every method
uses ``speculate``."""

from .pipelined import Pipelined
from .speculate import speculate
from .stepwise import Stepwise
from .switching import switching

__all__ = ["Pipelined", "Stepwise", "speculate", "switching"]
