"""Draft models with another tokenizer (heterogeneous vocabularies)."""
