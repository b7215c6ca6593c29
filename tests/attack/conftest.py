"""The page's server and browser, and the viewer's bare board, for the attacks."""
from ..ui.conftest import _browser, _server, backend, pytest_pyfunc_call, server, visit
from ..viewer.conftest import drive, settled

__all__ = ["_browser", "_server", "backend", "drive", "pytest_pyfunc_call", "server", "settled", "visit"]
