"""The layout of the page. Its content comes from the catalogue and from files in assets; the event handlers
are in handlers.py."""

from __future__ import annotations

import inspect
import logging
import os
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from ..engine.backend import Backend
from ..engine.log_lines import log_failure
from ..engine.messages import text
from ..engine.stream import json_for_html
from ..serve.http_guard import HttpGuard
from ..serve.http_timeouts import with_timeouts
from ..serve.openai_api import OpenAIApi, configured_keys
from ..serve.stored_runs import StoredRuns, configured_runs
from . import board, controls, picker_rows, request_fields
from .api import Api
from .chat import Chat
from .handlers import Handlers, lanes_picked
from .head_script import HeadScript
from .start_content import EXAMPLES, RECORDED, StartContent, recorded_board, start_content
from .theme import css, theme

TITLE = "specviz"
FIRST_PORT = 7860  # as gradio tries
QUEUED_EVENTS = 1024  # of all addresses; each has its own budget (address_budget.py)
log = logging.getLogger(__name__)


class Page(gr.Blocks):
    """The page as a gr.Blocks that logs one line per error. Gradio would log a traceback with the whole
    message, which may contain a visitor's input."""

    openai_api: OpenAIApi
    runs: StoredRuns | None

    async def process_api(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Run an event handler; log an error of it as one line."""
        try:
            return await super().process_api(*args, **options)
        except gr.Error as error:
            error.print_exception = False
            raise
        except (StopIteration, StopAsyncIteration):
            raise
        except Exception as error:
            log_failure(log, "an event failed", error)
            raise gr.Error(text("http.malformed"), print_exception=False) from None


def build_app(
    backend: Backend, *, warm: bool = True, recorded: Path = RECORDED, examples: Path = EXAMPLES
) -> Page:
    """Return the page for a backend. warm: load the models when somebody first touches the page, not only
    at the first run; recorded: the recording that is shown first; examples: the file of example prompts."""
    start = start_content(backend.cards, examples)
    hands = Handlers(
        backend, warm, {e["prompt"]: e["follow"] for e in start.examples if isinstance(e.get("follow"), str)}
    )
    ui, runs = hands.ui, configured_runs()
    with Page(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=(3600, 3600)) as demo:
        _settings(ui, backend)
        with gr.Column(elem_id="page"):
            _top(ui, backend, runs)
            with gr.Column(elem_id="play"):
                ui["conversation"] = board.conversation()
                ui["board"] = board.board(recorded_board(recorded))
                board.panel_container("race")
                tries = _dock(ui, backend, start)
            for panel in ("lab", "learn", "traces"):
                board.panel_container(panel)
        Api(
            backend, hands.run_queue, hands.loader
        ).register()  # before the page's own listeners: the plain names are for programs
        ui["chat"] = gr.State(Chat(), time_to_live=2 * 3600)
        ui["knobs"] = gr.JSON({}, visible=False)
        ui["generation"] = gr.JSON({}, visible=False)
        request_fields.connect(ui["request"], ui["generation"])
        _knobs(demo, ui, hands)
        _try(
            ui, tries, start, backend.cards
        )  # first: the listeners of one button run one after another, and another loads models
        _listen(demo, ui, hands, tries)
        _steer(demo, ui, hands)
        demo.unload(hands.leave)
    demo.openai_api = OpenAIApi(backend, hands.run_queue, hands.loader, configured_keys(), page=True)
    demo.runs = runs
    demo.queue(max_size=QUEUED_EVENTS, default_concurrency_limit=None, api_open=False)
    return demo


def launch(demo: Page, **options: Any) -> Any:
    """Serve the page: on this machine only, unless a Space or the environment (GRADIO_SERVER_NAME, _PORT)
    says otherwise."""
    os.environ.setdefault(
        "FORWARDED_ALLOW_IPS", "none"
    )  # http_guard.py believes proxies that the owner names, and no others
    settings: dict[str, Any] = {
        "theme": theme(),
        "css": css(),
        "head": board.page_script(),
        "show_error": False,
        "enable_monitoring": False,
        "run_history": False,
        "ssr_mode": False,
        "share": False,
        "pwa": False,
        "_frontend": False,  # else a machine too busy to answer Gradio within 3 s ends the server as it starts
        "max_file_size": "1mb",
        "footer_links": [],
        "server_name": os.environ.get("GRADIO_SERVER_NAME")
        or ("0.0.0.0" if os.environ.get("SPACE_ID") else "127.0.0.1"),
        "state_session_capacity": 200,
        "app_kwargs": {
            "middleware": [
                Middleware(
                    HttpGuard,
                    parameters=endpoint_parameters(demo),
                    own=board.own_files(),
                    event_queue=lambda: demo._queue,
                    runs=demo.runs,
                    api=demo.openai_api if serves_openai() else None,
                ),
                Middleware(
                    HeadScript,
                    script=board.read_script("limit_animation_frames.js"),
                    card=board.CARD,
                    words=demo.runs.words if demo.runs else lambda name: None,
                ),
            ]
        },
    }
    wait = not options.get("prevent_thread_lock")
    settings |= options | {"prevent_thread_lock": True}
    launched = demo.launch(**settings)
    wanted = options.get("server_port") or int(os.environ.get("GRADIO_SERVER_PORT", FIRST_PORT))
    if demo.server_port != wanted:
        log.warning(text("page.port", wanted=wanted, port=demo.server_port))
    config = demo.server.config
    config.http_protocol_class = with_timeouts(config.http_protocol_class)  # for every connection from now on
    if wait:
        demo.block_thread()
    return launched


def serves_openai() -> bool:
    """Return whether the owner enabled the OpenAI-compatible endpoint."""
    return os.environ.get("SPECVIZ_OPENAI_API") == "1"


def endpoint_parameters(demo: gr.Blocks) -> dict[str, list[str]]:
    """Return {endpoint for programs: its parameters in order}."""
    return {
        fn.api_name: list(inspect.signature(fn.fn).parameters)[: len(fn.inputs)]
        for fn in demo.fns.values()
        if fn.fn and fn.api_name and fn.api_visibility != "private"
    }


def _top(ui: dict[str, Any], backend: Backend, runs: StoredRuns | None) -> None:
    with gr.Row(elem_id="top"):
        gr.HTML(f"<h1>{TITLE}</h1>", elem_id="title", apply_default_css=False, js_on_load=None)
        ui["tabs"] = board.tabs(backend.targets(), runs.days if runs else 0)
        ui["models"] = board.text_line("models", "idle", text("models.idle"))
        ui["present"] = gr.Button("Present", size="sm", elem_id="present", scale=0)
        ui["share"] = gr.Button("Share", size="sm", elem_id="share", scale=0)
        ui["settings"] = gr.Button("Settings", size="sm", elem_id="open-settings", scale=0)


def _dock(ui: dict[str, Any], backend: Backend, start: StartContent) -> list[gr.Button]:
    """Build the dock at the bottom of the screen: prompt, Run and Stop, lanes, the settings line,
    examples."""
    with gr.Column(elem_id="dock"):
        _next(ui)
        tries = _ask(ui, start, backend.targets())
        with gr.Row(elem_id="under"):
            ui["methods"] = board.picker(
                backend.cards, start, picker_rows.speeds_apply(backend.targets(), None)
            )
            board.summary()
        with gr.Row(elem_id="sampling"):
            ui |= zip(("temperature", "top_p", "length", "seed", "repeats", "prompts"), controls.sampling())
            controls.seed_note(backend.cards)
    return tries


def _next(ui: dict[str, Any]) -> None:
    """Build the choices after an answer; shown only if there is something to choose."""
    with gr.Row(elem_id="next"):
        ui["lane"] = gr.Radio(
            choices=[], label="The lanes differ: continue from", visible=False, elem_id="lane"
        )
        ui["follow"] = gr.Button(visible=False, size="sm", elem_id="follow")


def _chatbar(ui: dict[str, Any]) -> None:
    """Build the actions on the conversation, in the prompt's row in place of the examples."""
    with gr.Row(visible=False, elem_id="chatbar") as ui["bar"]:
        ui["save"] = gr.Button("Save trace", size="sm", elem_id="save")
        ui["edit"] = gr.Button("Edit last", size="sm", elem_id="edit")
        ui["new"] = gr.Button("New chat", size="sm", elem_id="new-chat")


def _ask(ui: dict[str, Any], start: StartContent, targets: list[dict[str, str]]) -> list[gr.Button]:
    ui["notice"] = board.text_line("notice")
    board.language_warning(targets)
    ui["request"].append(board.picture(targets))
    with gr.Row(elem_id="ask", equal_height=True):
        ui["prompt"] = controls.prompt()
        tries = _examples(start)
        _chatbar(ui)
        ui["run"] = gr.Button("Run", variant="primary", elem_id="run", scale=0, min_width=96)
        ui["stop"] = gr.Button(
            "Stop", variant="secondary", interactive=False, elem_id="stop", scale=0, min_width=96
        )
    return tries


def _examples(start: StartContent) -> list[gr.Button]:
    with gr.Row(elem_id="examples"):
        return [
            gr.Button(example["name"], size="sm", elem_id=f"example-{i}")
            for i, example in enumerate(start.examples)
        ]


def _settings(ui: dict[str, Any], backend: Backend) -> None:
    with gr.Sidebar(open=False, position="right", width=340, elem_id="settings") as ui["sidebar"]:
        gr.HTML("<h2>Settings</h2>", apply_default_css=False, js_on_load=None)
        ui["target"] = controls.target(backend.targets())
        board.about_target(backend.targets())
        ui["draft"] = controls.draft(backend.drafts(None))
        ui["system"] = controls.system()
        ui["predicted"] = controls.predicted()
        ui["request"] = request_fields.fields()
        ui["knob_place"] = gr.Column(elem_id="knobs")
        board.own_model()
        board.doctor()


def _knobs(demo: gr.Blocks, ui: dict[str, Any], hands: Handlers) -> None:
    """Build the knobs of the chosen methods, in the sidebar; values persist when a method is removed and
    chosen again."""
    cards = hands.backend.cards

    with ui["knob_place"]:
        # one rendering at a time: Gradio's numbering of new components is not thread-safe
        @gr.render(
            inputs=[ui["methods"], ui["knobs"], ui["target"], ui["draft"]],
            concurrency_limit=1,
            concurrency_id="knobs",
            show_progress="hidden",
            triggers=[
                demo.load,
                ui["methods"].change,
                ui["target"].change,
                ui["draft"].change,
                ui["tabs"].input,
                ui["tabs"].select,
                ui["tabs"].submit,
            ],
        )
        def knobs(picked: str, given: dict | None, target: str | None, draft: str | None) -> None:
            for key in lanes_picked(picked, cards):
                card = cards[key]
                if not card.knobs:
                    continue
                with gr.Group(elem_classes="knobgroup"):
                    gr.HTML(f"<h3>{card.title}</h3>", apply_default_css=False, js_on_load=None)
                    values = [
                        controls.widget_value(k, given.get(key) if isinstance(given, dict) else None)
                        for k in card.knobs
                    ]
                    off = hands.excluded_choices(key, values)
                    most = hands.knob_limits(key, target, draft)
                    widgets: dict[str, Any] = {
                        k.name: controls.widget(
                            k,
                            value,
                            f"knob-{key}-{k.name}",
                            json_for_html(off.get(k.name, {})),
                            most.get(k.name),
                        )
                        for k, value in zip(card.knobs, values)
                    }
                    note = board.text_line(f"knobs-{key}", *hands.incompatible_knobs(key, values))
                # .input and not .change: a change event also comes when a knob appears, maybe for a
                # rendering that has been replaced
                turned, inputs = [w.input for w in widgets.values()], list(widgets.values())
                quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
                usual = json_for_html([[knob.name, knob.default] for knob in card.knobs])
                keep = f"(given, ...values) => SpecVizPage.keep({json_for_html(key)}, {usual}, given, values)"
                gr.on(turned, None, [ui["knobs"], *inputs], ui["knobs"], js=keep, **quiet)
                gr.on(
                    turned,
                    hands.knob_rules(key),
                    inputs,
                    [note, *(widgets[name] for name in off)],
                    queue=False,
                    trigger_mode="always_last",
                    **quiet,
                )


def _listen(demo: gr.Blocks, ui: dict[str, Any], hands: Handlers, tries: list[gr.Button]) -> None:
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    at_once: dict[str, Any] = quiet | {"queue": False}
    begun = gr.on(
        [ui["run"].click, ui["prompt"].submit],
        hands.begin,
        *_begin(ui),
        trigger_mode="once",
        concurrency_limit=None,
        **quiet,
    )
    _watch(begun, ui, hands)
    ui["stop"].click(hands.stop, None, ui["stop"], **at_once)
    ended = [
        ui[n] for n in ("chat", "conversation", "lane", "bar", "follow", "prompt", "notice", "board", "stop")
    ]
    ui["new"].click(hands.new_chat, [ui["chat"]], ended, **at_once)
    ui["edit"].click(hands.edit, [ui["chat"]], ended, **at_once)
    ui["settings"].click(
        None, None, None, js="() => document.querySelector('#settings .toggle-button').click()", **quiet
    )
    ui["conversation"].select(
        hands.open_turn, [ui["chat"]], [ui[n] for n in ("board", "conversation", "notice")], **at_once
    )
    ui["board"].select(hands.painted, None, None, **at_once)
    ui["follow"].click(None, ui["follow"], ui["prompt"], js="(text) => text", **quiet)
    ui["save"].click(None, ui["board"], None, js=board.read_script("save.js"), **quiet)
    known = [ui["models"], ui["methods"]]
    pair = [ui["target"], ui["draft"]]
    demo.load(hands.page_opened, None, ui["models"], **at_once).then(hands.preloaded, pair, known, **at_once)
    chosen = [*known, ui["draft"], ui["notice"]]
    gr.on(
        [ui["target"].change, ui["draft"].change],
        hands.models_chosen,
        pair,
        chosen,
        js="(...pair) => SpecVizPage.chooseModels(...pair)",
        **at_once,
    )
    touches = [
        ui["prompt"].focus,
        ui["methods"].focus,
        ui["methods"].change,
        ui["sidebar"].expand,
        *(button.click for button in tries),
    ]
    warmed = gr.on(
        touches, hands.preload, pair, ui["models"], trigger_mode="once", concurrency_limit=None, **quiet
    )
    warmed.then(hands.preloaded, pair, known, **at_once)


CHOICE = (
    "prompt",
    "methods",
    "knobs",
    "temperature",
    "top_p",
    "length",
    "seed",
    "repeats",
    "prompts",
    "system",
    "target",
    "draft",
    "predicted",
    "generation",
)  # as in links.js
BEGIN_INPUTS = (*CHOICE, "lane", "chat")
BEGIN_OUTPUTS = ("run", "stop", "notice", "prompt", "lane", "follow", "conversation", "models")
FINISH_OUTPUTS = (
    *(name for name in BEGIN_OUTPUTS if name not in ("notice", "conversation")),
    "chat",
    "bar",
    "methods",
)


def _begin(ui: dict[str, Any]) -> tuple[list, list]:
    """Connect inputs and outputs of the listener that begins a run."""
    return [ui[name] for name in BEGIN_INPUTS], [ui[name] for name in BEGIN_OUTPUTS]


def _watch(begun: Any, ui: dict[str, Any], hands: Handlers) -> None:
    """After a run has begun: connect its frames, then its end."""
    quiet: dict[str, Any] = {
        "show_progress": "hidden",
        "api_visibility": "private",
        "concurrency_limit": None,
    }
    begun.then(hands.watch, None, [ui["board"], ui["stop"]], **quiet).then(
        hands.finish, [ui["chat"], ui["prompt"]], [ui[name] for name in FINISH_OUTPUTS], **quiet
    )


def _steer(demo: gr.Blocks, ui: dict[str, Any], hands: Handlers) -> None:
    """Connect requests of links and panels: they fill the controls, and may press Run. The browser fills
    them without the server."""
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    choice = [ui[name] for name in CHOICE]
    take = "(...values) => SpecVizPage.take(...values)"
    taken = [*choice, ui["notice"]]
    spread = {
        "fn": None,
        "inputs": ui["generation"],
        "outputs": ui["request"],
        "js": "(given) => SpecVizPage.spread(given)",
    } | quiet
    demo.load(None, choice, taken, js="(...values) => SpecVizPage.first(...values)", **quiet).then(**spread)
    ui["tabs"].input(None, choice, taken, js=take, **quiet).then(**spread)
    opened = [ui[name] for name in ("chat", "conversation", "lane", "follow", "bar", "stop")]
    applied = ui["tabs"].apply(None, choice, taken, js=take, **quiet).then(**spread)
    applied.then(hands.opened, ui["chat"], opened, queue=False, **quiet)
    asked_for = ui["tabs"].select(None, choice, taken, js=take, **quiet).then(**spread)
    filled = ui["tabs"].submit(None, choice, taken, js=take, **quiet).then(**spread)
    afresh = filled.then(hands.start_over, ui["chat"], ui["chat"], queue=False, **quiet)
    for ready in (asked_for, afresh):
        _watch(ready.then(hands.begin, *_begin(ui), concurrency_limit=None, **quiet), ui, hands)
    ui["present"].click(None, None, None, js="() => SpecVizPage.present()", **quiet)
    ui["share"].click(None, choice, ui["notice"], js="(...values) => SpecVizPage.share(...values)", **quiet)


def _try(ui: dict[str, Any], tries: list[gr.Button], start: StartContent, cards: dict[str, Any]) -> None:
    """Connect an example: it fills the prompt, chooses its methods and shows a hint, in the browser without
    the server."""
    for button, example in zip(tries, start.examples):
        methods = list(example["methods"] or start.chosen)
        shown = {
            "prompt": example["prompt"],
            "look": example.get("look", ""),
            "methods": methods,
            "titles": [cards[key].title for key in methods],
            "set": {name: example[name] for name in ("target", "temperature", "length") if name in example}
            or None,
        }
        button.click(
            None,
            ui["methods"],
            [ui["prompt"], ui["notice"], ui["methods"]],
            api_visibility="private",
            js=f"(chosen) => SpecVizPage.example({json_for_html(shown)}, chosen)",
        )
