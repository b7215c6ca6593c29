"""The event handlers of the page. One generator serves all lanes; text from people and models is sent as
data. A handler yields {component: value} for each component that changes. The engine is never called here:
see stream.LiveRun."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import gradio as gr

from ..engine.backend import Backend
from ..engine.limits import BASELINE, LANES, NO_DRAFT, RunQueue, model_key, read_request, split_model_key
from ..engine.loading import Loader
from ..engine.messages import Refused, shorten, text
from ..engine.stream import LiveRun, empty_board, finished_board, json_for_html
from ..serve.http_guard import visitor
from .chat import Chat
from .controls import drafts, incompatible_choices
from .picker_rows import speeds_apply
from .visitor_run import VisitorRun

VISITORS = 64  # whose past answers are remembered at one time
FIRST = text("chat.placeholder")  # placeholder of an empty conversation
NEXT = text("chat.next")  # placeholder after an answer


class Handlers:
    """The page's event handlers, for one backend. ``ui``: {name: component}, set when the page is laid
    out."""

    def __init__(self, backend: Backend, warm: bool = True, follow: dict[str, str] | None = None):
        self.backend = backend
        self.warm = warm
        self.follow = follow or {}
        self.run_queue, self.loader = RunQueue(), Loader(backend)
        self.live: dict[str | None, VisitorRun] = {}  # by session
        self.shelves: dict[
            str | None, dict
        ] = {}  # by visitor: past answers, for methods that draft from them; never another visitor's
        self.ui: dict[str, Any] = {}

    # Run and Stop. Three listeners, one after another: Gradio builds all outputs of a listener anew with
    # each update, which is wasteful twenty times a second, so the listener that sends the frames has the
    # board and Stop and nothing else.

    async def begin(
        self,
        prompt,
        picked,
        knobs,
        temperature,
        top_p,
        length,
        seed,
        repeats,
        prompts,
        system,
        target,
        draft,
        predicted,
        generation,
        lane,
        chat: Chat,
        request: gr.Request,
    ) -> dict:
        """Start a run when Run is pressed: with a first message, a follow-up, or, if the prompt is empty,
        the last message again. Return {component: new value}."""
        ui, session = self.ui, request.session_hash
        last = self.live.get(session)
        if (
            last and last.watched and not last.over
        ):  # a run whose frames are not being sent yet may be replaced
            return {ui["notice"]: _line("error", text("run.active"))}
        self._choose(chat, lane)
        if last and last.over:  # pressed before its last listener ran
            last.keep(chat)
        again = not str(prompt or "").strip() and chat.turns
        earlier = chat.turns[:-1] if again else chat.turns
        question = chat.turns[-1].question if again else prompt
        try:
            asked = await asyncio.to_thread(
                read_request,
                self.backend.cards,
                prompt=question,
                methods=_keys(picked),
                knobs=knobs,
                max_new_tokens=length,
                temperature=temperature,
                top_p=top_p,
                seed=seed,
                repeats=repeats,
                prompts=prompts,
                system=system,
                target=target,
                draft=draft,
                predicted=predicted,
                generation=generation,
                turns=Chat(earlier).messages(),
            )
        except Refused as why:
            return {
                ui["notice"]: _line("error", str(why)),
                ui["prompt"]: gr.Textbox(placeholder=NEXT if chat.turns else FIRST),
            }
        asked = replace(asked, shelf=self._shelf(session))
        live = LiveRun(self.backend, self.run_queue, asked, chat.frame, visitor(request), self.loader)
        self._keep_run(session, VisitorRun(live, asked, list(earlier)))
        loading = (
            {}
            if self.backend.ready(asked.models)
            else {ui["models"]: _line("loading", text("models.start"), asked.models)}
        )
        return loading | {
            ui["run"]: gr.Button(interactive=False),
            ui["stop"]: gr.Button(interactive=True),
            ui["notice"]: _line(),
            ui["prompt"]: gr.Textbox(value="", placeholder=NEXT),
            ui["lane"]: gr.Radio(visible=False),
            ui["follow"]: gr.Button(visible=False),
            ui["conversation"]: json_for_html({"turns": Chat(earlier).view(len(earlier)), "shown": None}),
        }

    async def watch(self, request: gr.Request):
        """Yield the frames of the run that was started."""
        ui, session = self.ui, request.session_hash
        run = self.live.get(session)
        if run is None or run.watched or run.dropped:
            yield {ui["stop"]: gr.skip()}  # a listener that yields nothing clears its outputs
            return
        run.watched = True
        try:
            async with aclosing(run.live.stream()) as frames:
                async for _ in frames:
                    if run.dropped:
                        break
                    # Stop with each frame: on a busy machine a single update did not always arrive
                    yield {
                        ui["board"]: run.live.frames.window(),
                        ui["stop"]: gr.Button(interactive=not run.live.stop.is_set()),
                    }
            run.over = not run.live.gone
        finally:
            if (
                not run.over and self.live.get(session) is run
            ):  # the reader left, it failed or it was dropped: nothing to keep
                del self.live[session]

    def finish(self, chat: Chat, written: str, request: gr.Request) -> dict:
        """After a run, keep its answers as a turn, and offer the choice of an answer if they differ. Text
        typed meanwhile is kept; a prompt without an answer is put back into an empty box."""
        ui, run = self.ui, self.live.get(request.session_hash)
        if run and not run.over:  # another one, which finishes later
            return {ui["run"]: gr.skip()}
        out: dict[Any, Any] = {
            ui["run"]: gr.Button(interactive=True),
            ui["stop"]: gr.Button(interactive=False),
        }
        if run is None:
            return out
        del self.live[request.session_hash]
        turn = run.keep(chat)
        out |= {
            ui["chat"]: chat,
            ui["bar"]: gr.Row(visible=bool(chat.turns)),
            **self._models_after(run),
            ui["prompt"]: gr.Textbox(placeholder=NEXT if chat.turns else FIRST),
        }
        if not turn and not str(written or "").strip():
            out[ui["prompt"]] = gr.Textbox(value=run.asked.prompt, placeholder=FIRST)
        next_up = self.follow.get(run.asked.prompt, "") if turn else ""
        out[ui["follow"]] = gr.Button(value=next_up, visible=bool(next_up))
        if turn and not turn.agree:
            titles = [answer.title for answer in turn.answers]
            out[ui["lane"]] = gr.Radio(choices=titles, value=titles[0], visible=True)
        return out

    def stop(self, request: gr.Request) -> dict:
        """Stop this visitor's run within one round; what was generated is kept."""
        run = self.live.get(request.session_hash)
        if run:
            run.live.stop.set()
        return {self.ui["stop"]: gr.Button(interactive=False)}

    def _drop_run(self, chat: Chat, request: gr.Request) -> None:
        """Stop and forget this visitor's run, because another conversation begins. The next frame numbers
        follow its own."""
        run = self.live.pop(request.session_hash, None)
        if run:
            run.dropped = True
            run.live.stop.set()
            chat.frame = max(chat.frame, run.live.frames.first + 1)

    def painted(self, request: gr.Request, event: gr.EventData) -> None:
        """Receive the browser's report of the frame it painted last, and how often it paints."""
        run, report = self.live.get(request.session_hash), event._data
        if run and isinstance(report, dict) and isinstance(report.get("frame"), int):
            run.live.painted(report["frame"], report.get("every"))

    def leave(self, request: gr.Request) -> None:
        """Handle a closed tab: stop the visitor's run."""
        self.shelves.pop(request.session_hash, None)
        run = self.live.pop(request.session_hash, None)
        if run:
            run.live.stop.set()

    def _running(self, session: str | None) -> bool:
        run = self.live.get(session)
        return run is not None and not run.over

    def _keep_run(self, session: str | None, run: VisitorRun) -> None:
        """Keep a run for its watcher; with too many of them, drop runs that nobody watches or finishes."""
        self.live[session] = run
        idle = [name for name, one in self.live.items() if one is not run and (one.over or not one.watched)]
        for name in idle[: max(0, len(self.live) - VISITORS)]:
            del self.live[name]

    def _shelf(self, session: str | None) -> dict:
        """Return this visitor's shelf; with too many of them, the least recently used one is dropped."""
        self.shelves[session] = self.shelves.pop(session, {})
        while len(self.shelves) > VISITORS:
            self.shelves.pop(next(iter(self.shelves)))
        return self.shelves[session]

    # The conversation

    @staticmethod
    def _choose(chat: Chat, title: str | None) -> None:
        if chat.turns and title:
            last = chat.turns[-1]
            last.chosen = next((i for i, answer in enumerate(last.answers) if answer.title == title), 0)

    def new_chat(self, chat: Chat, request: gr.Request) -> dict:
        """Start a new conversation; nothing of the old one is used in the next run. A run in progress is
        stopped and forgotten."""
        self._drop_run(chat, request)
        chat.turns = []
        ui = self.ui
        return {
            ui["chat"]: chat,
            ui["conversation"]: json_for_html({"turns": []}),
            **self._no_choices(chat),
            ui["notice"]: _line(),
            ui["prompt"]: gr.Textbox(value="", placeholder=FIRST),
            ui["board"]: empty_board(chat.number(), "chat.new"),
        }

    def start_over(self, chat: Chat, request: gr.Request) -> Chat:
        """Start a new conversation before a run that a link or a panel requests."""
        self._drop_run(chat, request)
        chat.turns = []
        return chat

    def opened(self, chat: Chat, request: gr.Request) -> dict:
        """A visitor has opened a recording. It belongs to no conversation, and a run in progress is stopped
        because it would overwrite the recording."""
        self._drop_run(chat, request)
        chat.turns = []
        ui = self.ui
        return {
            ui["stop"]: gr.Button(interactive=False),
            ui["chat"]: chat,
            ui["conversation"]: json_for_html({"turns": []}),
            **self._no_choices(chat),
        }

    def edit(self, chat: Chat, request: gr.Request) -> dict:
        """Put the last message back into the box and remove its answer from the conversation."""
        if not chat.turns or self._running(request.session_hash):
            return {self.ui["notice"]: _line("error", text("chat.nothing_to_edit"))}
        last = chat.turns.pop()
        ui = self.ui
        return {
            ui["chat"]: chat,
            ui["prompt"]: gr.Textbox(value=last.question, placeholder=FIRST),
            **self._no_choices(chat),
            ui["conversation"]: json_for_html({"turns": chat.view(len(chat.turns)), "shown": None}),
        }

    def _no_choices(self, chat: Chat) -> dict:
        """Return the empty row of choices."""
        ui = self.ui
        return {
            ui["lane"]: gr.Radio(visible=False),
            ui["follow"]: gr.Button(visible=False),
            ui["bar"]: gr.Row(visible=bool(chat.turns)),
        }

    def open_turn(self, chat: Chat, request: gr.Request, event: gr.EventData) -> dict:
        """Show an earlier turn on the board. While one is shown, the latest turn is listed above the board,
        too."""
        index = event._data.get("turn") if isinstance(event._data, dict) else None
        if (
            self._running(request.session_hash)
            or not isinstance(index, int)
            or not 0 <= index < len(chat.turns)
        ):
            return {self.ui["notice"]: _line("error", text("chat.turn_busy"))}
        turn = chat.turns[index]
        if turn.records is None:
            return {self.ui["notice"]: _line("error", text("chat.turn_gone"))}
        latest = index == len(chat.turns) - 1
        view = chat.view(len(chat.turns) - latest)
        return {
            self.ui["board"]: finished_board(chat.number(), turn.records),
            self.ui["conversation"]: json_for_html({"turns": view, "shown": None if latest else index}),
            self.ui["notice"]: _line(),
        }

    # Models and knobs

    async def preload(self, target: str | None, draft: str | None = None) -> AsyncIterator[dict]:
        """Load the default models when a visitor first touches the page. Other models may be large; they
        are loaded when a run needs them. The handler ``preloaded`` is called next, because another model
        may have been chosen meanwhile."""
        if model_key(target, draft) or not self.warm or self.backend.ready(None):
            yield {self.ui["models"]: gr.skip()}
            return
        try:
            async with aclosing(self.loader.wait(None)) as progress:
                async for words in progress:
                    yield {self.ui["models"]: _line("loading", words, None)}
        except Refused as why:
            yield {self.ui["models"]: _line("error", str(why), None)}

    def preloaded(self, target: str | None, draft: str | None = None) -> dict:
        """After the default models were loaded, describe those that are chosen now."""
        return self.describe(target, draft) if self.backend.ready(None) else {self.ui["models"]: gr.skip()}

    def page_opened(self) -> dict:
        """Show which models are loaded, when a page is opened. The handler ``preloaded`` is called next,
        because a link may choose others."""
        return {self.ui["models"]: self._models_line(None)[self.ui["models"]]}

    def models_chosen(self, target: str | None, draft: str | None) -> dict:
        """After a target or draft was chosen, list the drafts that fit. A draft that does not fit is
        replaced by the default, with a notice."""
        found = drafts(self.backend.drafts(target or None))
        kept = draft if draft in [name for _, name in found] else ""
        notice = text("models.wrong_draft", draft=shorten(draft, 60)) if draft and not kept else ""
        return (
            self.describe(target, kept)
            | {self.ui["draft"]: gr.Dropdown(choices=found, value=kept)}
            | ({self.ui["notice"]: _line("error", notice)} if notice else {})
        )

    def describe(self, target: str | None, draft: str | None = None) -> dict:
        """Describe the chosen models. Which methods they can run is known after they are loaded."""
        models = model_key(target, draft)
        if self.backend.ready(models):
            return self._models_line(models)
        card = next((c for c in self.backend.targets() if c["name"] == (target or "")), None)
        with_draft = "" if not draft else " without a draft" if draft == NO_DRAFT else f" with draft {draft}"
        large = (card or {}).get("large")
        words = (
            text("models.next", title=card["title"], draft=with_draft)
            if card
            else text("models.next_unknown")
        )
        return {
            self.ui["models"]: _line("error" if large else "idle", large or words, models),
            **self._picker({}, models),
        }

    def _models_after(self, run: VisitorRun) -> dict:
        """After a run, show which models are loaded, or that its own could not be."""
        if self.backend.ready(run.asked.models) or not run.live.refused:
            return self._models_line(run.asked.models)
        return {self.ui["models"]: _line("error", text("models.not_loaded"), run.asked.models)}

    def _models_line(self, target: str | None) -> dict:
        if not self.backend.ready(target):
            return {self.ui["models"]: gr.skip()}
        line = _line("ready", self.backend.load(target), target)
        return {self.ui["models"]: line, **self._picker(self.backend.unsupported_reason(target), target)}

    def _picker(self, off: dict[str, str], models: str | None) -> dict:
        """Mark the methods that cannot run on these models, and whether the speeds were measured with them.
        The page ignores it if others were chosen meanwhile."""
        about = {"models": _chosen(models), "why": off}
        return {
            self.ui["methods"]: gr.HTML(
                off=json_for_html(about), timed=speeds_apply(self.backend.targets(), models)
            )
        }

    def knob_limits(self, key: str, target: str | None, draft: str | None) -> dict[str, float]:
        """Return the highest value of each knob of a method that the chosen models limit."""
        return self.backend.knob_limits(key, model_key(target, draft))

    def knob_rules(self, key: str) -> Callable[..., tuple]:
        """Return a handler that shows which of a method's knobs are incompatible, and disables choices that
        would be."""

        def rule(*values: Any) -> tuple:
            excluded = self.excluded_choices(key, values).values()
            return _line(*self.incompatible_knobs(key, values)), *(
                gr.HTML(off=json_for_html(why)) for why in excluded
            )

        return rule

    def excluded_choices(self, key: str, values: Sequence[Any]) -> dict[str, dict[str, str]]:
        """Return {knob: {choice: why}} for the choices that are incompatible with these values of the other
        knobs."""
        knobs = self.backend.cards[key].knobs
        return incompatible_choices(knobs, {knob.name: value for knob, value in zip(knobs, values)})

    def incompatible_knobs(self, key: str, values: Sequence[Any]) -> tuple[str, str]:
        """Return (state, message) of the note if two of a method's knobs are incompatible; both are empty
        otherwise."""
        off, names = self.excluded_choices(key, values), [knob.name for knob in self.backend.cards[key].knobs]
        refusal = next(
            (off[name][value] for name, value in zip(names, values) if value in off.get(name, ())), ""
        )
        return ("error" if refusal else "", refusal)


def _line(state: str = "", words: str = "", models: str | None = "") -> str:
    """Return the value of a status line. models: those it is about, None the defaults; "" where it is about
    none."""
    about = {} if models == "" else {"models": _chosen(models)}
    return json_for_html({"state": state, "text": words, **about})


def _chosen(models: str | None) -> str:
    """Return the name of these models as the page forms it from what is chosen."""
    return model_key(*split_model_key(models)) or ""


def _keys(picked: Any) -> Any:
    """Parse the picker's value: a JSON list of keys."""
    try:
        return json.loads(picked) if isinstance(picked, str) else picked
    except (ValueError, RecursionError):
        return picked


def lanes_picked(picked: Any, cards: dict[str, Any]) -> list[str]:
    """Return the keys of the known methods in the picker's value, without duplicates, at most the maximum
    number of lanes."""
    keys = _keys(picked)
    names = (
        [item.get("method") if isinstance(item, dict) else item for item in keys]
        if isinstance(keys, list)
        else ()
    )
    known = dict.fromkeys(key for key in names if isinstance(key, str) and key in cards)
    return [key for key in known if key != BASELINE][: LANES - 1]
