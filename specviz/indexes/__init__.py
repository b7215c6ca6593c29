"""What lookups search: suffix automata and arrays, n-gram counts, datastores, answers of earlier runs."""
