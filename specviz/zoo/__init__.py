"""The model zoo: load models by name. models.yaml, tokenizers, the choice of a forward pass, and which
models fit together."""

from .. import lazy_names

_WHERE = dict.fromkeys(("Loaded", "load", "survey"), "pair") | {
    "Kit": "kit",
    "forget": "weight_cache",
    "ZooError": "registry",
}

__all__ = list(_WHERE)
__getattr__ = lazy_names(__name__, _WHERE)
