"""Combine several drafters in one round."""
