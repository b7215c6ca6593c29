"""Measure the trained models: print the figures, store them as JSON, and write them into the model cards.

Target: held-out loss by task, the copying loss, and thirty unedited answers. Draft model: acceptance by
position and mean accepted length (tokens per target pass, bonus token included; papers: block efficiency),
greedy and at temperature 1, replayed on held-out answers. Every drafter: the same on the real engine, and
its speed relative to plain decoding (drafters.py).
"""

import dataclasses
import re
from pathlib import Path

import torch
from transformers import AutoTokenizer

from ..models.pretrained import open_network
from . import acceptance, answers, data, drafters, target
from . import text_answers as generate
from .files import write_bytes, write_json, write_text
from .job import Job, fingerprint

BEGIN = "<!-- report: begin -->"  # marks the report in a card
END = "<!-- report: end -->"
LAST_RUN = re.compile(r"^Last training run: .*\n(\n!\[loss\]\(loss\.svg\)\n)?", re.M)


def run(job: Job) -> Path:
    """Measure the trained models, write the figures into their cards, and return the path of report.json."""
    hparams = job.hparams("report")
    job = dataclasses.replace(job, prefer_shipped=job.ship)  # the shipped cards are about the shipped weights
    found: dict = {} if job.report_kinds else {"target": target_figures(job, hparams)}
    if not job.report_kinds or "draft" in job.report_kinds:
        found["draft"] = draft_figures(job, hparams)
    found["drafters"] = drafters.run(job, hparams)
    path = job.folder() / "report.json"
    if not job.report_kinds:
        write_json(path, found)
    for name, text in card_texts(job, found, hparams).items():
        print(text)
        place = job.model_folder(name)
        if place == job.shipped_folder(name) and not job.ship:
            continue  # the shipped cards change only when asked
        curve = curve_of(job, name)
        if curve.is_file():
            write_bytes(place / "loss.svg", curve.read_bytes())
        write_into_card(place / "README.md", name, text)
    if not job.report_kinds:
        job.log(
            "report",
            held_out=found["target"]["held_out_loss"],
            **{m: t["mean"] for m, t in found["draft"].items()},
        )
    return path


def card_texts(job: Job, found: dict, hparams: dict) -> dict[str, str]:
    """Return {model name: text for its card}. found: the figures, as ``run`` collects them."""
    engine = found["drafters"]
    out = {job.target: target_text(found["target"], drafters.summary(engine))} if "target" in found else {}
    if "draft" in found:
        out[job.model_name("draft")] = draft_text(found["draft"], hparams["gamma"])
    for name in dict.fromkeys(method["model"] for method in engine["methods"].values()):
        out[name] = f"{out.get(name, '')}\n{drafters.table(engine, name)}".lstrip()
    return {
        name: text + ("" if name == job.target else training_text(job, name)) for name, text in out.items()
    }


def curve_of(job: Job, name: str):
    """Return the path of the loss curve of a model."""
    return job.work / recipe_of(job, name) / fingerprint(job.model(job.target)) / "loss.svg"


def recipe_of(job: Job, name: str) -> str:
    """Return the name of the recipe that trains a model."""
    return name.removeprefix(job.model_name(""))


def target_figures(job: Job, hparams: dict) -> dict:
    """Return the target's figures: parameters, held-out loss by task, loss on repeated spans, share of
    looping answers, and sample answers."""
    tokenizer, model = load_model(job, job.target)
    heldout = data.load(job.data, "heldout", hparams["own_rows"])
    asked = answers.questions(job, hparams)
    answered = answers.greedy_answers(
        job, model, tokenizer, [(one.task, one.text) for one in asked], hparams["new_tokens"]
    )
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "held_out_loss": target.loss_by_task(model, tokenizer, heldout, hparams),
        "induction": target.copying_loss(model, tokenizer, hparams),
        "looping": answers.looping_share(job, model, tokenizer, heldout, hparams),
        "answers": [
            {"task": one.task, "prompt": one.title, "answer": tokenizer.decode(ids)}
            for one, ids in zip(asked, answered)
        ],
    }


def load_model(job: Job, name: str) -> tuple:
    """Return (tokenizer, network in evaluation mode) of a model."""
    path = job.model(name)
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    return tokenizer, open_network(path, torch.float32).eval()


def draft_figures(job: Job, hparams: dict) -> dict:
    """Return the acceptance figures of the draft model, replayed on held-out answers (acceptance.tables)."""
    model = open_network(job.model(job.model_name("draft")), torch.float32).eval()
    replayed = generate.read(generate.folder(job) / "heldout")
    return acceptance.tables(model.to(job.torch_device()), replayed, hparams["gamma"])


def target_text(found: dict, summary: str) -> str:
    """Return the target's figures as Markdown. summary: the table of its drafters."""
    rows = "\n".join(f"| {task} | {loss:.2f} |" for task, loss in found["held_out_loss"].items())
    shown = "\n".join(
        f"**{a['task']}**: {_quoted(a['prompt'])}\n\n```text\n{a['answer'].replace('```', '` ` `')}\n```\n"
        for a in found["answers"]
    )
    return (
        f"{found['parameters'] / 1e6:.1f} M parameters.\n\n"
        f"| task | loss on held-out answers (nats a token) |\n| --- | --- |\n{rows}\n\n"
        f"Loss on the second saying of a random span: {found['induction']:.2f} (a model that copies comes near 0).\n\n"
        f"{looping_sentence(found)}\n\n"
        f"{summary}\n\n"
        f"### Answers, greedy, unedited\n\nPrompts written for this card; answers are cut at their end or at the limit.\n\n{shown}"
    )


def looping_sentence(found: dict) -> str:
    """Return a sentence on the share of greedy answers that loop."""
    return f"{found['looping']:.0%} of its greedy answers to held-out prompts say some {data.GRAM} tokens {data.TIMES} times."


def draft_text(found: dict, gamma: int) -> str:
    """Return the draft model's figures as Markdown tables."""
    lines = []
    for mode, title in (("greedy", "Greedy"), ("sampled", "Temperature 1")):
        if mode not in found:
            continue
        lines += [f"### {title}, gamma {gamma}", ""]
        lines += [
            "| task | block efficiency | acceptance rate | accepted at position 1.." + str(gamma) + " |",
            "| --- | --- | --- | --- |",
        ]
        for task, row in found[mode].items():
            places = " ".join(f"{share:.2f}" for share in row["by_position"])
            lines.append(
                f"| {task} | {row['block_efficiency']:.2f} | {row['acceptance_rate']:.2f} | {places} |"
            )
        lines.append("")
    return "\n".join(lines)


def training_text(job: Job, name: str) -> str:
    """Return the card's text on a drafter's last training run, from the log, with its loss curve."""
    line, curve = job.last_log(recipe_of(job, name)), curve_of(job, name)
    if line is None:
        return _card_text(job.model_folder(name) / "README.md")
    run = f"{line['steps']} steps, {line['tokens'] / 1e6:.1f} M answer tokens, {line['minutes']:g} minutes, last loss {line['loss']:.2f}"
    return f"\nLast training run: {run} (log line of {line['time'][:10]}).\n" + (
        "\n![loss](loss.svg)\n" if curve.is_file() else ""
    )


def _card_text(card: Path) -> str:
    """Return the card's existing text about the training, because the log may be another machine's."""
    found = LAST_RUN.search(card.read_text(encoding="utf-8")) if card.is_file() else None
    return f"\n{found[0]}" if found else ""


def _quoted(text: str) -> str:
    return text.replace("\n", " / ")


def write_into_card(path: Path, name: str, text: str) -> None:
    """Replace the text between a card's two markers; a card without markers gets them at its end."""
    card = path.read_text(encoding="utf-8") if path.is_file() else f"# {name}\n"
    if BEGIN not in card or END not in card:
        card = f"{card.rstrip()}\n\n{BEGIN}\n{END}\n"
    head, rest = card.split(BEGIN, 1)
    write_text(path, f"{head}{BEGIN}\n{text.rstrip()}\n{END}{rest.split(END, 1)[1]}")
