"""The project's own training rows, so that the pipeline runs without a data folder.

Each maker returns one (prompt, response) pair. The edit rows matter beyond tests: n-gram drafters depend on copying, renaming and
reformatting, and a target learns to copy only with many examples (induction heads: Olsson et al., 2209.11895).
"""

import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Row:
    task: str
    source: str
    prompt: str
    response: str


@cache
def word_lists() -> dict:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def make_rows(count: int, seed: int) -> list[Row]:
    """Return `count` rows. Kinds of rows alternate, so that any few consecutive rows cover all six tasks."""
    rng, kinds = random.Random(seed), list(KINDS)
    rows = []
    for index in range(count):
        name = kinds[index % len(kinds)]
        task, make = KINDS[name]
        rows.append(Row(task, f"generated-{name}", *make(rng)))
    return rows


def fill_template(rng: random.Random, frame: str, **fixed: str) -> str:
    """Fill the placeholders of a template with random words; a name placeholder keeps its value within one call."""
    w = word_lists()
    name, other = rng.sample(w["names"], 2)
    singular = {"animals": "animal", "traits": "trait", "places": "place", "things": "thing", "colours": "colour"}
    singular |= {"foods": "food", "feelings": "feeling", "weather": "weather", "goods": "goods"}
    holes = {hole: rng.choice(w[key]) for key, hole in singular.items()}
    holes |= {"name": name, "other": other, "number": str(rng.randint(2, 99))} | fixed
    text = frame.format(**holes)
    return text[0].upper() + text[1:]


def sentences(rng: random.Random, low: int = 2, high: int = 5, **fixed: str) -> list[str]:
    frames = rng.sample(word_lists()["sentences"], rng.randint(low, high))
    return [fill_template(rng, frame, **fixed) for frame in frames]


def story(rng):
    w = word_lists()
    name, other = rng.sample(w["names"], 2)
    same = {"name": name, "other": other} | {h: rng.choice(w[k]) for h, k in (("thing", "things"), ("colour", "colours"))}
    parts = w["stories"]
    middle = rng.sample(parts["turns"], rng.randint(2, 3))
    frames = [rng.choice(parts["openings"]), rng.choice(parts["wants"]), *middle, rng.choice(parts["endings"])]
    ask = rng.choice(["Write a short story about {name}.", "Tell me a story about {name} and a {thing}.", "Tell a story about a {thing}."])
    return ask.format(**same), " ".join(fill_template(rng, frame, **same) for frame in frames)


def copy(rng):
    text = " ".join(sentences(rng))
    return rng.choice(["Copy this text:", "Repeat the following text word for word:", "Say this again:"]) + "\n" + text, text


def rename(rng):
    old, new = rng.sample(word_lists()["names"], 2)
    text = " ".join([f"{old} went to {rng.choice(word_lists()['places'])}."] + sentences(rng, 2, 4, name=old))
    return f"Rewrite this text with the name {old} changed to {new}:\n{text}", text.replace(old, new)


def quote(rng):
    lines = sentences(rng, 3, 5)
    chosen = rng.choice(lines)
    word = max((word.strip(".,") for word in chosen.split()), key=len)
    holder = next(line for line in lines if word in line)
    return f'Which sentence contains the word "{word}"?\n' + " ".join(lines), f'"{holder}"'


def typo(rng):
    text = " ".join(sentences(rng, 2, 3))
    parts = text.split(" ")
    swaps = [(i, at) for i, word in enumerate(parts) for at in range(1, len(word) - 3) if word[at] != word[at + 1]]
    index, at = rng.choice(swaps)
    word = parts[index]
    broken = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return "Fix the typo in this text:\n" + " ".join([*parts[:index], broken, *parts[index + 1 :]]), text


def numbered(rng):
    lines = sentences(rng, 3, 5)
    answer = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    return "Put each sentence on its own numbered line:\n" + " ".join(lines), answer


def arithmetic(rng):
    a, b, sign = rng.randint(2, 99), rng.randint(2, 99), rng.choice("+-*")
    result = {"+": a + b, "-": a - b, "*": a * b}[sign]
    return rng.choice(["What is {}?", "Calculate {}.", "{} ="]).format(f"{a} {sign} {b}"), f"{a} {sign} {b} = {result}."


def word_problem(rng):
    w = word_lists()
    name, goods, boxes = rng.choice(w["names"]), rng.choice(w["goods"]), rng.choice(w["boxes"])
    a, b, c = rng.randint(2, 12), rng.randint(2, 12), rng.randint(1, 20)
    prompt = f"{name} has {a} {boxes} with {b} {goods} each and finds {c} more {goods}. How many {goods} are there?"
    return prompt, f"{a} * {b} = {a * b}.\n{a * b} + {c} = {a * b + c}.\nThe answer is {a * b + c}."


def python(rng):
    what, body = rng.choice(word_lists()["functions"])
    a, b = rng.sample(word_lists()["arguments"], 2)
    return f"Write a Python function that {what.format(a=a, b=b)}.", f"```python\n{body.format(a=a, b=b)}\n```"


def greeting(rng):
    asks, answers = rng.choice(word_lists()["greetings"])
    ask = rng.choice(asks)
    return rng.choice([ask, ask.lower(), ask + "!"]) if not ask.endswith("?") else ask, rng.choice(answers)


def follow_up(rng):
    """Return a row whose prompt contains a first turn and asks a second question about it."""
    topic = fill_template(rng, "{name} has a {colour} {thing}.")
    text = " ".join([topic, *sentences(rng, 1, 3)])
    kind = rng.randrange(3)
    if kind == 0:
        return f"{text}\nSay the first sentence again.", topic
    if kind == 1:
        return f"{text}\nWrite that in capital letters.", text.upper()
    return f"{text}\nHow many sentences is that?", f"That is {text.count('.')} sentences."


def random_records(rng) -> list[dict[str, str]]:
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
    return "\n".join([",".join(rows[0])] + [",".join(row.values()) for row in rows])


def as_markdown(rows):
    def line(cells):
        return "| " + " | ".join(cells) + " |"

    return "\n".join([line(rows[0]), line(["---"] * len(rows[0])), *(line(row.values()) for row in rows)])


def as_json(rows):
    return "[\n" + ",\n".join("  " + json.dumps(row) for row in rows) + "\n]"


def convert(rng):
    forms = {"CSV": as_csv, "a markdown table": as_markdown, "JSON": as_json}
    source, target = rng.sample(list(forms), 2)
    rows = random_records(rng)
    return f"Convert this from {source} to {target}:\n{forms[source](rows)}", forms[target](rows)


def describe(rng):
    ask, answer = rng.choice(word_lists()["prose"])
    w = word_lists()
    same = {h: rng.choice(w[k]) for h, k in (("thing", "things"), ("weather", "weather"), ("trait", "traits"))}
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
