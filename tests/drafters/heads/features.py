"""Heads of any size with random weights, in double precision, and the files they would be published as."""

from __future__ import annotations

import json

import torch
from safetensors.torch import save_file

from specviz.methods.trained_heads.kangaroo import kangaroo_network as kangaroo
from specviz.models import eagle
from specviz.models.heads import TargetInfo

BODY = TargetInfo("toy", 16, 40, 4, torch.device("cpu"), torch.float64)
NUMBERS = {"heads": 4, "kv_heads": 2, "head_dim": 6, "intermediate": 20}
CONFIG = {
    "hidden_size": 16,
    "vocab_size": 40,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 20,
    "rms_norm_eps": 1e-5,
    "rope_theta": 300.0,
    "max_position_embeddings": 64,
}


def head(module, seed: int = 0, body: TargetInfo = BODY, **hparams):
    """An EAGLE head or a Kangaroo adapter of which every weight is random."""
    torch.manual_seed(seed)
    made = module.build(body, {**NUMBERS, **hparams}).double()
    for name, weight in made.named_parameters():
        torch.nn.init.normal_(weight, std=0.3, mean=1.0) if "norm" in name else torch.nn.init.normal_(
            weight, std=weight.shape[-1] ** -0.5
        )
    return made.eval().requires_grad_(False)


def rows(count: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer(normed: bool, num_computed: bool, bias: bool) -> dict[str, torch.Tensor]:
    """One layer under its published names."""
    shapes = {"q_proj": (24, 16), "k_proj": (12, 16), "v_proj": (12, 16), "o_proj": (16, 24)}
    found = {f"self_attn.{name}.weight": torch.randn(shape) / 4 for name, shape in shapes.items()}
    if bias:
        found |= {
            f"self_attn.{name}.bias": torch.randn(shapes[name][0]) for name in ("q_proj", "k_proj", "v_proj")
        }
    if normed:
        found["input_layernorm.weight"] = 1 + torch.randn(16) / 4
    if num_computed:
        found |= {
            "mlp.gate_proj.weight": torch.randn(20, 16) / 4,
            "mlp.up_proj.weight": torch.randn(20, 16) / 4,
            "mlp.down_proj.weight": torch.randn(16, 20) / 4,
            "post_attention_layernorm.weight": 1 + torch.randn(16) / 4,
        }
    return {f"layers.0.{name}": tensor for name, tensor in found.items()}


def published_eagle(folder, bias=True, qkv_bias=False, embedding=True, **config):
    """As yuhuili/EAGLE-* lie on the hub, but for the sizes."""
    torch.manual_seed(3)
    weights = layer(False, True, qkv_bias) | {"fc.weight": torch.randn(16, 32) / 4}
    weights |= {"fc.bias": torch.randn(16)} if bias else {}
    weights |= {"embed_tokens.weight": torch.randn(40, 16)} if embedding else {}
    told = CONFIG | ({} if bias else {"bias": False}) | ({"qkv_bias": True} if qkv_bias else {})
    return write(folder, weights, told | config)


def published_kangaroo(folder, **config):
    """As the authors' adapters lie on their drive, as safetensors: the config is the target's own, with all
    its layers."""
    torch.manual_seed(4)
    return write(
        folder,
        layer(True, False, False) | {"norm.weight": 1 + torch.randn(16) / 4},
        CONFIG | {"num_hidden_layers": 32} | config,
    )


def write(folder, weights, config):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder, weights


EAGLE, KANGAROO = eagle, kangaroo
