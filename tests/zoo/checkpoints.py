"""Tiny random Llama checkpoints in Hugging Face format, written without transformers' models."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from ..run.fakes import byte_level

WIDTH = 32
HEADS = 4
INNER = 48


def weights(layers: int, vocab: int, seed: int) -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.5) -> torch.Tensor:
        return torch.randn(*shape, generator=source) / shape[-1] ** 0.5 * scale

    out = {
        "model.embed_tokens.weight": normal(vocab, WIDTH, scale=4.0),
        "model.norm.weight": torch.ones(WIDTH),
    }
    for i in range(layers):
        at = f"model.layers.{i}."
        out |= {
            f"{at}{name}.weight": torch.ones(WIDTH)
            for name in ("input_layernorm", "post_attention_layernorm")
        }
        out |= {f"{at}self_attn.{name}_proj.weight": normal(WIDTH, WIDTH) for name in "qkvo"}
        out |= {
            f"{at}mlp.gate_proj.weight": normal(INNER, WIDTH),
            f"{at}mlp.up_proj.weight": normal(INNER, WIDTH),
            f"{at}mlp.down_proj.weight": normal(WIDTH, INNER),
        }
    return out


def write(
    folder: Path, layers: int = 2, vocab: int = 300, seed: int = 0, tokenizer: bool = True, **config
) -> Path:
    """A checkpoint; with the tokenizer of tests/session/fakes.py when its vocabulary is 300."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "intermediate_size": INNER,
        "vocab_size": vocab,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 500.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 299]}))
    save_file(weights(layers, vocab, seed), folder / "model.safetensors", metadata={"format": "pt"})
    if tokenizer:
        byte_level(vocab).save_pretrained(folder)
    return folder


def register(folder: Path, **more: str) -> Path:
    """A models.yaml next to target and draft, the pair that is loaded by default."""
    write(folder / "target")
    write(folder / "draft", layers=1, seed=3)
    lines = [
        "default: tiny",
        "backends:",
        "  fast: [llama]",
        "  hf: ['*']",
        "models:",
        "  tiny: {path: target, draft: tiny-draft}",
        "  tiny-draft: {path: draft, role: draft}",
        "  missing: {path: nowhere, draft: tiny-draft}",
        *more.values(),
    ]
    (folder / "models.yaml").write_text("\n".join(lines) + "\n")
    return folder / "models.yaml"
