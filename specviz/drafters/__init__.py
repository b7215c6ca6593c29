"""Drafters, by where the guess comes from: a model, a lookup, trained heads, fewer of the target's own layers, its own parallel
guesses, another vocabulary, or several of these."""
