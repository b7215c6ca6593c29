"""A draft model with a tokenizer of its own."""
