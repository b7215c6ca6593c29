"""The target's own guesses, many places at once."""
