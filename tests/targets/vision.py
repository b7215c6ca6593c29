"""Tiny targets that read a picture, for tests: a network of transformers with a patch encoder, and its
folder."""

from __future__ import annotations

import json

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from specviz.training.vision import VisionLlama, hidden_after

SIZES = {"patch": 2, "columns": 3, "rows": 2, "inner": 8}
SIDE = (6, 4)  # width and height of a picture
PICTURES = np.random.default_rng(0).integers(0, 256, (3, 4, 6, 3), np.uint8)


def network(vocab: int, positions: int = 64, dtype=torch.float32) -> VisionLlama:
    torch.manual_seed(0)
    vision = {**SIZES, "caption": 0, "labels": [[1, 2, 0], [1, 2], [-1, 0]]}
    net = (
        VisionLlama(
            LlamaConfig(
                vocab_size=vocab,
                hidden_size=16,
                intermediate_size=24,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=8,
                max_position_embeddings=positions,
                tie_word_embeddings=True,
                bos_token_id=None,
                eos_token_id=None,
                pad_token_id=None,
                vision_config=vision,
            )
        )
        .eval()
        .to(dtype)
    )
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.copy_(
                torch.randn_like(weight) * (0.5 if weight.ndim > 1 and "embed_tokens" not in name else 0.3)
                + (1 if weight.ndim == 1 and "norm" in name else 0)
            )
    return net


def save(net: VisionLlama, folder):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: t.contiguous() for name, t in net.state_dict().items() if name != "lm_head.weight"},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(
        json.dumps({**json.loads(net.config.to_json_string()), "model_type": "llama"})
    )
    return folder


def reference(net: VisionLlama, tokens, picture=None) -> torch.Tensor:
    """Logits [tokens, vocab] by transformers, of one text behind a picture or none."""
    with torch.no_grad():
        rows = (
            net.vision.absent()[None]
            if picture is None
            else net.vision(torch.from_numpy(picture.copy())[None])
        )
        return net.lm_head(hidden_after(net, torch.tensor([tokens]), rows))[net.vision.count :]
