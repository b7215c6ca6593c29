"""The model zoo: load models by name. models.yaml, tokenizers, the choice of a forward pass, and which
models fit together."""

from typing import TYPE_CHECKING

from .. import lazy_names

if TYPE_CHECKING:
    from .kit import Kit
    from .pair import Loaded, load, survey
    from .registry import ZooError
    from .weight_cache import forget


_WHERE = dict.fromkeys(("Loaded", "load", "survey"), "pair") | {
    "Kit": "kit",
    "forget": "weight_cache",
    "ZooError": "registry",
}

__all__ = ["Kit", "Loaded", "ZooError", "forget", "load", "survey"]
if not TYPE_CHECKING:  # so that a type checker reports names that do not exist
    __getattr__ = lazy_names(__name__, _WHERE)
