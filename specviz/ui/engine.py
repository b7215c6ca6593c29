"""The real engine behind the page. torch is imported here, inside functions, when somebody first wants a run."""
from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Iterator

from .. import lab
from .cards import cards, told
from .limits import Ask, Refused
from .stream import Record, said

TOP = 5  # best tokens of each law that are kept for the inspector


class Engine:
    """``target``, ``draft``: names of models.yaml or local folders, for whoever starts the server; visitors give names only,
    unless SPECVIZ_ALLOW_ANY_MODEL=1 lets them name hub models too (never on a Space). The models that were asked for last are
    kept, ``SPECVIZ_MODELS_KEPT`` of them, the default one always."""

    questions = frozenset({"catalogue", *lab.ENGINE, *lab.LIGHT})
    light = frozenset({"catalogue", *lab.LIGHT})

    def __init__(self, target: str | None = None, draft: str | None = None):
        self.cards = cards()
        self._asked = (target, draft)
        self._loaded: dict[str | None, Any] = {}
        self._lock = threading.Lock()
        if lent():  # there the models must be in place before the first call, and spaces imported before torch
            import spaces  # noqa: F401

            self.load(None)

    def targets(self) -> list[dict[str, str]]:
        """Models that a visitor may choose: {name, model, title, about}, what the server was started with first; its name is "".
        Where the file that names them is broken it stands alone, and the first run says why."""
        from ..names import ZooError, register

        own = Path(self._asked[0]).name if self._asked[0] else ""
        try:
            book = register()
        except ZooError:
            return [{"name": "", "model": own, "title": own or "default", "about": ""}]
        own = own or book.default
        told = [{"name": "" if e.name == own else e.name, "model": e.name, "title": f"{e.name}, {e.size}" if e.size else e.name,
                 "about": e.about + (" Fetched from the hub when first used." if e.hub else "")}
                for e in book.entries.values() if e.role == "target"]
        if all(t["name"] for t in told):
            told.append({"name": "", "model": own, "title": own, "about": ""})
        return sorted(told, key=lambda t: bool(t["name"]))

    def ready(self, target: str | None) -> bool:
        return target in self._loaded

    def load(self, target: str | None) -> str:
        with self._lock, _sentences():
            loaded = self._loaded.pop(target, None) or self._open(target)
            self._loaded[target] = loaded  # the one asked for last stands last
            others = [name for name in self._loaded if name is not None]
            if len(others) > kept():
                from ..zoo import forget

                del self._loaded[others[0]]
                forget()
        return _described(loaded)

    def _open(self, target: str | None) -> Any:
        from ..zoo import load

        return load(*self._asked) if target is None else load(target, named_only=not any_model())

    def loaded(self, target: str | None) -> Any:
        return self._loaded[target]

    def why_not(self, target: str | None = None) -> dict[str, str]:
        from specviz import catalogue

        loaded = self._loaded[target]
        reasons = {key: loaded.why_not(method) for key, method in catalogue().items()}
        return {key: why for key, why in reasons.items() if why}

    def run(self, ask: Ask, cancel: threading.Event, seconds: float) -> Iterator[list[Record]]:
        with _sentences():
            if not lent():
                yield from play(self._loaded[ask.target], ask, seconds, cancel)
                return
            rounds = leased(self._loaded)(ask, seconds)
            for batch in rounds:
                yield batch
                if cancel.is_set():
                    rounds.close()
                    return


    def answer(self, name: str, payload: dict[str, Any], cancel: threading.Event, seconds: float) -> Iterator[Any]:
        if name == "catalogue":
            yield [told(card) for card in self.cards.values()]
        elif name in self.light:
            yield from _plainly(lab.answer(name, payload))
        else:
            target = self._known(payload.get("target"))
            if not self.ready(target):
                yield "Loading the models."
                self.load(target)
            until = time.monotonic() + seconds
            with _sentences():
                yield from lab.answer(name, payload, self._loaded[target], lambda: cancel.is_set() or time.monotonic() > until)


    def _known(self, target: Any) -> str | None:
        """A model by the name that a recording gives it: the default one too has a name."""
        if not isinstance(target, str) or target == self.targets()[0]["model"]:
            return None
        return target or None


def play(loaded: Any, ask: Ask, seconds: float, cancel: threading.Event | None = None,
         mode: str = "live") -> Iterator[list[Record] | dict[str, str]]:
    """All lanes of one run, an event's records at a time; a status while lanes are measured once more."""
    from ..core import Sampling
    from ..core.record import Recorder
    from ..drafters.memory import Memory
    from ..session import Session, race

    sampling = Sampling(ask.temperature, 0, ask.top_p, ask.seed)
    memory = ask.shelf.setdefault("memory", Memory())  # on a lent accelerator, in a process of its own, it ends with the run
    sessions = [Session(loaded, key, knobs, sampling, memory) for key, knobs in ask.lanes]
    recorders = [Recorder(i, loaded.token_bytes, loaded.token_bytes.special) for i in range(len(sessions))]
    again = 0
    for lane, event in race(sessions, ask.messages(), ask.max_new_tokens, repeats=ask.repeats, deadline=seconds, cancel=cancel,
                            top_k_saved=TOP):
        if event is None:
            again += 1
            yield said("live", f"Measuring once more: {again} of {(ask.repeats - 1) * len(sessions)}, {sessions[lane].method.title}.")
            continue
        records = recorders[lane].take(event)
        for record in records:
            if record["type"] == "header":
                record["mode"] = mode
        yield records


def any_model() -> bool:
    """Whether a visitor may name any model of the hub: where the owner says so, and never on a Space."""
    return os.environ.get("SPECVIZ_ALLOW_ANY_MODEL") == "1" and not os.environ.get("SPACE_ID")


def kept() -> int:
    """How many chosen models stay in memory beside the default one."""
    asked = os.environ.get("SPECVIZ_MODELS_KEPT", "1")
    return max(1, int(asked)) if asked.isdigit() else 1


def lent() -> bool:
    """Whether this machine lends its accelerator by the call (a ZeroGPU Space)."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "true") and find_spec("spaces") is not None


def leased(loaded: dict[str | None, Any]) -> Callable[[Ask, float], Iterator[list[Record]]]:
    """The whole run as one call on a lent accelerator. It is played in a forked process, which finds the models that were
    loaded before it and is given nothing but plain data; it is ended by closing the generator."""
    import spaces

    @spaces.GPU(duration=lambda ask, seconds: int(min(seconds, 10 + 0.05 * ask.max_new_tokens * len(ask.lanes))))
    def on_lease(ask: Ask, seconds: float) -> Iterator[list[Record]]:
        yield from play(loaded[ask.target], ask, seconds)

    return on_lease


def _plainly(answer: Iterator[Any]) -> Iterator[Any]:
    """What needs no model, without importing what a model needs."""
    try:
        yield from answer
    except lab.LabError as why:
        raise Refused(str(why)) from None


@contextmanager
def _sentences():
    """What the engine refuses in its own words becomes the page's sentence."""
    from ..names import ZooError
    from ..request import SessionError
    from ..results import RunFailed

    try:
        yield
    except (ZooError, SessionError, RunFailed, lab.LabError) as why:
        raise Refused(str(why)) from None


def _described(loaded: Any) -> str:
    draft = f" with draft {loaded.draft_name}" if loaded.draft_name else ""
    return f"{loaded.name}{draft} on {loaded.facts['env']['device']}"
