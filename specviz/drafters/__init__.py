"""Drafters, grouped by the source of the draft: a draft model, lookup, trained heads, fewer layers of the
target, parallel decoding, a heterogeneous vocabulary, or a combination."""
