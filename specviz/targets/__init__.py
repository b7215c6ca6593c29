"""Targets: networks behind one contract (sync, score, commit), targets and draft models alike."""
