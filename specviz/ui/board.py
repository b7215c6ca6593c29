"""The page's own components. Each is a ``gr.HTML`` with a constant template, whose value is one short JSON
string.

Text from a model or a person never enters a template, where it could be executed as markup; scripts write
it with textContent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from .. import ASSETS, ROOT
from ..engine.limits import LANES, PROMPT_CHARACTERS, VALUE_NAMES
from ..engine.stream import json_for_html
from ..lab.recordings import large_recording
from ..trace.page import gradio_parts
from ..trace.scripts import scripts_below
from . import picker_rows
from .head_script import LINK_CARD
from .start_content import StartContent
from .theme import PANELS, STATIC


def read_script(name: str) -> str:
    """Return the text of one of the page's JavaScript files."""
    return (STATIC / name).read_text(encoding="utf-8")


def board(value: str) -> gr.HTML:
    """Return the board component: all lanes, the inspector, the round navigation and the figures. Its value
    is the last few live frames (docs/TRACE.md)."""
    parts = gradio_parts(drawer=True)
    return gr.HTML(
        value,
        html_template=parts["html_template"],
        apply_default_css=False,
        elem_id="board",
        js_on_load=parts["js_on_load"] + read_script("report_paint_rate.js"),
    )


def picker(cards: dict[str, Any], start: StartContent, timed: bool) -> gr.HTML:
    """Return the component in which methods are chosen: the chosen ones as chips, and the list of all
    methods.

    Its value is a JSON list with, for each lane, a method's key or {"method": key, "knobs": {...}}.
    ``off``: a JSON object {"target": name, "why": {key: why it cannot run on that target}}; ``timed``:
    whether the displayed speeds were measured with the chosen models."""
    script_ = "\n".join(
        read_script(name) for name in ("glyphs.js", "method_list.js", "lane_tray.js", "picker.js")
    )
    return gr.HTML(
        json_for_html(start.chosen),
        html_template='<div class="pg-pick"></div>',
        js_on_load=script_,
        apply_default_css=False,
        elem_id="methods",
        cards=picker_rows.rows(cards, start.first),
        families=picker_rows.family_sentences(),
        where=picker_rows.measured_speedups()["where"],
        noise=picker_rows.measured_speedups()["noise"],
        timed=timed,
        presets=list(start.presets),
        most=LANES - 1,
        off="{}",
    )


def choice_buttons(
    label: str, info: str, choices: tuple[str, ...], value: str, elem_id: str, off: str = "{}"
) -> gr.HTML:
    """Return a component with a few choices, of which one is chosen; that is its value. ``off``: a JSON
    object {choice: why it is disabled}. (Gradio's own widgets can only be disabled as a whole.)"""
    return gr.HTML(
        value,
        html_template='<div class="pg-choice"></div>',
        js_on_load=read_script("choice.js"),
        apply_default_css=False,
        elem_id=elem_id,
        key=elem_id,
        choices=list(choices),
        names=VALUE_NAMES,
        title=label,
        help=info,
        about=elem_id,
        off=off,
    )


def text_line(elem_id: str, state: str = "", text: str = "") -> gr.HTML:
    """Return a component with one line of text that the server can change, such as a status or the reason
    of a refusal."""
    return gr.HTML(
        json_for_html({"state": state, "text": text}),
        html_template='<p class="pg-line" role="status"></p>',
        js_on_load=read_script("status_line.js"),
        apply_default_css=False,
        elem_id=elem_id,
    )


def language_warning(targets: list[dict[str, str]]) -> gr.HTML:
    """Return the component that warns of a prompt in a language that the chosen model was not trained on.
    targets: as Backend.targets returns them."""
    languages = {target["title"]: target.get("languages", "") for target in targets}
    return gr.HTML(
        "",
        languages=languages,
        html_template='<p class="pg-unknown" role="status" hidden></p>',
        js_on_load=read_script("language_warning.js"),
        apply_default_css=False,
        elem_id="unknown",
    )


def about_target(targets: list[dict[str, str]]) -> gr.HTML:
    """Return the component that says what the chosen target is and which languages it knows. targets: as
    Backend.targets returns them."""
    about = {
        target["title"]: {"about": target.get("about", ""), "languages": target.get("languages", "")}
        for target in targets
    }
    return gr.HTML(
        "",
        about=about,
        html_template='<p class="pg-about"></p>',
        js_on_load=read_script("about_target.js"),
        apply_default_css=False,
        elem_id="about-target",
    )


def picture(targets: list[dict[str, Any]]) -> gr.HTML:
    """Return the component for the picture that the target reads before the prompt: samples, an upload, and
    a switch that hides it from the target. It is shown for targets that read one. Its value is JSON {image,
    hide_image}, empty without a picture. targets: as Backend.targets returns them."""
    samples = {target["title"]: target["pictures"] for target in targets if target.get("pictures")}
    titles = {target["name"]: target["title"] for target in targets if target.get("pictures")}
    template = '<section class="pg-picture" aria-label="The picture" hidden></section>'
    return gr.HTML(
        "",
        samples=samples,
        titles=titles,
        html_template=template,
        js_on_load=read_script("picture.js"),
        apply_default_css=False,
        elem_id="picture",
    )


def summary() -> gr.HTML:
    """Return the component that shows the settings of a run in one line. A press opens the fields below
    it."""
    return gr.HTML(
        "",
        html_template='<button type="button" class="pg-set" aria-expanded="false" aria-controls="sampling"></button>',
        js_on_load=read_script("summary.js"),
        apply_default_css=False,
        elem_id="summary",
    )


def own_model() -> gr.HTML:
    """Return the component with the commands that start the page with a local folder, GGUF file or server."""
    return gr.HTML(
        "",
        html_template='<section class="pg-own" aria-label="Your own model or server"></section>',
        js_on_load=read_script("own_model.js"),
        apply_default_css=False,
        elem_id="own-model",
    )


def doctor() -> gr.HTML:
    """Return the component with a button that measures this machine and shows the report of ``specviz
    doctor``."""
    return gr.HTML(
        "",
        html_template='<section class="pg-own" aria-label="This machine"></section>',
        js_on_load=read_script("doctor.js"),
        apply_default_css=False,
        elem_id="doctor",
    )


def conversation() -> gr.HTML:
    """Return the component with the earlier turns, above the board. Its value is JSON ``{turns, shown}``;
    shown: index of the turn that the board shows, null for the last one. A ``select`` event holds the index
    of the turn to open."""
    return gr.HTML(
        "",
        html_template='<ol class="pg-chat" aria-label="Conversation so far"></ol>',
        js_on_load=read_script("chat.js"),
        apply_default_css=False,
        elem_id="conversation",
    )


def plotly_file() -> Path:
    """Return the path of plotly.js in the plotly package. The page serves this file, so that it contacts no
    other host."""
    import plotly

    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def tabs(targets: list[dict[str, str]], days: int) -> gr.HTML:
    """Return the component that switches between the five tabs. Its value stays empty; panels and links
    send requests by its events. targets: as Backend.targets returns them; days: for which the server keeps
    a run for its link, 0: not at all."""
    return gr.HTML(
        "",
        html_template='<div class="pg-tabs" role="tablist" aria-label="Views"></div>',
        apply_default_css=False,
        js_on_load="SpecVizPage.start(element, props, trigger);",
        elem_id="tabs",
        files=panel_files(),
        story=story_files(),
        large=large_recording() or "",
        days=days,
        models={target["model"]: target["name"] for target in targets},
        titles={target["title"]: target["model"] for target in targets},
        most_characters=PROMPT_CHARACTERS,
        drafts={target["name"]: target.get("draft", "") for target in targets},
    )


def panel_container(name: str) -> gr.HTML:
    """Return an empty container for a panel of assets/panels. The panel is drawn when its tab is first
    opened."""
    return gr.HTML(
        "",
        html_template='<div class="pg-host"></div>',
        js_on_load=None,
        apply_default_css=False,
        elem_id=f"host-{name}",
    )


def panel_files() -> list[str]:
    """Return the names of the panels' scripts, in dependency order."""
    return scripts_below(PANELS, "P|SpecVizPanels")


def story_files() -> list[str]:
    """Return the names of the scripts with which the page opens: the story's scenes and what they need, in
    dependency order."""
    return scripts_below(PANELS, "P|SpecVizPanels", only="story_scenes")


LINKED_FILES = ("README.md", "CITATION.cff", "LICENSE", "CHANGELOG.md")  # the footer links to them


def own_files() -> dict[str, Path]:
    """Return {name: path} of the files that the page may fetch or links to while it is open. No other file
    is served, and no path is exposed."""
    linked = {name: ROOT / name for name in LINKED_FILES if (ROOT / name).is_file()}
    panels = {f"{name}.js": PANELS / f"{name}.js" for name in panel_files()}
    return linked | {"plotly.js": plotly_file(), LINK_CARD: ASSETS / LINK_CARD} | panels


# The preview of a link to the page, and the icon of its tab: blocks of one, two and three tokens.
ABOUT = "Watch several tokens arrive from one pass of a large model: every guess, every verdict, every method, live."
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' height='32' rx='7' "
    "fill='%231a1c20'/%3E%3Cpath d='M6 9h5v14H6zM13 9h6v14h-6zM21 9h5v14h-5z' fill='%2356B4E9'/%3E%3C/svg%3E"
)
CARD = (
    f'<link rel="icon" type="image/svg+xml" href="{ICON}"><meta name="description" content="{ABOUT}">'
    '<meta property="og:type" content="website"><meta property="og:title" content="specviz: speculative decoding, made visible">'
    f'<meta property="og:description" content="{ABOUT}"><meta name="twitter:card" content="summary_large_image">'
    '<meta name="twitter:title" content="specviz: speculative decoding, made visible">'
    f'<meta name="twitter:description" content="{ABOUT}">'
)


def page_script() -> str:
    """Return the HTML of the page's own script. It loads plotly.js at the first touch, or when the page has
    been idle for a while, never before the first paint."""
    names = (
        "fast_clone.js",
        "server_questions.js",
        "answer_trace.js",
        "request_fields.js",
        "pack_trace.js",
        "stored_runs.js",
        "availability.js",
        "remember.js",
        "links.js",
        "cut_off.js",
        "opening.js",
        "tabs.js",
        "page_details.js",
    )
    own = "\n".join(read_script(name) for name in names)
    return f"<script>{own}\n{read_script('load_plotly.js')}</script>"
