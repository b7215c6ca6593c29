"""Train a draft model of 1-2 M parameters, distilled on the target's own answers.

The loss is a divergence from the target's distribution at every answer position of its greedy and
temperature-1 answers (DistillSpec, 2310.08461). The model is wide and shallow: at this size the time of a
layer is mostly dispatch overhead ("Decoding Speculative Decoding", 2402.01528).

Other recipes (`like: draft`) reuse this one with other hyperparameters: the divergence, the share of the
budget spent on text that is not the target's, the share of on-policy steps, and the number of early exits.
"""

import dataclasses
import random
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ..methods import draft_kinds
from ..models.exits import sub_model_layers
from ..models.pretrained import open_config, open_network
from . import acceptance, losses, reduced_draft
from . import text_answers as generate
from .files import FRONT, export, relink_card, write_json, write_text
from .grow import grow_model
from .job import Job, TrainingError, fingerprint
from .reduced_draft import ReducedHead, open_draft
from .repeated_spans import random_or_text_span, repeat_span
from .runner import Progress, Runner


def run(job: Job, name: str = "draft", about: str = "") -> Path:
    """Train a draft model; return the folder of its weights. name: the recipe; about: the card's text on
    its training, a template filled with the hyperparameters."""
    hparams = job.hparams(name)
    recipe = hparams["kind"]
    target = job.model(job.target)
    if job.ship and fingerprint(target) != fingerprint(job.shipped / job.target):
        raise TrainingError(
            f"This draft would follow {target}, which is not the shipped target: ship that one first.",
            "training.not_shipped",
        )
    tokenizer = AutoTokenizer.from_pretrained(target, trust_remote_code=False)
    torch.manual_seed(job.seed)
    config = open_config(target)
    model = load_and_grow(job, hparams, config.vocab_size) if hparams.get("from") else build(config, hparams)
    if hparams["draft_vocab"]:
        model = with_reduced_vocabulary(model, job, hparams["draft_vocab"], tokenizer)
    runner = Runner(job, recipe, model, hparams, job.folder(recipe, fingerprint(target)))
    if runner.device.type == "cpu":
        model.set_attn_implementation(
            "eager"
        )  # the backward pass of torch's fused attention took twice the time
    lesson = DraftTrainer(job, hparams, model, tokenizer, runner.device)
    figures = runner.train(
        lambda step: lesson.loss(step, runner.budget_spent()), lambda: measure(model, lesson.heldout, hparams)
    )
    write = reduced_draft.export if hparams["draft_vocab"] else export
    made = write(job, job.model_name(recipe), model, tokenizer, "" if recipe not in draft_kinds() else recipe)
    for folder in job.output_folders(made.name):
        write_json(
            folder / "training.json",
            learning_curve(job, hparams, model, runner.progress, len(lesson.heldout)),
        )
        if recipe != "draft":  # the report writes that card
            text = card(
                model,
                made.name,
                name,
                job,
                hparams,
                figures,
                about.format(**hparams, first=first(hparams["pretrain"])),
            )
            write_text(folder / "README.md", relink_card(text, job, folder))
    return made


def first(share: float) -> str:
    """Return what a card says of the share of the budget that went into plain text."""
    return (
        f"The first {share:.0%} of the budget went into plain text"
        if share
        else "No plain text came first, since it began as a trained draft"
    )


def learning_curve(
    job: Job, hparams: dict, model: LlamaForCausalLM, progress: Progress, answers: int
) -> dict:
    """Return the draft's learning curve: acceptance at each measurement during training, replayed on
    ``answers`` held-out answers of the target."""
    points = [
        {"step": step, "seconds": round(seconds, 1), "tokens": tokens, **figures}
        for step, seconds, figures, tokens in (row for row in progress.measures if len(row) == 4)
        if figures
    ]
    return {
        "target": job.target,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "from": hparams.get("from"),
        "gamma": hparams["gamma"],
        "answers": answers,
        "decay": hparams["decay"],
        "points": points,
    }


class DraftTrainer:
    """Compute the loss of a draft model. The loss is a function of seed, step and weights, so that a
    resumed run continues with the same losses.

    hparams: pretrain: share of the budget spent first on texts of other models, with a loss on every token;
    breadth: whether these texts, with the target's distributions along them, are also used while the
    learning rate is high; on_policy: share of the later steps on text that the draft generates
    (``policy_rows`` answers of ``new_tokens``); divergence: a key of divergences.NAMED, or "none" for
    cross-entropy on the tokens; copy_share: share of the steps on repeated spans."""

    def __init__(self, job: Job, hparams: dict, model: LlamaForCausalLM, tokenizer, device: torch.device):
        self.job = job
        self.hparams = hparams
        self.model = model
        self.tokenizer = tokenizer
        self.device = device
        root = generate.folder(job)
        answers, self.heldout = generate.read(root / "train"), generate.read(root / "heldout")
        read = generate.read(root / "read") if hparams["breadth"] or hparams["pretrain"] else []
        self.own = Batches(answers, hparams, job.seed, device)
        self.wide = Batches(answers + read, hparams, job.seed, device) if hparams["breadth"] else self.own
        self.plain = (
            Batches([label_every_token(a) for a in read], hparams, job.seed, device)
            if hparams["pretrain"]
            else None
        )
        self.layers = sub_model_layers(hparams["layers"]) if hparams["sorted"] else (hparams["layers"],)
        self.teacher: generate.AnswerGenerator | None = None

    def loss(self, step: int, budget_spent: float) -> tuple[Tensor, int]:
        """Return (loss, number of tokens in it) of a step. budget_spent: share of the training budget
        already spent."""
        hparams, kind = self.hparams, self.hparams["divergence"]
        if random.Random(f"{self.job.seed} {step} copy").random() < hparams["copy_share"]:
            return self.copying_loss(step)
        if self.plain is not None and budget_spent < hparams["pretrain"]:
            batch, kind = self.plain[step], "none"
        elif random.Random(f"{self.job.seed} {step} policy").random() < hparams["on_policy"]:
            batch = self.on_policy_batch(step)
        else:  # a broad set while the learning rate is high; only the target's own text while it falls
            batch = (self.own if budget_spent > 1 - hparams["decay"] else self.wide)[step]
        if isinstance(self.model.lm_head, ReducedHead):
            batch = self.model.lm_head.to_reduced_vocabulary(batch)
        ids, where, top_ids, top_logp, labels = batch
        rng = torch.Generator(self.device).manual_seed(self.job.seed * 1_000_003 + step)
        found = []
        for hidden in exit_states_at(self.model, ids, where, self.layers):
            head = self.model.lm_head.weight
            found.append(
                losses.next_token(hidden, head, labels)
                if kind == "none"
                else losses.distil(
                    hidden, head, top_ids, top_logp, labels, hparams["hard_label_weight"], kind, rng
                )
            )
        return torch.stack(found).mean(), len(labels)

    def copying_loss(self, step: int) -> tuple[Tensor, int]:
        """Return (cross-entropy on the repeated spans of a synthetic batch, number of label tokens). It is
        not distilled, because only one token can follow in a repeated span."""
        rng, length = random.Random(f"{self.job.seed} {step} spans"), self.hparams["length"] // 2
        pieces = iter(lambda: rng.choice(self.own.answers).ids.tolist(), None)
        ids = []
        where = []
        labels = []
        for index in range(max(1, self.hparams["batch_tokens"] // length)):
            row, counts = repeat_span(
                rng,
                length,
                lambda size: random_or_text_span(
                    rng, size, len(self.tokenizer), lambda: concatenated_pieces(pieces, size)
                ),
            )
            ids.append(row[:length])
            chosen = [i for i in range(1, length) if counts[i]]
            where += [index * length + i - 1 for i in chosen]
            labels += [row[i] for i in chosen]
        ids, where, labels = (torch.tensor(x, device=self.device) for x in (ids, where, labels))
        if isinstance(self.model.lm_head, ReducedHead):
            kept = self.model.lm_head.places[labels] >= 0
            where, labels = where[kept], self.model.lm_head.places[labels[kept]]
        return losses.next_token(
            hidden_states_at(self.model, ids, where), self.model.lm_head.weight, labels
        ), len(labels)

    def on_policy_batch(self, step: int):
        """Sample answers of the draft at temperature 1 to the step's prompts. Return them as a batch (see
        ``collate``) with the target's distributions along them."""
        if self.teacher is None:
            path = self.job.model(self.job.target)
            net = open_network(path, torch.bfloat16).to(self.device).eval()
            self.teacher = generate.AnswerGenerator(net, self.tokenizer, self.hparams, self.job)
        asked = self.own.rows(step)[: self.hparams["policy_rows"]]
        with torch.random.fork_rng(), torch.autocast(self.device.type, enabled=False):  # stored in float16
            torch.manual_seed(self.job.seed * 1_000_003 + step)
            writer = generate.AnswerGenerator(self.model, self.tokenizer, self.hparams, self.job)
            made = writer.decode([(a.ids[: a.start].tolist(), a.task, 1.0) for a in asked])
            labelled = self.teacher.read([(a.ids.tolist(), a.start, a.task, None) for a in made])
            return collate(labelled, self.hparams["length"], self.device)


def concatenated_pieces(pieces, size: int) -> list[int]:
    """Concatenate pieces of the iterator ``pieces`` until there are more than ``size`` tokens."""
    found: list[int] = []
    while len(found) <= size:
        found += next(pieces)
    return found


def with_reduced_vocabulary(model: LlamaForCausalLM, job: Job, count: int, tokenizer) -> LlamaForCausalLM:
    """Return the draft model with the target's embedding and an output matrix over ``count`` tokens: those that
    it has already, if it has such a matrix, and the most frequent ones of the target's answers."""
    answers = generate.read(generate.folder(job) / "train")
    tokens = reduced_draft.frequent_tokens(answers, model.config.vocab_size, count, [tokenizer.eos_token_id])
    if isinstance(model.lm_head, ReducedHead):
        counts = reduced_draft.token_counts(answers, model.config.vocab_size)
        reduced_draft.grow_vocabulary(model, tokens, counts)
        return model
    net = open_network(job.model(job.target), torch.bfloat16)
    return reduced_draft.reduce_vocabulary(model, net.get_input_embeddings().weight, tokens)


def load_and_grow(job: Job, hparams: dict, vocab_size: int) -> LlamaForCausalLM:
    """Load the draft model that the recipe names in ``from``, and make it wider and deeper without changing
    its outputs. Raises TrainingError if its vocabulary is not the target's."""
    old = open_draft(job.model(hparams["from"]), torch.float32, job.model(job.target))
    if old.config.vocab_size != vocab_size:
        raise TrainingError(
            f"{hparams['from']} has {old.config.vocab_size} tokens and {job.target} {vocab_size}: it cannot be its draft.",
            "training.vocabulary",
        )
    model = grow_model(
        old,
        {name: hparams[name] for name in ("hidden", "layers", "heads", "kv_heads", "intermediate")},
        job.seed,
    )
    if isinstance(old.lm_head, ReducedHead):
        if hparams["hidden"] != old.config.hidden_size:
            raise TrainingError(
                f"{hparams['from']} has a reduced vocabulary: its width stays {old.config.hidden_size}.",
                "training.reduced_width",
            )
        model.model.embed_projection, model.model.embed_tokens = (
            old.model.embed_projection,
            old.model.embed_tokens,
        )
        model.lm_head = old.lm_head
    return model


def label_every_token(answer: generate.Answer) -> generate.Answer:
    """Return an answer in which every token, those of the prompt included, is a label; it has no
    distributions of the target."""
    nothing = torch.zeros(len(answer.ids) - 1, 1)
    return dataclasses.replace(answer, start=1, top_ids=nothing, top_logp=nothing)


def measure(model: LlamaForCausalLM, heldout: list, hparams: dict) -> dict[str, float]:
    """Return the mean accepted length and acceptance rate, replayed on held-out answers. A draft with early
    exits has figures for each exit, those of the full model first."""
    out: dict[str, float] = {}
    for layers in sub_model_layers(hparams["layers"])[::-1] if hparams["sorted"] else (hparams["layers"],):
        size = "" if layers == hparams["layers"] else f"_{layers}_layers"
        found = acceptance.tables(model, heldout, hparams["gamma"], layers=layers)
        out |= {
            f"{figure}_{mode}{size}": table["mean"][figure]
            for figure in ("block_efficiency", "acceptance_rate")
            for mode, table in found.items()
        }
    return out


def card(model, name: str, recipe: str, job: Job, hparams: dict, figures: dict, about: str) -> str:
    """Return the draft's model card."""
    shape = f"hidden {hparams['hidden']}, {hparams['layers']} layer{'s' * (hparams['layers'] > 1)}, feed-forward {hparams['intermediate']}"
    found = {
        key.removeprefix("block_efficiency_"): value
        for key, value in figures.items()
        if key.startswith("block_efficiency_")
    }
    measured = ", ".join(
        f"{value:.2f} {HOW[mode]}{size and f' with {size} layers'}"
        for key, value in found.items()
        for mode, _, size in [key.removesuffix("_layers").partition("_")]
    )
    return CARD.format(
        name=name,
        target=job.target,
        recipe=recipe,
        options=job.options,
        shape=shape,
        gamma=hparams["gamma"],
        measured=measured or "not measured",
        about=about and f"\n{about}\n",
        steps=figures["steps"],
        began=initialisation_sentence(name, hparams),
        others=" and along answers of the data" if hparams["breadth"] or hparams["pretrain"] else "",
        parameters=sum(weight.numel() for weight in model.parameters()) / 1e6,
    )


def initialisation_sentence(name: str, hparams: dict) -> str:
    """Return the card's sentence on how the weights were initialised; empty for random weights."""
    if not hparams.get("from"):
        return ""
    return AGAIN if hparams["from"] == name else BEGAN.format(**hparams)


BEGAN = "It began as [{from}](../{from}) as it was then, made wider and deeper where their shapes differ. "
AGAIN = "It went on from what was shipped under its name before. "
HOW = {"greedy": "greedy", "sampled": "at temperature 1"}
CARD = (
    FRONT
    + """A draft model of [{target}](../{target}): {parameters:.2f} million parameters ({shape}), of no use alone. Its
**facts are unreliable**, as the target's are. Distilled from the target's distribution along its own answers to training prompts{others}.
Sources and licences: [LICENSES.md](../LICENSES.md).
{about}
{began}{steps} steps of `python -m specviz.training {recipe}{options} --data DIR`. Block efficiency on held-out answers,
replayed with gamma {gamma}, as that command measures at its end: {measured}.
"""
)


def build(target: LlamaConfig, hparams: dict) -> LlamaForCausalLM:
    """Return an untrained draft model with the target's vocabulary and context, and the recipe's sizes."""
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


def hidden_states_at(model, ids: Tensor, where: Tensor) -> Tensor:
    """Return the last hidden states, final norm applied, [n, hidden], at flat positions ``where`` [n] of
    ids [rows, width], so that the output matrix is applied to these only."""
    return exit_states_at(model, ids, where, (len(model.model.layers),))[0]


def exit_states_at(model, ids: Tensor, where: Tensor, layers: tuple[int, ...]) -> list[Tensor]:
    """Return, for each early exit, the hidden states after that many layers, final norm applied, [n,
    hidden], at flat positions ``where``."""
    out = model.model(ids, output_hidden_states=len(layers) > 1)
    states = [
        out.last_hidden_state
        if count == len(model.model.layers)
        else model.model.norm(out.hidden_states[count])
        for count in layers
    ]
    return [hidden.flatten(0, 1)[where] for hidden in states]


class Batches:
    """Training batches by step: answers of similar length, right-padded. A batch is a function of seed and
    step."""

    def __init__(self, answers: list, hparams: dict, seed: int, device):
        self.answers = [a for a in answers if a.start < hparams["length"] - 1]
        self.hparams = hparams
        self.seed = seed
        self.device = device
        self.epoch, self.plan = -1, []
        self.each = len(self.planned(0))

    def planned(self, epoch: int) -> list[list[int]]:
        """Return an epoch's batches as lists of indices into ``answers``. Every epoch has as many batches
        as the first."""
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
        """Return the answers in the batch of a step."""
        epoch, index = divmod(step, self.each)
        if epoch != self.epoch:
            self.epoch, self.plan = epoch, self.planned(epoch)
        return [self.answers[i] for i in self.plan[index % len(self.plan)]]

    def __getitem__(self, step: int):
        return collate(self.rows(step), self.hparams["length"], self.device)


def collate(answers: list, length: int, device):
    """Pad answers to one batch. Return (ids [rows, width], where [n], top_ids [n, top], top_logp [n, top],
    labels [n]). where: flat positions (row * width + position) whose next token is a label; top_ids,
    top_logp: the target's top tokens for it and their log-probabilities."""
    width = min(length, max(len(a.ids) for a in answers))
    ids = torch.zeros(len(answers), width, dtype=torch.long)
    where = []
    tops = []
    logps = []
    labels = []
    for row, a in enumerate(answers):
        end = min(len(a.ids), width)
        ids[row, :end] = a.ids[:end]
        where.append(torch.arange(a.start - 1, end - 1) + row * width)
        tops.append(a.top_ids[: end - a.start].long())
        logps.append(a.top_logp[: end - a.start].float())
        labels.append(a.ids[a.start : end])
    return tuple(t.to(device) for t in (ids, *map(torch.cat, (where, tops, logps, labels))))
