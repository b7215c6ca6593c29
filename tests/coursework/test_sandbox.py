"""A submission runs alone: whatever it tries ends with a sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from specviz.coursework.messages import TEXTS
from specviz.coursework.submission import Submission, SubmissionError

HERE = str(Path(__file__).resolve())
FIRST = ("loop", "memory", "network", "reads_a_file")  # in ``make test``
HOSTILE = {
    "loop": ("def f():\n    while True:\n        pass", "sandbox.time"),
    "memory": ("def f():\n    return len(bytearray(10 * 2**30))", "sandbox.memory"),
    "memory_of_torch": ("import torch\ndef f():\n    return torch.ones(10 * 2**30 // 4)", "sandbox.memory"),
    "network": ("import socket\ndef f():\n    socket.create_connection(('127.0.0.1', 9))", "sandbox.network"),
    "network_in_silence": (
        "import socket\ndef f():\n    try:\n        socket.socket()\n    except OSError:\n        return 1",
        "sandbox.network",
    ),
    "reads_a_file": (f"def f():\n    return open({HERE!r}).read()", "sandbox.file"),
    "imports_the_answer": ("def f():\n    import specviz.verifiers", "sandbox.import"),
    "reads_the_grader": (
        "import os\ndef f():\n    return open(f'/proc/{os.getppid()}/mem', 'rb').read(9)",
        "sandbox.file",
    ),
    "lists_a_folder": ("import os\ndef f():\n    return os.listdir('/home')", "sandbox.file"),
    "other_program": ("import os\ndef f():\n    os.system('true')", "sandbox.program"),
    "fork": ("import os\ndef f():\n    os.fork()", "sandbox.program"),
    "signal": ("import os\ndef f():\n    os.kill(os.getppid(), 9)", "sandbox.process"),
    "writes": ("def f():\n    open('/tmp/specviz-labs', 'w').write('x')", "sandbox.write"),
    "ctypes": ("import ctypes\ndef f():\n    ctypes.CDLL(None).getpid()", "sandbox.ctypes"),
    "ends_itself": ("import os\ndef f():\n    os._exit(0)", "sandbox.ended"),
    "exits": ("def f():\n    raise SystemExit", "sandbox.exception"),
    "no_answer": ("def f():\n    return object()", "sandbox.answer"),
    "syntax": ("def f()\n    pass", "sandbox.exception"),
    "fails": ("def f():\n    return 1 / 0", "sandbox.exception"),
    "no_function": ("g = 1", "sandbox.missing"),
}
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's limits are Linux's")


@linux
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FIRST else pytest.mark.thorough) for n in HOSTILE]
)
def test_a_hostile_submission_ends_with_a_sentence(name):
    source, code = HOSTILE[name]
    with pytest.raises(SubmissionError) as error, Submission(Path("mine.py"), source, 60) as submission:
        submission.call("f", seconds=1.0)
    assert error.value.code == code and error.value.code in TEXTS
    assert "mine.py" in str(error.value) and "\n" not in str(error.value)


@linux
def test_calls_carry_tensors_and_seeded_random_numbers():
    source = "def f(x, rng, d):\n    print('not an answer')\n    return [x * 2, rng.uniform(), rng.pick([0.0, 1.0]), d['a']]\nN = 3"
    with Submission(Path("mine.py"), source, 60) as submission:
        one, other = (
            submission.call("f", torch.tensor([1.5, 2.0]), {"$rng": 5}, {"a": None}) for _ in range(2)
        )
        assert one[0].tolist() == [3.0, 4.0] and one[1:] == other[1:] and one[2:] == [1, None]
        assert submission.constant("N") == 3 and submission.constant("M") is None
        assert {"process", "limits", "audit hook"} <= set(submission.closed)


OPTIMISER = """
import torch

def f(x):
    layer = torch.nn.Linear(4, 4)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(layer(x), torch.tensor([0, 1]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    return losses
"""


@pytest.mark.thorough
@linux
def test_a_submission_that_trains_may_use_an_optimiser():
    with Submission(Path("mine.py"), OPTIMISER, 60, trains=True) as submission:
        first, _, last = submission.call("f", torch.ones(2, 4), seconds=30.0)
    assert last < first


# the same without the audit hook, which Python code may get around
KERNEL = """
import socket
from specviz.coursework import sandbox_process as sandbox

closed = [sandbox.close_files(sandbox.readable_places()), sandbox.close_network_and_programs()]

def refused(action):
    try:
        action()
    except (OSError, PermissionError):
        return True
    return False

import os, threading
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
print(closed, [refused(socket.socket), refused(lambda: open(NAME)), refused(os.fork), refused(lambda: open("/tmp/x-labs", "w")),
    refused(lambda: os.kill(os.getppid(), 0))])
"""


@linux
@pytest.mark.thorough
def test_the_kernel_refuses_where_it_can():
    import subprocess

    code = KERNEL.replace("NAME", repr(HERE))
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout
    if said.startswith("[True, True]"):  # an old kernel has no Landlock
        assert said.strip().endswith("[True, True, True, True, True]")
