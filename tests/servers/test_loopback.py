"""Which hosts are this machine: local work slows a server there down."""

import pytest

from specviz.servers.stream import is_loopback


@pytest.mark.parametrize(
    "host, expected",
    [
        ("localhost", True),
        ("a.localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("127.evil.org", False),
        ("localhost.example.com", False),
        ("localhostess", False),
        ("10.0.0.1", False),
        ("::2", False),
        ("", False),
    ],
)
def test_only_addresses_of_this_machine_are_local(host, expected):
    assert is_loopback(host) is expected
