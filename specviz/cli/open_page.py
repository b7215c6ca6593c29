"""``specviz`` without a command: serve the page, as ``python app.py`` does in a checkout."""

from __future__ import annotations


def open_page() -> int:
    """Run app.py, which is next to models.yaml in a checkout and in an installed package; return the exit
    status."""
    import runpy

    from .. import ROOT

    runpy.run_path(str(ROOT / "app.py"), run_name="__main__")
    return 0
