"""Where recipes are: a trained part's recipe and its YAML stand in the folder of the method that introduces
it, the others here."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

HERE = Path(__file__).parent
METHODS = HERE.parent / "methods"


@cache
def folder(recipe: str) -> Path:
    """Return the folder that holds a recipe's YAML file."""
    return next((path.parent for path in METHODS.glob(f"*/*/{recipe}.yaml")), HERE)


def sections(recipe: str) -> dict[str, dict]:
    """Return the sections of a recipe's YAML file: {size: hyperparameters}."""
    return deepcopy(_parsed((folder(recipe) / f"{recipe}.yaml").read_text(encoding="utf-8")))


@cache
def _parsed(text: str) -> dict[str, dict]:
    return yaml.safe_load(text)


def module_of(recipe: str) -> ModuleType:
    """Return the module of a recipe: its own, or the shared one of this package that its YAML names as
    `recipe`."""
    own = folder(recipe)
    if (own / f"{recipe}_recipe.py").is_file():
        return import_module(f"specviz.methods.{own.parent.name}.{own.name}.{recipe}_recipe")
    shared = "" if _own_module(recipe) else sections(recipe)["default"]["recipe"]
    return import_module(f".{shared or recipe}", __package__)


def run_of(recipe: str) -> Callable[[Any], Any]:
    """Return the function that runs a recipe, given a Job."""
    module = module_of(recipe)
    shared = module.__name__.rpartition(".")[2] not in (recipe, f"{recipe}_recipe")
    return partial(module.run, recipe=recipe) if shared else module.run


def exists(recipe: str) -> bool:
    """Return whether there is a recipe of this name."""
    return _own_module(recipe) or (folder(recipe) / f"{recipe}.yaml").is_file()


def _own_module(recipe: str) -> bool:
    return (HERE / f"{recipe}.py").is_file()
