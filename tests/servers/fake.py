"""A server on a socket of its own that answers each path in a way of its own: well, badly, or not at all.
No sleeps: what hangs waits until the client is gone or the fake is closed."""

from __future__ import annotations

import json
import socketserver
import threading

from . import strict

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"


def sse(*told, done: bool = True) -> bytes:
    """Messages as an event stream; what is bytes already goes as it is."""
    out = b"".join(
        one if isinstance(one, bytes) else b"data: " + json.dumps(one).encode() + b"\n\n" for one in told
    )
    return out + (b"data: [DONE]\n\n" if done else b"")


def said(text: str, finish: str | None = None, **more) -> dict:
    """A message with text; ``choice_``: fields of its choice."""
    choice = more.pop("choice_", {})
    return {
        "id": "1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [
            {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish, **choice}
        ],
        **more,
    }


class Fake:
    """``answers``: case -> bytes, or a function of (send, gone): it sends bytes, and ``gone`` waits for the
    client's end. ``engines``: case -> the engine that it stands for (default: of the same name), whose
    refusals it repeats, and which sends only what it is asked for."""

    def __init__(self, answers: dict):
        self.answers = answers
        self.engines = {name: name for name in strict.EXTRA}
        self.asked = {}
        self.to_device = {}
        fake = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                fake.serve(self.request)

        class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
            daemon_threads, allow_reuse_address = True, True

            def handle_error(self, request, address):  # a client that hangs up is what many cases are about
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._over = threading.Event()
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self, link) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            got = link.recv(65536)
            if not got:
                return
            data += got
        head, _, body = data.partition(b"\r\n\r\n")
        method, path = head.decode("latin-1").split()[:2]
        length = next(
            (
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        while len(body) < length:
            body += link.recv(65536)
        case, _, rest = path.strip("/").partition("/")
        if body:
            self.asked[case] = {"head": head.decode("latin-1"), "body": json.loads(body)}
        answer = self.answers.get(case if method == "POST" else f"{case}/{rest.removeprefix('v1/')}")
        engine = self.engines.get(case) if body else None
        refused = strict.refusal(engine, json.loads(body)) if engine else None
        if refused is not None:
            words = json.dumps(refused[1]).encode()
            link.sendall(
                b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" % refused[0]
                + words
            )
        elif answer is None:
            link.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        elif callable(answer):
            answer(lambda part: self._send(case, link, part), lambda: self._gone(link))
        else:
            self._send(case, link, strict.stream(engine, json.loads(body), answer) if engine else answer)

    def _send(self, case, link, part) -> None:
        link.sendall(part)
        self.to_device[case] = self.to_device.get(case, 0) + len(part)

    def _gone(self, link) -> None:
        link.settimeout(0.05)
        while not self._over.is_set():
            try:
                if not link.recv(1):
                    return
            except TimeoutError:
                pass

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
