"""Train a draft model of 1-2 M parameters, distilled on the target's own answers.

The loss is the divergence from the target's distribution at every answer position of its own greedy and temperature-1 text
(DistillSpec, 2310.08461). The shape is wide and shallow, because at this size a layer costs its dispatch, not its arithmetic
("Decoding Speculative Decoding", 2402.01528).

Other papers' drafts are this recipe with other numbers (a recipe with `like: draft`): the divergence, the share of the budget
spent on text that is not the target's, the share of on-policy steps, the number of exits.
"""

import dataclasses
import random
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ..methods import draft_kinds
from ..models.exits import exits
from ..models.pretrained import open_config, open_network
from . import acceptance, generate, losses, reduced_draft
from .files import FRONT, export, relinked, write_json, write_text
from .grow import grown
from .job import Job, TrainingError, fingerprint
from .reduced_draft import ReducedHead
from .repeated_spans import of_text, repeated
from .runner import Progress, Runner


def run(job: Job, name: str = "draft", about: str = "") -> Path:
    """Train a draft model. ``name``: of the recipe; ``about``: the card's text on its training, with {numbers} in it."""
    hparams = job.hparams(name)
    recipe = hparams["kind"]
    target = job.model(job.target)
    if job.ship and fingerprint(target) != fingerprint(job.shipped / job.target):
        raise TrainingError(f"This draft would follow {target}, which is not the shipped target: ship that one first.",
                            "training.not_shipped")
    words = AutoTokenizer.from_pretrained(target, trust_remote_code=False)
    torch.manual_seed(job.seed)
    config = open_config(target)
    model = started_from(job, hparams, config.vocab_size) if "from" in hparams else build(config, hparams)
    if hparams["draft_vocab"]:
        model = with_part_of(model, job, hparams["draft_vocab"], words)
    runner = Runner(job, recipe, model, hparams, job.folder(recipe, fingerprint(target)))
    lesson = DraftTrainer(job, hparams, model, words, runner.device)
    figures = runner.train(lambda step: lesson.loss(step, runner.done()), lambda: measure(model, lesson.heldout, hparams))
    write = reduced_draft.export if hparams["draft_vocab"] else export
    made = write(job, job.named(recipe), model, words, "" if recipe not in draft_kinds() else recipe)
    for folder in job.places(made.name):
        write_json(folder / "training.json", learning_curve(job, hparams, model, runner.progress, len(lesson.heldout)))
        if recipe != "draft":  # the report writes that one's
            text = card(model, made.name, name, job, hparams, figures, about.format(**hparams))
            write_text(folder / "README.md", relinked(text, job, folder))
    return made


def learning_curve(job: Job, hparams: dict, model: LlamaForCausalLM, progress: Progress, answers: int) -> dict:
    """Return the draft's learning curve: one point per measurement, replayed on ``rows`` held-out answers of the target."""
    points = [{"step": step, "seconds": round(seconds, 1), "tokens": tokens, **figures}
              for step, seconds, figures, tokens in (row for row in progress.measures if len(row) == 4) if figures]
    return {"target": job.target, "parameters": sum(weight.numel() for weight in model.parameters()), "from": hparams.get("from"),
            "gamma": hparams["gamma"], "answers": answers, "decay": hparams["decay"], "points": points}


class DraftTrainer:
    """The loss of a draft at a step: a function of seed, step and weights, so that a killed run resumes to the same weights.

    numbers: pretrain: share of the budget spent first on answers of others, with a loss on every token; breadth: whether the
    target's distribution along such answers is learned while the learning rate is high; on_policy: share of the steps after the
    first part on text that the draft generates, ``policy_rows`` answers of ``new_tokens``; divergence: one of divergences.NAMED,
    or none for cross-entropy on the tokens; copy_share: share of the steps on repeated spans.
    """

    def __init__(self, job: Job, hparams: dict, model: LlamaForCausalLM, words, device: torch.device):
        self.job, self.hparams, self.model, self.words, self.device = job, hparams, model, words, device
        root = generate.folder(job)
        answers, self.heldout = generate.read(root / "train"), generate.read(root / "heldout")
        read = generate.read(root / "read") if hparams["breadth"] or hparams["pretrain"] else []
        self.own = Batches(answers, hparams, job.seed, device)
        self.wide = Batches(answers + read, hparams, job.seed, device) if hparams["breadth"] else self.own
        self.plain = Batches([whole(a) for a in read], hparams, job.seed, device) if hparams["pretrain"] else None
        self.layers = exits(hparams["layers"]) if hparams["sorted"] else (hparams["layers"],)
        self.teacher: generate.Maker | None = None

    def loss(self, step: int, done: float) -> tuple[Tensor, int]:
        """Return (loss, number of tokens in it); ``done``: share of the budget spent."""
        hparams, kind = self.hparams, self.hparams["divergence"]
        if random.Random(f"{self.job.seed} {step} copy").random() < hparams["copy_share"]:
            return self.copying(step)
        if self.plain is not None and done < hparams["pretrain"]:
            batch, kind = self.plain[step], "none"
        elif random.Random(f"{self.job.seed} {step} policy").random() < hparams["on_policy"]:
            batch = self.written(step)
        else:  # breadth while the rates are high; the target's own text alone while they fall
            batch = (self.own if done > 1 - hparams["decay"] else self.wide)[step]
        if isinstance(self.model.lm_head, ReducedHead):
            batch = self.model.lm_head.material(batch)
        ids, where, top_ids, top_logp, labels = batch
        rng = torch.Generator(self.device).manual_seed(self.job.seed * 1_000_003 + step)
        found = []
        for hidden in at_exits(self.model, ids, where, self.layers):
            head = self.model.lm_head.weight
            found.append(losses.next_token(hidden, head, labels) if kind == "none" else
                         losses.distil(hidden, head, top_ids, top_logp, labels, hparams["hard_label_weight"], kind, rng))
        return torch.stack(found).mean(), len(labels)

    def copying(self, step: int) -> tuple[Tensor, int]:
        """Return (cross-entropy on the repeated spans of a synthetic copying batch, number of label tokens). The labels are hard: in a
        repeated span only one token can follow."""
        rng, length = random.Random(f"{self.job.seed} {step} spans"), self.hparams["length"] // 2
        pieces = iter(lambda: rng.choice(self.own.answers).ids.tolist(), None)
        ids, where, labels = [], [], []
        for index in range(max(1, self.hparams["batch_tokens"] // length)):
            row, counts = repeated(rng, length, lambda size: of_text(rng, size, len(self.words), lambda: longer(pieces, size)))
            ids.append(row[:length])
            chosen = [i for i in range(1, length) if counts[i]]
            where += [index * length + i - 1 for i in chosen]
            labels += [row[i] for i in chosen]
        ids, where, labels = (torch.tensor(x, device=self.device) for x in (ids, where, labels))
        if isinstance(self.model.lm_head, ReducedHead):
            kept = self.model.lm_head.places[labels] >= 0
            where, labels = where[kept], self.model.lm_head.places[labels[kept]]
        return losses.next_token(at(self.model, ids, where), self.model.lm_head.weight, labels), len(labels)

    def written(self, step: int):
        """Return a batch of the draft's own answers at temperature 1 to the step's prompts, with the target's distribution along
        them."""
        if self.teacher is None:
            path = self.job.model(self.job.target)
            net = open_network(path, torch.bfloat16).to(self.device).eval()
            self.teacher = generate.Maker(net, self.words, self.hparams, self.job)
        asked = self.own.rows(step)[:self.hparams["policy_rows"]]
        with torch.random.fork_rng(), torch.autocast(self.device.type, enabled=False):  # stored in float16
            torch.manual_seed(self.job.seed * 1_000_003 + step)
            writer = generate.Maker(self.model, self.words, self.hparams, self.job)
            made = writer.decode([(a.ids[:a.start].tolist(), a.task, 1.0) for a in asked])
            labelled = self.teacher.read([(a.ids.tolist(), a.start, a.task, None) for a in made])
            return collate(labelled, self.hparams["length"], self.device)


def longer(pieces, size: int) -> list[int]:
    """Return more than `size` tokens, from as many pieces as needed."""
    found: list[int] = []
    while len(found) <= size:
        found += next(pieces)
    return found


def with_part_of(model: LlamaForCausalLM, job: Job, count: int, words) -> LlamaForCausalLM:
    """Return a draft with the ``count`` most frequent tokens of the target's answers as its output vocabulary and the target's
    embedding."""
    net = open_network(job.model(job.target), torch.bfloat16)
    table, answers = net.get_input_embeddings().weight, generate.read(generate.folder(job) / "train")
    tokens = reduced_draft.frequent_tokens(answers, len(table), count, [words.eos_token_id])
    return reduced_draft.reduce(model, table, tokens)


def started_from(job: Job, hparams: dict, vocabulary: int) -> LlamaForCausalLM:
    """Return an existing draft widened and deepened without changing its function; the tokenizer must be the same."""
    old = open_network(job.model(hparams["from"]), torch.float32)
    if old.config.vocab_size != vocabulary:
        raise TrainingError(f"{hparams['from']} has {old.config.vocab_size} tokens and {job.target} {vocabulary}: it cannot be its draft.",
                            "training.vocabulary")
    return grown(old, {name: hparams[name] for name in ("hidden", "layers", "heads", "kv_heads", "intermediate")}, job.seed)


def whole(answer: generate.Answer) -> generate.Answer:
    """Return an exchange in which every token, including the prompt's, is a label, without the target's distribution."""
    nothing = torch.zeros(len(answer.ids) - 1, 1)
    return dataclasses.replace(answer, start=1, top_ids=nothing, top_logp=nothing)


def measure(model: LlamaForCausalLM, heldout: list, hparams: dict) -> dict[str, float]:
    """Return replayed block efficiency and acceptance rate; for a sorted draft those of each size, the whole one first."""
    out: dict[str, float] = {}
    for layers in exits(hparams["layers"])[::-1] if hparams["sorted"] else (hparams["layers"],):
        size = "" if layers == hparams["layers"] else f"_{layers}_layers"
        found = acceptance.tables(model, heldout, hparams["gamma"], layers=layers)
        out |= {f"{figure}_{mode}{size}": table["mean"][figure] for figure in ("block_efficiency", "acceptance_rate")
                for mode, table in found.items()}
    return out


def card(model, name: str, recipe: str, job: Job, hparams: dict, figures: dict, about: str) -> str:
    shape = f"hidden {hparams['hidden']}, {hparams['layers']} layer{'s' * (hparams['layers'] > 1)}, feed-forward {hparams['intermediate']}"
    found = {key.removeprefix("block_efficiency_"): value for key, value in figures.items() if key.startswith("block_efficiency_")}
    measured = ", ".join(f"{value:.2f} {HOW[mode]}{size and f' with {size} layers'}" for key, value in found.items()
                     for mode, _, size in [key.removesuffix("_layers").partition("_")])
    return CARD.format(name=name, target=job.target, recipe=recipe, size=job.size, shape=shape, gamma=hparams["gamma"],
                       measured=measured or "not measured", about=about and f"\n{about}\n", steps=figures["steps"],
                       began=begins(name, hparams),
                       parameters=sum(weight.numel() for weight in model.parameters()) / 1e6)


def begins(name: str, hparams: dict) -> str:
    """Return the card's sentence on the initial weights."""
    if "from" not in hparams:
        return ""
    return AGAIN if hparams["from"] == name else BEGAN.format(**hparams)


BEGAN = "It began as [{from}](../{from}), made wider and deeper where their shapes differ. "
AGAIN = "It went on from what was shipped under its name before. "
HOW = {"greedy": "greedy", "sampled": "at temperature 1"}
CARD = FRONT + """A draft model of [{target}](../{target}): {parameters:.2f} million parameters ({shape}), of no use alone. Its
**facts are unreliable**, as the target's are. Distilled from the target's distribution along its own answers to training prompts
and along answers of the data. Sources and licences: [LICENSES.md](../LICENSES.md).
{about}
{began}{steps} steps of `python -m specviz.training {recipe} --size {size} --data DIR`. Block efficiency on held-out answers,
replayed with gamma {gamma}, as that command measures at its end: {measured}.
"""


def build(target: LlamaConfig, hparams: dict) -> LlamaForCausalLM:
    """Return an untrained draft with the target's vocabulary and context and the recipe's shape."""
    config = LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=hparams["hidden"],
        intermediate_size=hparams["intermediate"],
        num_hidden_layers=hparams["layers"],
        num_attention_heads=hparams["heads"],
        num_key_value_heads=hparams["kv_heads"],
        head_dim=hparams["head_dim"],
        max_position_embeddings=target.max_position_embeddings,
        rms_norm_eps=target.rms_norm_eps,
        tie_word_embeddings=True,
        bos_token_id=target.bos_token_id,
        eos_token_id=target.eos_token_id,
        pad_token_id=target.pad_token_id,
    )
    return LlamaForCausalLM(config)


def at(model, ids: Tensor, where: Tensor) -> Tensor:
    """Return last hidden states at the flat positions `where`, [n, hidden], so that only they go through the output matrix."""
    return at_exits(model, ids, where, (len(model.model.layers),))[0]


def at_exits(model, ids: Tensor, where: Tensor, layers: tuple[int, ...]) -> list[Tensor]:
    """Return the same after each exit's layers and the last norm."""
    out = model.model(ids, output_hidden_states=len(layers) > 1)
    states = [out.last_hidden_state if count == len(model.model.layers) else model.model.norm(out.hidden_states[count]) for count in layers]
    return [hidden.flatten(0, 1)[where] for hidden in states]


class Batches:
    """Batch number `step`, a function of seed and step: rows of similar length, right-padded."""

    def __init__(self, answers: list, hparams: dict, seed: int, device):
        self.answers = [a for a in answers if a.start < hparams["length"] - 1]
        self.hparams, self.seed, self.device = hparams, seed, device
        self.epoch, self.plan = -1, []
        self.each = len(self.planned(0))

    def planned(self, epoch: int) -> list[list[int]]:
        """Return the epoch's batches. All epochs have as many as the first, so that any step finds its batch."""
        rng = random.Random(f"{self.seed} {epoch}")
        order = list(range(len(self.answers)))
        rng.shuffle(order)
        batches, chunk = [], 2048

        def length(i: int) -> int:
            return min(len(self.answers[i].ids), self.hparams["length"])

        for first in range(0, len(order), chunk):
            batch, widest = [], 0
            for i in sorted(order[first : first + chunk], key=length):
                widest = max(widest, length(i))
                if batch and widest * (len(batch) + 1) > self.hparams["batch_tokens"]:
                    batches.append(batch)
                    batch, widest = [], length(i)
                batch.append(i)
            batches.append(batch)
        rng.shuffle(batches)
        return batches

    def rows(self, step: int) -> list:
        """Return the step's answers."""
        epoch, index = divmod(step, self.each)
        if epoch != self.epoch:
            self.epoch, self.plan = epoch, self.planned(epoch)
        return [self.answers[i] for i in self.plan[index % len(self.plan)]]

    def __getitem__(self, step: int):
        return collate(self.rows(step), self.hparams["length"], self.device)


def collate(answers: list, length: int, device):
    """Return (ids [rows, width], where, top_ids, top_logp, labels); `where` are the predicting positions."""
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
