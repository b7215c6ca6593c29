"""A page that starts: on a port that is in use, and on a busy machine."""

import pytest

from specviz.ui import build_app, launch

from ..attack.test_load import get
from .conftest import free_port
from .fake import FakeBackend


@pytest.mark.thorough
def test_a_page_at_another_port_than_asked_is_announced(monkeypatch, caplog):
    one, port = build_app(FakeBackend()), free_port()
    other = build_app(FakeBackend())
    monkeypatch.setenv("GRADIO_SERVER_PORT", str(port))
    quiet = {"prevent_thread_lock": True, "quiet": True}
    monkeypatch.setattr("gradio.http_server.INITIAL_PORT_VALUE", port)
    try:
        launch(one, **quiet)
        assert not [r for r in caplog.records if r.name == "specviz.ui.page"]
        launch(other, **quiet)
        assert other.server_port != port
        assert [r for r in caplog.records if r.name == "specviz.ui.page" and str(port) in r.getMessage()]
    finally:
        one.close(verbose=False)
        other.close(verbose=False)


def test_a_machine_too_busy_to_answer_at_once_does_not_end_the_server(monkeypatch):
    """Gradio looks for its own page as it starts, for three seconds."""
    monkeypatch.setattr("gradio.networking.url_ok", lambda url: False)
    one = build_app(FakeBackend())
    try:
        _, url, _ = launch(one, server_port=free_port(), prevent_thread_lock=True, quiet=True)
        assert get(url + "theme.css")[0] == 200
    finally:
        one.close(verbose=False)
