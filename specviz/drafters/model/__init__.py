"""A small language model of its own drafts."""
