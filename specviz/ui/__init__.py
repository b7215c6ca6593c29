"""The web page. Gradio is imported when the first of these names is used."""
from .. import lazy_names

_WHERE = {"Engine": "engine", "build_app": "page", "launch": "page"}

__all__ = list(_WHERE)
__getattr__ = lazy_names(__name__, _WHERE)
