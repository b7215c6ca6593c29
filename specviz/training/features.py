"""Training data of a head: the frozen target's hidden states along its own answers.

A head (Medusa, Hydra, EAGLE, Kangaroo) reads hidden states of the target, so it is trained on the target's
own text with those states. Final hidden states are computed once and cached on disk, a few gigabytes,
because for a target of fifty million parameters computing them costs as much as a head's losses. States of
inner layers are recomputed with every batch. Labels and the target's distributions come from `generate`. A
batch is a function of seed and step, so a resumed run continues with the same losses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..models.heads import TargetInfo
from ..models.pretrained import open_config, open_network
from . import text_answers as generate
from .draft import Batches
from .job import Job, TrainingError, fingerprint
from .runner import bfloat16_is_faster
from .state_cache import StateCache


@dataclass(frozen=True)
class Batch:
    """A batch of texts, right-padded to one width. Positions are flat: row * width + position in the row.

    ids [rows, width]; states [rows * width, hidden]: the target's last hidden states, final norm applied;
    layer: hidden states at the input of the requested layers, or None; where [n]: positions whose next
    token belongs to an answer; labels [n]: that token; top_ids, top_logp [n, top]: the target's top tokens
    for it and their log-probabilities."""

    ids: Tensor
    states: Tensor
    layer: Tensor | None
    where: Tensor
    labels: Tensor
    top_ids: Tensor
    top_logp: Tensor

    @property
    def captured(self) -> Tensor:
        """The hidden states at the input of the requested layers. Raises an error for batches without
        them."""
        assert self.layer is not None
        return self.layer

    def back(self, steps: int) -> tuple[Tensor, Tensor]:
        """Return (kept, positions): indices into ``where`` of the positions that have a token ``steps``
        positions earlier in the same row, and the flat positions of these tokens."""
        kept = (self.where % self.ids.shape[1] >= steps).nonzero()[:, 0]
        return kept, self.where[kept] - steps


class Features:
    """Training batches for a head: text of a frozen target with the target's hidden states.

    ``target``: the transformers model; ``head`` [vocab, hidden]: its output matrix (lm_head); ``embedding``
    [vocab, hidden]; ``target_info``: its sizes and device, for the head's ``build``; ``heldout``: answers
    to measure on; ``keeps``: what is cached on disk: "states", "layer" (one folder per choice of layers),
    or None if that would be too large.

    hparams needs batch_tokens, length and decay. layer: batches also hold the hidden states that enter this
    layer. Raises TrainingError if there are no generated answers, or if the head is to be shipped but its
    target is not."""

    keeps: str | None = "states"

    def __init__(self, job: Job, hparams: dict, layer: int | None = None):
        self.job = job
        self.hparams = hparams
        self.layer = layer
        self.path = job.model(job.target)
        self.mark = fingerprint(self.path)
        if job.ship and self.mark != fingerprint(job.shipped / job.target):
            raise TrainingError(
                f"These heads would follow {self.path}, which is not the shipped target: ship that one first.",
                "training.not_shipped",
            )
        root = generate.folder(job)
        own = generate.read(root / "train")
        self.heldout = generate.read(root / "heldout")
        self.device = job.torch_device()
        dtype = (
            torch.bfloat16 if bfloat16_is_faster(self.device) else torch.float32
        )  # the weights are 16-bit numbers in both
        net = open_network(self.path, dtype)
        self.target = net.to(self.device).eval().requires_grad_(False)
        self.head, self.embedding = self.target.lm_head.weight, self.target.get_input_embeddings().weight
        read = generate.read(root / "read") if any((root / "read").glob("*.safetensors")) else []
        self.root, self.answers = root, own + read
        self.kept = self.cache("states", 1) if self.keeps == "states" and layer is None else None
        if self.kept is not None:
            self.kept.fill(root / generate.TRAIN, slice(-self.head.shape[1], None))
        self.own = Batches(own, hparams, job.seed, self.device)
        self.wide = Batches(self.answers, hparams, job.seed, self.device)

    def cache(self, name: str, layers: int) -> StateCache | None:
        """Return the disk cache, in the folder ``name``, of ``layers`` hidden states a token; None on an
        accelerator, which recomputes a state faster than a disk reads it."""
        return (
            StateCache(self.root / name, self.answers, layers * self.head.shape[1])
            if self.device.type == "cpu"
            else None
        )

    @property
    def target_info(self) -> TargetInfo:
        """The target's sizes and device, for a head's ``build``."""
        return body_of(self.path)

    def logits(self, states: Tensor) -> Tensor:
        """Return logits [n, vocab] of a head's predicted states [n, hidden], final norm already applied, by
        the target's output matrix."""
        return self.target.lm_head(states.to(self.head.dtype)).float()

    def checkpoint_folder(self, name: str) -> Path:
        """Return the checkpoint folder of a recipe. Its name depends on the target's weights, so that a new
        target starts a new checkpoint."""
        return self.job.folder(name, self.mark)

    def batch(self, step: int, budget_spent: float) -> Batch:
        """Return the batch of a step. budget_spent: share of the training budget spent; while the learning
        rate is high, batches come from a broad set of texts, later from the target's own answers."""
        batches = self.own if budget_spent > 1 - self.hparams["decay"] else self.wide
        if self.kept is None:
            return self.states(batches[step])
        assert self.keeps is not None  # what is kept has a name
        keeps = self.keeps
        rows, material = batches.rows(step), batches[step]
        shape = (*material[0].shape, -1)
        found = self.kept.rows(rows, shape[1], lambda: getattr(self.states(material), keeps).view(shape))
        found = found.flatten(0, 1).to(self.device)
        return (
            batch_of(material, found, None)
            if self.keeps == "states"
            else batch_of(material, found[:, :0], found)
        )

    @torch.no_grad()
    def states(self, material) -> Batch:
        """Run the target over the output of ``draft.collate``; return it as a Batch with the target's
        hidden states."""
        out = self.target.model(material[0], output_hidden_states=self.layer is not None)
        entering = out.hidden_states[self.layer].flatten(0, 1) if self.layer is not None else None
        return batch_of(material, out.last_hidden_state.flatten(0, 1), entering)


class EntryFeatures(Features):
    """Batches whose ``layer`` holds the states of the text that enter one layer, the embeddings for layer
    0. What lies above it is not computed, so ``states`` is empty. States of an inner layer are cached on
    disk."""

    keeps = "layer"

    def __init__(self, job: Job, hparams: dict, layer: int):
        super().__init__(job, hparams)
        self.layer = layer
        if layer:
            self.kept = self.cache(f"states-{layer}", 1)

    @torch.no_grad()
    def states(self, material) -> Batch:
        """Return the output of ``draft.collate`` as a Batch with these states."""
        entering = entering_states(self.target, material[0], self.layer or 0).flatten(0, 1)
        return batch_of(material, entering[:, :0], entering)


@contextmanager
def only_layers(net: Any, first: int, end: int | None = None) -> Iterator[Any]:
    """Within this context a transformers model consists of its layers from ``first`` to before ``end``."""
    layers = net.model.layers
    net.model.layers = layers[first:end]
    try:
        yield net.model.layers
    finally:
        net.model.layers = layers


def entering_states(net: Any, ids: Tensor, layer: int) -> Tensor:
    """Return the hidden states [rows, width, hidden] of texts ids [rows, width] that enter a layer; layer
    0: the embeddings."""
    if layer == 0:
        return net.get_input_embeddings()(ids)
    found: list[
        Any
    ] = []  # by a hook: transformers' own list of states remembers which layers there were at its first call
    with only_layers(net, 0, layer) as layers, ExitStack() as stack:
        stack.callback(
            layers[-1].register_forward_hook(lambda module, args, output: found.append(output)).remove
        )
        net.model(ids, use_cache=False)
    return found[0][0] if isinstance(found[0], tuple) else found[0]


def batch_of(material, states: Tensor, layer: Tensor | None) -> Batch:
    """Return a Batch from the output of ``draft.collate`` and the target's states."""
    ids, where, top_ids, top_logp, labels = material
    return Batch(ids, states, layer, where, labels, top_ids, top_logp)


def body_of(path: Path) -> TargetInfo:
    """Return a target's sizes from its config.json, without loading its weights."""
    config = open_config(path)
    return TargetInfo(
        path.name,
        config.hidden_size,
        config.vocab_size,
        config.num_hidden_layers,
        config=config.to_dict(),
        folder=path,
    )
