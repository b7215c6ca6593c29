"""Drafters that use a small draft model."""
