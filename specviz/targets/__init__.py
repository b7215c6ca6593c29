"""Targets: networks behind one interface (sync, score, commit), for targets and draft models alike."""
