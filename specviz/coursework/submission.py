"""Run a student's submission in a process of its own (sandbox_process.py), and call its functions.

The submission's code never runs in this process, and nothing that it returns is executed: answers are JSON and raw
numbers."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import sandbox_process
from .messages import TEXTS

MEMORY = 2 * 2**30  # bytes that a submission may take, beyond Python and torch
START = 60.0  # seconds in which the process must have started
CALL = 10.0  # seconds of processor time of one call
PATIENCE = 12  # wall-clock seconds for each of these, since the machine may be busy
LOOK = 0.5  # seconds between two looks at the processor time


class SubmissionError(RuntimeError):
    """A submission that cannot be graded further: it failed, took too long, or asked for what it does not get. code:
    an identifier of messages.TEXTS."""

    def __init__(self, code: str, **values: Any):
        super().__init__(TEXTS[code].format(**values))
        self.code = code


class Submission:
    """A submission in its own process, as a context manager. path: of the file, for messages; source: its code;
    seconds: processor time of the whole check; threads: of torch; trains: whether it uses an optimiser; closed: what the process gave up.
    Raises SubmissionError."""

    def __init__(
        self,
        path: Path,
        source: str,
        seconds: float = 300.0,
        threads: int = 1,
        memory: int = MEMORY,
        trains: bool = False,
    ):
        self.name = path.name
        self._until = time.monotonic() + PATIENCE * seconds
        self._seconds = seconds
        limits = {
            "memory": memory,
            "processor_seconds": int(seconds * threads) + 30,
            "threads": threads,
            "name": self.name,
            "trains": trains,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", sandbox_process.__file__, json.dumps(limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                "OMP_NUM_THREADS": str(threads),
                "PATH": os.defpath,
                "HOME": "/nonexistent",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            cwd="/" if os.name == "posix" else None,
            start_new_session=True,
        )
        try:
            self.closed: list[str] = self._answer(START)
            self.functions: list[str] = self._ask({"source": source}, CALL)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Submission:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def call(self, function: str, *args: Any, seconds: float = CALL) -> Any:
        """Call a function of the submission; arguments and result are plain data and tensors; {"$rng": seed} becomes
        a random generator. Raises SubmissionError."""
        return self._ask({"call": function, "args": list(args)}, seconds)

    def constant(self, name: str) -> Any:
        """Return a constant of the submission, None if there is none."""
        return self._ask({"constant": name}, CALL)

    def _ask(self, message: dict[str, Any], seconds: float) -> Any:
        try:
            stdin = self._process.stdin
            assert stdin is not None
            stdin.write(sandbox_process.pack(message))
            stdin.flush()
        except (BrokenPipeError, OSError):
            raise self._ended() from None
        return self._answer(seconds)

    def _answer(self, seconds: float) -> Any:
        until = min(self._until, time.monotonic() + PATIENCE * seconds)
        used = self._processor_seconds() + seconds
        try:
            answer = sandbox_process.unpack(lambda count: self._read(count, until, used, seconds))
        except EOFError:
            raise self._ended() from None
        except (ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
            if isinstance(error, SubmissionError):
                raise
            raise SubmissionError("sandbox.answer", name=self.name, why="not an answer") from None
        if not isinstance(answer, dict) or not isinstance(answer.get("refused"), list):
            raise SubmissionError("sandbox.answer", name=self.name, why="not an answer")
        if answer["refused"]:
            first = answer["refused"][0]
            code = f"sandbox.{first['code']}"
            raise SubmissionError(
                code if code in TEXTS else "sandbox.file", name=self.name, detail=str(first["detail"])[:120]
            )
        if "error" in answer:
            raise self._failed(answer)
        return answer.get("value")

    def _failed(self, answer: dict[str, Any]) -> SubmissionError:
        where = "" if answer.get("line") is None else f", line {answer['line']}"
        if answer["error"] == "memory":
            return SubmissionError("sandbox.memory", name=self.name, where=where)
        if answer["error"] == "missing":
            return SubmissionError("sandbox.missing", name=self.name, function=str(answer["message"])[:60])
        if answer["error"] == "answer":
            return SubmissionError("sandbox.answer", name=self.name, why=str(answer["message"])[:60])
        return SubmissionError(
            "sandbox.exception",
            name=self.name,
            where=where,
            kind=str(answer["type"])[:60],
            message=str(answer["message"])[:300],
        )

    def _processor_seconds(self) -> float:
        """Return the processor time of the process so far; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _read(self, count: int, until: float, used: float, seconds: float) -> bytes:
        assert self._process.stdout is not None and self._process.stderr is not None
        out, printed = self._process.stdout.fileno(), self._process.stderr.fileno()
        parts: list[bytes] = []
        watched = [out, printed]
        while count:
            left = until - time.monotonic()
            ready = select.select(watched, [], [], min(LOOK, left))[0] if left > 0 else []
            if not ready and left > 0 and self._processor_seconds() < used:
                continue
            if not ready:
                self._process.kill()
                raise SubmissionError(
                    "sandbox.time", name=self.name, seconds=f"{min(seconds, self._seconds):g}"
                )
            if printed in ready and not os.read(
                printed, 2**16
            ):  # read, so that its pipe is never full; not kept
                watched.remove(printed)
            if out in ready:
                part = os.read(out, min(count, 2**20))
                if not part:
                    raise EOFError
                parts.append(part)
                count -= len(part)
        return b"".join(parts)

    def _ended(self) -> SubmissionError:
        self._process.wait(5)
        return SubmissionError("sandbox.ended", name=self.name, status=self._process.returncode)


class TrustedCode:
    """Code that runs in this process, for measurements of the grader on its own examples: same methods as
    Submission. Never for a submission."""

    closed: list[str] = []

    def __init__(self, source: str, name: str = "example.py"):
        self.name = name
        self._names: dict[str, Any] = {"__name__": "example"}
        exec(compile(source, name, "exec"), self._names)

    def call(self, function: str, *args: Any, seconds: float = 0.0) -> Any:
        """Call a function of the code."""
        return self._names[function](
            *(
                sandbox_process.Rng(one["$rng"]) if isinstance(one, dict) and "$rng" in one else one
                for one in args
            )
        )

    def constant(self, name: str) -> Any:
        """Return a constant of the code, None if there is none."""
        return self._names.get(name)
