"""A script that stands before Gradio's own in the page. What is given as ``head`` comes when Gradio's client already runs, too late
for what the client takes hold of when it is read (static/limit_animation_frames.js)."""
from __future__ import annotations

from typing import Any, Callable

HEAD = b"<head>"


class First:
    """ASGI middleware. ``script``: put at the beginning of the page's head. An answer that is not the page, or that is packed, or
    has no head, goes out as it came."""

    def __init__(self, app: Any, script: str):
        self._app, self._script = app, f"<script>{script}</script>".encode()

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "").rstrip("/")) not in ("", "/"):
            await self._app(scope, receive, send)
            return
        start: dict = {}
        parts: list[bytes] = []

        async def told(message: dict) -> None:
            if message["type"] == "http.response.start" and _page(message):
                start.update(message)
            elif not start:
                await send(message)
            else:
                parts.append(message.get("body", b""))
                if not message.get("more_body"):
                    body = b"".join(parts)
                    if scope["method"] != "HEAD":
                        body = body.replace(HEAD, HEAD + self._script, 1)
                        start["headers"] = [(k, v) for k, v in start["headers"] if k.lower() != b"content-length"]
                        start["headers"].append((b"content-length", str(len(body)).encode()))
                    await send(start)
                    await send(message | {"body": body})

        await self._app(scope, receive, told)


def _page(start: dict) -> bool:
    headers = {k.lower(): v for k, v in start.get("headers", ())}
    return headers.get(b"content-type", b"").startswith(b"text/html") and b"content-encoding" not in headers
