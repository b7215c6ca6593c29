"""Train the target, a small chat model, from scratch or continued from the shipped one.

Copying from the prompt needs induction heads, which form late without dedicated data (Olsson et al.,
2209.11895). So the first steps use short rows of repeated spans with a little noise, with which the heads
form within minutes; with long rows alone they had not formed after 7 M tokens. After that, rows of the
tasks are packed to a fixed length, and some rows still repeat a span. Only answers have a loss, except in
the first stage. Two figures are monitored: held-out loss by task, and the loss on the second occurrence of
random spans.
"""

import random
import shutil
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ..models.pretrained import open_network
from . import corpus, data, losses
from . import tokenizer as tokenizer_recipe
from .draft import hidden_states_at
from .files import as_stored, export, write_text
from .grow import grow_model
from .job import TARGET, Job, TrainingError
from .other_mixers import MIXERS, Teacher, card
from .repeated_spans import random_or_text_span, random_span, repeat_span
from .runner import Runner


def run(job: Job) -> Path:
    """Train the target; return its folder."""
    hparams = job.hparams("target")
    torch.manual_seed(job.seed)
    tokenizer, model = load_or_create(job, hparams)
    place = "target" if hparams["name"] == TARGET else hparams["name"].lower()
    runner = Runner(job, "target", model, hparams, job.folder(place))
    rows = rows_by_task(job, hparams)
    batches = Batches(rows, tokenizer, hparams, job.seed, runner.device)
    heldout = data.load(job.data, "heldout", hparams["own_rows"] // 4)

    if hparams.get("compile") and any(map(shutil.which, ("g++", "clang++", "c++"))):
        model.model.compile()  # in place: the checkpoint's names stay as they are

    teacher = (
        Teacher(job, hparams["teacher"], hparams["top"], runner.device) if "teacher" in hparams else None
    )

    def loss_at(step: int):
        ids, where, labels = batches.make(step, prompts=runner.budget_spent() < hparams["first_stage"])
        hidden, head = hidden_states_at(model, ids, where), model.lm_head.weight
        if teacher is None:
            return losses.next_token(hidden, head, labels), len(labels)
        return losses.distil(hidden, head, *teacher.leaders(ids, where), labels, hparams["hard"]), len(labels)

    def measure() -> dict:
        with torch.compiler.set_stance("force_eager"):  # rows of every length, once each
            return loss_by_task(model, tokenizer, heldout, hparams) | {
                "induction": copying_loss(model, tokenizer, hparams)
            }

    figures = runner.train(loss_at, measure)
    before = job.shipped / hparams.get("from", hparams["name"])
    if job.ship and teacher is None and (before / "config.json").is_file():
        require_improvement(before, model, tokenizer, heldout, hparams)
    made = export(job, hparams["name"], model, tokenizer)
    if "mixer" in hparams:
        if "story" not in figures:  # the budget was over before the run that measures
            figures |= loss_by_task(model.eval(), tokenizer, heldout, hparams)
        for folder in job.output_folders(made.name):
            write_text(folder / "README.md", card(model, hparams | {"size": job.size}, figures))
    return made


def require_improvement(path: Path, model, tokenizer, heldout: list[data.Row], hparams: dict) -> None:
    """Raise TrainingError unless the new weights have a lower loss than the shipped ones at ``path`` in
    every task. Losses are compared per byte, because vocabularies may differ."""
    old = open_network(path, torch.float32).to(next(model.parameters()).device).eval()
    before = loss_by_task(
        old, AutoTokenizer.from_pretrained(path, trust_remote_code=False), heldout, hparams, by_bytes=True
    )
    new = as_stored(model).float().eval()
    after = loss_by_task(new, tokenizer, heldout, hparams, by_bytes=True)
    worse = [
        f"{task} ({after[task]:.3f} against {before[task]:.3f})"
        for task in before
        if after[task] >= before[task]
    ]
    if worse:
        raise TrainingError(
            f"The shipped target stays: the new one does not win in {', '.join(worse)}, nats a byte.",
            "training.not_better",
        )


def load_or_create(job: Job, hparams: dict):
    """Return (tokenizer, model) to start from: the shipped target, one grown from another, or random
    weights. A checkpoint's weights are loaded later."""
    if hparams["start"] in ("shipped", "grown"):
        path = job.shipped / (hparams["name"] if hparams["start"] == "shipped" else hparams["from"])
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        model = open_network(path, torch.float32)
        shape = {name: hparams[name] for name in ("hidden", "layers", "heads", "kv_heads", "intermediate")}
        model = model if hparams["start"] == "shipped" else grow_model(model, shape, job.seed)
        return tokenizer, MIXERS[hparams["mixer"]](model, hparams) if "mixer" in hparams else model
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_recipe.run(job), trust_remote_code=False)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hparams["hidden"],
        intermediate_size=hparams["intermediate"],
        num_hidden_layers=hparams["layers"],
        num_attention_heads=hparams["heads"],
        num_key_value_heads=hparams["kv_heads"],
        head_dim=hparams["head_dim"],
        max_position_embeddings=hparams["positions"],
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return tokenizer, LlamaForCausalLM(config)


def rows_by_task(job: Job, hparams: dict) -> tuple[dict, dict]:
    """Return (training, held-out) rows by task: those of the data folder, without excluded sources, and the
    project's own."""
    own = corpus.make_rows(hparams["own_rows"], seed=job.seed + 3)
    given = own if job.data is None else data.load(job.data, "train")
    pools = []
    for rows in (given, own):
        pool: dict[str, list[data.Row]] = {}
        for row in rows:
            if row.source not in hparams["leave_out"]:
                pool.setdefault(row.task, []).append(row)
        pools.append(pool)
    return pools[0], pools[1]


class Batches:
    """Training batches of packed texts, a function of seed and step."""

    def __init__(self, pools, tokenizer, hparams: dict, seed: int, device):
        self.given, self.own = pools
        self.tokenizer = tokenizer
        self.hparams = hparams
        self.seed = seed
        self.device = device

    def make(self, step: int, prompts: bool = False):
        """Return (ids [rows, length], where [n], labels [n]): token ids, flat positions with a loss, and
        the tokens after them. prompts: prompts have a loss, too."""
        rng, hparams = random.Random(f"{self.seed} {step}"), self.hparams
        first = step < hparams["copy_steps"]
        length = hparams["copy_length"] if first else hparams["length"]
        ids = []
        where = []
        labels = []
        for index in range(hparams["copy_rows"] if first else hparams["batch_rows"]):
            repeated = first or rng.random() < hparams["copy_share"]
            row, counts = self.repeated_span_row(rng, length) if repeated else self.packed(rng, prompts)
            ids.append(row[:length])
            chosen = [i for i in range(1, length) if counts[i]]
            where += [index * length + i - 1 for i in chosen]
            labels += [row[i] for i in chosen]
        return tuple(torch.tensor(t, device=self.device) for t in (ids, where, labels))

    def packed(self, rng: random.Random, prompts: bool) -> tuple[list[int], list[bool]]:
        """Return (ids, loss mask) of one row of concatenated exchanges; the last one is truncated. prompts:
        prompts have a loss, too."""
        row, counts = [], []
        while len(row) < self.hparams["length"]:
            ids, start = data.chat_row(self.tokenizer, self.draw(rng))
            row += ids
            counts += [prompts] * start + [True] * (len(ids) - start)
        return row, counts

    def draw(self, rng: random.Random) -> data.Row:
        """Return a random training example, with tasks in the recipe's proportions."""
        pool = self.own if rng.random() < self.hparams["own_share"] else self.given
        shares = {task: share for task, share in self.hparams["tasks"].items() if task in pool}
        if not shares:
            raise data.DataError(
                "The data has no rows of any task that target.yaml asks for.", "data.no_rows"
            )
        return rng.choice(pool[rng.choices(list(shares), list(shares.values()))[0]])

    def repeated_span_row(self, rng: random.Random, length: int) -> tuple[list[int], list[bool]]:
        """Return (ids, loss mask) of a row with repeated spans (repeated_spans.py)."""
        return repeat_span(
            rng,
            length,
            lambda size: random_or_text_span(
                rng, size, len(self.tokenizer), lambda: self.packed(rng, True)[0]
            ),
        )


def loss_by_task(
    model, tokenizer, rows: list[data.Row], hparams: dict, by_bytes: bool = False
) -> dict[str, float]:
    """Return {task: mean loss in nats per answer token, or per byte with ``by_bytes``}, on the first
    held-out rows of each task."""
    found = {}
    for task in data.TASKS:
        total = count = 0.0
        for row in [r for r in rows if r.task == task][: hparams["heldout_rows"]]:
            ids, start = data.chat_row(tokenizer, row)
            ids = ids[: hparams.get("heldout_length", hparams["length"])]
            if start < len(ids):
                total += span_loss(model, ids, start) * (len(ids) - start)
                count += len(tokenizer.decode(ids[start:]).encode()) if by_bytes else len(ids) - start
        if count:
            found[task] = round(total / count, 4)
    return found


def copying_loss(model, tokenizer, hparams: dict, spans: int = 8) -> float:
    """Return the mean loss on the second occurrence of random spans, each a quarter of the training length:
    near zero once the model copies."""
    rng, size = random.Random(7), hparams.get("heldout_length", hparams["length"]) // 4
    each = [random_span(rng, size, len(tokenizer)) for _ in range(spans)]
    return round(sum(span_loss(model, span * 2, size) for span in each) / spans, 4)


@torch.inference_mode()
def span_loss(model, ids: list[int], start: int) -> float:
    """Return the mean loss of the tokens from index ``start`` on."""
    device = next(model.parameters()).device
    row = torch.tensor([ids], device=device)
    hidden = hidden_states_at(model, row, torch.arange(start - 1, len(ids) - 1, device=device))
    return float(losses.next_token(hidden, model.lm_head.weight, row[0, start:]))
