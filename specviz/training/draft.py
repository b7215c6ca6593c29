"""A draft model of 1-2 M parameters, distilled on the target's own answers.

The loss is the divergence from the target's law at every answer position of its own greedy and
temperature-1 text (DistillSpec, 2310.08461). The shape is wide and shallow, because at this size
a layer costs its dispatch and not its arithmetic ("Decoding Speculative Decoding", 2402.01528).
"""

import random
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from . import acceptance, generate, losses
from .files import FRONT, export, write_text
from .job import Job, TrainingError, fingerprint
from .runner import Runner


def run(job: Job) -> Path:
    numbers = job.numbers("draft")
    recipe = numbers["kind"]
    name = job.named(recipe)
    target = job.model(job.target)
    if job.ship and fingerprint(target) != fingerprint(job.shipped / job.target):
        raise TrainingError(f"This draft would follow {target}, which is not the shipped target: ship that one first.")
    root = generate.folder(job)
    answers, heldout = generate.read(root / "train"), generate.read(root / "heldout")
    torch.manual_seed(job.seed)
    model = build(LlamaConfig.from_pretrained(target, trust_remote_code=False), numbers)
    runner = Runner(job, recipe, model, numbers, job.folder(recipe, fingerprint(target)))
    own = Batches(answers, numbers, job.seed, runner.device)
    wide = Batches(answers + generate.read(root / "read"), numbers, job.seed, runner.device)

    def loss_at(step: int):
        # Breadth while the rates are high; the target's own text alone while they fall.
        batches = own if runner.done() > 1 - numbers["decay"] else wide
        ids, where, top_ids, top_logp, labels = batches[step]
        hidden = at(model, ids, where)
        return losses.distil(hidden, model.lm_head.weight, top_ids, top_logp, labels, numbers["hard"]), len(labels)

    def measure() -> dict:
        found = acceptance.tables(model, heldout, numbers["gamma"])
        return {f"block_efficiency_{mode}": table["mean"]["block_efficiency"] for mode, table in found.items()}

    figures = runner.train(loss_at, measure)
    made = export(job, name, model, AutoTokenizer.from_pretrained(target, trust_remote_code=False))
    for folder in job.places(name) if recipe != "draft" else ():  # the report tells of that one
        write_text(folder / "README.md", card(model, name, job, numbers, figures))
    return made


def card(model, name: str, job: Job, numbers: dict, figures: dict) -> str:
    shape = f"hidden {numbers['hidden']}, {numbers['layers']} layer{'s' * (numbers['layers'] > 1)}, feed-forward {numbers['intermediate']}"
    found = {key.removeprefix("block_efficiency_"): value for key, value in figures.items() if key.startswith("block_efficiency_")}
    told = ", ".join(f"{value:.2f} {'greedy' if key == 'greedy' else 'at temperature 1'}" for key, value in found.items())
    return CARD.format(name=name, target=job.target, size=job.size, shape=shape, gamma=numbers["gamma"], told=told or "not measured",
                       parameters=sum(weight.numel() for weight in model.parameters()) / 1e6, steps=figures["steps"])


CARD = FRONT + """A draft model of [{target}](../{target}): {parameters:.2f} million parameters ({shape}), of no use alone. Its
**facts are unreliable**, as the target's are. Distilled from the target's law along its own answers to training prompts and along
answers of the data. Sources and licences: [LICENSES.md](../LICENSES.md).

{steps} steps of `python -m specviz.training draft --size {size} --data DIR`. Block efficiency on held-out answers, replayed with
gamma {gamma}, as that command measures at its end: {told}.
"""


def build(target: LlamaConfig, numbers: dict) -> LlamaForCausalLM:
    """The target's vocabulary and positions, the draft's shape."""
    config = LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=numbers["hidden"],
        intermediate_size=numbers["intermediate"],
        num_hidden_layers=numbers["layers"],
        num_attention_heads=numbers["heads"],
        num_key_value_heads=numbers["kv_heads"],
        head_dim=numbers["head_dim"],
        max_position_embeddings=target.max_position_embeddings,
        rms_norm_eps=target.rms_norm_eps,
        tie_word_embeddings=True,
        bos_token_id=target.bos_token_id,
        eos_token_id=target.eos_token_id,
        pad_token_id=target.pad_token_id,
    )
    return LlamaForCausalLM(config)


def at(model, ids: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Last states at the flat positions `where`, [n, hidden]: only they go through the head."""
    hidden = model.model(ids).last_hidden_state  # [rows, length, hidden]
    return hidden.flatten(0, 1)[where]


class Batches:
    """Batch number `step`, a function of the seed and the step: rows of like length, right-padded."""

    def __init__(self, answers: list, numbers: dict, seed: int, device):
        self.answers = [a for a in answers if a.start < numbers["length"] - 1]
        self.numbers, self.seed, self.device = numbers, seed, device
        self.epoch, self.plan = -1, []
        self.each = len(self.planned(0))

    def planned(self, epoch: int) -> list[list[int]]:
        """The epoch's batches. All epochs have as many as the first: any step finds its batch."""
        dice = random.Random(f"{self.seed} {epoch}")
        order = list(range(len(self.answers)))
        dice.shuffle(order)
        batches, chunk = [], 2048

        def length(i: int) -> int:
            return min(len(self.answers[i].ids), self.numbers["length"])

        for first in range(0, len(order), chunk):
            batch, widest = [], 0
            for i in sorted(order[first : first + chunk], key=length):
                widest = max(widest, length(i))
                if batch and widest * (len(batch) + 1) > self.numbers["batch_tokens"]:
                    batches.append(batch)
                    batch, widest = [], length(i)
                batch.append(i)
            batches.append(batch)
        dice.shuffle(batches)
        return batches

    def __getitem__(self, step: int):
        epoch, index = divmod(step, self.each)
        if epoch != self.epoch:
            self.epoch, self.plan = epoch, self.planned(epoch)
        chosen = [self.answers[i] for i in self.plan[index % len(self.plan)]]
        return collate(chosen, self.numbers["length"], self.device)


def collate(answers: list, length: int, device):
    """(ids [rows, width], where, top_ids, top_logp, labels): `where` are the predicting positions."""
    width = min(length, max(len(a.ids) for a in answers))
    ids = torch.zeros(len(answers), width, dtype=torch.long)
    where, tops, logps, labels = [], [], [], []
    for row, a in enumerate(answers):
        end = min(len(a.ids), width)
        ids[row, :end] = a.ids[:end]
        where.append(torch.arange(a.start - 1, end - 1) + row * width)
        tops.append(a.top_ids[: end - a.start].long())
        logps.append(a.top_logp[: end - a.start].float())
        labels.append(a.ids[a.start : end])
    return tuple(t.to(device) for t in (ids, *map(torch.cat, (where, tops, logps, labels))))
