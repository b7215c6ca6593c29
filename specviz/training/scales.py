"""Train the picture target that generates scale by scale (VAR, 2404.02905), and the small refiner of CoDe
(2411.17787), in one run.

The pictures are those of the `pictures` recipe. Each scale's codebook is k-means over the difference
between the pictures and what the scales before it give. Both networks learn all scales, so that CoDe may
switch to the refiner after any of them. Half of the refiner's loss is on the pictures, half is distillation
from the large model. The paper fine-tunes the large model on the early scales and the small one on the late
ones; this recipe does not."""

import base64
import random
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints import mx
from ..models.scales import HALF, KIND, ScaleNet, Scales
from ..pictures import drawings
from ..zoo import codec
from . import pictures
from .files import write_json, write_shards, write_text, write_tokenizer
from .job import Job
from .runner import Runner

CARD = """---
license: apache-2.0
language: [en]
---
# {name}

{role} Next-scale prediction (2404.02905): a picture of 32 x 32 pixels grows over {count} scales, {grids} patches to a side, and one pass
gives all patches of a scale. {layers} layers of {hidden}, {parameters:,} parameters; codebooks of {entries} patches by k-means.
Made to be watched.

| figure | value |
|---|---|
| steps, pictures seen | {steps}, {pictures:,} |
| minutes of training, both networks together | {minutes} |
| loss per patch of each scale on {heldout} pictures it has not seen, nats | {losses} |
| mean error of a colour value after encoding and decoding, of 255 | {error:.1f} |

It knows the same things and words as [specviz-pictures](../specviz-pictures), whose card lists them, and nothing else. The order of the
words is ignored. Trained by `python -m specviz.training scales`. All pictures were drawn by this project's own program; licences are in
[LICENSES.md](../LICENSES.md).
"""
ROLES = {
    "large": "A toy that paints pictures from a few words, from coarse to fine.",
    "refiner": "The small model that paints the last scales of a picture for [specviz-scales](../specviz-scales) (CoDe).",
}


class LargeAndRefiner(nn.Module):
    """The two networks that are trained together, as one nn.Module: ``large`` generates all scales,
    ``refiner`` is CoDe's small network. They have the same scales and codebooks."""

    def __init__(self, hparams: dict, codes: Tensor, vocab: int):
        super().__init__()
        self.large, self.refiner = (
            ScaleNet(config(hparams | more, vocab)) for more in ({}, hparams["refiner"])
        )
        for net in (self.large, self.refiner):
            net.codes.copy_(codes)
            nn.init.normal_(net.lm_head.weight, std=0.02)
            for table in (net.embed_words, net.embed_places):
                nn.init.normal_(table.weight, std=0.02)


def run(job: Job) -> Path:
    """Train both networks; return the folder of the large one."""
    hparams = job.hparams("scales")
    torch.manual_seed(job.seed)
    codes = codebooks(hparams, job.seed)
    tokenizer = pictures.make_tokenizer(len(codes))
    both = LargeAndRefiner(hparams, codes, len(tokenizer))
    runner = Runner(job, "scales", both, hparams, job.folder("scales", job.size))
    batches = Batches(both.large, tokenizer, hparams, job.seed, runner.device)
    heldout = batches.make(-1, hparams["heldout"], heldout_batch=True)

    def loss_at(step: int) -> tuple[Tensor, int]:
        coarse = step % 2
        batch = batches.make(
            step, hparams["coarse_batch" if coarse else "batch"], len(hparams["grids"]) - coarse
        )
        return combined_loss(both, batch, hparams["distil"]), batch[2].numel()

    def measure() -> dict:
        return {
            name: [round(float(one), 4) for one in scale_losses(getattr(both, name), heldout)]
            for name in ROLES
        }

    figures = runner.train(loss_at, measure)
    for name in ROLES:
        write_network(
            job, hparams, tokenizer, getattr(both, name), name, figures | {"error": batches.error()}
        )
    return job.output_folders(hparams["name"])[0]


def config(hparams: dict, vocab: int) -> dict:
    """Return the config.json of a network."""
    return {
        "model_type": KIND,
        "vocab_size": vocab,
        "hidden_size": hparams["hidden"],
        "num_hidden_layers": hparams["layers"],
        "num_attention_heads": hparams["heads"],
        "intermediate_size": hparams["intermediate"],
        "max_position_embeddings": hparams["prompt"],
        "quantization_config": {"quant_method": "mxint8"},
        **{name: hparams[name] for name in ("grids", "patch", "entries")},
    }


def scales_of(hparams: dict) -> Scales:
    """Return the sizes of the scales, as models/scales.py uses them."""
    return Scales(tuple(hparams["grids"]), hparams["patch"], tuple(hparams["entries"]))


def centred_pixels(painted: list[np.ndarray]) -> Tensor:
    """Return pictures as differences from middle grey, float [n, 3, side, side]."""
    return torch.from_numpy(np.stack(painted)).permute(0, 3, 1, 2).float() - HALF


def codebooks(hparams: dict, seed: int) -> Tensor:
    """Return the codebooks of all scales, one after the other: patches as whole numbers from -128 to 127,
    [entries, patch * patch
    * 3]. From the second scale on, one entry is zero, for patches that need no correction."""
    rng, scales = random.Random(f"{seed} codebook"), scales_of(hparams)
    wanted = centred_pixels(
        [drawings.paint(drawings.draw_wish(rng), rng) for _ in range(hparams["codebook_pictures"])]
    )
    picture, found = scales.blank_pictures(len(wanted)), []
    draw = torch.Generator().manual_seed(seed)
    for scale, entries in enumerate(scales.entries):
        cut = scales.downsample(wanted - picture, scale)
        flat = cut.flatten(0, 1)
        points = torch.unique(
            flat[torch.randperm(len(flat), generator=draw)[: hparams["kmeans_points"]]].round(), dim=0
        )
        first = points[torch.randperm(len(points), generator=draw)[:entries]]
        centres = pictures.kmeans(points, first, hparams["kmeans_steps"])
        if scale:
            centres[(centres**2).sum(1).argmin()] = 0
        found.append(centres.round().clamp(-HALF, HALF - 1))
        nearest = pictures.nearest_code(flat, found[-1]).reshape(cut.shape[:2])
        picture = picture + scales.upsample(found[-1][nearest])
    return torch.cat(found)


class Batches:
    """Training batches of drawn pictures. The batch of a step is a function of seed and step."""

    def __init__(self, net: ScaleNet, tokenizer, hparams: dict, seed: int, device):
        self.net = net
        self.tokenizer = tokenizer
        self.hparams = hparams
        self.seed = seed
        self.device = device
        self.scales, self.codes = net.scales, net.codes.detach().clone().cpu()

    def make(
        self, step: int, count: int, num_scales: int | None = None, heldout_batch: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first ``num_scales`` scales (None: all) of ``count`` pictures: (word counts of the
        prompts [count, words], network inputs [count, rows, patch * patch * 3], codebook entries to predict
        [count, rows]). A row is a patch of a scale; heldout_batch: without the random changes of
        training."""
        rng = random.Random(f"{self.seed} {step} scales")
        wishes = [drawings.draw_wish(rng) for _ in range(count)]
        wanted = centred_pixels([drawings.paint(wish, rng) for wish in wishes])
        counts = torch.zeros(count, self.net.words)
        changes = (0.0, 0.0) if heldout_batch else (self.hparams["drop"], self.hparams["noise"])
        for row, wish in enumerate(wishes):
            for word in pictures.prompt_of(self.tokenizer, wish, rng, *changes):
                counts[row, word] += 1
        inputs, entries = self.encoded(
            wanted,
            num_scales,
            0.0 if heldout_batch else self.hparams["astray"],
            torch.Generator().manual_seed(self.seed * 1_000_003 + step + 1),
        )
        return tuple(t.to(self.device) for t in (counts, inputs, entries))  # type: ignore[return-value]

    def encoded(
        self, wanted: Tensor, num_scales: int | None, wrong_share: float, draw: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Encode pictures [n, 3, side, side]. Return (network inputs, nearest codebook entry) of all rows.
        wrong_share: share of the patches for which one of the eight nearest entries, drawn at random, is
        painted instead of the nearest."""
        scales = self.scales
        picture = self.scales.blank_pictures(len(wanted))
        inputs = []
        labels = []
        for scale in range(num_scales or len(scales.grids)):
            lo, hi = scales.starts[scale : scale + 2]
            inputs.append(scales.downsample(picture, scale))
            cut, codes = scales.downsample(wanted - picture, scale), self.codes[lo:hi]
            far = (codes**2).sum(1) / 2 - cut @ codes.T
            near = far.topk(min(8, hi - lo), -1, largest=False).indices
            labels.append(near[..., 0])
            pick = torch.randint(near.shape[-1], near.shape[:-1], generator=draw)
            pick = pick * (torch.rand(near.shape[:-1], generator=draw) < wrong_share)
            picture = picture + scales.upsample(codes[near.gather(-1, pick[..., None])[..., 0]])
        return torch.cat(inputs, 1), torch.cat(labels, 1)

    def error(self) -> float:
        """Return the error of the codebooks: the mean absolute difference of a colour value (0 to 255) over
        100 pictures."""
        rng = random.Random(f"{self.seed} error")
        wanted = centred_pixels([drawings.paint(drawings.draw_wish(rng), rng) for _ in range(100)])
        entries, picture = (
            self.encoded(wanted, None, 0.0, torch.Generator())[1],
            self.scales.blank_pictures(100),
        )
        for scale, (lo, hi) in enumerate(zip(self.scales.ends, self.scales.ends[1:])):
            picture = picture + self.scales.upsample(
                self.codes[self.scales.starts[scale] + entries[:, lo:hi]]
            )
        return float((wanted - picture).abs().mean())


def states_of(net: ScaleNet, batch) -> Tensor:
    """Return the network's hidden states [n, rows, hidden] for a batch, as ``Batches.make`` returns it."""
    counts, inputs, _ = batch
    rows = inputs.shape[1]
    return net(net.condition(counts), inputs, net.scales.mask()[:rows, :rows].to(inputs.device))


def logits_by_scale(net: ScaleNet, batch, states: Tensor):
    """Yield, for each scale of a batch, (logits [n, rows of the scale, entries], the codebook entries to
    predict [n, rows of the scale]). states: as ``states_of`` returns them."""
    for scale, (lo, hi) in enumerate(zip(net.scales.ends, net.scales.ends[1:])):
        if lo < states.shape[1]:
            yield net.logits(states[:, lo:hi], scale).float(), batch[2][:, lo:hi]


def scale_losses(net: ScaleNet, batch) -> list[Tensor]:
    """Return the mean cross-entropy of each scale, coarsest first."""
    return [
        F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        for logits, labels in logits_by_scale(net, batch, states_of(net, batch))
    ]


def combined_loss(both: LargeAndRefiner, batch, distil: float) -> Tensor:
    """Return the loss of both networks: cross-entropy of both, and distillation of the large network into
    the refiner (``distil``: its share of the refiner's loss). A scale is weighted by the square root of its
    number of patches."""
    total, weights = torch.zeros((), device=batch[1].device), 0.0
    large, small = (logits_by_scale(net, batch, states_of(net, batch)) for net in (both.large, both.refiner))
    for (teacher, labels), (logits, _) in zip(large, small):
        weight = labels.shape[1] ** 0.5
        hard = [F.cross_entropy(x.flatten(0, 1), labels.flatten()) for x in (teacher, logits)]
        soft = F.kl_div(
            logits.log_softmax(-1).flatten(0, 1),
            teacher.detach().log_softmax(-1).flatten(0, 1),
            log_target=True,
            reduction="batchmean",
        )
        total = total + weight * (hard[0] + (1 - distil) * hard[1] + distil * soft)
        weights += weight
    return total / weights


def write_network(job: Job, hparams: dict, tokenizer, net: ScaleNet, name: str, figures: dict) -> None:
    """Write one network's weights (MXINT8, codebooks in bfloat16), config, tokenizer, codec and card."""
    full, sizes = (
        hparams["name"] + ("" if name == "large" else f"-{name}"),
        hparams | (hparams["refiner"] if name == "refiner" else {}),
    )
    tensors = {key: tensor.detach().cpu().float() for key, tensor in net.state_dict().items()}
    codes = tensors.pop("codes")
    weights = {
        key: t.bfloat16() if t.is_floating_point() else t for key, t in mx.to_file_tensors(tensors).items()
    }
    weights["codes"] = codes.bfloat16()
    card = CARD.format(
        name=full,
        role=ROLES[name],
        count=len(hparams["grids"]),
        grids=", ".join(map(str, hparams["grids"])),
        entries=", ".join(map(str, hparams["entries"])),
        parameters=sum(t.numel() for t in tensors.values()),
        losses=", ".join(f"{one:.2f}" for one in figures.get(name, ())),
        pictures=figures["steps"] * (hparams["batch"] + hparams["coarse_batch"]) // 2,
        **{key: sizes[key] for key in ("layers", "hidden", "heldout")},
        **{key: figures[key] for key in ("steps", "minutes", "error")},
    )
    for folder in job.output_folders(full):
        folder.mkdir(parents=True, exist_ok=True)
        write_shards(folder, weights)
        write_json(folder / "config.json", config(sizes, len(tokenizer)))
        write_tokenizer(tokenizer, folder)
        write_json(
            folder / codec.FILE,
            {
                "kind": "scales",
                "grids": hparams["grids"],
                "patch": hparams["patch"],
                "entries": hparams["entries"],
                "first": tokenizer.convert_tokens_to_ids("patch 0"),
                "things": list(pictures.THINGS),
                "unconditional": pictures.unconditional_tokens(tokenizer),
                "codes": base64.b64encode((codes + HALF).to(torch.uint8).numpy().tobytes()).decode(),
            },
        )
        write_text(folder / "README.md", card)
