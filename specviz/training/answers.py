"""Generate a target's answers for its model card, unedited, and measure the share of answers that loop."""

import json
from dataclasses import dataclass
from typing import Any

import yaml
from transformers import LlamaForCausalLM

from .. import ASSETS
from . import data
from . import text_answers as generate
from .data import loops
from .job import Job

EXAMPLES = ASSETS / "prompts" / "examples.yaml"
OTHERS = (
    "writing",
    "extraction",
)  # categories of MT-bench (Zheng et al., 2306.05685), where a data folder has its questions


@dataclass(frozen=True)
class Question:
    """A prompt of the model card. text: what the model is asked; title: how the card names it."""

    task: str
    text: str
    title: str  # its name in the card: the text, or the source of a text that is not this project's


def questions(job: Job, hparams: dict) -> list[Question]:
    """Return the prompts of the card: the recipe's own, the page's examples, and the first turns of
    MT-bench if the data folder has them."""
    found = [Question(task, text, text) for task, texts in hparams["prompts"].items() for text in texts]
    page = yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))["examples"]
    found += [Question("example", one["prompt"], one["prompt"]) for one in page]
    path = job.data and job.data / "eval" / "mt_bench.jsonl"
    if path and path.is_file():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found += [
            Question(row["category"], row["turns"][0], f"question {row['question_id']} of MT-bench")
            for row in rows
            if row["category"] in OTHERS
        ]
    return found


def greedy_answers(
    job: Job, model: LlamaForCausalLM, tokenizer, texts: list[tuple[str, str]], tokens: int, batch: int = 24
) -> list[list[int]]:
    """Return the greedy answers (token ids, at most ``tokens`` each) to (task, prompt) pairs, in the same
    order."""
    network: Any = model  # transformers' types lose the model in ``to``
    maker = generate.AnswerGenerator(
        network.to(job.torch_device()), tokenizer, {"new_tokens": tokens, "top": 1}, job
    )
    rows = [(data.chat_prompt(tokenizer, text), task, 0.0) for task, text in texts]
    made = [one for first in range(0, len(rows), batch) for one in maker.decode(rows[first : first + batch])]
    return [one.ids[one.start :].tolist() for one in made]


def looping_share(
    job: Job, model: LlamaForCausalLM, tokenizer, heldout: list[data.Row], hparams: dict
) -> float:
    """Return the share of greedy answers to held-out prompts that repeat themselves (``loops``). Each task
    counts the same number of prompts."""
    texts = [
        (task, row.prompt)
        for task in data.TASKS
        for row in [r for r in heldout if r.task == task][: hparams["looping_prompts"]]
    ]
    found = [loops(ids) for ids in greedy_answers(job, model, tokenizer, texts, hparams["looping_tokens"])]
    return round(sum(found) / max(1, len(found)), 4)
