"""The page's server and browser, and the viewer's bare board, for the attacks."""

from ..ui.conftest import _server, backend, keeps_no_runs, proxied, pytest_pyfunc_call, server, visit
from ..viewer.conftest import drive, settled

__all__ = [
    "_server",
    "backend",
    "drive",
    "keeps_no_runs",
    "proxied",
    "pytest_pyfunc_call",
    "server",
    "settled",
    "visit",
]
