"""The engine behind the page. torch is imported inside functions, on the first run."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import lab
from ..servers.messages import ServerError
from ..zoo.registry import is_pinned
from .cards import card_data, cards
from .choices import bytes_fetched, fetched_together, fitting_drafts, target_choice
from .fetching import fetch, may_fetch, to_fetch
from .limits import NO_DRAFT, RunRequest, has_fixed_layout, lane_titles, split_model_key
from .messages import Refused, shorten, text
from .server_lanes import is_served, served_cards, with_server_lanes
from .stream import Record, status_of
from .zero_gpu import on_zero_gpu, time_limit

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

LEASE = 40.0  # seconds of ZeroGPU requested for one question
SPARE = 5.0  # seconds in addition, to finish a started one
KEPT_ANSWERS = 64
KEPT_SHARING = 256  # methods with knobs of past requests
FRESH = 5.0  # seconds for which what models.yaml and the free memory offer is not computed again
CONVERSATIONS = 8  # whose KV caches are kept, a lane of the page each
TOP = 5  # best tokens of each distribution that are kept for the inspector


class Engine:
    """The engine behind the page (see backend.Backend): loads models and runs the lanes of a request,
    methods side by side.

    ``target``, ``draft``: names of models.yaml or checkpoint folders, chosen by the owner of the server.
    Visitors choose among the names of models.yaml; with SPECVIZ_ALLOW_ANY_MODEL=1 they may name hub models,
    too (never on a Space). The ``SPECVIZ_MODELS_KEPT`` most recently used models stay loaded, and the
    default one always."""

    light = frozenset({"catalogue", "unavailable", *lab.LIGHT})
    questions = light | frozenset(lab.ENGINE)

    def __init__(self, target: str | None = None, draft: str | None = None):
        self._methods = cards()
        self.cards = self._methods | served_cards()
        self._asked = (target, draft)
        self._loaded: dict[str | None, Loaded] = {}
        self._kept: dict[tuple, tuple[float, Any]] = {}  # see _fresh
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._batchable: dict[tuple[str | None, str, str], str] = {}  # methods with knobs of past requests
        self._together: Any = None  # BatchedGeneration
        self._caches: Any = None  # PrefixPool
        if (
            on_zero_gpu()
        ):  # there the models must be loaded before the first call, and spaces imported before torch
            import spaces  # noqa: F401

            self.load(None)

    def _fresh(self, name: tuple, compute: Callable[[], Any]) -> Any:
        """Return ``compute()``, or what it returned less than FRESH seconds ago under the same name."""
        kept, now = self._kept.get(name), time.monotonic()
        if kept is None or now - kept[0] > FRESH:
            if len(self._kept) > KEPT_ANSWERS:
                self._kept.clear()
            kept = self._kept[name] = now, compute()
        return kept[1]

    def targets(self) -> list[dict[str, str]]:
        """Return the models that a visitor may choose: {name, model, title, about}.

        The first is the one the server was started with (its name is ""), then those that fit into memory.
        For the others, ``about`` and ``large`` say why they do not fit. If models.yaml is invalid, only the
        first is returned, and the first run reports the error."""
        return self._fresh(("targets",), self._find_targets)

    def _find_targets(self) -> list[dict[str, str]]:
        from ..zoo.registry import ZooError, register

        own = Path(self._asked[0]).name if self._asked[0] else ""
        try:
            book = register()
        except ZooError:
            return [{"name": "", "model": own, "title": own or "default", "about": ""}]
        own = own or book.default
        offers = [target_choice(e, own) for e in book.entries.values() if e.role == "target"]
        if all(t["name"] for t in offers):
            offers.append({"name": "", "model": own, "title": own, "about": ""})
        return sorted(offers, key=lambda t: (bool(t["name"]), bool(t.get("large"))))

    def drafts(self, target: str | None = None) -> list[dict[str, str]]:
        """Return the draft models with the same tokenizer as a target of ``targets``: {name, title}. Empty
        if models.yaml is invalid, or if the target is not on this machine, because then only its own draft
        is known to fit."""
        return fitting_drafts(target or self._asked[0])

    def ready(self, target: str | None) -> bool:
        return target in self._loaded

    def load(self, target: str | None) -> str:
        """Load a target and its draft model; return a short description. One request loads at a time; if
        the models are loaded, only the description is returned."""
        loaded = self._loaded.get(target)
        if loaded is None:
            with self._opening, engine_errors_refused():
                loaded = self._loaded.get(target) or self._open(target)
        self._keep(target, loaded)
        return _description(loaded)

    def _keep(self, target: str | None, loaded: Loaded) -> None:
        """Keep models in order of use; with too many of them, unload the least recently used one but never
        the default."""
        with self._lock:
            held = {name: one for name, one in self._loaded.items() if name != target} | {target: loaded}
            others = [name for name in held if name is not None]
            unload = others[: max(0, len(others) - models_kept())]
            self._loaded = {name: one for name, one in held.items() if name not in unload}
            if self._together and self._together.loaded not in self._loaded.values():
                self._together = None
            caches = self._caches
        if unload:
            from ..zoo import forget

            if caches:
                caches.close()  # they would keep the models in memory
            forget()

    def _open(self, target: str | None) -> Any:
        from ..zoo import load

        # In a thread of its own that ends afterwards. Torch starts parallel workers for every thread that
        # computes; while the loading thread stayed alive there were more of them than cores, and runs were
        # three times slower.
        with ThreadPoolExecutor(1, "specviz-load") as thread:
            given = self._load_arguments(target)
            return thread.submit(
                lambda: _with_pass_seconds(
                    load(*given[0], **given[1], deterministic=has_fixed_layout(target))
                )
            ).result()

    def _load_arguments(self, models: str | None) -> tuple[tuple, dict[str, Any]]:
        """Return the arguments of ``zoo.load`` for ``RunRequest.models``. The owner may have started the
        server with any folder; a visitor's draft is one of ``drafts``. Raises Refused."""
        target, draft = split_model_key(models)
        if draft and draft != NO_DRAFT and draft not in [d["name"] for d in self.drafts(target)]:
            raise Refused("field.draft", name=shorten(draft, 80))
        if target is None:
            return (self._asked[0], draft or self._asked[1]), {}
        return ((target, draft) if draft else (target,)), {
            "named_only": not (any_model() and is_pinned(target))
        }

    def fetches(self, target: str | None) -> bool:
        """Return whether loading has to fetch weights first. Raises Refused where visitors may not have that
        done; the owner's own target is fetched in any case."""
        from ..zoo.registry import ZooError, register

        if target is None or self.ready(target):
            return False
        try:
            missing = to_fetch(register(), *self._names_of(target))
        except ZooError:  # loading reports it
            return False
        if missing and not may_fetch():
            raise Refused("models.fetch_off")
        return bool(missing)

    def fetch(self, target: str | None, stop: threading.Event) -> None:
        """Fetch the weights of a target and what is loaded with it, until ``stop`` is set. Raises Refused."""
        from ..zoo.registry import register

        with engine_errors_refused():
            (asked, *_), options = self._load_arguments(target)
            register().find(asked, options.get("named_only", False))
        fetch(to_fetch(register(), *self._names_of(target)), stop)

    def _names_of(self, target: str | None) -> tuple[str | None, str | None]:
        name, draft = split_model_key(target)
        return name or self._asked[0], draft

    def loaded(self, target: str | None) -> Loaded:
        """Return the loaded models. Raises Refused if they were unloaded meanwhile."""
        found = self._loaded.get(target)
        if found is None:
            raise Refused("models.unloaded")
        return found

    def progress(self, target: str | None) -> str:
        """Return, in words, how much of a hub model, its draft model and its heads is downloaded, or how far
        the first compilation of the kernels is; empty if unknown."""
        from ..kernels.progress import PROGRESS
        from ..zoo.registry import ZooError, register

        compiled = PROGRESS.share()
        if compiled is not None:
            return text("models.compiling", share=compiled)

        try:
            parts = fetched_together(register(), *split_model_key(target))
        except ZooError:
            return ""
        here, whole = (
            sum(bytes_fetched(e.hub) for e in parts) / 1e6,
            sum(float(e.memory or 0) for e in parts) * 1e3,
        )
        return (
            text("models.progress", here=min(here, whole), whole=whole, share=min(1.0, here / whole))
            if whole
            else ""
        )

    def wants(self, payload: dict[str, Any]) -> str | None:
        return self._target_of(payload.get("target"))

    def unsupported_reason(self, target: str | None = None) -> dict[str, str]:
        loaded = id(self._loaded.get(target))  # another one may run other methods
        return self._fresh(("unsupported", target, loaded), lambda: self._find_unsupported(target))

    def _find_unsupported(self, target: str | None) -> dict[str, str]:
        from .. import catalogue

        with engine_errors_refused():
            unsupported_reason = (
                self.loaded(target).unsupported_reason if self.ready(target) else self._survey(target)
            )
        reasons = {key: unsupported_reason(method) for key, method in catalogue().items()}
        return {key: why for key, why in reasons.items() if why}

    def knob_limits(self, key: str, target: str | None = None) -> dict[str, float]:
        """Return the highest value of each knob of a method that the models limit; empty if unknown."""
        from .. import ZooError, catalogue

        method = catalogue().get(key)
        if method is None or not any(knob.needs for knob in method.knobs):
            return {}
        try:
            return (self.loaded(target) if self.ready(target) else self._survey(target)).knob_limits(method)
        except (ZooError, Refused):
            return {}

    def _survey(self, target: str | None) -> Any:
        """Return ``unsupported_reason`` and ``knob_limits`` of models that are not loaded, from their
        configurations."""
        from ..zoo import survey

        asked, _ = self._load_arguments(target)
        return survey(*asked)

    def run(self, asked: RunRequest, cancel: threading.Event, seconds: float) -> Iterator[list[Record]]:
        lease = int(
            min(
                seconds,
                10
                + 0.05
                * asked.max_new_tokens
                * len(asked.lanes)
                * asked.repeats
                * asked.prompts
                * asked.answers,
            )
        )
        work = run_lanes if on_zero_gpu() else partial(run_lanes, caches=self._conversations())
        return self._use(work, asked.models, asked, seconds, cancel, lease)

    def _use(
        self,
        work: Callable[..., Iterator[Any]],
        target: str | None,
        asked: Any,
        seconds: float,
        cancel: threading.Event,
        lease: int,
    ) -> Iterator[Any]:
        """Run ``work(loaded, asked, seconds, cancel)`` on the models of a target: here, or on an
        accelerator attached for ``lease`` seconds."""
        if not on_zero_gpu():
            with engine_errors_refused():
                yield from work(self.loaded(target), asked, seconds, cancel)
            return
        for part in (parts := leased_call(self._loaded, work, lease)(target, asked, seconds)):
            if isinstance(part, Refused):
                raise part
            yield part
            if cancel.is_set():
                parts.close()
                return

    def generate(
        self, target: str | None, asked: Any, cancel: threading.Event, seconds: float
    ) -> Iterator[Any]:
        """Answer a request of the OpenAI-compatible endpoint: see generation.generate."""
        from .generation import generate

        if on_zero_gpu() or not self.batch_name(target, asked):
            if not on_zero_gpu():
                with engine_errors_refused():
                    self._learn_sharing(target, asked)
            work: Callable[..., Iterator[Any]] = partial(
                generate, caches=None if on_zero_gpu() else self._conversations()
            )
        else:
            work = self._generate_together
        return self._use(work, target, asked, seconds, cancel, int(seconds))

    def batch_name(self, target: str | None, asked: Any) -> str:
        """Return the name of the batch in which a request can be answered. Empty if its method decodes one
        request at a time, or if its draft lengths, and so its random draws, would depend on the other
        requests."""
        if on_zero_gpu() or _has_slow_masks(asked.fields.get("response_format")):
            return ""
        with self._lock:
            sharing = self._batchable.get(_batch_key(target, asked))
        shares = sharing == "any" or (sharing == "greedy" and asked.fields.get("temperature") == 0)
        return f"batch:{target or ''}" if shares else ""

    def _learn_sharing(self, target: str | None, asked: Any) -> None:
        """Find out whether later requests with this method and these knobs can share forward passes. It builds
        the method, which may load weights and compile: only a request that has its turn does it."""
        key = _batch_key(target, asked)
        with self._lock:
            known = key in self._batchable
        if not known:
            sharing = batch_sharing(self.loaded(target), asked.method, asked.knobs)
            with self._lock:
                self._batchable[key] = sharing
                while len(self._batchable) > KEPT_SHARING:
                    self._batchable.pop(next(iter(self._batchable)))

    def _generate_together(
        self, loaded: Loaded, asked: Any, seconds: float, cancel: threading.Event
    ) -> Iterator[Any]:
        from .batched_generation import BatchedGeneration

        caches = self._conversations()
        with self._lock:
            if self._together is None or self._together.loaded is not loaded:
                self._together = BatchedGeneration(loaded, caches)
            together = self._together
        return together.generate(asked, seconds, cancel)

    def _conversations(self) -> Any:
        """Return the KV caches of recent conversations."""
        from ..run.prefix_cache import PrefixPool

        with self._lock:
            self._caches = self._caches or PrefixPool(CONVERSATIONS)
            return self._caches

    def answer(
        self, name: str, payload: dict[str, Any], cancel: threading.Event, seconds: float
    ) -> Iterator[Any]:
        if name == "catalogue":
            yield self._fresh(("catalogue",), lambda: [card_data(card) for card in self._methods.values()])
        elif name == "unavailable":
            yield self.unsupported_reason(None)
        elif name in self.light:
            with engine_errors_refused(light=True):
                yield from lab.answer(name, payload)
        else:
            target = self.wants(payload)
            limit = min(seconds, LEASE) if on_zero_gpu() else seconds
            yield from self._use(answer_question, target, (name, payload), limit, cancel, int(limit + SPARE))

    def _target_of(self, target: Any) -> str | None:
        """Return a model by its name in a recording; None for the default one."""
        if not isinstance(target, str) or target == self.targets()[0]["model"]:
            return None
        return target or None


def _batch_key(target: str | None, asked: Any) -> tuple[str | None, str, str]:
    return target, asked.method, json.dumps(asked.knobs, sort_keys=True)


def _has_slow_masks(form: Any) -> bool:
    """Return whether the masks of a response format may take long: those of an ambiguous grammar grow with
    the answer. Such a request keeps the engine to itself for its time, and holds no batch."""
    return isinstance(form, dict) and form.get("type") in ("lark", "regex")


def batch_sharing(loaded: Loaded, method: str, knobs: dict[str, Any]) -> str:
    """Return which requests with this method can share forward passes without changing their answers:
    "any", "greedy" (greedy requests only: a joint policy plans for the whole batch, which would change
    sampled answers), or "none"."""
    from ..core import JointPolicy
    from ..loops.batched import unbatchable_reason
    from ..run.session import Session

    session, kit = Session(loaded, method, knobs), loaded.kit()
    try:
        parts = session.method.build(kit, **session.knobs)
    finally:
        kit.close()
    return (
        "none" if unbatchable_reason(parts) else "greedy" if isinstance(parts.policy, JointPolicy) else "any"
    )


def run_lanes(
    loaded: Loaded,
    asked: RunRequest,
    seconds: float,
    cancel: threading.Event | None = None,
    mode: str = "live",
    caches: Any = None,
) -> Iterator[list[Record] | dict[str, str]]:
    """Run all lanes of a request. Yield the records of one event at a time, and a status while lanes are
    repeated for timing.

    caches: a PrefixPool with KV caches of conversations; each lane of a continued conversation reuses its
    own. With several answers (n), lane ``answer * lanes + lane`` of the trace is an answer of a lane."""
    from ..core import Sampling
    from ..indexes.earlier_answers import Memory
    from ..run import Session
    from ..run.machine import Machine
    from ..run.request import GenerationRequest

    machine = Machine(loaded)
    request = GenerationRequest.for_model(asked.fields(), loaded)
    memory = asked.shelf.setdefault("memory", Memory())  # on ZeroGPU it ends with the process of the run
    batch_prompts = lab.sample_prompts(asked.prompts - 1)
    sessions = [
        Session(
            loaded,
            key,
            knobs,
            Sampling(),
            memory,
            asked.deterministic,
            asked.predicted,
            batch_prompts,
            request,
        )
        for key, knobs in asked.lanes
        if not is_served(key)
    ]
    leases = None if asked.deterministic else caches
    names = lane_titles(
        asked.lanes, served_cards() | {session.method.key: session.method for session in sessions}
    )
    recorders = _recorders(loaded, asked)
    again = 0
    for answer, lane, event in _races(sessions, asked, seconds, cancel, mode, leases, machine):
        number = answer * len(asked.lanes) + lane
        if is_served(asked.lanes[lane][0]):
            yield recorders[number].take(event)
            continue
        if event is None:
            again += 1
            total = (asked.repeats - 1) * len(sessions) * asked.answers
            yield status_of("live", text("run.repeat", count=again, total=total, title=names[lane]))
            continue
        records = [record for one in machine.follow(number, event) for record in recorders[number].take(one)]
        for record in records:
            if record["type"] == "header":
                record |= {
                    "mode": mode,
                    "method": record["method"] | {"title": names[lane]},
                } | _answer_fields(asked, answer)
        yield records


def _recorders(loaded: Loaded, asked: RunRequest) -> list[Any]:
    """Return the recorder of each lane of the trace."""
    from ..trace.recorder import Recorder

    lanes = [key for key, _ in asked.lanes] * asked.answers
    return [
        Recorder(i, None) if is_served(key) else Recorder(i, loaded.token_bytes, loaded.token_bytes.special)
        for i, key in enumerate(lanes)
    ]


def _answer_fields(asked: RunRequest, answer: int) -> dict[str, Any]:
    """Return the fields of a header that say which of several answers its lane is."""
    return {"answer": {"index": answer, "of": asked.answers}} if asked.answers > 1 else {}


def _races(
    sessions: list[Any],
    asked: RunRequest,
    seconds: float,
    cancel: threading.Event | None,
    mode: str,
    caches: Any,
    machine: Any,
) -> Iterator[tuple[int, int, Any]]:
    """Yield (answer, lane, event): a race of all lanes for each of the ``n`` answers, one after another,
    within ``seconds`` (see time_limit)."""
    from ..run import race

    limit = time_limit(seconds)
    owner = asked.shelf.setdefault("owner", secrets.token_hex(8))
    for answer, racing in enumerate(zip(*(session.each() for session in sessions))):
        if answer and cancel is not None and cancel.is_set():
            return
        for session in racing if caches is not None else ():
            session.lease(caches, f"{owner} {session.method.key}", asked.messages())
        share = limit.share(asked.answers - answer)
        local = race(
            racing,
            asked.messages(),
            asked.max_new_tokens,
            repeats=asked.repeats,
            machine=machine,
            deadline=share,
            cancel=cancel,
            top_k_saved=TOP,
        )
        for lane, event in with_server_lanes(local, asked, share.seconds, cancel, mode):
            yield answer, lane, event


def _with_pass_seconds(loaded: Loaded) -> Loaded:
    """Measure the seconds of a forward pass of a model that has just been loaded, while the machine is
    idle."""
    from ..run.machine import pass_seconds

    if not on_zero_gpu():  # on ZeroGPU nothing is computed outside a call
        loaded.pass_seconds = pass_seconds(loaded)
    return loaded


def answer_question(
    loaded: Loaded, asked: tuple[str, dict[str, Any]], seconds: float, cancel: threading.Event | None = None
) -> Iterator[Any]:
    """Answer one question of the Lab, ``asked`` = (name, payload); stop soon after the time limit."""
    limit = time_limit(seconds)
    yield from lab.answer(*asked, loaded, lambda: limit.reached() or (cancel is not None and cancel.is_set()))


def any_model() -> bool:
    """Return whether a visitor may name any model of the hub: only if the owner allows it, and never on a
    Space."""
    return os.environ.get("SPECVIZ_ALLOW_ANY_MODEL") == "1" and not os.environ.get("SPACE_ID")


def models_kept() -> int:
    """Return how many recently used models stay in memory in addition to the default one."""
    asked = os.environ.get("SPECVIZ_MODELS_KEPT", "1")
    return max(1, int(asked)) if asked.isdigit() else 1


def leased_call(
    loaded: dict[str | None, Loaded], work: Callable[..., Iterator[Any]], lease: int
) -> Callable[..., Generator[Any]]:
    """Wrap ``work`` so that it runs as one call on an accelerator that is attached per call (ZeroGPU), for
    at most ``lease`` seconds. It runs in a forked process, which has the loaded models and receives plain
    data only; closing the generator ends it. A refusal is yielded as the last item, because of a raised
    error only the name of its type would be returned."""
    import spaces
    from gradio import Error

    @spaces.GPU(duration=lambda *given: lease)
    def on_lease(target: str | None, asked: Any, seconds: float) -> Iterator[Any]:
        try:
            with engine_errors_refused():
                yield from work(loaded[target], asked, seconds)
        except Refused as why:
            yield why

    def ask(*given: Any) -> Generator[Any]:
        try:
            yield from on_lease(*given)
        except Error as why:  # no accelerator is available: the quota is used up, or the call was ended
            yield Refused("models.accelerator", why=str(why.message).rstrip("."))

    return ask


@contextmanager
def engine_errors_refused(light: bool = False) -> Iterator[None]:
    """Context manager that converts engine errors to Refused. light: for work that needs no model, so that
    no model code is imported."""
    if light:
        known: tuple[type[Exception], ...] = (lab.LabError, ServerError)
    else:
        from ..run.request import SessionError
        from ..run.result import RunFailed
        from ..zoo.registry import ZooError

        known = (ZooError, SessionError, RunFailed, lab.LabError, ServerError)
    try:
        yield
    except known as why:
        raise Refused.of(why) from None


def _description(loaded: Loaded) -> str:
    draft = f" with draft {loaded.draft_name}" if loaded.draft_name else ""
    notes = "".join(f"; {note}" for note in getattr(loaded, "notes", ()))
    return f"{loaded.name}{draft} on {loaded.facts['env']['device']}{notes}"
