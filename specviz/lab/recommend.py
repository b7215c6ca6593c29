"""Recommend a method for a server: published and measured speed-ups (assets/recommend.yaml, assets/bench.json)
for one's own model, engine, machine and number of users.

Each method is represented by the figure whose setting is nearest to the request; every difference between
the two is listed, and so is the range of all figures. Methods with a figure for this load come first, by
speed-up; plain decoding is listed with 1. Nothing is interpolated. Acceptance rates that a server reports
become an estimate (acceptance_rates.py).
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any

import yaml

from .. import ASSETS
from . import LabError
from .acceptance_rates import estimate, read_rates
from .server_models import ServerModel, server_models

FILE = ASSETS / "recommend.yaml"  # recommendations by hardware and task
BENCH = ASSETS / "bench.json"  # measured speeds
SHOWN = 3
LONGEST_TEXT = 4000
NAME = re.compile(r"[\w.:/-]{1,120}")  # of a model; it stands in a command
WEIGHTS = {  # of settings that differ when figures are compared; one that a source does not state counts half
    "users": 32,
    "temperature": 8,
    "experts": 8,
    "card": 1,
    "task": 3,
    "model": 2,
    "engine": 2,
}
OTHER_KIND = 5  # more weight for a processor instead of an accelerator, or the other way round
EXPERTS = re.compile(r"\d+x\d+b|\ba\d+(\.\d+)?b\b|moe(?![a-z])", re.IGNORECASE)  # 8x7B, A3B, OLMoE
DRAFT_TOKEN = 0.1  # plain passes that a draft token may cost where nothing is known of the draft
CLEAR = 1.05  # times plain decoding: less is within the noise of published figures
DRAFT_LENGTH = re.compile(
    r'("num_speculative_tokens": |max_draft_len: |--speculative-num-steps |prompt_lookup_num_tokens=)\d+'
)
DRAFT_NODES = re.compile(r"(--speculative-num-draft-tokens )\d+")  # of SGLang's chains: with the root


@cache
def _table() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def questions(name: Any = None) -> dict[str, Any]:
    """Return {question: {title, answers: {key: text}}}, in the order in which they are asked. A question for a
    number has ``least`` and ``most`` instead of answers; one for a text has neither, and ``name`` lists the
    known models with their answers: {options: {name: {question: answer}}}."""
    named = _table()["questions"]
    models = named["model"]["models"]
    answers = {
        key: text.format(models=", ".join(models.get(key, ())))
        for key, text in named["model"]["answers"].items()
    }
    options = {model.name: model.answers for model in server_models(_table()).values()}
    return named | {
        "name": named["name"] | {"options": options},
        "model": {"title": named["model"]["title"], "answers": answers},
    }


def offered(card: str) -> tuple[list[str], list[str]]:
    """Return the engines that offer a method of the catalogue and the models that bring what it needs, by
    their names."""
    table = _table()
    engines, models = table["questions"]["engine"]["answers"], table["questions"]["model"]["models"]
    methods = [
        method
        for method in table["methods"].values()
        if method["card"] == card and method.get("searched", True)
    ]
    return (
        [
            name
            for key, name in engines.items()
            if any(key in method["flags"] for method in methods)
            or card in table["engines"][key].get("also", ())
        ],
        [name for method in methods for need in method.get("needs", ()) for name in models.get(need, ())],
    )


def recommend(**asked: Any) -> dict[str, Any]:
    """Recommend methods. asked: {question: answer}: a key, a number or a text; the first answer, the least
    number or no text where none is given. A known model's name answers the questions about it.

    Return {asked, documents, verdict, measured, few, warnings, answers, others}. verdict: {pays: True, False or
    None if it depends, reasons: [code]}. measured: the estimate from the rates (acceptance_rates.estimate), or
    None. few: why there are fewer than three answers, or empty. warnings: {identifier: sentence}.
    An answer: {method, title, card, paper, note, flags, figure: {speedup, setting, source} or None,
    differs: [{what, theirs}], range: {low, high, count, users} or None}, best first; users: whether the
    range is of figures for about as many users; None for fewer than two figures. Raises LabError."""
    table = _table()
    chosen = {name: _read(name, about, asked.get(name)) for name, about in table["questions"].items()}
    model = server_models(table).get(chosen["name"].lower())
    if model is not None:
        chosen |= {"name": model.name} | model.answers
        # a head is one way, a draft model of the family another
        kinds = {"head", "family"} if model.head and model.draft else {model.answers["model"]}
    else:
        kinds = {chosen["model"]}
        if EXPERTS.search(chosen["name"]):
            chosen |= {"experts": "moe"}
    possible = [
        key
        for key, method in table["methods"].items()
        if chosen["engine"] in method["flags"] and kinds & set(method.get("needs", kinds))
    ]
    measured = _measured_rates(chosen, model)
    large, paid = _too_large(model), measured is not None and _rates_pay(measured)
    answers = sorted(
        (_answer(key, chosen, model, measured) for key in possible), key=lambda one: _order(one, large, paid)
    )
    no_figure = measured is None and answers[0]["method"] == "plain"
    other_load = [one["method"] for one in answers if any(d["what"] == "users" for d in one["differs"])]
    unsure = _may_pay(other_load, chosen, model) if no_figure else set()
    answers.sort(key=lambda one: one["method"] not in unsure)
    engine = table["engines"][chosen["engine"]]
    few = engine.get("few", {}).get(chosen["model"], "") if len(answers) < SHOWN else ""
    return {
        "asked": chosen,
        "documents": engine["documents"],
        "verdict": _verdict(answers, chosen, large, measured, bool(unsure)),
        "measured": measured,
        "few": few,
        "warnings": _warnings(chosen),
        "answers": answers[:SHOWN],
        "others": [{"method": one["method"], "title": one["title"]} for one in answers[SHOWN:]],
    }


def _read(name: str, about: dict[str, Any], given: Any) -> Any:
    """Return the answer to a question. Raises LabError."""
    if "answers" in about:
        answer = next(iter(about["answers"])) if given is None else given
        if not isinstance(answer, str) or answer not in about["answers"]:
            raise LabError(f"{name} is one of {', '.join(about['answers'])}.", "recommend.answer")
        return answer
    if "least" in about:
        number = about["least"] if given is None else given
        if type(number) is not int or not about["least"] <= number <= about["most"]:
            raise LabError(
                f"{name} is a whole number from {about['least']} to {about['most']}.", "recommend.number"
            )
        return number
    text = "" if given is None else given
    if (
        not isinstance(text, str)
        or len(text) > LONGEST_TEXT
        or (name == "name" and text and not NAME.fullmatch(text))
    ):
        raise LabError(
            f"{name} is a text of at most {LONGEST_TEXT} characters; a model's name has letters, digits and . : / - _ only.",
            "recommend.text",
        )
    return text.strip()


def _warnings(chosen: dict[str, Any]) -> dict[str, str]:
    """Return {identifier: sentence} of what is known to go wrong with these answers."""
    return {
        code: about["text"]
        for question, answers in _table()["warnings"].items()
        for code, about in answers.get(chosen[question], {}).items()
        if chosen["engine"] in about.get("engines", [chosen["engine"]])
    }


def experts_read(experts: int, used: int, rows: int) -> float:
    """Return how many times as many experts a pass over ``rows`` tokens reads as a pass over one: the
    expected union, if each token chooses ``used`` of ``experts`` on its own. Real tokens share more, so
    this is an upper bound."""
    return experts * (1 - (1 - used / experts) ** rows) / used


def will_it_pay(
    active: float, draft: float, acceptance: float, experts: int = 0, used: int = 0
) -> dict[str, Any]:
    """Estimate whether a draft model pays for one request, where the time of a pass is the time to read the
    weights. active, draft: active parameters of the target and parameters of the draft, in the same unit;
    acceptance: of a draft token; experts, used: of each layer, per token; 0 for a dense model.

    Return {speedups: [of 1, 2, ... draft tokens], best: the draft length with the highest, 0 if none is
    above 1, pays}. Raises LabError."""
    if not (
        active > 0 and draft >= 0 and 0 <= acceptance < 1 and 0 <= used <= experts and (used or not experts)
    ):
        raise LabError(
            "active is above 0, draft 0 or more, acceptance from 0 to below 1, and no token uses more experts than there are.",
            "recommend.pays",
        )
    longest = _table()["pays"]["longest"]
    rates = [acceptance**place for place in range(1, longest + 1)]
    found = estimate(rates, 1, None, draft / active, _reading(longest, experts, used))
    return {"speedups": found["speedups"], "best": found["best"], "pays": found["best"] > 0}


def _reading(longest: int, experts: int, used: int) -> list[float]:
    """Return how many times as long reading the weights takes with 1, 2, ... draft tokens."""
    if not experts:
        return [1.0] * longest
    share = _table()["pays"]["expert_share"]
    return [1 - share + share * experts_read(experts, used, length + 1) for length in range(1, longest + 1)]


def _measured_rates(chosen: dict[str, Any], model: ServerModel | None) -> dict[str, Any] | None:
    """Return the estimate from the rates of the request, with the rates and with what it knows nothing of:
    "card" without a data sheet, "draft" without sizes; doubtful: whether a draft token that costs DRAFT_TOKEN
    passes would leave no gain. None without rates. Raises LabError."""
    if not chosen["rates"]:
        return None
    rates = read_rates(chosen["rates"])
    sheet = _table()["cards"].get(chosen["card"])
    knee = 1000 * sheet["arithmetic"] / sheet["bandwidth"] if sheet else None
    sized = (
        model is not None and model.active > 0 and model.draft_size > 0 and model.answers["model"] == "family"
    )
    share = model.draft_size / model.active if sized and model is not None else 0.0
    used, experts = model.routed if model is not None else (0, 0)
    unknown = [name for name, known in (("card", sheet), ("draft", sized)) if not known]
    reading = _reading(len(rates), experts, used)
    found = estimate(rates, chosen["users"], knee, share, reading)
    careful = found if sized else estimate(rates, chosen["users"], knee, DRAFT_TOKEN, reading)
    return found | {"rates": rates, "unknown": unknown, "doubtful": not _rates_pay(careful)}


def _answer(
    key: str, chosen: dict[str, Any], model: ServerModel | None, measured: dict[str, Any] | None
) -> dict[str, Any]:
    method = _table()["methods"][key]
    figures = [figure for figure in (*_table()["figures"], *_measured()) if figure["method"] == key]
    apart = [(figure, _differences(figure, chosen, model)) for figure in figures]
    figure, differs = min(apart, key=lambda one: sum(found["weight"] for found in one[1]), default=(None, []))
    return {
        "method": key,
        "title": method["title"],
        "card": method["card"],
        "paper": method.get("paper", ""),
        "note": method["note"],
        "flags": _command(method, chosen, model, measured),
        "figure": figure and {name: figure[name] for name in ("speedup", "setting", "source")},
        "differs": [{"what": one["what"], "theirs": one["theirs"]} for one in differs],
        "range": _range(apart) if key != "plain" else None,
    }


def _command(
    method: dict[str, Any], chosen: dict[str, Any], model: ServerModel | None, measured: dict[str, Any] | None
) -> str:
    """Return the engine's flags with the names that are known, and the draft length that measured rates
    advise."""
    flags = method["flags"][chosen["engine"]]
    if chosen["tools"] == "calls":
        flags = method.get("with_tools", {}).get(chosen["engine"], flags)
    head, draft = (model.head, model.draft) if model is not None else ("", "")
    for place, name in (("EAGLE3-HEAD", head), ("DRAFT", draft), ("MODEL", chosen["name"])):
        if name:  # llama.cpp takes files, whose names a name on the hub does not tell
            flags = re.sub(rf"\b{place}\b(?!\.gguf)", lambda _, name=name: name, flags)
    if measured and measured["best"]:
        flags = DRAFT_LENGTH.sub(rf"\g<1>{measured['best']}", flags)
        if "--speculative-eagle-topk 1" in flags:
            flags = DRAFT_NODES.sub(rf"\g<1>{measured['best'] + 1}", flags)
    return flags


def _range(apart: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> dict[str, Any] | None:
    """Return the range of a method's figures: of those for about as many users, or of all if there are none.
    None for fewer than two."""
    near = [figure["speedup"] for figure, differs in apart if all(one["what"] != "users" for one in differs)]
    speedups = near or [figure["speedup"] for figure, _ in apart]
    if len(speedups) < 2:
        return None
    return {"low": min(speedups), "high": max(speedups), "count": len(speedups), "users": bool(near)}


def _differences(
    figure: dict[str, Any], chosen: dict[str, Any], model: ServerModel | None
) -> list[dict[str, Any]]:
    """Return how a figure's setting differs from the request: {what, theirs: its value, empty if its source does
    not say, weight}."""
    if figure["task"] == "every":  # plain decoding
        return []
    words = {name: about.get("answers", {}) for name, about in _table()["questions"].items()}
    batch = figure.get("batch", 0)
    mine = (model.short if model is not None else chosen["name"].rpartition("/")[2]).lower()
    theirs = {
        "users": (f"{batch}" if batch else "", batch / 2 <= chosen["users"] <= 2 * batch),
        "engine": (words["engine"].get(figure.get("engine"), figure.get("engine", "")), None),
        "model": (figure.get("model", ""), bool(mine) and figure.get("model", "").lower() == mine),
        "card": (words["card"].get(figure.get("card"), figure.get("card", "")), None),
        "temperature": (words["temperature"].get(figure.get("temperature"), ""), None),
        "experts": (
            words["experts"][figure.get("experts", "dense")],
            figure.get("experts", "dense") == chosen["experts"],
        ),
        "task": (words["task"].get(figure["task"], "several tasks"), None),
    }
    found = []
    for what, (value, same) in theirs.items():
        if same is None:
            same = figure.get(what) == chosen[what]
        if not same:
            kind = what == "card" and (figure.get("card") == "cpu") != (chosen["card"] == "cpu")
            weight = WEIGHTS[what] + OTHER_KIND * kind
            if what == "users" and batch:
                weight += abs(math.log2(batch / chosen["users"]))
            found.append({"what": what, "theirs": value, "weight": weight if value else weight / 2})
    return found


def _order(answer: dict[str, Any], large: bool, paid: bool) -> tuple[bool, bool, float]:
    """Return the sort key: figures for this load first, then by speed-up; methods without a figure last, and
    a draft model that is too large. Plain decoding is the last where measured rates pay."""
    figure = answer["figure"]
    elsewhere = any(one["what"] in ("users", "experts") for one in answer["differs"])
    last = elsewhere or figure is None or (large and answer["method"] == "draft_model")
    return paid and answer["method"] == "plain", last, -(figure["speedup"] if figure else 0.0)


def _verdict(
    answers: list[dict[str, Any]],
    chosen: dict[str, Any],
    large: bool,
    measured: dict[str, Any] | None,
    unsure: bool,
) -> dict[str, Any]:
    """Return {pays, reasons}: whether speculation pays here, by the measured rates if there are any, else by
    the published figures and the sizes. large: the model's draft is too large; unsure: whether a method
    ``_may_pay``."""
    if measured is not None:
        pays = _rates_pay(measured)
        if pays and measured["doubtful"]:
            return {"pays": None, "reasons": ["rates.draft"]}
        return {"pays": pays, "reasons": ["rates.pay" if pays else "rates.lose"]}
    best = answers[0]
    reasons = ["draft.large"] if large and any(one["method"] == "draft_model" for one in answers) else []
    if chosen["experts"] == "moe" and EXPERTS.search(chosen["name"]):
        reasons.append("experts.named")
    if unsure:
        return {"pays": None, "reasons": [*reasons, "users.between"]}
    if best["method"] == "plain":
        none = "experts.none" if chosen["experts"] == "moe" else "figures.none"
        return {"pays": False, "reasons": [*reasons, "users.none" if chosen["users"] > 1 else none]}
    if best["figure"]["speedup"] <= CLEAR:
        return {"pays": False, "reasons": [*reasons, "figures.low"]}
    if chosen["experts"] == "moe":
        return {"pays": None, "reasons": [*reasons, "experts.measure"]}
    low = (best["range"] or best["figure"]).get("low", best["figure"]["speedup"])
    return {"pays": True if low > 1 else None, "reasons": [*reasons, "figures.range"]}


def _may_pay(methods: list[str], chosen: dict[str, Any], model: ServerModel | None) -> set[str]:
    """Return those of ``methods`` that have a figure above plain decoding, of as many experts, for more users than
    these, or for this very model and an unknown number of users: that none is for these users says nothing then."""
    found = set()
    for figure in (*_table()["figures"], *_measured()):
        if figure["method"] not in methods or figure["speedup"] <= CLEAR:
            continue
        apart, batch = {one["what"] for one in _differences(figure, chosen, model)}, figure.get("batch", 0)
        if "experts" not in apart and (batch >= chosen["users"] if batch else "model" not in apart):
            found.add(figure["method"])
    return found


def _rates_pay(measured: dict[str, Any]) -> bool:
    return measured["best"] > 0 and max(measured["speedups"]) > CLEAR


def _too_large(model: ServerModel | None) -> bool:
    """Return whether the draft of a model loses at a good acceptance."""
    if model is None or not model.active or not model.draft_size:
        return False
    used, experts = model.routed
    found = will_it_pay(model.active, model.draft_size, _table()["pays"]["good"], experts, used)
    return max(found["speedups"]) <= CLEAR


@cache
def _measured() -> tuple[dict[str, Any], ...]:
    """Return the figures of assets/bench.json: batch size 1, all tasks."""
    plain = {"method": "plain", "speedup": 1.0, "task": "every", "setting": "by definition", "source": ""}
    try:
        found = json.loads(BENCH.read_text(encoding="utf-8"))
        where, speedups = str(found["where"]).split(", torch")[0], found["speedups"]
    except (OSError, ValueError, LookupError, TypeError):
        return (plain,)
    rows = [
        {
            "method": key,
            "speedup": round(speedups[method["card"]][column], 2),
            "task": "any",
            "temperature": temperature,
            "batch": 1,
            "engine": "specviz",
            "model": found["target"],
            "card": "cpu",
            "setting": f"measured: {found['target']}, {where}",
            "source": "docs/bench.md",
        }
        for key, method in _table()["methods"].items()
        if key != "plain" and method.get("card_counts", True)
        for column, temperature in (("0", "greedy"), ("1", "sampled"))
        if column in speedups.get(method["card"], {})
    ]
    return (plain, *rows)
