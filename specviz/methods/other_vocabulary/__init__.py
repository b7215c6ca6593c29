from ...core import Family

FAMILY = Family("Other vocabulary", "A draft model whose tokenizer differs from the target's.", place=10)
