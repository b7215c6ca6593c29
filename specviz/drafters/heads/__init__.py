"""Drafters that run a trained head on the target's hidden states."""
