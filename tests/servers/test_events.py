"""Messages of a server's stream are bounded as its lines are."""

from __future__ import annotations

import pytest

from specviz.servers import events
from specviz.servers.messages import ServerError

from ..message_codes import refuses

PIECE = b"data: " + b"0," * 30_000  # far below the bound of a line


@pytest.mark.parametrize("filler", [PIECE, b"event: " + b"x" * 60_000, b": " + b"x" * 60_000])
def test_a_message_of_many_lines_is_bounded(filler):
    lines = iter([b'data: {"x": [', *[filler] * 10_000])
    with refuses(ServerError, "server.message_size", "s"):
        list(events.messages("s", lines, 10))
    assert sum(1 for _ in lines) > 9_900, "it was read on after it was too long"


def test_many_messages_are_each_measured():
    lines = [
        line
        for i in range(200)
        for line in (b'data: {"x": "%s",' % (b"a" * 9_000), b'data: "i": %d}' % i, b"")
    ]
    assert [message["i"] for message in events.messages("s", [*lines, b"data: [DONE]", b""], 300)] == list(
        range(200)
    )
