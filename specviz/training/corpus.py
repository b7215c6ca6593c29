"""The project's own rows: everything a reader needs to run the pipeline without any data folder.

Each maker draws one (prompt, response) pair. The edit rows are the ones that matter beyond tests:
copying, renaming and reformatting are what n-gram drafters live on, and a target learns to copy
only if it is shown a great deal of it (induction heads: Olsson et al., 2209.11895).
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
def words() -> dict:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def make_rows(count: int, seed: int) -> list[Row]:
    """`count` rows, kinds in turn, so that any slice of some length has all six tasks."""
    dice, kinds = random.Random(seed), list(KINDS)
    rows = []
    for index in range(count):
        name = kinds[index % len(kinds)]
        task, make = KINDS[name]
        rows.append(Row(task, f"generated-{name}", *make(dice)))
    return rows


def fill(dice: random.Random, frame: str, **fixed: str) -> str:
    """A frame with its holes filled; one call keeps each name to one person."""
    w = words()
    name, other = dice.sample(w["names"], 2)
    singular = {"animals": "animal", "traits": "trait", "places": "place", "things": "thing", "colours": "colour"}
    singular |= {"foods": "food", "feelings": "feeling", "weather": "weather", "goods": "goods"}
    holes = {hole: dice.choice(w[key]) for key, hole in singular.items()}
    holes |= {"name": name, "other": other, "number": str(dice.randint(2, 99))} | fixed
    text = frame.format(**holes)
    return text[0].upper() + text[1:]


def sentences(dice: random.Random, low: int = 2, high: int = 5, **fixed: str) -> list[str]:
    frames = dice.sample(words()["sentences"], dice.randint(low, high))
    return [fill(dice, frame, **fixed) for frame in frames]


def story(dice):
    w = words()
    name, other = dice.sample(w["names"], 2)
    same = {"name": name, "other": other} | {h: dice.choice(w[k]) for h, k in (("thing", "things"), ("colour", "colours"))}
    parts = w["stories"]
    middle = dice.sample(parts["turns"], dice.randint(2, 3))
    frames = [dice.choice(parts["openings"]), dice.choice(parts["wants"]), *middle, dice.choice(parts["endings"])]
    ask = dice.choice(["Write a short story about {name}.", "Tell me a story about {name} and a {thing}.", "Tell a story about a {thing}."])
    return ask.format(**same), " ".join(fill(dice, frame, **same) for frame in frames)


def copy(dice):
    text = " ".join(sentences(dice))
    return dice.choice(["Copy this text:", "Repeat the following text word for word:", "Say this again:"]) + "\n" + text, text


def rename(dice):
    old, new = dice.sample(words()["names"], 2)
    text = " ".join([f"{old} went to {dice.choice(words()['places'])}."] + sentences(dice, 2, 4, name=old))
    return f"Rewrite this text with the name {old} changed to {new}:\n{text}", text.replace(old, new)


def quote(dice):
    lines = sentences(dice, 3, 5)
    chosen = dice.choice(lines)
    word = max((word.strip(".,") for word in chosen.split()), key=len)
    holder = next(line for line in lines if word in line)
    return f'Which sentence contains the word "{word}"?\n' + " ".join(lines), f'"{holder}"'


def typo(dice):
    text = " ".join(sentences(dice, 2, 3))
    parts = text.split(" ")
    swaps = [(i, at) for i, word in enumerate(parts) for at in range(1, len(word) - 3) if word[at] != word[at + 1]]
    index, at = dice.choice(swaps)
    word = parts[index]
    broken = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return "Fix the typo in this text:\n" + " ".join([*parts[:index], broken, *parts[index + 1 :]]), text


def numbered(dice):
    lines = sentences(dice, 3, 5)
    answer = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    return "Put each sentence on its own numbered line:\n" + " ".join(lines), answer


def arithmetic(dice):
    a, b, sign = dice.randint(2, 99), dice.randint(2, 99), dice.choice("+-*")
    result = {"+": a + b, "-": a - b, "*": a * b}[sign]
    return dice.choice(["What is {}?", "Calculate {}.", "{} ="]).format(f"{a} {sign} {b}"), f"{a} {sign} {b} = {result}."


def word_problem(dice):
    w = words()
    name, goods, boxes = dice.choice(w["names"]), dice.choice(w["goods"]), dice.choice(w["boxes"])
    a, b, c = dice.randint(2, 12), dice.randint(2, 12), dice.randint(1, 20)
    prompt = f"{name} has {a} {boxes} with {b} {goods} each and finds {c} more {goods}. How many {goods} are there?"
    return prompt, f"{a} * {b} = {a * b}.\n{a * b} + {c} = {a * b + c}.\nThe answer is {a * b + c}."


def python(dice):
    what, body = dice.choice(words()["functions"])
    a, b = dice.sample(words()["arguments"], 2)
    return f"Write a Python function that {what.format(a=a, b=b)}.", f"```python\n{body.format(a=a, b=b)}\n```"


def greeting(dice):
    asks, answers = dice.choice(words()["greetings"])
    ask = dice.choice(asks)
    return dice.choice([ask, ask.lower(), ask + "!"]) if not ask.endswith("?") else ask, dice.choice(answers)


def follow_up(dice):
    """A second turn over the text of the first, as one prompt: a chat that goes on."""
    topic = fill(dice, "{name} has a {colour} {thing}.")
    text = " ".join([topic, *sentences(dice, 1, 3)])
    kind = dice.randrange(3)
    if kind == 0:
        return f"{text}\nSay the first sentence again.", topic
    if kind == 1:
        return f"{text}\nWrite that in capital letters.", text.upper()
    return f"{text}\nHow many sentences is that?", f"That is {text.count('.')} sentences."


def records(dice) -> list[dict[str, str]]:
    w = words()
    keys = dice.sample(["name", "city", "count", "colour", "item"], 3)
    draw = {
        "name": lambda: dice.choice(w["names"]),
        "city": lambda: dice.choice(["Oslo", "Lima", "Cairo", "Kyoto", "Turin", "Perth"]),
        "count": lambda: str(dice.randint(1, 99)),
        "colour": lambda: dice.choice(w["colours"]),
        "item": lambda: dice.choice(w["things"]),
    }
    return [{key: draw[key]() for key in keys} for _ in range(dice.randint(2, 4))]


def as_csv(rows):
    return "\n".join([",".join(rows[0])] + [",".join(row.values()) for row in rows])


def as_markdown(rows):
    def line(cells):
        return "| " + " | ".join(cells) + " |"

    return "\n".join([line(rows[0]), line(["---"] * len(rows[0])), *(line(row.values()) for row in rows)])


def as_json(rows):
    return "[\n" + ",\n".join("  " + json.dumps(row) for row in rows) + "\n]"


def convert(dice):
    forms = {"CSV": as_csv, "a markdown table": as_markdown, "JSON": as_json}
    source, target = dice.sample(list(forms), 2)
    rows = records(dice)
    return f"Convert this from {source} to {target}:\n{forms[source](rows)}", forms[target](rows)


def describe(dice):
    ask, answer = dice.choice(words()["prose"])
    w = words()
    same = {h: dice.choice(w[k]) for h, k in (("thing", "things"), ("weather", "weather"), ("trait", "traits"))}
    return fill(dice, ask, **same), fill(dice, answer, **same)


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
