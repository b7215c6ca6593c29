"""The page: ``python app.py``. Models load when somebody first touches it, so it is up at once."""

import os
import sys

if __name__ == "__main__" and len(sys.argv) > 1:
    sys.exit(
        f"app.py takes no arguments ({sys.argv[1][:40]!r}). GRADIO_SERVER_PORT=7861 chooses the port, SPECVIZ_TARGET=NAME the model; "
        "docs/reference/environment.md lists the others. The command `specviz` takes arguments."
    )
for name in (
    "GRADIO_SERVER_PORT",
    "GRADIO_NUM_PORTS",
):  # gradio reads them while it is imported, and breaks there
    asked = os.environ.get(name)
    if asked is not None and not (asked.isascii() and asked.isdigit() and 0 < int(asked[:9]) < 65536):
        sys.exit(f"{name} must be a whole number from 1 to 65535, not {asked[:40]!r}.")

from specviz import TraceError  # noqa: E402
from specviz.engine import Engine  # noqa: E402
from specviz.ui import build_app, launch  # noqa: E402

try:
    demo = build_app(Engine(os.environ.get("SPECVIZ_TARGET"), os.environ.get("SPECVIZ_DRAFT")))
except TraceError as error:  # the viewer is not there
    sys.exit(str(error))

if __name__ == "__main__":
    launch(demo)
