"""Which servers there are: those of models.yaml, and those that whoever starts the program names in SPECVIZ_SERVERS or on the
command line. Never what a visitor sends."""
from __future__ import annotations

import os
from dataclasses import replace

from ..zoo.registry import SERVER_ENGINES, Server, ZooError, register
from .http_client import ServerError, plain, read_url

VARIABLE = "SPECVIZ_SERVERS"  # ENGINE=URL or ENGINE=URL#MODEL, several with commas between them
FORM = f"ENGINE=URL or ENGINE=URL#MODEL, where ENGINE is one of {', '.join(SERVER_ENGINES)}"


def servers() -> dict[str, Server]:
    """Every server by its name, its address checked. Raises ServerError."""
    found = {name: replace(server, url=read_url(server.url)) for name, server in register().servers.items()}
    for words in filter(None, (one.strip() for one in os.environ.get(VARIABLE, "").split(","))):
        try:
            server = typed(words)
        except ServerError as error:
            raise ServerError(f"{VARIABLE}: {error}") from None
        name, number = server.name, 2
        while name in found:
            name, number = f"{server.name} {number}", number + 1
        found[name] = replace(server, name=name)
    return found


def find(asked: str) -> Server:
    """A server by its name, or typed as ``FORM`` says. Raises ServerError that names what there is."""
    try:
        known = servers()
    except ZooError as error:
        raise ServerError(str(error)) from None
    if asked in known:
        return known[asked]
    if "=" in asked:
        return typed(asked)
    raise ServerError(f"There is no server {plain(asked, 60)!r}; there are {', '.join(known) or 'none'}, and {FORM} will do.")


def typed(words: str) -> Server:
    """Raises ServerError with a sentence."""
    engine, equals, rest = words.partition("=")
    url, _, model = rest.partition("#")
    if not equals or engine.strip() not in SERVER_ENGINES:
        raise ServerError(f"A server is typed as {FORM}.")
    return Server(engine.strip(), engine.strip(), read_url(url), model.strip())
