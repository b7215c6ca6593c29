"""The process in which a submission runs: ``python -I sandbox_process.py LIMITS``. It imports nothing of specviz.

It reads calls from one pipe and writes answers to another. Before the submission's code is run, the process gives up
what it does not need: memory and processor time beyond the limits, writing of files, network, other programs
(seccomp), files outside Python's own (Landlock). An audit hook refuses the same within Python and gives the reason.
Outside Linux only the limits and the hook remain, which do not stop determined attackers.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import random
import struct
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

MOST = 2**28  # bytes of a frame
KINDS = ("float32", "float64", "int64", "bool")
Value = Any


# --- frames: a JSON header, followed by the raw numbers of the tensors in it --------------------------------------------
def pack(value: Value) -> bytes:
    """Return a frame with a JSON-ready value that may hold tensors. Raises TypeError for anything else."""
    import torch

    blobs: list[bytes] = []

    def plain(item):
        if isinstance(item, torch.Tensor):
            item = item.detach().cpu().contiguous()
            kind = str(item.dtype).removeprefix("torch.")
            if kind not in KINDS:
                raise TypeError(f"a tensor of {kind}")
            blobs.append(item.numpy().tobytes())
            return {"$tensor": len(blobs) - 1, "kind": kind, "shape": list(item.shape)}
        if isinstance(item, dict):
            return {str(key): plain(one) for key, one in item.items()}
        if isinstance(item, (list, tuple)):
            return [plain(one) for one in item]
        if item is None or isinstance(item, (bool, int, float, str)):
            return item
        raise TypeError(type(item).__name__)

    head = json.dumps({"value": plain(value), "sizes": [len(blob) for blob in blobs]}).encode()
    return struct.pack("<I", len(head)) + head + b"".join(blobs)


def unpack(read) -> Value:
    """Return the value of the next frame. read(count): returns so many bytes, or raises EOFError. Raises ValueError
    for a frame that is not one."""
    import torch

    (size,) = struct.unpack("<I", read(4))
    if size > MOST:
        raise ValueError("a frame is too large")
    head = json.loads(read(size))
    sizes = head["sizes"]
    if not all(type(n) is int and n >= 0 for n in sizes) or sum(sizes) > MOST:
        raise ValueError("a frame is too large")
    blobs = [read(n) for n in sizes]

    def rich(item):
        if isinstance(item, dict) and "$tensor" in item:
            if item["kind"] not in KINDS:
                raise ValueError("a tensor of another type")
            data = bytearray(blobs[item["$tensor"]])
            kind = getattr(torch, item["kind"])
            flat = torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)
            return flat.reshape([int(n) for n in item["shape"]])
        if isinstance(item, dict) and "$rng" in item:
            return Rng(item["$rng"])
        if isinstance(item, dict):
            return {key: rich(one) for key, one in item.items()}
        return [rich(one) for one in item] if isinstance(item, list) else item

    return rich(head["value"])


class Rng:
    """The random numbers of one call. seed: of the call."""

    def __init__(self, seed: int):
        self._source = random.Random(seed)

    def uniform(self) -> float:
        """Return a uniform random number in [0, 1)."""
        return self._source.random()

    def flip(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._source.random() < float(probability)

    def pick(self, probs) -> int:
        """Sample an index from a distribution (a list or a tensor of numbers that sum to 1)."""
        weights = [float(p) for p in probs]
        total = sum(weights)
        if not abs(total - 1) < 1e-3 or min(weights) < -1e-9:
            raise ValueError(f"rng.pick takes a distribution; these numbers sum to {total:.4g}")
        left = self._source.random() * total
        for index, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return index
        return max(range(len(weights)), key=weights.__getitem__)


# --- what the process gives up ------------------------------------------------------------------------------------------
class Refused(PermissionError):
    """The submission asked for something that it does not get. code: what for."""

    def __init__(self, code: str, detail: str):
        super().__init__(f"not allowed here: {code} {detail}".strip())
        self.code = code
        self.detail = detail


REFUSED: list[dict[str, str]] = []  # everything that was refused, also where the submission hid the exception
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# numbers of system calls: sockets, other programs, other processes, kernel interfaces
DENIED = {
    "x86_64": (
        41,
        53,
        42,
        49,
        50,
        57,
        58,
        59,
        322,
        62,
        101,
        310,
        311,
        425,
        424,
        434,
        272,
        165,
        321,
        155,
        161,
        200,
    ),
    "aarch64": (
        198,
        199,
        203,
        200,
        201,
        221,
        281,
        129,
        117,
        270,
        271,
        425,
        424,
        434,
        97,
        40,
        280,
        41,
        51,
        130,
    ),
}
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3 = 435
THREAD = 0x10000  # CLONE_THREAD
NO_SUCH_CALL = 38
NOT_PERMITTED = 1


def close_network_and_programs() -> bool:
    """Install a seccomp filter without sockets, other programs and other processes. Return whether it holds."""
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in ARCHITECTURES:
        return False
    load, equal, at_least, has_bits, ret = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill, error = 0x7FFF0000, 0x80000000, 0x00050000
    steps = [(load, 0, 0, 4), (equal, 1, 0, ARCHITECTURES[machine]), (ret, 0, 0, kill), (load, 0, 0, 0)]
    steps += [(at_least, 0, 1, 0x40000000), (ret, 0, 0, error | NOT_PERMITTED)]  # x32 calls
    for number in DENIED[machine]:
        steps += [(equal, 0, 1, number), (ret, 0, 0, error | NOT_PERMITTED)]
    # clone3 hides its flags in memory, and glibc then takes clone
    steps += [(equal, 0, 1, CLONE3), (ret, 0, 0, error | NO_SUCH_CALL)]
    steps += [(equal, 0, 3, CLONE[machine]), (load, 0, 0, 16), (has_bits, 1, 0, THREAD)]
    steps += [(ret, 0, 0, error | NOT_PERMITTED), (ret, 0, 0, allow)]
    code = b"".join(struct.pack("<HBBI", *step) for step in steps)
    program = ctypes.create_string_buffer(code)
    holder = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    word = ctypes.c_ulong
    return libc.prctl(38, word(1), word(0), word(0), word(0)) == 0 and libc.prctl(22, word(2), holder) == 0


def close_files(allowed: list[str]) -> bool:
    """Let the process read files below these paths only, and write none (Landlock). Return whether it holds."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    create, add, restrict = 444, 445, 446
    version = libc.syscall(create, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    if version < 1:
        return False
    bits = {1: 13, 2: 14}.get(version, 15 if version < 5 else 16)
    attributes = struct.pack("<Q", (1 << bits) - 1)
    rules = libc.syscall(create, attributes, ctypes.c_size_t(8), ctypes.c_uint(0))
    if rules < 0:
        return False
    for path in allowed:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rights = 0b1101 if Path(path).is_dir() else 0b101  # execute (map), read file, read folder
        libc.syscall(add, rules, 1, struct.pack("<Qi", rights, place), ctypes.c_uint(0))
        os.close(place)
    libc.prctl(38, *(ctypes.c_ulong(n) for n in (1, 0, 0, 0)))
    held = libc.syscall(restrict, rules, ctypes.c_uint(0)) == 0
    os.close(rules)
    return held


def readable_places() -> list[str]:
    """Return the files and folders of Python and its packages, without those of specviz."""
    import sysconfig

    places = ["/dev/null", "/dev/urandom", "/dev/random", "/etc/localtime", "/usr/share/zoneinfo"]
    paths = sysconfig.get_paths()
    packages = {Path(paths["purelib"]), Path(paths["platlib"])}
    for folder in ("stdlib", "platstdlib"):
        places += [
            str(one)
            for one in Path(paths[folder]).iterdir()
            if one.name not in ("site-packages", "dist-packages")
        ]
    for folder in packages:
        places += [str(one) for one in folder.iterdir() if "specviz" not in one.name.lower()]
    return (
        places
        + ["/lib", "/lib64", "/usr/lib", "/usr/local/lib"][: 0 if any("/usr" in p for p in paths) else 4]
    )


def limit(memory: int, seconds: int) -> bool:
    """Limit memory (bytes beyond what is in use), processor time, and the size of files to nothing."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    used = 0
    status = Path("/proc/self/status")
    if status.exists():
        sizes = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        used = int(sizes["VmSize"].split()[0]) * 1024
    for kind, most in (
        (resource.RLIMIT_AS, used + memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        try:
            resource.setrlimit(kind, (most, most))
        except (ValueError, OSError):  # macOS does not limit addresses
            continue
    return True


def add_hook(readable: list[str], name: str) -> None:
    """Refuse in Python what the kernel refuses, and say why. name: of the submission's file, which Python looks for in
    an empty place when it reports a syntax error."""
    roots = [os.path.realpath(place) for place in readable]

    def refuse(code: str, detail: object = "") -> None:
        detail = str(detail)[:120]
        REFUSED.append({"code": code, "detail": detail})
        raise Refused(code, detail)

    def hook(event: str, args: tuple) -> None:
        if event.startswith("socket."):
            refuse("network", args[1] if event == "socket.connect" else "")
        elif event in (
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.fork",
            "os.forkpty",
            "os.posix_spawn",
            "pty.spawn",
        ):
            refuse("program")
        elif event in ("os.kill", "signal.pthread_kill"):
            refuse("process")
        elif event.startswith("ctypes.") and event in (
            "ctypes.dlopen",
            "ctypes.dlsym",
            "ctypes.call_function",
        ):
            refuse("ctypes")
        elif event == "import" and str(args[0]).partition(".")[0] == "specviz":
            refuse("import", args[0])
        elif event == "open" and isinstance(args[0], (str, bytes)) and args[0] != name:
            _check_open(args, roots, refuse)
        elif (
            event in ("os.listdir", "os.scandir") and isinstance(args[0], str) and not _below(args[0], roots)
        ):
            refuse("file", args[0])
        elif event in (
            "os.remove",
            "os.rename",
            "os.mkdir",
            "os.rmdir",
            "os.link",
            "os.symlink",
            "os.truncate",
        ):
            refuse("write", args[0])

    sys.addaudithook(hook)


def _check_open(args: tuple, roots: list[str], refuse) -> None:
    path, mode, flags = args
    path = os.fsdecode(path)
    if (isinstance(mode, str) and any(c in mode for c in "wax+")) or (isinstance(flags, int) and flags & 3):
        if path != os.devnull:
            refuse("write", path)
    elif not _below(path, roots):
        refuse("file", path)


def _below(path: str, roots: list[str]) -> bool:
    real = os.path.realpath(path)
    return any(real == root or real.startswith(root + os.sep) for root in roots) or real in (
        "/proc/cpuinfo",
        os.devnull,
    )


# --- calls --------------------------------------------------------------------------------------------------------------
def failure(error: BaseException, name: str) -> dict:
    """Return an exception as {error, type, message, line}; line: the last one in the submission."""
    frames = traceback.walk_tb(error.__traceback__)  # extract_tb would read the files
    lines = [line for frame, line in frames if frame.f_code.co_filename == name]
    line = (
        error.lineno if isinstance(error, SyntaxError) and error.filename == name else (lines or [None])[-1]
    )
    short = " ".join(str(error).split())[:300]
    memory = isinstance(error, MemoryError) or "allocate memory" in short or "alloc_cpu" in short
    code = "memory" if memory else "refused" if isinstance(error, Refused) else "exception"
    return {"error": code, "type": type(error).__name__, "message": short, "line": line}


def serve(read, write, name: str) -> None:
    """Answer calls until the pipe is closed. name: of the submission's file, in messages."""
    module = ModuleType("submission")
    sys.modules["submission"] = module
    while True:
        try:
            call = unpack(read)
        except EOFError:
            return
        try:
            if "source" in call:
                exec(compile(call["source"], name, "exec"), module.__dict__)
                answer = {"value": sorted(key for key, one in vars(module).items() if callable(one))}
            elif "constant" in call:
                answer = {"value": getattr(module, call["constant"], None)}
            else:
                function = getattr(module, call["call"], None)
                if not callable(function):
                    answer = {"error": "missing", "message": call["call"], "type": "", "line": None}
                else:
                    answer = {"value": function(*call["args"])}
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit, too: a submission does not end its process
            answer = failure(error, name)
        try:
            frame = pack({**answer, "refused": list(REFUSED)})
        except BaseException as error:
            frame = pack(
                {
                    "error": "answer",
                    "type": "",
                    "message": str(error)[:100],
                    "line": None,
                    "refused": list(REFUSED),
                }
            )
        write(frame)


def main() -> None:
    """Read the limits from the command line, give up the rest, and serve."""
    limits = json.loads(sys.argv[1])
    incoming, outgoing = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what the submission prints is not an answer
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    import torch
    import torch.nn.functional

    torch.set_num_threads(int(limits["threads"]))
    torch.ones(4, 4) @ torch.ones(4, 4)  # threads and libraries are opened now
    if limits.get("trains"):  # torch makes a folder for its compiler with the first optimiser
        weight = torch.nn.Parameter(torch.ones(2))
        weight.sum().backward()
        torch.optim.AdamW([weight]).step()
    readable = readable_places()
    closed = ["process"]
    if limit(int(limits["memory"]), int(limits["processor_seconds"])):
        closed.append("limits")
    if close_files(readable):
        closed.append("landlock")
    if close_network_and_programs():
        closed.append("seccomp")
    add_hook(readable, limits["name"])
    closed.append("audit hook")

    def read(count: int) -> bytes:
        parts = []
        while count:
            part = os.read(incoming, min(count, 2**20))
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(outgoing, view) :]

    write(pack({"value": closed, "refused": []}))
    serve(read, write, limits["name"])


if __name__ == "__main__":
    main()
