"""Writers that are killed at each of their steps on the disc, in processes of their own: ``python -m
tests.attack.kills FOLDER``.

A process that forks must not have computed before, so all of it happens beside the tests. Says how many
places there were.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path

from specviz.trace.files import Trace
from specviz.training import runner as runs

from ..training.test_runner import trial
from ..viewer import sample

STEPS = ("open", "os.rename", "os.remove", "os.chmod", "os.truncate")
TEN = 10


def apart(work, place: int = 0, size: int = 0) -> tuple[int, int]:
    """``work()`` in a process that is killed before its step number ``place`` on the disc, or while it
    writes byte ``size`` of a file. The signal that ended it, and how many steps it saw."""
    child = os.fork()
    if not child:
        seen = 0

        def step(event, args):
            nonlocal seen
            if event in STEPS and args and str(FOLDER) in str(args[0]):
                seen += 1
                os.pwrite(tally, str(seen).encode(), 0)
                if seen == place:
                    os.kill(os.getpid(), signal.SIGKILL)

        tally = os.open(FOLDER.parent / "seen", os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        sys.addaudithook(step)
        if size:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        work()
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    return (os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else -os.WEXITSTATUS(ended)), int(
        (FOLDER.parent / "seen").read_text() or 0
    )


def traces() -> int:
    """Whoever reads afterwards finds the old trace or the new one, and the next one can be saved."""
    old, new = Trace(sample.race(("plain",), tokens=3)), Trace(sample.race(("plain", "tree"), tokens=9))
    places = 0
    for path in (FOLDER / "t.jsonl", FOLDER / "t.jsonl.gz"):
        write = partial(new.save, path)
        old.save(path)
        ended, steps = apart(write)
        assert not ended and steps >= 3 and Trace.load(path).records == new.records
        for kill in [
            *({"place": i} for i in range(1, steps + 1)),
            *({"size": size} for size in (1, 400, 1000)),
        ]:
            old.save(path)
            ended, _ = apart(write, **kill)
            assert ended in (signal.SIGKILL, signal.SIGXFSZ), (kill, ended)
            assert Trace.load(path).records in (old.records, new.records), kill
            new.save(path)
            assert Trace.load(path).records == new.records
            places += 1
    return places


def trained() -> str:
    """The weights that a run ends at, taken up where the last one was killed; every step is kept."""
    runs.KEPT = -1.0
    runner, net, loss_at = trial(FOLDER / "run", 6)
    runner.train(loss_at)
    return hashlib.sha256(
        b"".join(t.detach().numpy().tobytes() for t in net.state_dict().values())
    ).hexdigest()


def training() -> int:
    """A run that was killed in any of ten places ends at the same weights as one that was not."""

    def told():
        (FOLDER / "end").write_text(trained())

    def anew():
        for path in sorted((FOLDER / "run").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    ended, steps = apart(told)
    assert not ended and steps > TEN
    whole = (FOLDER / "end").read_text()
    for i in range(TEN):
        anew()
        (FOLDER / "end").unlink()
        assert apart(told, place=1 + i * (steps - 2) // TEN)[0] == signal.SIGKILL
        assert apart(told)[0] == 0 and (FOLDER / "end").read_text() == whole, i
    return TEN


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    print(json.dumps({"traces": traces(), "training": training()}))
