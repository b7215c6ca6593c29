"""Training code shared by the recipes of heads that each predict one token further ahead (Medusa, Hydra,
Clover, ...): loss, training loop, measurement and stored files.

A recipe adds its network, the hidden states of its heads for a batch, and its model card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import nn

from ..drafters.heads.shapes import shape_for_heads
from ..models.eagle_layers import Attention
from ..trees import Shape
from . import attention, chains, ranks
from .draft import collate
from .features import Batch, Features
from .job import Job
from .runner import Runner

OWN_MATRICES = 36e6  # bytes, with embeddings or output matrices of its own


M = TypeVar("M", bound=nn.Module)


def run(
    job: Job,
    kind: str,
    build: Callable[[Any, dict], M],
    head_states_function: Callable[[M, Features], ranks.HeadStates],
    about: Callable[[M, dict], str],
    *,
    chain: Callable[[M], Shape] | None = None,
    run_attention: Callable[[M, ranks.HeadStates, Batch], object] | None = None,
    begin: Callable[[M, Features], None] | None = None,
    most: float = 9.5e6,
) -> Path:
    """Train heads that each predict one token further ahead; return the folder of their weights.

    build(target, hparams): the untrained heads; head_states_function(model, features): the function of type
    ranks.HeadStates; about: the text of the model card; chain: the tree to measure with; without it, a tree
    of the recipe's ``nodes`` is built from the measured accuracy of each rank of each head, which is stored
    with the weights; run_attention: runs the attention whose entropy is measured; begin: initialises
    weights before the first step; most: maximum bytes of the weights."""
    hparams = job.hparams(kind)
    features = Features(job, hparams)
    torch.manual_seed(job.seed)
    model = build(features.target_info, hparams)
    if begin:
        begin(model, features)
    runner = Runner(job, kind, model, hparams, features.checkpoint_folder(kind))
    head_states, heads = head_states_function(model, features), cast(ranks.Heads, model)

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        return ranks.loss(heads, head_states, features, batch, hparams), len(batch.labels)

    def measure() -> dict[str, Any]:
        shape = (
            chain(model)
            if chain
            else shape_for_heads([], hparams["nodes"], 0).within(len(heads), hparams["ranks"])
        )
        looked = {}
        looks = run_attention
        if looks and any(isinstance(part, Attention) for part in model.modules()):
            batch = features.states(
                collate(features.heldout[:1], len(features.heldout[0].ids), features.device)
            )
            looked = {"attention_entropy": attention.entropy(model, lambda: looks(model, head_states, batch))}
        return {**ranks.measure(heads, head_states, features, shape), **looked}

    runner.train(loss_at, measure)
    if not chain:
        model.eval()
        ranks.calibrate(heads, head_states, features, hparams)
    return chains.export(job, job.model_name(kind), model, features, runner, about(model, hparams), most)
