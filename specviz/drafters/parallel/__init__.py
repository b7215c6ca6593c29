"""Parallel decoding: the target itself predicts many positions at once."""
