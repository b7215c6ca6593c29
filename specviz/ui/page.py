"""The page: what is where. Everything it offers comes from the catalogue and from files under assets; see handlers for events."""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import gradio as gr
import yaml

from . import board, controls, stream
from .api import Api
from .chat import Chat
from .handlers import FIRST, Handlers
from .limits import BASELINE, LANES, WAITING
from .stream import Backend
from .theme import css, theme

ASSETS = Path(__file__).resolve().parents[2] / "assets"
TITLE = "specviz"
SAYS = "A small model guesses ahead, the large one checks: watch every token that is kept or refused."


def build_app(backend: Backend, *, warm: bool = True, recorded: Path = ASSETS / "traces" / "first.jsonl",
              examples: Path = ASSETS / "prompts" / "examples.yaml") -> gr.Blocks:
    """The page for one backend. ``warm``: load the models when somebody first touches the page, not only at the first run."""
    hands = Handlers(backend, warm)
    ui = hands.ui
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=(3600, 3600)) as demo:
        _settings(ui)
        with gr.Column(elem_id="page"):
            _top(ui)
            _ask(ui)
            _examples(ui, read_examples(examples))
            with gr.Row(elem_id="choices"):
                ui["methods"] = board.picker(backend.cards, first_choice(backend.cards))
                with gr.Row(elem_id="sampling"):
                    ui["temperature"], ui["top_p"], ui["length"], ui["seed"] = controls.sampling()
            with gr.Row(visible=False, elem_id="chatbar") as ui["bar"]:
                ui["lane"] = gr.Radio(choices=[], label="The lanes differ: continue from", visible=False, elem_id="lane")
                ui["edit"] = gr.Button("Edit last message", size="sm", elem_id="edit")
                ui["new"] = gr.Button("New chat", size="sm", elem_id="new-chat")
            ui["conversation"] = board.conversation()
            ui["board"] = board.board(_recorded(recorded))
        ui["chat"] = gr.State(Chat(), time_to_live=6 * 3600)
        ui["knobs"] = gr.JSON({}, visible=False)
        _knobs(demo, ui, hands)
        _listen(ui, hands)
        demo.unload(hands.leave)
        Api(backend, hands.turnstile).offer()
    demo.queue(max_size=2 * WAITING, default_concurrency_limit=None, api_open=False)
    return demo


def launch(demo: gr.Blocks, **options: Any) -> Any:
    """Serve the page: on this machine only, unless a Space or the environment says otherwise."""
    gr.set_static_paths([board.plotly_file()])
    settings: dict[str, Any] = {
        "theme": theme(), "css": css(), "head": board.head(), "show_error": False, "enable_monitoring": False,
        "run_history": False, "ssr_mode": False, "share": False, "pwa": False, "max_file_size": "1mb", "footer_links": [],
        "server_name": os.environ.get("GRADIO_SERVER_NAME") or ("0.0.0.0" if os.environ.get("SPACE_ID") else "127.0.0.1"),
        "server_port": int(os.environ.get("GRADIO_SERVER_PORT") or 7860), "state_session_capacity": 1000,
    }
    return demo.launch(**(settings | options))


def _top(ui: dict[str, Any]) -> None:
    with gr.Row(elem_id="top"):
        gr.HTML(f'<h1>{TITLE}</h1><p>{SAYS}</p>', elem_id="title", apply_default_css=False, js_on_load=None)
        ui["models"] = board.line("models", "idle", "Models load when you begin")
        ui["settings"] = gr.Button("Settings", size="sm", elem_id="open-settings", scale=0)


def _ask(ui: dict[str, Any]) -> None:
    with gr.Row(elem_id="ask", equal_height=True):
        ui["prompt"] = controls.prompt()
        ui["run"] = gr.Button("Run", variant="primary", elem_id="run", scale=0, min_width=96)
        ui["stop"] = gr.Button("Stop", variant="secondary", interactive=False, elem_id="stop", scale=0, min_width=80)
    ui["notice"] = board.line("notice")


def _examples(ui: dict[str, Any], examples: list[dict[str, str]]) -> None:
    with gr.Row(elem_id="examples"):
        gr.HTML("<span>Try</span>", apply_default_css=False, js_on_load=None, elem_id="try")
        for i, example in enumerate(examples):
            button = gr.Button(example["name"], size="sm", elem_id=f"example-{i}")
            texts = json.dumps([example["prompt"], json.dumps({"state": "look", "text": example.get("look", "")})])
            button.click(None, None, [ui["prompt"], ui["notice"]], js=f"() => {texts}", api_visibility="private")


def _settings(ui: dict[str, Any]) -> None:
    with gr.Sidebar(open=False, position="right", width=340, elem_id="settings") as ui["sidebar"]:
        gr.HTML("<h2>Settings</h2>", apply_default_css=False, js_on_load=None)
        ui["system"] = controls.system()
        ui["knob_place"] = gr.Column(elem_id="knobs")


def _knobs(demo: gr.Blocks, ui: dict[str, Any], hands: Handlers) -> None:
    """The knobs of the chosen methods, in the sidebar; what is set stays set when a method is taken away and put back."""
    cards = hands.backend.cards

    with ui["knob_place"]:
        @gr.render(inputs=[ui["methods"], ui["knobs"]], triggers=[demo.load, ui["methods"].change], queue=False, show_progress="hidden")
        def knobs(picked: str, given: dict | None) -> None:
            for key in json.loads(picked or "[]"):
                card = cards.get(key)
                if card is None or not card.knobs:
                    continue
                with gr.Group(elem_classes="knobgroup"):
                    gr.HTML(f"<h3>{card.title}</h3>", apply_default_css=False, js_on_load=None)
                    widgets = [controls.widget(k, (given or {}).get(key, {}).get(k.name, k.default), f"knob-{key}-{k.name}")
                               for k in card.knobs]
                gr.on([w.change for w in widgets], hands.keeper([(key, k.name) for k in card.knobs]), [ui["knobs"], *widgets],
                      ui["knobs"], queue=False, show_progress="hidden", api_visibility="private")


def _listen(ui: dict[str, Any], hands: Handlers) -> None:
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    at_once = quiet | {"queue": False}
    asked = [ui[n] for n in ("prompt", "methods", "knobs", "temperature", "top_p", "length", "seed", "system", "lane", "chat")]
    told = [ui[n] for n in ("board", "run", "stop", "notice", "prompt", "lane", "conversation", "chat", "bar", "models", "methods")]
    gr.on([ui["run"].click, ui["prompt"].submit], hands.run, asked, told, trigger_mode="once", concurrency_limit=None, **quiet)
    ui["stop"].click(hands.stop, None, ui["stop"], **at_once)
    ui["new"].click(hands.new_chat, [ui["chat"]],
                    [ui[n] for n in ("chat", "conversation", "lane", "bar", "prompt", "notice", "board", "stop")], **at_once)
    ui["edit"].click(hands.edit, [ui["chat"], ui["lane"]],
                     [ui[n] for n in ("chat", "prompt", "lane", "bar", "conversation", "notice")], **at_once)
    ui["settings"].click(lambda: gr.Sidebar(open=True), None, ui["sidebar"], **at_once)
    ui["conversation"].select(hands.open_turn, [ui["chat"]], [ui[n] for n in ("board", "conversation", "notice")], **at_once)
    gr.on([ui["prompt"].focus, ui["methods"].change, ui["sidebar"].expand], hands.touch, None, [ui["models"], ui["methods"]],
          trigger_mode="once", concurrency_limit=None, **quiet)


def first_choice(cards: dict[str, Any]) -> list[str]:
    """Before anybody chose: the first method of each family in the catalogue's order, two of them."""
    first = list({card.family: key for key, card in reversed(cards.items()) if key != BASELINE}.values())
    return [key for key in cards if key in first][:min(2, LANES - 1)]


def read_examples(path: Path) -> list[dict[str, str]]:
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8")) or []
        return [row for row in rows if isinstance(row, dict) and isinstance(row.get("name"), str) and isinstance(row.get("prompt"), str)]
    except (OSError, yaml.YAMLError):
        return []


def _recorded(path: Path) -> str:
    """The recorded run that is on the board before anybody has done anything; an empty board where there is none."""
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError):
        return stream.empty(0, "Write a prompt and press Run.")
    return stream.shown(0, records)
