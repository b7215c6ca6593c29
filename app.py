"""The page: ``python app.py``. Models load when somebody first touches it, so it is up at once."""
import os

from specviz.ui import Engine, build_app, launch

demo = build_app(Engine(os.environ.get("SPECVIZ_TARGET"), os.environ.get("SPECVIZ_DRAFT")))

if __name__ == "__main__":
    launch(demo)
