"""Train the picture target: a small Llama over a codebook of patches, conditioned on a few words.

The pictures are drawn by a program (drawings.py), new ones in every step. The codebook is k-means over
their patches (no VAE: an entry is a patch of pixels). A sequence is the words, one token per patch in
raster order, and an end token. For a share of the pictures every word is replaced by an unknown word, so
that the same weights also give the unconditional distribution.
"""

import base64
import random
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ..pictures import drawings
from ..zoo import codec
from . import losses
from .draft import hidden_states_at
from .files import export, write_json, write_text
from .job import Job
from .runner import Runner

SPECIAL = ("<pad>", "<words>", "<unknown>", "<picture>", "<end>")  # ids from 0 on
THINGS = (
    *drawings.SHAPES,
    *drawings.LETTERS[1:],
    *drawings.DIGITS,
    *drawings.GROUPS,
)  # a prompt names one; "a" is an article, too
CARD = """---
license: apache-2.0
language: [en]
---
# {name}

A toy that paints 32 x 32 pictures from a few words, one {patch} x {patch} patch after another: {layers} layers of {hidden}, a
codebook of {codes} patches by k-means, {parameters:,} parameters. Made to be watched while it decodes.

| figure | value |
|---|---|
| steps, pictures seen | {steps}, {pictures:,} |
| minutes of training | {minutes} |
| loss per patch on {heldout} pictures it has not seen, nats | {loss:.3f} |
| mean error of a colour value after encoding and decoding, of 255 | {error:.1f} |

It knows {things} things ({shapes}; letters, capitals and digits), {colours} colours, "small", "big", "bold", "tilted" and "at night",
and nothing else: no two things in one picture, no place, no number of things. Other words are ignored. Letters are Pillow's own font.

Trained by `python -m specviz.training pictures`. All pictures were drawn by this project's own program; licences are in
[LICENSES.md](../LICENSES.md).
"""


def run(job: Job) -> Path:
    """Train the picture target; return its folder."""
    hparams = job.hparams("pictures")
    torch.manual_seed(job.seed)
    codes = codebook(hparams, job.seed)
    tokenizer = make_tokenizer(len(codes))
    model = LlamaForCausalLM(config(hparams, tokenizer))
    runner = Runner(job, "pictures", model, hparams, job.folder("pictures", job.size))
    batches = Batches(codes, tokenizer, hparams, job.seed, runner.device)
    heldout = batches.make(-1, hparams["heldout"], drop=False)

    def loss_of(batch):
        ids, where, labels = batch
        return losses.next_token(hidden_states_at(model, ids, where), model.lm_head.weight, labels), len(
            labels
        )

    def measure() -> dict:
        return {"heldout": round(float(loss_of(heldout)[0]), 4)}

    figures = runner.train(lambda step: loss_of(batches.make(step, hparams["batch"])), measure)
    place = export(job, hparams["name"], model, tokenizer)
    for folder in job.output_folders(hparams["name"]):
        write_codec(folder, codes, tokenizer)
        write_text(folder / "README.md", card(hparams, model, batches, figures))
    return place


def card(hparams: dict, model, batches: "Batches", figures: dict) -> str:
    """Return the model card."""
    return CARD.format(
        **{name: hparams[name] for name in ("name", "patch", "layers", "hidden", "codes", "heldout")},
        parameters=sum(p.numel() for p in model.parameters()),
        steps=figures["steps"],
        minutes=figures["minutes"],
        pictures=figures["steps"] * hparams["batch"],
        loss=figures.get("heldout", float("nan")),
        error=batches.error(),
        colours=len(drawings.COLOURS),
        things=len(drawings.SHAPES) + 2 * len(drawings.LETTERS) + len(drawings.DIGITS),
        shapes=", ".join(drawings.SHAPES),
    )


def config(hparams: dict, tokenizer) -> LlamaConfig:
    """Return the configuration of the Llama network."""
    return LlamaConfig(
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


def make_tokenizer(codes: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are the known words and the patches. The names of patch tokens
    contain a space, so that no prompt can contain one."""
    names = [*SPECIAL, *sorted(set(drawings.WORDS)), *(f"patch {i}" for i in range(codes))]
    made = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unknown>"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation("removed"), pre_tokenizers.WhitespaceSplit()]
    )
    made.post_processor = processors.TemplateProcessing(
        single="<words> $A <picture>",
        special_tokens=[(name, SPECIAL.index(name)) for name in ("<words>", "<picture>")],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        bos_token="<words>",
        eos_token="<end>",
        unk_token="<unknown>",
    )
    return tokenizer


def write_codec(folder: Path, codes: np.ndarray, tokenizer) -> None:
    """Write codec.json, which tells how tokens become patches of a picture, into a folder."""
    side = drawings.SIDE // codes.shape[1]
    write_json(
        folder / codec.FILE,
        {
            "kind": "patches",
            "rows": side,
            "columns": side,
            "patch": codes.shape[1],
            "first": tokenizer.convert_tokens_to_ids("patch 0"),
            "things": list(THINGS),
            "unconditional": unconditional_tokens(tokenizer),
            "codes": base64.b64encode(codes.tobytes()).decode(),
        },
    )


def unconditional_tokens(tokenizer) -> dict[str, int]:
    """Return the entry of codec.json that gives the tokens of a prompt without words. A share of the
    training pictures has such prompts, for classifier-free guidance."""
    return {"unknown": tokenizer.unk_token_id, "words_from": len(SPECIAL)}


def cut_patches(pictures: np.ndarray, size: int) -> np.ndarray:
    """Cut pictures [n, side, side, 3] into patches [n, patches, size * size * 3], in raster order."""
    n = len(pictures)
    side = pictures.shape[1]
    count = pictures.shape[1] // size
    cut = pictures.reshape(n, count, size, count, size, 3).swapaxes(2, 3)
    return cut.reshape(n, count * count, -1) if side == count * size else cut


def codebook(hparams: dict, seed: int) -> np.ndarray:
    """Return the codebook: k-means centres of the patches of random pictures, uint8 [codes, patch, patch,
    3]. Equal patches count once, otherwise most centres would be plain background."""
    rng = random.Random(f"{seed} codebook")
    pictures = np.stack(
        [drawings.paint(drawings.draw_wish(rng), rng) for _ in range(hparams["codebook_pictures"])]
    )
    flat = np.unique(cut_patches(pictures, hparams["patch"]).reshape(-1, hparams["patch"] ** 2 * 3), axis=0)
    points = torch.from_numpy(flat).float()
    first = points[
        torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))[: hparams["codes"]]
    ]
    centres = kmeans(points, first, hparams["kmeans_steps"])
    ground = torch.tensor([drawings.DAY, drawings.NIGHT]).float().repeat(1, hparams["patch"] ** 2)
    centres[nearest_code(ground, centres)] = ground  # plain ground is exact
    return centres.round().to(torch.uint8).numpy().reshape(-1, hparams["patch"], hparams["patch"], 3)


def kmeans(points: torch.Tensor, centres: torch.Tensor, steps: int) -> torch.Tensor:
    """Return the centres [codes, values] after ``steps`` iterations of k-means over points [n, values]. A
    centre without points stays where it is."""
    for _ in range(steps):
        nearest = nearest_code(points, centres)
        total = torch.zeros_like(centres).index_add_(0, nearest, points)
        count = torch.bincount(nearest, minlength=len(centres))[:, None]
        centres = torch.where(count > 0, total / count.clamp(min=1), centres)
    return centres


def nearest_code(points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Return the index [n] of the nearest centre of each point."""
    half = (centres**2).sum(1) / 2
    return torch.cat([(half - part @ centres.T).argmin(1) for part in points.split(8192)])


def prompt_of(tokenizer, wish: drawings.Wish, rng: random.Random, drop: float, noise: float) -> list[int]:
    """Return the token ids of a prompt for this content. drop: probability that all of its words are
    replaced by the unknown word; noise: probability that one of them is."""
    ids = tokenizer.encode(drawings.words_of(wish, rng))
    dropped, unknown = bool(drop) and rng.random() < drop, tokenizer.unk_token_id
    return [
        i if i < len(SPECIAL) else unknown if dropped or (noise and rng.random() < noise) else i for i in ids
    ]


class Batches:
    """Training batches of drawn pictures. The batch of a step is a function of seed and step."""

    def __init__(self, codes: np.ndarray, tokenizer, hparams: dict, seed: int, device):
        self.tokenizer = tokenizer
        self.hparams = hparams
        self.seed = seed
        self.device = device
        self.centres = torch.from_numpy(codes.reshape(len(codes), -1)).float()
        self.first = tokenizer.convert_tokens_to_ids("patch 0")

    def make(self, step: int, count: int, drop: bool = True):
        """Return (ids [count, length], where [n], labels [n]): token ids, flat positions that predict a
        patch or the end, and the tokens after them."""
        rng = random.Random(f"{self.seed} {step}")
        wishes = [drawings.draw_wish(rng) for _ in range(count)]
        cut = cut_patches(np.stack([drawings.paint(wish, rng) for wish in wishes]), self.hparams["patch"])
        tokens = self.first + nearest_code(
            torch.from_numpy(cut.reshape(-1, cut.shape[-1])).float(), self.centres
        ).reshape(count, -1)
        prompts = [self.prompt(wish, rng, drop) for wish in wishes]
        longest = max(map(len, prompts)) + cut.shape[1] + 1
        ids = []
        where = []
        labels = []
        for index, (prompt, painted) in enumerate(zip(prompts, tokens.tolist())):
            row = [*prompt, *painted, self.tokenizer.eos_token_id]
            where += range(index * longest + len(prompt) - 1, index * longest + len(row) - 1)
            labels += row[len(prompt) :]
            ids.append(row + [self.tokenizer.pad_token_id] * (longest - len(row)))
        return tuple(torch.tensor(t, device=self.device) for t in (ids, where, labels))

    def prompt(self, wish: drawings.Wish, rng: random.Random, drop: bool) -> list[int]:
        """Return a prompt for this content. drop: with the random omissions of training."""
        return prompt_of(
            self.tokenizer,
            wish,
            rng,
            *((self.hparams["drop"], self.hparams["noise"]) if drop else (0.0, 0.0)),
        )

    def error(self) -> float:
        """Return the error of the codebook: the mean absolute difference of a colour value (0 to 255) over
        100 pictures."""
        rng = random.Random(f"{self.seed} error")
        cut = cut_patches(
            np.stack([drawings.paint(drawings.draw_wish(rng), rng) for _ in range(100)]),
            self.hparams["patch"],
        )
        points = torch.from_numpy(cut.reshape(-1, cut.shape[-1])).float()
        return float((points - self.centres[nearest_code(points, self.centres)]).abs().mean())
