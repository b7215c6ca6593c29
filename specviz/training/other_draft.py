"""Train a draft of 0.5 to 1 million parameters with its own tokenizer, for methods with heterogeneous
vocabularies.

The tokenizer is a smaller byte-level BPE that keeps digits together, trained on the same rows as the
target's. The model is trained on the target's answers, re-encoded in its own tokens. The loss is
cross-entropy, because the target's distributions are over other tokens.
"""

import copy
import itertools
import math
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig

from ..models.pretrained import open_config
from ..zoo import other_vocabulary as others
from ..zoo.found_weights import OTHER_DRAFT
from . import data, draft, losses
from . import text_answers as generate
from . import tokenizer as tokenizer_recipe
from .files import FRONT, export, write_text, write_tokenizer
from .job import Job, TrainingError, fingerprint
from .runner import Runner


def run(job: Job) -> Path:
    """Train the draft model with its own tokenizer; return the folder of its weights."""
    hparams, target = job.hparams("other_draft"), job.model(job.target)
    if job.ship and fingerprint(target) != fingerprint(job.shipped / job.target):
        raise TrainingError(
            f"This draft would follow {target}, which is not the shipped target: ship that one first.",
            "training.not_shipped",
        )
    root, place = generate.folder(job), job.folder("other_draft", fingerprint(target))
    piles = {pile: generate.read(root / pile) for pile in ("train", "read", "heldout")}
    older = job.model(hparams["from"]) if "from" in hparams else None
    tokenizer = (
        AutoTokenizer.from_pretrained(older, trust_remote_code=False)
        if older
        else train_tokenizer(job, hparams, place / "tokenizer")
    )
    theirs = AutoTokenizer.from_pretrained(target, trust_remote_code=False)
    bridge = others.bridge(target, older or place / "tokenizer", len(theirs), len(tokenizer))
    train, read, heldout = ([reencode(bridge, answer) for answer in pile] for pile in piles.values())
    torch.manual_seed(job.seed)
    model = (
        draft.load_and_grow(job, hparams, len(tokenizer))
        if older
        else draft.build(draft_config(open_config(target), tokenizer), hparams)
    )
    runner = Runner(job, "other_draft", model, hparams, place)
    own = draft.Batches(train, hparams, job.seed, runner.device)
    wide = draft.Batches(train + read, hparams, job.seed, runner.device)

    def loss_at(step: int):
        ids, where, _, _, labels = (own if runner.budget_spent() > 1 - hparams["decay"] else wide)[step]
        return losses.next_token(
            draft.hidden_states_at(model, ids, where), model.lm_head.weight, labels
        ), len(labels)

    figures = runner.train(loss_at, lambda: measure(model, bridge, heldout, hparams))
    made = export(job, job.model_name("other-draft"), model, tokenizer, OTHER_DRAFT)
    for folder in job.output_folders(job.model_name("other-draft")):
        write_text(
            folder / "README.md", card(job, model, tokenizer, bridge, figures, older.name if older else "")
        )
    return made


def train_tokenizer(job: Job, hparams: dict, place: Path):
    """Train the tokenizer, once per target; save it in the folder ``place`` and return it."""
    if not (place / "tokenizer.json").is_file():
        rows = data.load(job.data, "train", hparams["own_rows"])
        tokenizer = tokenizer_recipe.train_bpe(
            itertools.islice(data.balanced(rows, job.seed + 1), hparams["rows"]),
            hparams["vocabulary"],
            digits=False,
            quiet=job.quiet,
        )
        write_tokenizer(tokenizer, place)
    return AutoTokenizer.from_pretrained(place, trust_remote_code=False)


def draft_config(target: LlamaConfig, tokenizer) -> LlamaConfig:
    """Return the target's configuration with the vocabulary of the new tokenizer."""
    config = copy.deepcopy(target)
    config.vocab_size = len(tokenizer)
    config.bos_token_id = tokenizer.bos_token_id
    config.eos_token_id = tokenizer.eos_token_id
    config.pad_token_id = tokenizer.pad_token_id
    return config


def reencode(bridge: others.Bridge, answer: generate.Answer) -> generate.Answer:
    """Return an answer in the tokens of the other vocabulary, without the target's distributions."""
    ids = answer.ids.tolist()
    start, whole = len(bridge.encode(ids[: answer.start])), torch.tensor(bridge.encode(ids))
    nothing = torch.zeros(len(whole) - start, 1)
    return generate.Answer(whole, start, answer.task, answer.temperature, nothing, nothing)


def measure(model, bridge: others.Bridge, heldout: list, hparams: dict) -> dict:
    """Return, on held-out answers of the target: nats per byte under the draft, and the share of the
    target's greedy tokens that equal the draft's top-1 token."""
    nats = size = right = tried = 0
    for answer in heldout:
        ids = answer.ids[: hparams["length"]]
        labels = ids[answer.start :].to(model.device)
        if not len(labels):
            continue
        logits = model(ids[None].to(model.device)).logits[0, answer.start - 1 : -1].float()
        nats += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
        size += sum(
            len(bridge.theirs(token)) for token in labels.tolist() if token not in bridge.theirs.special
        )
        if answer.greedy:
            right, tried = right + int((logits.argmax(-1) == labels).sum()), tried + len(labels)
    return {"nats_a_byte": round(nats / max(1, size), 4), "greedy_right": round(right / max(1, tried), 4)}


def card(job: Job, model, tokenizer, bridge: others.Bridge, figures: dict, older: str) -> str:
    """Return the draft's model card."""
    known = {
        name: value
        for name, value in figures.items()
        if value is not None and not (type(value) is float and math.isnan(value))
    }
    size = sum(weight.numel() for weight in model.parameters())
    front = FRONT.format(name=job.model_name("other-draft"))
    return (
        f"{front}{size:,} parameters with a byte-level BPE of their own ({len(tokenizer)} tokens, of "
        f"which the target has {bridge.overlap:.0%}), trained on the answers of {job.target} by `python -m specviz.training "
        f"other_draft{job.options}`. They draft for that target across vocabularies (methods slem, tli, slrs) and are of no use "
        "alone. Their **facts are unreliable**, as the target's are. Sources and licences: [LICENSES.md](../LICENSES.md).\n\n"
        + (f"Tokens and first weights are those of [{older}](../{older}). " if older else "")
        + "Last run: "
        + ", ".join(f"{name} {value}" for name, value in known.items())
        + ".\n"
    )
