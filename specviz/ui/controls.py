"""A method's knobs as widgets, made from its card, so that a new method needs no code here."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr
from gradio.components import Component

from ..core.method import MOST_CHARACTERS
from ..engine.limits import NO_DRAFT
from ..engine.messages import text
from . import board

NAMED = 3  # methods that a note names before it counts the rest
LABELS = {"gamma": "draft length (gamma)"}  # knobs that have a plainer name than the field's letter


def widget(knob: Any, value: Any, elem_id: str, off: str = "{}", most: float | None = None) -> Component:
    """Return the widget of one knob: buttons for choices, a checkbox for a switch, else a slider. ``off``:
    as in board.choice_buttons; ``most``: the highest value that the models allow, or how many of the
    choices, if they limit it."""
    label = LABELS.get(knob.name) or knob.name.replace("_", " ")
    label = label[:1].upper() + label[1:]
    if knob.choices:
        usable = knob.choices if most is None else knob.choices[: int(most)]
        return board.choice_buttons(
            label, knob.help, usable, value if value in usable else knob.default, elem_id, off
        )
    common = {
        "label": label,
        "info": knob.help or None,
        "value": value,
        "elem_id": elem_id,
        "key": elem_id,
        "interactive": True,
    }
    if isinstance(knob.default, bool):
        return gr.Checkbox(**common)
    if isinstance(knob.default, str):
        return gr.Textbox(**common, max_length=MOST_CHARACTERS, lines=1)
    step = 1 if isinstance(knob.default, int) else _step(knob.high - knob.low)
    high = knob.high if most is None else max(knob.low, min(knob.high, most))
    return gr.Slider(
        knob.low, high, step=step, **common | {"value": min(value, high), "interactive": high > knob.low}
    )


def _step(reach: float) -> float:
    """Return a slider step of about a hundredth of the range, rounded."""
    step = 1.0
    while step * 50 > reach:
        step /= 10
    return step


def widget_value(knob: Any, given: Any) -> Any:
    """Return the value that a knob's widget shows for given settings; the default if they do not fit the
    knob."""
    value = given.get(knob.name) if isinstance(given, dict) else None
    if knob.choices:
        return value if value in knob.choices else knob.default
    if isinstance(knob.default, bool):
        return value if isinstance(value, bool) else knob.default
    if isinstance(knob.default, str):
        return value if isinstance(value, str) else knob.default
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and knob.low <= value <= knob.high
    return value if fits else knob.default


def incompatible_choices(knobs: Any, values: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return {knob: {choice: message}} for the choices that are incompatible with the other knobs' values;
    the message names both and a compatible alternative."""
    rules = [(knob.name, *rule) for knob in knobs for rule in knob.only_with]
    return {
        knob.name: {
            choice: why
            for choice in knob.choices
            if (why := _why_not(knob.name, rules, values | {knob.name: choice}))
        }
        for knob in knobs
        if knob.choices
    }


def _why_not(
    asked: str, rules: list[tuple[str, str, str, tuple[Any, ...]]], held: dict[str, Any]
) -> str | None:
    for name, choice, other, values in rules:
        if asked in (name, other) and held[name] == choice and held[other] not in values:
            *most, last = map(str, values)
            allowed = f"{', '.join(most)} or {last}" if most else last
            return text(
                "knob.pair",
                name=name.capitalize(),
                choice=choice,
                other=other,
                allowed=allowed,
                value=held[other],
                change=other if asked == name else name,
            )
    return None


def sampling() -> tuple[gr.Number, ...]:
    """Return the widgets of a run's sampling fields. They have no limits of their own, because limits.py
    checks every value."""
    return (
        gr.Number(0, label="Temperature", step=0.1, elem_id="temperature", min_width=104),
        gr.Number(1, label="Top-p", step=0.05, elem_id="top-p", min_width=104),
        gr.Number(96, label="Max tokens", step=8, elem_id="length", min_width=104),
        gr.Number(0, label="Seed", step=1, elem_id="seed", min_width=104),
        gr.Number(1, label="Repeats", step=1, elem_id="repeats", min_width=104),
        gr.Number(1, label="Prompts at once", step=1, elem_id="prompts", min_width=104),
    )


def seed_note(cards: dict[str, Any]) -> gr.HTML:
    """Return a component that lists what the seed does not determine."""
    titles = [card.title for card in cards.values() if card.decides_by_time]
    more = f" and {len(titles) - NAMED} more" if len(titles) > NAMED else ""
    note = escape(text("field.seed_note", titles=", ".join(titles[:NAMED]), more=more))
    return gr.HTML(
        f'<p class="pg-small">{note}</p>', elem_id="seed-note", apply_default_css=False, js_on_load=None
    )


def prompt() -> gr.Textbox:
    """Return the prompt box."""
    return gr.Textbox(
        label="Prompt",
        placeholder=text("chat.placeholder"),
        lines=1,
        max_lines=6,
        elem_id="prompt",
        scale=8,
        autofocus=False,
        submit_btn=False,
    )


def target(choices: list[dict[str, str]]) -> gr.Dropdown:
    """Return the widget for the target. Any text may be typed; the server refuses unknown models."""
    return gr.Dropdown(
        [(c["title"], c["name"]) for c in choices],
        value="",
        label="Model",
        allow_custom_value=True,
        info="Another one is loaded with the next run.",
        elem_id="target",
    )


def drafts(found: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Return the choices for the draft model as (label, value): the target's own, each of ``found``, or
    none."""
    return [("The target's own", ""), *((d["title"], d["name"]) for d in found), ("None", NO_DRAFT)]


def draft(found: list[dict[str, str]]) -> gr.Dropdown:
    """Return the widget for the draft model."""
    return gr.Dropdown(
        drafts(found),
        value="",
        label="Draft model",
        allow_custom_value=True,
        elem_id="draft",
        info="The small model that guesses ahead. Which shape drafts fastest is worth a try.",
    )


def predicted() -> gr.Textbox:
    """Return the box for a text that the answer is expected to resemble."""
    return gr.Textbox(
        label="Predicted output",
        info="A text that the answer is expected to be like: Predicted output drafts from it.",
        lines=3,
        max_lines=8,
        elem_id="predicted",
    )


def system() -> gr.Textbox:
    """Return the box for the system prompt."""
    return gr.Textbox(
        label="System prompt", info="Read before the conversation.", lines=3, max_lines=8, elem_id="system"
    )
