"""Train the target that reads a picture, and its draft model, which reads the text alone ("On Speculative
Decoding for Multimodal Large Language Models", 2404.08856).

Pictures, questions and answers come from one program (scenes.py), new ones in every step. The target reads
the embedded patches of a picture before the text (models/patch_encoder.py); a share of the conversations
has no picture. The draft model is trained on the same texts, half of them after a caption: words for what
each patch shows, which the target's output matrix predicts from the embedded patch."""

import base64
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ..checkpoints import mx
from ..models.patch_encoder import PatchEncoder, label_scores
from ..pictures import scenes
from ..zoo import codec
from . import losses
from .files import write_json, write_shards, write_text, write_tokenizer
from .job import Job
from .runner import Runner

SPECIAL = ("<pad>", "<unknown>", "<user>", "<answer>", "<end>", "<caption>")  # ids from 0 on
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'user' %}<user> {{ m['content'] }}<answer>"
    "{% elif m['role'] == 'assistant' %}{{ m['content'] }}<end>"
    "{% else %}{{ raise_exception('it has no place for a message of the role ' + m['role']) }}{% endif %}{% endfor %}"
)
UNSEEN = 1000  # added to the seed, for drawings that no step trains on
FRONT = """---
license: apache-2.0
language: [en]
---
# {name}

"""
CARD = (
    FRONT
    + """A toy that sees a picture of {side} x {side} pixels and says what it shows. Each of its {cells} patches becomes one row
before the text: {layers} layers of {hidden}, {parameters:,} parameters. Made to be watched while it decodes, with a draft model that reads
the text alone.

| figure | value |
|---|---|
| steps, conversations seen | {steps}, {seen:,} |
| minutes of training | {minutes} |
| loss per token of answers about {heldout} pictures it has not seen, nats | {loss:.3f} |
{right}
| patches whose caption is right | {captions:.1%} |

It knows {things} things ({list}),
{colours} colours, "small", nine places on a grid and up to three things, each inside one cell of it. It cannot see anything else: of a
photograph, a thing across two cells, a letter or another background it says something wrong in the same grammar. It answers five kinds of
questions (describe, what is at a place, what colour, where, how many).

Trained by `python -m specviz.training vision`. All pictures were drawn by this project's own program; licences are in
[LICENSES.md](../LICENSES.md).
"""
)
DRAFT_CARD = (
    FRONT
    + """The draft model of specviz-vision: it reads the text alone, or behind a caption, and never sees the picture.
{layers} layers of {hidden}, {parameters:,} parameters.

| figure | value |
|---|---|
| steps, texts seen | {steps}, {seen:,} |
| minutes of training | {minutes} |
| loss per token of {heldout} answers it has not seen, without and with a caption, nats | {blind:.3f}, {captioned:.3f} |

Share of its tokens that the target accepts at temperature 1, sum(min(p, q)) averaged over {heldout} descriptions; the first column is
what the grammar allows a reader of the text alone, computed:

| words | computed | text alone | behind a caption |
|---|---|---|---|
{accepted}

Without the picture it can only guess colours, things and places; with a caption it still guesses the places.

Trained by `python -m specviz.training vision`; licences are in [LICENSES.md](../LICENSES.md).
"""
)


class VisionLlama(LlamaForCausalLM):
    """A Llama with a patch encoder, for training: ``vision`` turns pictures into embeddings that precede
    those of the text."""

    def __init__(self, config: LlamaConfig):
        super().__init__(config)
        sizes = {name: config.vision_config[name] for name in ("patch", "columns", "rows", "inner")}
        self.vision = PatchEncoder(**sizes, hidden=config.hidden_size)
        nn.init.normal_(self.vision.absent_embed, std=0.02)

    def captions(self, rows: Tensor) -> list[Tensor]:
        """Return the logits of each group of caption words (thing, colour, size) for embedded patches [...,
        hidden]."""
        return label_scores(self.lm_head(self.model.norm(rows)), self.config.vision_config["labels"])


def run(job: Job) -> Path:
    """Train the target and its draft model; return the target's folder."""
    hparams = job.hparams("vision")
    torch.manual_seed(job.seed)
    tokenizer = make_tokenizer()
    place, target = _target(job, hparams, tokenizer)
    _draft(
        job,
        hparams | hparams["draft"] | ({} if job.size == "default" else {"minutes": hparams["minutes"]}),
        tokenizer,
        target,
    )
    return place


def _target(job: Job, hparams: dict, tokenizer) -> tuple[Path, VisionLlama]:
    model = VisionLlama(config(hparams, tokenizer, vision_config(hparams, tokenizer)))
    runner = Runner(job, "vision", model, hparams, job.folder("vision", job.size))
    runner.half = False  # for matrices this small, casts cost more than bfloat16 products save (measured)
    batches = Batches(tokenizer, hparams, job.seed, runner.device)
    unseen = unseen_batches(job, hparams, tokenizer, runner.device)
    heldout = unseen.make(0, hparams["heldout"])

    def loss_of(batch: "Batch") -> tuple[Tensor, int]:
        rows = model.vision(batch.pictures)
        scores = model.captions(rows)
        shown = batch.labels[..., 0] < len(scenes.THINGS)  # colour and size of an empty patch are not learned
        captions = F.cross_entropy(scores[0].flatten(0, 1).float(), batch.labels[..., 0].flatten())
        captions = captions + sum(
            F.cross_entropy(scores[i][shown].float(), batch.labels[..., i][shown]) for i in (1, 2)
        )
        rows = torch.where(batch.absent[:, None, None], model.vision.absent().to(rows.dtype), rows)
        states = hidden_after(model, batch.ids, rows)[batch.where + batch.row * rows.shape[1]]
        words = losses.next_token(states, model.lm_head.weight, batch.next)
        return words + hparams["caption_loss"] * captions, len(batch.next)

    def measure() -> dict:
        return {
            "heldout": round(float(loss_of(heldout)[0]), 4),
            **recognition(model, unseen, hparams["heldout"]),
        }

    figures = runner.train(lambda step: loss_of(batches.make(step, hparams["batch"])), measure)
    model.eval()
    right = "\n".join(
        f"| right answers, word for word: {kind} | {figures.get(kind, float('nan')):.1%} |"
        for kind in scenes.QUESTIONS
    )
    text = CARD.format(
        **{name: hparams[name] for name in ("name", "layers", "hidden", "heldout")},
        side=scenes.SIDE,
        right=right,
        cells=scenes.CELLS**2,
        parameters=sum(p.numel() for p in model.parameters()),
        steps=figures["steps"],
        seen=figures["steps"] * hparams["batch"],
        minutes=figures["minutes"],
        loss=figures.get("heldout", float("nan")),
        captions=figures.get("captions", float("nan")),
        things=len(scenes.THINGS),
        list=", ".join(scenes.THINGS),
        colours=len(scenes.COLOURS),
    )
    return export(job, hparams["name"], model, tokenizer, text, {codec.FILE: codec_of(batches)}), model


def _draft(job: Job, hparams: dict, tokenizer, target: VisionLlama) -> None:
    model = LlamaForCausalLM(config(hparams, tokenizer))
    runner = Runner(job, "vision-draft", model, hparams, job.folder("vision-draft", job.size))
    runner.half = False
    batches = Batches(tokenizer, hparams, job.seed + 1, runner.device, see=False)

    def loss_of(batch: "Batch") -> tuple[Tensor, int]:
        return losses.next_token(
            hidden_after(model, batch.ids)[batch.where], model.lm_head.weight, batch.next
        ), len(batch.next)

    def measure() -> dict:
        return {
            name: round(float(loss_of(batches.make(-1, hparams["heldout"], share))[0]), 4)
            for name, share in (("blind", 0.0), ("captioned", 1.0))
        }

    figures = runner.train(
        lambda step: loss_of(batches.make(step, hparams["batch"], hparams["captioned"])), measure
    )
    unseen = unseen_batches(job, hparams, tokenizer, runner.device)
    accepted = acceptance(target, model.eval(), unseen, hparams["heldout"])
    text = DRAFT_CARD.format(
        accepted="\n".join(
            f"| {kind} | " + " | ".join(f"{share:.3f}" for share in shares) + " |"
            for kind, shares in accepted.items()
        ),
        **{name: hparams[name] for name in ("name", "layers", "hidden", "heldout")},
        minutes=figures["minutes"],
        parameters=sum(p.numel() for p in model.parameters()),
        steps=figures["steps"],
        seen=figures["steps"] * hparams["batch"],
        **{name: figures.get(name, float("nan")) for name in ("blind", "captioned")},
    )
    export(job, hparams["name"], model, tokenizer, text, {})


def config(hparams: dict, tokenizer, vision: dict[str, Any] | None = None) -> LlamaConfig:
    """Return the configuration of a Llama network. vision: the encoder's sizes, None without an encoder."""
    made = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hparams["hidden"],
        intermediate_size=hparams["intermediate"],
        num_hidden_layers=hparams["layers"],
        num_attention_heads=hparams["heads"],
        num_key_value_heads=hparams["kv_heads"],
        head_dim=hparams["head_dim"],
        max_position_embeddings=hparams["positions"],
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    if vision:
        made.vision_config = vision
    return made


def vision_config(hparams: dict, tokenizer) -> dict[str, Any]:
    """Return the encoder's sizes and ``labels``: for each group of caption words their token ids, -1 for no
    word. The last word of the first group means that the patch shows nothing."""

    def ids(words) -> list[int]:
        return [tokenizer.convert_tokens_to_ids("\u0120" + word) for word in words]

    return {
        "patch": scenes.CELL,
        "columns": scenes.CELLS,
        "rows": scenes.CELLS,
        "inner": hparams["inner"],
        "caption": tokenizer.convert_tokens_to_ids("<caption>"),
        "labels": [ids((*scenes.THINGS, "nothing")), ids(scenes.COLOURS), [-1, *ids(["small"])]],
    }


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the grammar's words, each with a space before it; words that may begin a text
    also without one."""
    found = scenes.words()
    capital = [word for word in found if word[0].isupper()]
    spaced = sorted({form for word in found if word[0].isalpha() for form in (word, word.lower())})
    names = [
        *SPECIAL,
        *[word for word in found if not word[0].isalpha()],
        *capital,
        *("\u0120" + word for word in spaced),
    ]
    made = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unknown>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unknown>",
        additional_special_tokens=["<user>", "<answer>", "<caption>"],
        chat_template=TEMPLATE,
    )


def hidden_after(model: LlamaForCausalLM, ids: Tensor, rows: Tensor | None = None) -> Tensor:
    """Return the last hidden states [rows * positions, hidden] of a sequence of embeddings ``rows``
    (patches, may be None) followed by token ids."""
    x = model.model.embed_tokens(ids)
    x = x if rows is None else torch.cat([rows.to(x.dtype), x], 1)
    return model.model(inputs_embeds=x, use_cache=False).last_hidden_state.flatten(0, 1)


class Batch:
    """A training batch of conversations.

    ids [n, length]: token ids; where, row, next: flat positions with a loss, the number of their
    conversation from 1, and the tokens after them; pictures uint8 [n, side, side, 3]; absent, bool [n]: the
    picture is not shown; labels [n, cells, 3]: caption words of each patch."""

    def __init__(self, ids: list[list[int]], answer: int, end: int, pad: int, device):
        longest = max(map(len, ids))
        where = []
        row = []
        after = []
        for index, one in enumerate(ids):
            inside = False
            for at, token in enumerate(one):
                if inside:
                    where.append(index * longest + at - 1)
                    row.append(index + 1)
                    after.append(token)
                inside = token != end and (inside or token == answer)
        self.ids = torch.tensor([[*one, *[pad] * (longest - len(one))] for one in ids], device=device)
        self.where, self.row, self.next = (
            torch.tensor(values, device=device) for values in (where, row, after)
        )
        self.pictures = torch.empty(0)
        self.absent = torch.empty(0)
        self.labels = torch.empty(0)


class Batches:
    """Training batches, a function of seed and step. see: conversations have pictures (for the target);
    else some have captions (for the draft)."""

    def __init__(self, tokenizer, hparams: dict, seed: int, device, see: bool = True):
        self.tokenizer = tokenizer
        self.hparams = hparams
        self.seed = seed
        self.device = device
        self.see = see
        self.painter = scenes.Painter(seed, hparams["variants"]) if see else None
        self.answer, self.end = (tokenizer.convert_tokens_to_ids(name) for name in ("<answer>", "<end>"))

    def make(self, step: int, count: int, captioned: float = 0.0) -> Batch:
        """Return a batch of ``count`` conversations. captioned: share of conversations with a caption, if
        there are no pictures."""
        rng = random.Random(f"{self.seed} {step}")
        turns = rng.choices((1, 2, 3), (6, 2, 1))[0]
        drawn = [scenes.draw_scene(rng) for _ in range(count)]
        texts = [text_of(scenes.conversation(scene, turns, rng), rng) for scene in drawn]
        if not self.see:
            texts = [
                f"<caption> {scenes.caption(scene)}{text}" if rng.random() < captioned else text
                for scene, text in zip(drawn, texts)
            ]
        batch = Batch(
            self.tokenizer(texts, add_special_tokens=False)["input_ids"],
            self.answer,
            self.end,
            self.tokenizer.pad_token_id,
            self.device,
        )
        if self.painter is not None:
            batch.pictures = torch.from_numpy(
                np.stack([self.painter.paint(scene, rng) for scene in drawn])
            ).to(self.device)
            batch.absent = torch.tensor(
                [rng.random() < self.hparams["absent"] for _ in drawn], device=self.device
            )
            batch.labels = torch.tensor([labels_of(scene) for scene in drawn], device=self.device)
        return batch


def unseen_batches(job: Job, hparams: dict, tokenizer, device) -> Batches:
    """Return batches of drawings and scenes that no training step uses."""
    return Batches(tokenizer, hparams | {"variants": hparams["unseen_variants"]}, job.seed + UNSEEN, device)


def text_of(turns: list[tuple[str, str]], rng: random.Random | None = None) -> str:
    """Return a conversation in the chat template. With ``rng``, some questions are in lower case or have no
    punctuation."""

    def careless(question: str) -> str:
        question = question.lower() if rng and rng.random() < 0.25 else question
        return question.rstrip("?.") if rng and rng.random() < 0.25 else question

    return "".join(f"<user> {careless(question)}<answer>{answer}<end>" for question, answer in turns)


def labels_of(scene: scenes.Scene) -> list[list[int]]:
    """Return (thing, colour, size) of each patch, as indices into the caption words; the last thing means
    that nothing is there."""
    found = [[len(scenes.THINGS), 0, 0] for _ in range(scenes.CELLS**2)]
    for item in scene:
        found[item.cell] = [
            scenes.THINGS.index(item.thing),
            scenes.COLOURS.index(item.colour),
            int(item.small),
        ]
    return found


def recognition(model: VisionLlama, batches: Batches, count: int) -> dict[str, float]:
    """Return the share of correct answers to each kind of question (scenes.QUESTIONS), every word being
    predicted after the true words before it; and, as "captions", the share of patches with the correct
    caption."""
    rng = random.Random(f"{batches.seed} recognition")
    assert batches.painter is not None
    drawn = [scenes.draw_scene(rng) for _ in range(count)]
    rows = model.vision(
        torch.from_numpy(np.stack([batches.painter.paint(scene, rng) for scene in drawn])).to(batches.device)
    )
    found = {}
    for kind, ask in scenes.QUESTIONS.items():
        texts = [text_of([ask(scene, rng)]) for scene in drawn]
        batch = Batch(
            batches.tokenizer(texts, add_special_tokens=False)["input_ids"],
            batches.answer,
            batches.end,
            batches.tokenizer.pad_token_id,
            batches.device,
        )
        good = (
            model.lm_head(
                hidden_after(model, batch.ids, rows)[batch.where + batch.row * rows.shape[1]]
            ).argmax(-1)
            == batch.next
        )
        good[torch.cat([torch.ones(1, dtype=torch.bool), (batch.row[1:] != batch.row[:-1]).cpu()])] = (
            True  # any opening may come first
        )
        found[kind] = round(1 - len(set(batch.row[~good].tolist())) / count, 4)
    labels, scores = (
        torch.tensor([labels_of(scene) for scene in drawn], device=batches.device),
        model.captions(rows),
    )
    thing, colour, size = (group.argmax(-1) == labels[..., i] for i, group in enumerate(scores))
    right = thing & ((labels[..., 0] == len(scenes.THINGS)) | colour & size)
    return found | {"captions": round(float(right.float().mean()), 4)}


@torch.inference_mode()
def acceptance(
    target: VisionLlama, draft: LlamaForCausalLM, batches: Batches, count: int
) -> dict[str, list[float]]:
    """Return, for each kind of word (scenes.kind_of), mean probabilities that a drafted token is accepted:
    computed from the grammar; of the draft model on the text alone; of the draft model after a caption."""
    rng, found = random.Random(f"{batches.seed} acceptance"), {}
    assert batches.painter is not None
    for _ in range(count):
        scene = scenes.draw_scene(rng)
        words = scenes.split_words(scenes.description(scene, rng.choice(scenes.OPENINGS)))
        question = text_of([(scenes.DESCRIBE[0], "")]).removesuffix("<end>")
        answer = scenes.join_words(words)
        pixels = torch.from_numpy(batches.painter.paint(scene, rng))[None].to(batches.device)
        p = _answer_probs(target, batches, question + answer, len(words), target.vision(pixels))
        plain, captioned = (
            _answer_probs(draft, batches, before + question + answer, len(words))
            for before in ("", f"<caption> {scenes.caption(scene)}")
        )
        for i, word in enumerate(words):
            row = [
                scenes.acceptance(words[:i], word),
                *(float(torch.minimum(p[i], q[i]).sum()) for q in (plain, captioned)),
            ]
            found.setdefault(scenes.kind_of(words, i), []).append(row)
    return {kind: [sum(column) / len(rows) for column in zip(*rows)] for kind, rows in sorted(found.items())}


def _answer_probs(model, batches: Batches, text: str, count: int, rows: Tensor | None = None) -> Tensor:
    """Return the distributions [count, vocab] of a text's last ``count`` tokens."""
    ids = torch.tensor([batches.tokenizer.encode(text, add_special_tokens=False)], device=batches.device)
    return model.lm_head(hidden_after(model, ids, rows)[-count - 1 : -1]).float().softmax(-1)


def codec_of(batches: Batches) -> dict[str, Any]:
    """Return the content of codec.json: the picture's size, and sample pictures with what they show."""
    assert batches.painter is not None
    rng = random.Random("samples")
    samples = [
        {
            "shows": scenes.caption(scene),
            "png": base64.b64encode(codec.encode_png(batches.painter.paint(scene, rng))).decode(),
        }
        for scene in scenes.SAMPLES
    ]
    return {
        "kind": "text",
        "picture": {"width": scenes.SIDE, "height": scenes.SIDE, "samples": samples},
        "prompts": [scenes.DESCRIBE[0], "What is in the middle?", "How many things are there?"],
    }


def export(job: Job, name: str, model: LlamaForCausalLM, tokenizer, text: str, files: dict[str, Any]) -> Path:
    """Write weights (matrices in MXINT8), config, tokenizer, card and further JSON files (``files``: {name:
    content}); return the folder."""
    weights = {key: tensor for key, tensor in model.state_dict().items() if key != "lm_head.weight"}
    stored = {
        key: t.bfloat16() if t.is_floating_point() else t for key, t in mx.to_file_tensors(weights).items()
    }
    for folder in job.output_folders(name):
        folder.mkdir(parents=True, exist_ok=True)
        write_tokenizer(tokenizer, folder)
        write_shards(folder, stored)
        write_json(
            folder / "config.json", json.loads(model.config.to_json_string()) | {"model_type": "llama"}
        )
        write_json(
            folder / "generation_config.json",
            {"eos_token_id": tokenizer.eos_token_id, "temperature": 1.0, "do_sample": True},
        )
        for file, value in files.items():
            write_json(folder / file, value)
        write_text(folder / "README.md", text)
    return job.work / "models" / name
