"""Trained heads on the target's states draft."""
