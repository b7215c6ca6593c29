"""The real engine behind the page. torch is imported here, inside functions, when somebody first wants a run."""
from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Iterator

from .. import lab
from ..servers.http_client import ServerError
from ..zoo.registry import pinned
from .cards import cards, told
from .choices import fetched, fitting, offered, together_with
from .limits import NO_DRAFT, Ask, Refused, apart, is_fixed, titles
from .server_lanes import is_served, served_cards, together
from .stream import Record, said

LEASE, SPARE = 40.0, 5.0  # seconds for which a lent accelerator is asked to answer one question, and to finish what is begun
TOP = 5  # best tokens of each law that are kept for the inspector


class Engine:
    """``target``, ``draft``: names of models.yaml or local folders, for whoever starts the server; visitors give names only,
    unless SPECVIZ_ALLOW_ANY_MODEL=1 lets them name hub models too (never on a Space). The models that were asked for last are
    kept, ``SPECVIZ_MODELS_KEPT`` of them, the default one always."""

    light = frozenset({"catalogue", "unavailable", *lab.LIGHT})
    questions = light | frozenset(lab.ENGINE)

    def __init__(self, target: str | None = None, draft: str | None = None):
        self._methods = cards()
        self.cards = self._methods | served_cards()
        self._asked = (target, draft)
        self._loaded: dict[str | None, Any] = {}
        self._lock, self._opening = threading.Lock(), threading.Lock()
        if lent():  # there the models must be in place before the first call, and spaces imported before torch
            import spaces  # noqa: F401

            self.load(None)

    def targets(self) -> list[dict[str, str]]:
        """Models that a visitor may choose: {name, model, title, about}, what the server was started with first, its name is "", then
        those that fit into this machine's memory; of the others ``about`` says why they do not, and so does ``large``. Where the
        file that names them is broken it stands alone, and the first run says why."""
        from ..zoo.registry import ZooError, register

        own = Path(self._asked[0]).name if self._asked[0] else ""
        try:
            book = register()
        except ZooError:
            return [{"name": "", "model": own, "title": own or "default", "about": ""}]
        own = own or book.default
        told = [offered(e, own) for e in book.entries.values() if e.role == "target"]
        if all(t["name"] for t in told):
            told.append({"name": "", "model": own, "title": own, "about": ""})
        return sorted(told, key=lambda t: (bool(t["name"]), bool(t.get("large"))))

    def drafts(self, target: str | None = None) -> list[dict[str, str]]:
        """Draft models with the tokenizer of a target of ``targets``: {name, title}. Empty where the file that names them is broken,
        and for a target that is not on this machine: its own draft is then the only one known to fit."""
        return fitting(target or self._asked[0])

    def ready(self, target: str | None) -> bool:
        return target in self._loaded

    def load(self, target: str | None) -> str:
        """One at a time; what is loaded already is described at once, whatever else is loading."""
        loaded = self._loaded.get(target)
        if loaded is None:
            with self._opening, _sentences():
                loaded = self._loaded.get(target) or self._open(target)
        self._keep(target, loaded)
        return _described(loaded)

    def _keep(self, target: str | None, loaded: Any) -> None:
        """The one asked for last stands last; with too many of them, the first but the default one is put away."""
        with self._lock:
            held = {name: one for name, one in self._loaded.items() if name != target} | {target: loaded}
            others = [name for name in held if name is not None]
            away = others[: max(0, len(others) - kept())]
            self._loaded = {name: one for name, one in held.items() if name not in away}
        if away:
            from ..zoo import forget

            forget()

    def _open(self, target: str | None) -> Any:
        from ..zoo import load

        # In a thread that ends with it. Torch starts parallel helpers for every thread that computes, and once there are more of
        # them than cores they no longer wait ready but asleep: where the loading thread lived on, runs were three times slower.
        with ThreadPoolExecutor(1, "specviz-load") as aside:
            given = self._given(target)
            return aside.submit(lambda: _measured(load(*given[0], **given[1], deterministic=is_fixed(target)))).result()

    def _given(self, models: str | None) -> tuple[tuple, dict[str, Any]]:
        """What ``zoo.load`` is given for ``Ask.models``. The owner may have started the server with any folder; a visitor's draft is
        one of ``drafts``. Raises Refused."""
        target, draft = apart(models)
        if draft and draft != NO_DRAFT and draft not in [d["name"] for d in self.drafts(target)]:
            raise Refused(f"There is no draft model {draft[:80]!r} for this target; choose one of the list, or {NO_DRAFT}.")
        if target is None:
            return (self._asked[0], draft or self._asked[1]), {}
        return ((target, draft) if draft else (target,)), {"named_only": not (any_model() and pinned(target))}

    def loaded(self, target: str | None) -> Any:
        """Raises Refused where the model was put away for another one since it was loaded."""
        found = self._loaded.get(target)
        if found is None:
            raise Refused("The model was put away for another one meanwhile: ask once more.")
        return found

    def progress(self, target: str | None) -> str:
        """How much of a hub model, of its draft and of its heads is on this machine already, of about how much."""
        from ..zoo.registry import ZooError, register

        try:
            parts = together_with(register(), *apart(target))
        except ZooError:
            return ""
        here, whole = sum(fetched(e.hub) for e in parts) / 1e6, sum(float(e.memory or 0) for e in parts) * 1e3
        return f"{min(here, whole):,.0f} of about {whole:,.0f} MB ({min(1.0, here / whole):.0%}) here" if whole else ""

    def wants(self, payload: dict[str, Any]) -> str | None:
        return self._known(payload.get("target"))

    def why_not(self, target: str | None = None) -> dict[str, str]:
        from specviz import catalogue

        with _sentences():
            why_not = self.loaded(target).why_not if self.ready(target) else self._survey(target)
        reasons = {key: why_not(method) for key, method in catalogue().items()}
        return {key: why for key, why in reasons.items() if why}

    def _survey(self, target: str | None) -> Callable[[Any], str | None]:
        """The same of models that are not loaded, from their configurations."""
        from ..zoo import survey

        asked, _ = self._given(target)
        return survey(*asked)

    def run(self, ask: Ask, cancel: threading.Event, seconds: float) -> Iterator[list[Record]]:
        need = int(min(seconds, 10 + 0.05 * ask.max_new_tokens * len(ask.lanes) * ask.repeats * ask.prompts))
        return self._use(play, ask.models, ask, seconds, cancel, need)

    def _use(self, work: Callable[..., Iterator[Any]], target: str | None, asked: Any, seconds: float, cancel: threading.Event,
             need: int) -> Iterator[Any]:
        """``work(loaded, asked, seconds, cancel)`` on the models of a target: here, or on an accelerator lent for ``need`` seconds."""
        if not lent():
            with _sentences():
                yield from work(self.loaded(target), asked, seconds, cancel)
            return
        for part in (parts := leased(self._loaded, work, need)(target, asked, seconds)):
            if isinstance(part, Refused):
                raise part
            yield part
            if cancel.is_set():
                parts.close()
                return

    def answer(self, name: str, payload: dict[str, Any], cancel: threading.Event, seconds: float) -> Iterator[Any]:
        if name == "catalogue":
            yield [told(card) for card in self._methods.values()]
        elif name == "unavailable":
            yield self.why_not(None)
        elif name in self.light:
            yield from _plainly(lab.answer(name, payload))
        else:
            target = self.wants(payload)
            limit = min(seconds, LEASE) if lent() else seconds
            yield from self._use(question, target, (name, payload), limit, cancel, int(limit + SPARE))

    def _known(self, target: Any) -> str | None:
        """A model by the name that a recording gives it: the default one too has a name."""
        if not isinstance(target, str) or target == self.targets()[0]["model"]:
            return None
        return target or None


def play(loaded: Any, ask: Ask, seconds: float, cancel: threading.Event | None = None,
         mode: str = "live") -> Iterator[list[Record] | dict[str, str]]:
    """All lanes of one run, an event's records at a time; a status while lanes are measured once more."""
    from ..core import Sampling
    from ..trace.recorder import Recorder
    from ..indexes.earlier_answers import Memory
    from ..run import Session, race
    from ..run.machine import Machine

    machine = Machine(loaded)
    sampling = Sampling(ask.temperature, 0, ask.top_p, ask.seed)
    memory = ask.shelf.setdefault("memory", Memory())  # on a lent accelerator, in a process of its own, it ends with the run
    company = lab.company(ask.prompts - 1)
    sessions = [Session(loaded, key, knobs, sampling, memory, ask.deterministic, ask.predicted, company)
                for key, knobs in ask.lanes if not is_served(key)]
    names = titles(ask.lanes, served_cards() | {session.method.key: session.method for session in sessions})
    recorders = [Recorder(i, None) if is_served(key) else Recorder(i, loaded.token_bytes, loaded.token_bytes.special)
                 for i, (key, _) in enumerate(ask.lanes)]
    again = 0
    local = race(sessions, ask.messages(), ask.max_new_tokens, repeats=ask.repeats, deadline=seconds, cancel=cancel, top_k_saved=TOP)
    for lane, event in together(local, ask, seconds, cancel, mode):
        if is_served(ask.lanes[lane][0]):
            yield recorders[lane].take(event)
            continue
        if event is None:
            again += 1
            yield said("live", f"Measuring once more: {again} of {(ask.repeats - 1) * len(sessions)}, {names[lane]}.")
            continue
        records, checks = recorders[lane].take(event), []
        for record in records:
            if record["type"] == "header":
                record |= {"mode": mode, "env": record["env"] | machine.told(), "method": record["method"] | {"title": names[lane]}}
                checks = machine.begun()
        checks += machine.see(lane, event)
        late = [row for check in checks for row in recorders[lane].take(check)]
        yield records + late


def _measured(loaded: Any) -> Any:
    """A model that has just been loaded, with what a pass costs while nothing else is asked of the machine."""
    from ..run.machine import pass_seconds

    if not lent():  # there, nothing computes outside a call
        loaded.pass_seconds = pass_seconds(loaded)
    return loaded


def question(loaded: Any, asked: tuple[str, dict[str, Any]], seconds: float, cancel: threading.Event | None = None) -> Iterator[Any]:
    """One question of the Lab; it ends soon after the seconds are over."""
    until = time.monotonic() + seconds
    yield from lab.answer(*asked, loaded, lambda: time.monotonic() > until or (cancel is not None and cancel.is_set()))


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


def leased(loaded: dict[str | None, Any], work: Callable[..., Iterator[Any]], need: int) -> Callable[..., Iterator[Any]]:
    """Work as one call on a lent accelerator. It is done in a forked process, which finds the models that were loaded before it
    and is given nothing but plain data; it is ended by closing the generator. A refusal comes back as the last thing told,
    because only the name of an error would."""
    import spaces
    from gradio import Error

    @spaces.GPU(duration=lambda *given: need)
    def on_lease(target: str | None, asked: Any, seconds: float) -> Iterator[Any]:
        try:
            with _sentences():
                yield from work(loaded[target], asked, seconds)
        except Refused as why:
            yield why

    def ask(*given: Any) -> Iterator[Any]:
        try:
            yield from on_lease(*given)
        except Error as why:  # no accelerator to be had: the quota is used up, or the call was ended
            yield Refused(f"{str(why.message).rstrip('.')}. The recorded runs stay playable.")

    return ask


def _plainly(answer: Iterator[Any]) -> Iterator[Any]:
    """What needs no model, without importing what a model needs."""
    try:
        yield from answer
    except lab.LabError as why:
        raise Refused(str(why)) from None


@contextmanager
def _sentences():
    """What the engine refuses in its own words becomes the page's sentence."""
    from ..zoo.registry import ZooError
    from ..run.request import SessionError
    from ..run.result import RunFailed

    try:
        yield
    except (ZooError, SessionError, RunFailed, lab.LabError, ServerError) as why:
        raise Refused(str(why)) from None


def _described(loaded: Any) -> str:
    draft = f" with draft {loaded.draft_name}" if loaded.draft_name else ""
    return f"{loaded.name}{draft} on {loaded.facts['env']['device']}"
