"""The project's own training examples, so that recipes run without a data folder.

Each generator returns one (prompt, response) pair. The examples of edits matter beyond tests: n-gram
drafters depend on copying, renaming and reformatting, and a target learns to copy only with many examples
(induction heads: Olsson et al., 2209.11895)."""

import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Row:
    """One training example: a prompt, its response, its task ("story", "edit", ...) and where it comes
    from."""

    task: str
    source: str
    prompt: str
    response: str


@cache
def word_lists() -> dict:
    """Return the words and sentence templates of corpus.yaml."""
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def make_rows(count: int, seed: int) -> list[Row]:
    """Return ``count`` generated rows. The generators of KINDS take turns, so that a few consecutive rows
    cover all six tasks."""
    rng, kinds = random.Random(seed), list(KINDS)
    rows = []
    for index in range(count):
        name = kinds[index % len(kinds)]
        task, make = KINDS[name]
        rows.append(Row(task, f"generated-{name}", *make(rng)))
    return rows


def fill_template(rng: random.Random, frame: str, **fixed: str) -> str:
    """Fill the placeholders of a sentence template with random words; within one call a placeholder for a
    name keeps its value. fixed: values of some placeholders."""
    w = word_lists()
    name, other = rng.sample(w["names"], 2)
    singular = {
        "animals": "animal",
        "traits": "trait",
        "places": "place",
        "things": "thing",
        "colours": "colour",
    }
    singular |= {"foods": "food", "feelings": "feeling", "weather": "weather", "goods": "goods"}
    holes = {hole: rng.choice(w[key]) for key, hole in singular.items()}
    holes |= {"name": name, "other": other, "number": str(rng.randint(2, 99))} | fixed
    text = frame.format(**holes)
    return text[0].upper() + text[1:]


def sentences(rng: random.Random, low: int = 2, high: int = 5, **fixed: str) -> list[str]:
    """Return ``low`` to ``high`` random sentences. fixed: values of some placeholders."""
    frames = rng.sample(word_lists()["sentences"], rng.randint(low, high))
    return [fill_template(rng, frame, **fixed) for frame in frames]


def story(rng):
    """Return (prompt, response): a request for a short story, and a story from templates."""
    w = word_lists()
    name, other = rng.sample(w["names"], 2)
    same = {"name": name, "other": other} | {
        h: rng.choice(w[k]) for h, k in (("thing", "things"), ("colour", "colours"))
    }
    parts = w["stories"]
    middle = rng.sample(parts["turns"], rng.randint(2, 3))
    frames = [
        rng.choice(parts["openings"]),
        rng.choice(parts["wants"]),
        *middle,
        rng.choice(parts["endings"]),
    ]
    ask = rng.choice(
        [
            "Write a short story about {name}.",
            "Tell me a story about {name} and a {thing}.",
            "Tell a story about a {thing}.",
        ]
    )
    return ask.format(**same), " ".join(fill_template(rng, frame, **same) for frame in frames)


def copy(rng):
    """Return (prompt, response): a text to be repeated word for word."""
    text = " ".join(sentences(rng))
    return rng.choice(
        ["Copy this text:", "Repeat the following text word for word:", "Say this again:"]
    ) + "\n" + text, text


def rename(rng):
    """Return (prompt, response): a text in which one name is to be replaced by another."""
    old, new = rng.sample(word_lists()["names"], 2)
    text = " ".join([f"{old} went to {rng.choice(word_lists()['places'])}."] + sentences(rng, 2, 4, name=old))
    return f"Rewrite this text with the name {old} changed to {new}:\n{text}", text.replace(old, new)


def quote(rng):
    """Return (prompt, response): a text, and the sentence of it that contains a given word."""
    lines = sentences(rng, 3, 5)
    chosen = rng.choice(lines)
    word = max((word.strip(".,") for word in chosen.split()), key=len)
    holder = next(line for line in lines if word in line)
    return f'Which sentence contains the word "{word}"?\n' + " ".join(lines), f'"{holder}"'


def typo(rng):
    """Return (prompt, response): a text with two letters swapped in a word, and the text without the
    mistake."""
    text = " ".join(sentences(rng, 2, 3))
    parts = text.split(" ")
    swaps = [
        (i, at) for i, word in enumerate(parts) for at in range(1, len(word) - 3) if word[at] != word[at + 1]
    ]
    index, at = rng.choice(swaps)
    word = parts[index]
    broken = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return "Fix the typo in this text:\n" + " ".join([*parts[:index], broken, *parts[index + 1 :]]), text


def numbered(rng):
    """Return (prompt, response): sentences, and the same sentences as a numbered list."""
    lines = sentences(rng, 3, 5)
    answer = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    return "Put each sentence on its own numbered line:\n" + " ".join(lines), answer


def arithmetic(rng):
    """Return (prompt, response): a sum, difference or product of two numbers, and its result."""
    a = rng.randint(2, 99)
    b = rng.randint(2, 99)
    sign = rng.choice("+-*")
    result = {"+": a + b, "-": a - b, "*": a * b}[sign]
    return rng.choice(["What is {}?", "Calculate {}.", "{} ="]).format(
        f"{a} {sign} {b}"
    ), f"{a} {sign} {b} = {result}."


def word_problem(rng):
    """Return (prompt, response): a word problem with a product and a sum, and its solution in steps."""
    w = word_lists()
    name = rng.choice(w["names"])
    goods = rng.choice(w["goods"])
    boxes = rng.choice(w["boxes"])
    a = rng.randint(2, 12)
    b = rng.randint(2, 12)
    c = rng.randint(1, 20)
    prompt = f"{name} has {a} {boxes} with {b} {goods} each and finds {c} more {goods}. How many {goods} are there?"
    return prompt, f"{a} * {b} = {a * b}.\n{a * b} + {c} = {a * b + c}.\nThe answer is {a * b + c}."


def python(rng):
    """Return (prompt, response): a description of a short Python function, and its code."""
    what, body = rng.choice(word_lists()["functions"])
    a, b = rng.sample(word_lists()["arguments"], 2)
    return (
        f"Write a Python function that {what.format(a=a, b=b)}.",
        f"```python\n{body.format(a=a, b=b)}\n```",
    )


def greeting(rng):
    """Return (prompt, response): a greeting or a short question to an assistant, and an answer."""
    asks, answers = rng.choice(word_lists()["greetings"])
    ask = rng.choice(asks)
    return rng.choice([ask, ask.lower(), ask + "!"]) if not ask.endswith("?") else ask, rng.choice(answers)


def follow_up(rng):
    """Return (prompt, response): a first turn with a second question about it, and the answer."""
    topic = fill_template(rng, "{name} has a {colour} {thing}.")
    text = " ".join([topic, *sentences(rng, 1, 3)])
    kind = rng.randrange(3)
    if kind == 0:
        return f"{text}\nSay the first sentence again.", topic
    if kind == 1:
        return f"{text}\nWrite that in capital letters.", text.upper()
    return f"{text}\nHow many sentences is that?", f"That is {text.count('.')} sentences."


def random_records(rng) -> list[dict[str, str]]:
    """Return two to four records with the same three keys and random values."""
    w = word_lists()
    keys = rng.sample(["name", "city", "count", "colour", "item"], 3)
    draw = {
        "name": lambda: rng.choice(w["names"]),
        "city": lambda: rng.choice(["Oslo", "Lima", "Cairo", "Kyoto", "Turin", "Perth"]),
        "count": lambda: str(rng.randint(1, 99)),
        "colour": lambda: rng.choice(w["colours"]),
        "item": lambda: rng.choice(w["things"]),
    }
    return [{key: draw[key]() for key in keys} for _ in range(rng.randint(2, 4))]


def as_csv(rows):
    """Return records as CSV text with a header line."""
    return "\n".join([",".join(rows[0])] + [",".join(row.values()) for row in rows])


def as_markdown(rows):
    """Return records as a Markdown table."""

    def line(cells):
        return "| " + " | ".join(cells) + " |"

    return "\n".join([line(rows[0]), line(["---"] * len(rows[0])), *(line(row.values()) for row in rows)])


def as_json(rows):
    """Return records as a JSON array with one record per line."""
    return "[\n" + ",\n".join("  " + json.dumps(row) for row in rows) + "\n]"


def convert(rng):
    """Return (prompt, response): records in one of the formats CSV, Markdown and JSON, and the same records
    in another."""
    forms = {"CSV": as_csv, "a markdown table": as_markdown, "JSON": as_json}
    source, target = rng.sample(list(forms), 2)
    rows = random_records(rng)
    return f"Convert this from {source} to {target}:\n{forms[source](rows)}", forms[target](rows)


def describe(rng):
    """Return (prompt, response): a request for a short description, and a paragraph from templates."""
    ask, answer = rng.choice(word_lists()["prose"])
    w = word_lists()
    same = {
        h: rng.choice(w[k]) for h, k in (("thing", "things"), ("weather", "weather"), ("trait", "traits"))
    }
    return fill_template(rng, ask, **same), fill_template(rng, answer, **same)


KINDS = {
    "story": ("story", story),
    "copy": ("edit", copy),
    "greeting": ("chat", greeting),
    "arithmetic": ("math", arithmetic),
    "python": ("code", python),
    "describe": ("prose", describe),
    "rename": ("edit", rename),
    "quote": ("edit", quote),
    "follow-up": ("chat", follow_up),
    "word-problem": ("math", word_problem),
    "typo": ("edit", typo),
    "numbered": ("edit", numbered),
    "convert": ("edit", convert),
}
