"""Parallel decoding: the target's own guesses at many positions at once."""
