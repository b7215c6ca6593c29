"""Untrained nets that paint scales of 1, 2 and 3 patches: 14 tokens."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from specviz.models.scales import KIND, ScaleNet
from specviz.targets.next_scale import NextScaleModel

WORDS = 5
CONFIG = {
    "model_type": KIND,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "grids": [1, 2, 3],
    "patch": 2,
    "entries": [3, 4, 5],
    "vocab_size": WORDS + 12,
    "max_position_embeddings": 8,
}


def write(folder: Path, seed: int = 0, **config) -> Path:
    """Write a folder of random weights; the codebooks are the same for every seed."""
    config = CONFIG | config
    torch.manual_seed(seed)
    net = ScaleNet(config)
    for weight in net.parameters():
        weight.data.normal_(std=0.5)
    net.codes.copy_(torch.randint(-128, 128, net.codes.shape, generator=torch.Generator().manual_seed(1)))
    folder.mkdir(parents=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in net.state_dict().items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def model(folder: Path, seed: int = 0, **config) -> NextScaleModel:
    return NextScaleModel(write(folder, seed, **config))
