"""A port that is in use."""

from specviz.ui import build_app, launch

from .conftest import free_port
from .fake import FakeBackend


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
