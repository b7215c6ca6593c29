"""A real server in a process of its own, an attacker and an honest client of other addresses, and what the attack
costs: processor, memory, log, and the honest client's waits."""

from __future__ import annotations

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(os.environ.get("SPECVIZ_ATTACK_ROOT") or Path(__file__).parents[2])
TARGET = os.environ.get("SPECVIZ_ATTACK_TARGET", "Llama-specviz-16M")
ATTACKER = "127.0.0.7"
HONEST = "127.0.0.2"
PATIENCE = 40.0  # seconds in which an honest client wants its answer


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class RealServer:
    """The page and its endpoint, served by app.py of ROOT. descriptors: its limit of open files; environment:
    further variables."""

    def __init__(self, descriptors: int = 0, **environment: str):
        self.folder = Path(tempfile.mkdtemp(prefix="specviz-attack-"))
        self.port = free_port()
        own = {
            "GRADIO_SERVER_PORT": str(self.port),
            "GRADIO_NUM_PORTS": "1",
            "GRADIO_ANALYTICS_ENABLED": "0",
            "HF_HUB_OFFLINE": "1",
            "SPECVIZ_TARGET": TARGET,
            "SPECVIZ_OPENAI_API": "1",
            "SPECVIZ_RUNS": str(self.folder / "runs"),
            "OMP_NUM_THREADS": "1",
        }
        self.log = self.folder / "log"

        def limit() -> None:
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "app.py"],
                cwd=ROOT,
                env=os.environ | own | environment,
                stdout=log,
                stderr=log,
                preexec_fn=limit,
            )
        self.wait()

    def wait(self) -> None:
        """Wait until the page is served and its model is loaded."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                if self.chat(HONEST)[0] == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text()[-2000:])
            time.sleep(0.2)
        raise RuntimeError(self.log.read_text()[-2000:])

    def connect(self, address: str = ATTACKER, timeout: float = 60) -> socket.socket:
        return socket.create_connection(
            ("127.0.0.1", self.port), timeout=timeout, source_address=(address, 0)
        )

    def request(self, method: str, path: str, body=None, address: str = ATTACKER, timeout=120, **headers):
        """Return (status, body, seconds) of a request of an address."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        began = time.monotonic()
        one = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout, source_address=(address, 0))
        try:
            one.request(method, path, data, {"content-type": "application/json", **headers})
            answer = one.getresponse()
            return answer.status, answer.read(), time.monotonic() - began
        finally:
            one.close()

    def chat(self, address: str = ATTACKER, text: str = "hi", timeout: float = 120, **fields):
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0} | fields
        return self.request("POST", "/v1/chat/completions", body, address, timeout)

    def memory(self) -> float:
        """Return the server's resident memory, in MB."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096 / 2**20

    def processor(self) -> float:
        """Return the seconds of processor time that the server has spent."""
        parts = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")

    def children(self) -> list[str]:
        """Return the command lines of the server's child processes."""
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if status.read_text().rpartition(")")[2].split()[1] == str(self.process.pid):
                    found.append(status.with_name("cmdline").read_text().replace("\0", " "))
        return found

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> RealServer:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class HonestClient:
    """Asks for a short answer and a file of the page again and again, from an address of its own, in a thread.
    waits: seconds of each request; work: processor seconds of the server meanwhile, which other processes of the
    machine do not change; failed: statuses and errors other than an answer."""

    def __init__(self, server: RealServer, address: str = HONEST, pause: float = 0.2):
        self.server, self._address, self._pause = server, address, pause
        self.waits: list[float] = []
        self.work: list[float] = []
        self.failed: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        while not self._over.is_set():
            began, worked = time.monotonic(), self.server.processor()
            try:
                status, _, _ = self.server.chat(self._address, f"hi {len(self.waits)}", PATIENCE)
                if status != 200:
                    self.failed.append(str(status))
                self.server.request("GET", "/theme.css", None, self._address, PATIENCE)
            except OSError as error:
                self.failed.append(type(error).__name__)
            self.waits.append(time.monotonic() - began)
            self.work.append(self.server.processor() - worked)
            self._over.wait(self._pause)

    def __enter__(self) -> HonestClient:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join(2 * PATIENCE)

    @property
    def longest(self) -> float:
        return max(self.waits)

    @property
    def usual(self) -> float:
        return sorted(self.waits)[len(self.waits) // 2]

    def __str__(self) -> str:
        failed = f", failed {self.failed[:5]} ({len(self.failed)})" if self.failed else ""
        work = f"server's work {sum(self.work) / len(self.work):.3f} s, most {max(self.work):.2f} s"
        waits = f"median {self.usual:.2f} s, longest {self.longest:.2f} s"
        return f"{len(self.waits)} requests, {waits}, {work}{failed}"


def usual_waits(server: RealServer, seconds: float = 4) -> HonestClient:
    """Return an honest client that was served while nobody attacked."""
    with HonestClient(server) as client:
        time.sleep(seconds)
    return client


def report(name: str, **figures) -> None:
    """Print one line of figures."""
    shown = ", ".join(
        f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}"
        for key, value in figures.items()
    )
    print(f"\n[{name}] {shown}", flush=True)
