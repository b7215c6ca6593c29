"""Insert a script into the page before Gradio's own, by middleware. Gradio inserts its ``head`` parameter
after its client has started, which is too late for functions that the client reads when it loads
(static/limit_animation_frames.js). Also adds the preview of links: its image needs an absolute address, and a
link to a stored run (?run=HASH) has a preview of its own."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from html import escape
from typing import Any

HEAD = b"<head>"
LINK_CARD = "link_card.png"
PREVIEW = re.compile(rb"<meta\s+(?:property|name)=\"(?:og|twitter):[a-z:_]+\"[^<>]*>")
META = re.compile(r"<meta (?:property|name)=\"(?:og|twitter):(?:title|description)\"[^<>]*>")
RUN = re.compile(rb"(?:^|&)run=([0-9a-f]{64})(?=&|$)")
HOST = re.compile(r"[\w.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:\d{1,5})?")


class HeadScript:
    """ASGI middleware that inserts ``script`` at the beginning of the page's ``<head>``. Other responses,
    compressed ones and pages without a ``<head>`` are passed on unchanged. card: HTML elements that describe
    the page to who previews a link; they replace Gradio's, which name Gradio. words: returns title and
    sentence of a stored run by its hash, None for none."""

    def __init__(
        self,
        app: Any,
        script: str,
        card: str = "",
        words: Callable[[str], tuple[str, str] | None] = lambda name: None,
    ):
        self._app, self._script, self._card = app, f"<script>{script}</script>".encode(), card
        self._words = words

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http" or scope["path"].removeprefix(
            scope.get("root_path", "").rstrip("/")
        ) not in ("", "/"):
            await self._app(scope, receive, send)
            return
        start: dict = {}
        parts: list[bytes] = []

        async def send_changed(message: dict) -> None:
            if message["type"] == "http.response.start" and _is_page(message):
                start.update(message)
            elif not start:
                await send(message)
            else:
                parts.append(message.get("body", b""))
                if not message.get("more_body"):
                    body = b"".join(parts)
                    if scope["method"] != "HEAD":
                        body = PREVIEW.sub(b"", body)
                        card = await self._preview(scope)
                        body = body.replace(HEAD, HEAD + card + self._script, 1)
                        start["headers"] = [
                            (k, v) for k, v in start["headers"] if k.lower() != b"content-length"
                        ]
                        start["headers"].append((b"content-length", str(len(body)).encode()))
                    await send(start)
                    await send(message | {"body": body})

        await self._app(scope, receive, send_changed)

    async def _preview(self, scope: dict) -> bytes:
        """Return the elements that describe this address: the stored run of its query, or the page."""
        named = RUN.search(scope.get("query_string", b""))
        name = named[1].decode() if named else ""
        words = await asyncio.to_thread(self._words, name) if name else None
        if words is None:
            return self._card.encode() + link_card(scope)
        title, sentence = map(escape, words)
        card = META.sub("", self._card) + "".join(
            f'<meta property="og:{key}" content="{text}"><meta name="twitter:{key}" content="{text}">'
            for key, text in (("title", f"specviz: {title}"), ("description", sentence))
        )
        return card.encode() + link_card(scope, f"runs/{name}.png")


def _is_page(start: dict) -> bool:
    headers = {k.lower(): v for k, v in start.get("headers", ())}
    return headers.get(b"content-type", b"").startswith(b"text/html") and b"content-encoding" not in headers


def link_card(scope: dict, path: str = f"own/{LINK_CARD}") -> bytes:
    """Return the HTML elements that name a link's preview image, at the address of the request; empty if
    that is unknown. path: of the image, on this server."""
    host = dict(scope.get("headers", ())).get(b"host", b"").decode("latin-1")
    if not HOST.fullmatch(host):
        return b""
    scheme = "https" if os.environ.get("SPACE_ID") else scope.get("scheme", "http")
    address = f"{scheme}://{host}{scope.get('root_path', '').rstrip('/')}/{path}"
    return (
        f'<meta property="og:image" content="{address}"><meta property="og:image:width" content="1200">'
        f'<meta property="og:image:height" content="630"><meta name="twitter:image" content="{address}">'
    ).encode()
