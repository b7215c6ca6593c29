"""The target drafts with fewer of its own layers."""
