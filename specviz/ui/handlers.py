"""What happens when somebody presses something. One generator serves all lanes; text from people and models goes out as data.
A handler yields {component: value} for what changes. The engine is never touched here: see stream.Live.
"""
from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace
from typing import Any, AsyncIterator, Callable, Sequence

import gradio as gr

from .backend import Backend
from .chat import Chat
from .controls import FIRST, drafts, unlawful
from .http_guard import visitor
from .limits import BASELINE, LANES, NO_DRAFT, Refused, Turnstile, read, together
from .loading import Loader
from .picker_rows import timed
from .stream import Live, empty, pack, shown
from .visitor_run import Underway

VISITORS = 64  # whose past answers are remembered at one time
NEXT = "Follow up, or just run again"


class Handlers:
    """The page's events, for one backend. ``ui`` maps names to components once the page is laid out."""

    def __init__(self, backend: Backend, warm: bool = True, follow: dict[str, str] | None = None):
        self.backend, self.warm, self.follow = backend, warm, follow or {}
        self.turnstile, self.loader = Turnstile(), Loader(backend)
        self.live: dict[str, Underway] = {}
        self.shelves: dict[str, dict] = {}  # by visitor: past answers, for methods that draft from them; never another visitor's
        self.ui: dict[str, Any] = {}

    # Run and Stop. Three listeners, one after another: what a listener may change is built anew with everything it tells, which
    # is worth nothing twenty times a second, so the one that tells the frames has the board and Stop and nothing else.

    async def begin(self, prompt, picked, knobs, temperature, top_p, length, seed, repeats, prompts, system, target, draft, predicted,
                    lane, chat: Chat, request: gr.Request) -> dict:
        """A press of Run: a first message, a follow-up, or (empty prompt) the last message once more."""
        ui, session = self.ui, request.session_hash
        last = self.live.get(session)
        if last and last.watched and not last.over:  # one that never came to be watched is in nobody's way
            return {ui["notice"]: _line("error", "A run is under way: stop it first.")}
        self._choose(chat, lane)
        if last and last.over:  # pressed before it was settled: a busy machine takes its time
            last.keep(chat)
        again = not str(prompt or "").strip() and chat.turns
        earlier = chat.turns[:-1] if again else chat.turns
        text = chat.turns[-1].question if again else prompt
        try:
            ask = await asyncio.to_thread(
                read, self.backend.cards, prompt=text, methods=_keys(picked), knobs=knobs, max_new_tokens=length,
                temperature=temperature, top_p=top_p, seed=seed, repeats=repeats, prompts=prompts, system=system, target=target,
                draft=draft, predicted=predicted, turns=Chat(earlier).messages())
        except Refused as why:
            return {ui["notice"]: _line("error", str(why)), ui["prompt"]: gr.Textbox(placeholder=NEXT if chat.turns else FIRST)}
        ask = replace(ask, shelf=self._shelf(session))
        live = Live(self.backend, self.turnstile, ask, chat.frame, visitor(request), self.loader)
        self._begun(session, Underway(live, ask, list(earlier)))
        loading = {} if self.backend.ready(ask.models) else {ui["models"]: _line("loading", "Loading the models")}
        return loading | {
            ui["run"]: gr.Button(interactive=False), ui["stop"]: gr.Button(interactive=True), ui["notice"]: _line(),
            ui["prompt"]: gr.Textbox(value="", placeholder=NEXT), ui["lane"]: gr.Radio(visible=False),
            ui["follow"]: gr.Button(visible=False),
            ui["conversation"]: pack({"turns": Chat(earlier).view(len(earlier)), "shown": None}),
        }

    async def watch(self, request: gr.Request):
        """The frames of the run that has begun."""
        ui, session = self.ui, request.session_hash
        run = self.live.get(session)
        if run is None or run.watched:
            yield {ui["stop"]: gr.skip()}  # a listener that tells nothing empties what it might have told
            return
        run.watched = True
        try:
            async with aclosing(run.live.stream()) as frames:
                async for _ in frames:  # Stop is told of each time: on a busy machine a single telling did not always arrive
                    yield {ui["board"]: run.live.frames.window(), ui["stop"]: gr.Button(interactive=not run.live.stop.is_set())}
            run.over = not run.live.gone
        finally:
            if not run.over:  # the reader left, or it failed: nobody will settle it
                self.live.pop(session, None)

    def settle(self, chat: Chat, written: str, request: gr.Request) -> dict:
        """After a run: keep what was said as a turn, offer the choice of a lane where they differ. What was written into the box
        meanwhile stays; a prompt that got no answer comes back into an empty one."""
        ui, run = self.ui, self.live.get(request.session_hash)
        if run and not run.over:  # another one, whose own settling comes
            return {ui["run"]: gr.skip()}
        out = {ui["run"]: gr.Button(interactive=True), ui["stop"]: gr.Button(interactive=False)}
        if run is None:
            return out
        del self.live[request.session_hash]
        turn = run.keep(chat)
        out |= {ui["chat"]: chat, ui["bar"]: gr.Row(visible=bool(chat.turns)), **self._told(run.ask.models),
                ui["prompt"]: gr.Textbox(placeholder=NEXT if chat.turns else FIRST)}
        if not turn and not str(written or "").strip():
            out[ui["prompt"]] = gr.Textbox(value=run.ask.prompt, placeholder=FIRST)
        next_up = self.follow.get(run.ask.prompt, "") if turn else ""
        out[ui["follow"]] = gr.Button(value=next_up, visible=bool(next_up))
        if turn and not turn.agree:
            titles = [said.title for said in turn.answers]
            out[ui["lane"]] = gr.Radio(choices=titles, value=titles[0], visible=True)
        return out

    def stop(self, request: gr.Request) -> dict:
        """Ends this visitor's run within one round; what was decoded stays."""
        run = self.live.get(request.session_hash)
        if run:
            run.live.stop.set()
        return {self.ui["stop"]: gr.Button(interactive=False)}

    def seen(self, request: gr.Request, event: gr.EventData) -> None:
        """The browser tells which frame it has painted last, and maybe how often it paints."""
        run, told = self.live.get(request.session_hash), event._data or {}
        if run and isinstance(told.get("frame"), int):
            run.live.seen(told["frame"], told.get("every"))

    def leave(self, request: gr.Request) -> None:
        """The tab was closed."""
        self.shelves.pop(request.session_hash, None)
        run = self.live.pop(request.session_hash, None)
        if run:
            run.live.stop.set()

    def _running(self, session: str) -> bool:
        run = self.live.get(session)
        return run is not None and not run.over

    def _begun(self, session: str, run: Underway) -> None:
        """Keep a run for its watcher; with too many of them, those that nobody came to watch or to settle are let go."""
        self.live[session] = run
        idle = [name for name, one in self.live.items() if one is not run and (one.over or not one.watched)]
        for name in idle[: max(0, len(self.live) - VISITORS)]:
            del self.live[name]

    def _shelf(self, session: str) -> dict:
        """This visitor's shelf; with too many of them, the one not used for longest is cleared away."""
        self.shelves[session] = self.shelves.pop(session, {})
        while len(self.shelves) > VISITORS:
            self.shelves.pop(next(iter(self.shelves)))
        return self.shelves[session]

    # The conversation

    @staticmethod
    def _choose(chat: Chat, title: str | None) -> None:
        if chat.turns and title:
            last = chat.turns[-1]
            last.chosen = next((i for i, said in enumerate(last.answers) if said.title == title), 0)

    def new_chat(self, chat: Chat, request: gr.Request) -> dict:
        """Start over: nothing of the old conversation reaches the next run. A run under way is stopped."""
        self.stop(request)
        chat.turns = []
        ui = self.ui
        return {ui["chat"]: chat, ui["conversation"]: pack({"turns": []}), **self._bare(chat), ui["notice"]: _line(),
                ui["prompt"]: gr.Textbox(value="", placeholder=FIRST),
                ui["board"]: empty(chat.number(), "A new conversation. The next prompt begins it.")}

    def afresh(self, chat: Chat, request: gr.Request) -> Chat:
        """Before a run that a link or a panel asks for: it begins a conversation of its own."""
        self.stop(request)
        chat.turns = []
        return chat

    def opened(self, chat: Chat, request: gr.Request) -> dict:
        """A recording was opened: it belongs to no conversation, and a run under way would write over it."""
        chat.turns = []
        ui = self.ui
        return self.stop(request) | {ui["chat"]: chat, ui["conversation"]: pack({"turns": []}), **self._bare(chat)}

    def edit(self, chat: Chat, request: gr.Request) -> dict:
        """The last message back into the box; its answer is taken out of the conversation."""
        if not chat.turns or self._running(request.session_hash):
            return {self.ui["notice"]: _line("error", "There is no finished message to edit.")}
        last = chat.turns.pop()
        ui = self.ui
        return {ui["chat"]: chat, ui["prompt"]: gr.Textbox(value=last.question, placeholder=FIRST), **self._bare(chat),
                ui["conversation"]: pack({"turns": chat.view(len(chat.turns)), "shown": None})}

    def _bare(self, chat: Chat) -> dict:
        """The line of choices with nothing left to choose."""
        ui = self.ui
        return {ui["lane"]: gr.Radio(visible=False), ui["follow"]: gr.Button(visible=False),
                ui["bar"]: gr.Row(visible=bool(chat.turns))}

    def open_turn(self, chat: Chat, request: gr.Request, event: gr.EventData) -> dict:
        """An earlier turn onto the board, to be looked into; the latest one is listed too while another is shown."""
        index = (event._data or {}).get("turn")
        if self._running(request.session_hash) or not isinstance(index, int) or not 0 <= index < len(chat.turns):
            return {self.ui["notice"]: _line("error", "That turn can be opened once this run is over.")}
        turn = chat.turns[index]
        if turn.records is None:
            return {self.ui["notice"]: _line("error", "The record of that turn is no longer kept.")}
        latest = index == len(chat.turns) - 1
        view = chat.view(len(chat.turns) - latest)
        return {self.ui["board"]: shown(chat.number(), turn.records),
                self.ui["conversation"]: pack({"turns": view, "shown": None if latest else index}), self.ui["notice"]: _line()}

    # Models and knobs

    async def touch(self, target: str | None, draft: str | None = None) -> AsyncIterator[dict]:
        """Somebody is about to ask something: load the models while they write. Only those that everybody gets: another one may
        be large, and waits for a run."""
        models = together(target, draft)
        if models or not self.warm or self.backend.ready(None):
            yield self._told(models)
            return
        try:
            async with aclosing(self.loader.wait(None)) as words:
                async for text in words:
                    yield {self.ui["models"]: _line("loading", text)}
            yield self._told(None)
        except Refused as why:
            yield {self.ui["models"]: _line("error", str(why))}

    def greet(self) -> dict:
        """A page was opened: say what is loaded already."""
        return self._told(None)

    def retarget(self, target: str | None, draft: str | None) -> dict:
        """Another target or draft: the drafts that fit; one that does not goes, and that is said."""
        found = drafts(self.backend.drafts(target or None))
        kept = draft if draft in [name for _, name in found] else ""
        said = f"{draft[:60]} cannot draft for this model here: left out, so the model's own draft guesses." if draft and not kept else ""
        return (self.choose(target, kept) | {self.ui["draft"]: gr.Dropdown(choices=found, value=kept)}
                | ({self.ui["notice"]: _line("error", said)} if said else {}))

    def choose(self, target: str | None, draft: str | None = None) -> dict:
        """Another model was chosen: say what it is; what it can run is known when it is loaded."""
        if self.backend.ready(together(target, draft)):
            return self._told(together(target, draft))
        card = next((c for c in self.backend.targets() if c["name"] == (target or "")), None)
        beside, large = "" if not draft else " without a draft" if draft == NO_DRAFT else f" with draft {draft}", (card or {}).get("large")
        text = large or (f"{card['title']}{beside} loads with the next run" if card else "The model loads with the next run")
        return {self.ui["models"]: _line("error" if large else "idle", text), **self._offered({}, together(target, draft))}

    def _told(self, target: str | None) -> dict:
        if not self.backend.ready(target):
            return {self.ui["models"]: gr.skip()}
        return {self.ui["models"]: _line("ready", self.backend.load(target)), **self._offered(self.backend.why_not(target), target)}

    def _offered(self, off: dict[str, str], models: str | None) -> dict:
        """What the picker says of methods on these models: which cannot run, and whether it was they that were measured."""
        return {self.ui["methods"]: gr.HTML(off=pack(off), timed=timed(self.backend.targets(), models))}

    def ruler(self, key: str) -> Callable[..., tuple]:
        """A listener that says so where two of a method's knobs do not go together, and what each of its choices may be now."""
        def rule(*values: Any) -> tuple:
            return _line(*self.clash(key, values)), *(gr.HTML(off=pack(why)) for why in self.off(key, values).values())

        return rule

    def off(self, key: str, values: Sequence[Any]) -> dict[str, dict[str, str]]:
        """What a method's choices may not be, while its knobs hold these values: knob -> choice -> why."""
        knobs = self.backend.cards[key].knobs
        return unlawful(knobs, {knob.name: value for knob, value in zip(knobs, values)})

    def clash(self, key: str, values: Sequence[Any]) -> tuple[str, str]:
        """A state and a sentence where two of a method's knobs do not go together; else both empty."""
        off, names = self.off(key, values), [knob.name for knob in self.backend.cards[key].knobs]
        refusal = next((off[name][value] for name, value in zip(names, values) if value in off.get(name, ())), "")
        return ("error" if refusal else "", refusal)


def _line(state: str = "", text: str = "") -> str:
    return pack({"state": state, "text": text})


def _keys(picked: Any) -> Any:
    """The picker's value: a JSON list of keys."""
    try:
        return json.loads(picked) if isinstance(picked, str) else picked
    except (ValueError, RecursionError):
        return picked


def lanes_picked(picked: Any, cards: dict[str, Any]) -> list[str]:
    """The methods of the picker's value that there are, each once and no more than there are lanes."""
    keys = _keys(picked)
    names = [item.get("method") if isinstance(item, dict) else item for item in keys] if isinstance(keys, list) else ()
    known = dict.fromkeys(key for key in names if isinstance(key, str) and key in cards)
    return [key for key in known if key != BASELINE][: LANES - 1]
