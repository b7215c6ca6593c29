"""Data structures for lookup drafters: suffix automata and arrays, n-gram counts, datastores, answers of
earlier runs."""
