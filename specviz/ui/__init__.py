"""The page. Nothing here imports torch: models come with the first run."""
from .engine import Engine
from .page import build_app, launch

__all__ = ["Engine", "build_app", "launch"]
