"""The zoo: from a name to something loaded. Models by name, their tokenizers, which forward runs them, what fits together."""
from .. import lazy_names

_WHERE = {name: "pair" for name in ("Loaded", "load", "survey")} | {"Kit": "kit", "forget": "kept", "ZooError": "registry"}

__all__ = list(_WHERE)
__getattr__ = lazy_names(__name__, _WHERE)
