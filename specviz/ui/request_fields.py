"""Fields of a request in the Settings: penalties, filters, stop strings and structured output.

They fill one hidden component with the fields that differ from their defaults (static/request_fields.js);
runs, links and reloads use that one value.
"""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
from gradio.components import Component

from ..engine.limits import ANSWERS, GENERATION

NUMBERS = (  # name, default, step, label, help
    ("n", 1, 1, "Answers (n)", f"1 to {ANSWERS}"),
    ("top_k", 0, 1, "Top-k", "0: off"),
    ("min_p", 0, 0.01, "Min-p", "0: off"),
    ("repetition_penalty", 1, 0.05, "Repetition penalty", "1: off"),
    ("presence_penalty", 0, 0.1, "Presence penalty", "0: off"),
    ("frequency_penalty", 0, 0.1, "Frequency penalty", "0: off"),
    ("min_tokens", 0, 1, "Min tokens", "before an end"),
    ("guidance_scale", 1, 0.5, "Guidance scale", "1: off; pictures"),
)
OTHERS = tuple(
    name
    for name in GENERATION  # without a widget of their own
    if name
    not in (
        *(number[0] for number in NUMBERS),
        "stop",
        "generation_config",
        "response_format",
        "image",
        "hide_image",
    )
)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "city": {"type": "string", "maxLength": 24},
    },
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}
EXAMPLES = (
    ("A person, JSON schema", PERSON),
    ("Yes, no or maybe", {"type": "choice", "choice": ["yes", "no", "maybe"]}),
    ("A date, regular expression", {"type": "regex", "regex": "(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]"}),
)


def fields() -> list[Component]:
    """Return the widgets in the order of static/request_fields.js. The component for the picture before the
    prompt (board.picture) comes after them."""
    with gr.Group(elem_id="request", elem_classes="knobgroup"):
        gr.HTML("<h3>Request</h3>", apply_default_css=False, js_on_load=None)
        with gr.Row():
            widgets: list[Any] = [
                gr.Number(
                    default,
                    label=label,
                    info=about,
                    step=step,
                    min_width=132,
                    elem_id=f"request-{name.replace('_', '-')}",
                )
                for name, default, step, label, about in NUMBERS
            ]
        widgets.append(
            gr.Textbox(
                label="Stop texts",
                info="One a line; the answer ends before it.",
                lines=1,
                max_lines=4,
                elem_id="request-stop",
            )
        )
        widgets.append(
            gr.Checkbox(
                label="The model's own settings",
                elem_id="request-generation-config",
                info="Where a field has its default, temperature and top-p included, generation_config.json decides.",
            )
        )
        examples = gr.Dropdown(
            [("None", ""), *((title, json.dumps(value, indent=1)) for title, value in EXAMPLES)],
            value="",
            label="Structured output",
            info="An example to begin with.",
            elem_id="request-example",
        )
        about = (
            'A JSON schema, or {"type": "regex", "regex": ...}, "choice", "lark". The answer must match it.'
        )
        widgets.append(
            gr.Textbox(
                label="Schema or response_format", info=about, lines=2, max_lines=10, elem_id="request-format"
            )
        )
        widgets.append(
            gr.Textbox(
                label="Other fields, as JSON",
                info=f"{', '.join(OTHERS)}.",
                lines=1,
                max_lines=6,
                elem_id="request-others",
                placeholder='{"bad_words": ["cat"], "logprobs": 3}',
            )
        )
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    examples.input(None, examples, widgets[-2], js="(text) => text", **quiet)
    return widgets


def connect(widgets: list[Any], generation: gr.JSON) -> None:
    """Keep the hidden component ``generation`` equal to the widgets' values."""
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    pasted = [
        widget.change for widget in widgets if isinstance(widget, gr.Textbox)
    ]  # a text that comes at once is no input to Gradio
    changed = [widget.input for widget in widgets] + pasted
    gr.on(changed, None, widgets, generation, js="(...values) => SpecVizPage.generation(...values)", **quiet)
