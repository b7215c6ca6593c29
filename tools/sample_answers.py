"""Write forty unedited answers of the default chat model into its card: ``python -m
tools.sample_answers``.

Twenty prompts as visitors type them, each answered by plain decoding at temperature 0 and at 0.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specviz.core import Sampling
from specviz.evidence.looping import loops
from specviz.run import Session
from specviz.trace.events import Committed, Finished, TextEmitted
from specviz.trace.file_writer import write_file
from specviz.zoo import Loaded, load

PROMPTS = (
    "What is the capital of France?",
    "Why is the sky blue?",
    "Write a polite email asking my professor for an extension.",
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "List five things to pack for a weekend in the mountains.",
    "Explain what a neural network is to a ten-year-old.",
    "Rewrite in a formal tone: hey, can u send me the report asap? thx",
    "Give me a recipe for pancakes.",
    "Summarise in one sentence: The meeting was moved from Tuesday to Thursday because two of the speakers were ill.",
    "Who wrote Romeo and Juliet?",
    "What is 17 plus 25?",
    "Tell me a short story about a turtle.",
    "What are the planets of the solar system, in order?",
    "Translate to French: Good morning, how are you?",
    "Write a haiku about autumn.",
    "How do I boil an egg?",
    "What is the difference between a list and a tuple in Python?",
    "Write a SQL query that counts the orders of each customer.",
    "Give me three ideas for a birthday present for my sister.",
    "What should I do if I cannot sleep?",
)
TEMPERATURES = (0.0, 0.7)  # of the sample answers
SEED = 0
MOST = 128  # tokens of an answer
HEADING = "## Forty answers"


def generate_answers(loaded: Loaded) -> Iterator[tuple[str, float, str, list[str]]]:
    """Yield (prompt, temperature, text, remarks) for each prompt and temperature."""
    for number, prompt in enumerate(PROMPTS):
        for temperature in TEMPERATURES:
            events = list(
                Session(loaded, "autoregressive", None, Sampling(temperature, seed=SEED + number)).run(
                    prompt, MOST
                )
            )
            committed = [event for event in events if isinstance(event, Committed)]
            ids = [token for event in committed for token in event.tokens]
            cut = any(isinstance(event, Finished) and event.finish == "length" for event in events)
            pieces = [
                piece[1] for event in events if isinstance(event, TextEmitted) for piece in event.pieces
            ]
            text = b"".join(pieces).decode("utf-8", "replace").strip()
            yield (
                prompt,
                temperature,
                text,
                ["goes round in circles"] * loops(ids) + [f"cut after {MOST} tokens"] * cut,
            )


def section(loaded: Loaded) -> str:
    """Return the model card's section with the answers, as Markdown."""
    lines = [
        HEADING,
        "",
        f"Unedited, at most {MOST} tokens, temperature 0 and 0.7 (seed {SEED} and up). Made by "
        "`python -m tools.sample_answers`.",
        "",
    ]
    for prompt, temperature, text, remarks in generate_answers(loaded):
        lines += [f"### {prompt}", ""] * (temperature == TEMPERATURES[0])
        lines += [
            f"Temperature {temperature:g}{''.join(f', {remark}' for remark in remarks)}:",
            "",
            "~~~~~text",
            text,
            "~~~~~",
            "",
        ]
    return "\n".join(lines)


def write(loaded: Loaded) -> Path:
    """Replace the section in the card of the loaded target, or append it; return the card's path."""
    card = loaded.folder / "README.md"
    kept = card.read_text(encoding="utf-8").split(HEADING)[0].rstrip()
    write_file(card, f"{kept}\n\n{section(loaded)}")
    return card


if __name__ == "__main__":
    print(write(load()))
