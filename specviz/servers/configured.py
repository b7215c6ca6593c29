"""The configured servers: those in models.yaml, in SPECVIZ_SERVERS and on the command line. A visitor
cannot add one."""

from __future__ import annotations

import os
from dataclasses import replace

from ..zoo.registry import SERVER_ENGINES, Server, ZooError, register
from .http_client import read_url
from .messages import ServerError, one_line

VARIABLE = "SPECVIZ_SERVERS"  # ENGINE=URL or ENGINE=URL#MODEL, several with commas between them
FORM = f"ENGINE=URL or ENGINE=URL#MODEL, where ENGINE is one of {', '.join(SERVER_ENGINES)}"


def servers() -> dict[str, Server]:
    """Return all configured servers by name, with checked addresses. Raises ServerError."""
    found = {name: replace(server, url=read_url(server.url)) for name, server in register().servers.items()}
    for words in filter(None, (one.strip() for one in os.environ.get(VARIABLE, "").split(","))):
        try:
            server = parse_server(words)
        except ServerError as error:
            raise ServerError("variable", variable=VARIABLE, why=error) from None
        name, number = server.name, 2
        while name in found:
            name, number = f"{server.name} {number}", number + 1
        found[name] = replace(server, name=name)
    return found


def find_server(asked: str) -> Server:
    """Return a server by its name, or one that is given as ``ENGINE=URL#MODEL``. Raises ServerError that
    lists the known servers."""
    try:
        known = servers()
    except ZooError as error:
        raise ServerError("registry", why=error) from None
    if asked in known:
        return known[asked]
    if "=" in asked:
        return parse_server(asked)
    raise ServerError("unknown", name=one_line(asked, 60), names=", ".join(known) or "none", form=FORM)


def parse_server(words: str) -> Server:
    """Parse a server given as ``ENGINE=URL`` or ``ENGINE=URL#MODEL``. Raises ServerError."""
    engine, equals, rest = words.partition("=")
    url, _, model = rest.partition("#")
    if not equals or engine.strip() not in SERVER_ENGINES:
        raise ServerError("form", form=FORM)
    return Server(engine.strip(), engine.strip(), read_url(url), model.strip())
