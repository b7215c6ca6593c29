"""A small causal language model of the Llama family that this project trains: PARD's draft model, and a
target fine-tuned for Jacobi decoding (CLLM, Kou et al. 2403.00835).

The trainable modules have Hugging Face's names (``model.*``, optionally ``lm_head.weight``); ``fused``
returns the same weights in the layout of the inference forward pass.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints.weights import ModelError
from .eagle import config_like, layer_weights
from .eagle_layers import KV, FusedLayers, Layer, Sizes, angles_of
from .heads import HeadWeights, TargetInfo, check_fit, config_of, fill
from .rms_norm import Norm


class Decoder(nn.Module):
    """nn.Module with the published parameter names of a decoder without its output matrix."""

    embed_tokens: nn.Embedding
    layers: nn.ModuleList
    norm: nn.RMSNorm


class CausalModel(nn.Module):
    """A small trainable decoder of the Llama family, an nn.Module.

    config: a Llama-like config.json with attention_bias, qk_norm, tie_word_embeddings.
    """

    hidden_states: tuple[str, ...] = ()

    def __init__(self, config: dict[str, Any], name: str = "the model"):
        super().__init__()
        self.config = config
        self.name = name
        self.sizes = Sizes.of(config, name)
        d, self.vocab = self.sizes.hidden, config["vocab_size"]
        bias, qk_norm = bool(config.get("attention_bias")), bool(config.get("qk_norm"))
        self.model = Decoder()
        self.model.embed_tokens = nn.Embedding(self.vocab, d)
        self.model.layers = nn.ModuleList(
            Layer(self.sizes, True, True, bias, qk_norm=qk_norm) for _ in range(self.sizes.layers)
        )
        self.model.norm = nn.RMSNorm(d, eps=self.sizes.eps)
        self.lm_head = None if config.get("tie_word_embeddings") else nn.Linear(d, self.vocab, bias=False)

    @property
    def output(self) -> Tensor:
        """The output matrix (lm_head), [vocab, hidden]."""
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    def forward(self, ids: Tensor, places: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Training: return the hidden states [batch, n, hidden] after the final norm; arguments as in
        ``rows``, without earlier keys."""
        return self.rows(ids, places, mask)[0]

    def rows(
        self,
        ids: Tensor,
        places: Tensor | None = None,
        mask: Tensor | None = None,
        past: list[KV] | None = None,
        added: Tensor | None = None,
    ) -> tuple[Tensor, list[KV]]:
        """Training: return the hidden states [batch, n, hidden] after the final norm, and every layer's
        keys and values of the past and of these tokens. ids: token ids [batch, n]; places: positions
        [batch, n]; mask: bool [batch, 1, n, past + n], True where a token may attend; past: keys and values
        that ``rows`` returned for earlier tokens; added [batch, n, hidden]: added to the embeddings. Without
        positions and mask each sequence is one causal text."""
        longest = ids.shape[1] if places is None else int(places.max()) + 1
        angles = angles_of(self.config, self.sizes.head_dim, longest, ids.device)
        angles = angles if places is None else angles[places][:, None]
        x, kept = self.model.embed_tokens(ids), []
        if added is not None:
            x = x + added
        for index, layer in enumerate(self.model.layers):
            x, kv = layer(x, angles, past[index] if past else None, mask)
            kept.append(kv)
        return self.model.norm(x), kept

    @cached_property
    def fused(self) -> CausalNet:
        """The weights in inference layout; converted once and shared by all runs."""
        return CausalNet(self)


class CausalNet(FusedLayers):
    """A CausalModel's weights in inference layout, with the attributes of models/llama.py's Llama that a
    target needs."""

    def __init__(self, network: CausalModel):
        weights = network.output.detach(), network.model.norm.weight.detach()
        super().__init__(network.model.layers, network.config, None, *weights)
        self.name = network.name
        self.vocab = network.vocab
        self.config = network.config
        self.embedding, self.output_weight = (
            network.model.embed_tokens.weight.detach(),
            network.output.detach(),
        )
        self.norm_final = Norm(network.model.norm.weight.detach(), self.eps)

    def head(self, states: Tensor) -> Tensor:
        """Return the logits [n, vocab] of states [n, hidden] after the final norm."""
        return (
            F.linear(states, self.output_weight) if self.output_layer is None else self.output_layer(states)
        )


class LoraAdapters(nn.Module):
    """Low-rank adapters of a frozen model as an nn.Module, W x + B (A x), under PEFT's names (LoRA, Hu et
    al. 2106.09685). ``forward`` and ``rows`` have the model's interface; the trainable weights are A [rank,
    in] and B [out, rank] for every matrix of a layer."""

    def __init__(self, network: CausalModel, rank: int):
        super().__init__()
        self.network = (network.requires_grad_(False),)  # not among the weights of this module
        self.config = {key: network.config[key] for key in ("hidden_size", "vocab_size")}
        self.config |= {"peft_type": "LORA", "r": rank, "lora_alpha": rank}
        for name, linear in network.model.named_modules():
            if isinstance(linear, nn.Linear):
                pair = _below(self, f"model.{name}")
                pair.lora_A = nn.Linear(linear.in_features, rank, bias=False)
                pair.lora_B = nn.Linear(rank, linear.out_features, bias=False)
                nn.init.zeros_(pair.lora_B.weight)
                linear.register_forward_hook(
                    lambda _, given, out, pair=pair: out + pair.lora_B(pair.lora_A(given[0]))
                )

    @property
    def output(self) -> Tensor:
        """The output matrix of the frozen model, [vocab, hidden]."""
        return self.network[0].output

    def forward(self, *rows: Any, **more: Any) -> Tensor:
        """Return the output of the model with adapters, as CausalModel.forward."""
        return self.network[0](*rows, **more)

    def rows(self, *rows: Any, **more: Any) -> tuple[Tensor, list[KV]]:
        """Return the output of the model with adapters, as CausalModel.rows."""
        return self.network[0].rows(*rows, **more)


def _below(root: nn.Module, path: str) -> nn.Module:
    """Return the module with a dotted name, and create it if it is missing."""
    for name in path.split("."):
        if not hasattr(root, name):
            root.add_module(name, nn.Module())
        root = getattr(root, name)
    return root


def build(target: TargetInfo, hparams: dict[str, Any]) -> CausalModel:
    """Return an untrained CausalModel shaped like the target. hparams, all optional: layers, heads,
    kv_heads, head_dim, intermediate."""
    config = {**config_like(target, {"layers": target.layers, **hparams}), "tie_word_embeddings": True}
    return CausalModel(config, f"the consistency model of {target.name}")


def load(folder: str | Path, target: TargetInfo) -> CausalModel:
    """Load the model of a checkpoint folder, complete or as LoRA adapters of the target; its hidden size
    must be the target's. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "cllm")
    config, weights = config_of(folder), HeadWeights(folder, target)
    if weights.first(r".*\.lora_A\.weight"):
        config, found = adapted(weights, config, target)
    else:
        config, found = read(weights, config)
    return fill(CausalModel(config, folder.name), found, target)


def adapted(
    weights: HeadWeights, config: dict[str, Any], target: TargetInfo
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return (config, tensors) of the target with LoRA adapters merged into its matrices; the sums are
    rounded to bfloat16, as the target's weights are. Raises ModelError."""
    if target.folder is None:
        raise ModelError(
            f"{weights.title} holds adapters of {target.name}, but the folder of {target.name} is not known",
            "adapters.no_folder",
        )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or rank < 1 or not isinstance(alpha, (int, float)):
        raise ModelError(
            f"config.json of {weights.title} lacks the rank of its adapters (r, lora_alpha)", "adapters.rank"
        )
    config, found = read(HeadWeights(target.folder, target), config_of(target.folder))
    for name, matrix in found.items():
        at = name.removesuffix("weight")
        if f"{at}lora_A.weight" in weights:
            rows, columns = matrix.shape
            more = weights.get(f"{at}lora_B.weight", rows, rank) @ weights.get(
                f"{at}lora_A.weight", rank, columns
            )
            found[name] = (matrix + alpha / rank * more).to(torch.bfloat16).to(matrix.dtype)
    weights.check_none_unread()
    return config, found


def read(weights: HeadWeights, config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return (config, tensors) of the checkpoint of a causal language model of the Llama family; all its
    weights must be known. Raises ModelError."""
    tied = "lm_head.weight" not in weights
    config = config | {
        "tie_word_embeddings": tied,
        "attention_bias": "model.layers.0.self_attn.q_proj.bias" in weights,
        "qk_norm": "model.layers.0.self_attn.q_norm.weight" in weights,
    }
    sizes, table = Sizes.of(config, weights.title), "model.embed_tokens.weight"
    vocab = weights.shape(table)[0]
    found: dict[str, Tensor | None] = {
        table: weights.get(table, vocab, sizes.hidden),
        "model.norm.weight": weights.get("model.norm.weight", sizes.hidden),
    }
    if not tied:
        found["lm_head.weight"] = weights.get("lm_head.weight", vocab, sizes.hidden)
    found |= read_layers(weights, config, sizes)
    weights.check_none_unread()
    return config | {"vocab_size": vocab}, {
        name: tensor for name, tensor in found.items() if tensor is not None
    }


def read_layers(weights: HeadWeights, config: dict[str, Any], sizes: Sizes) -> dict[str, Tensor | None]:
    """Return the tensors of all layers under ``model.layers``; None for those that this model has not.
    Raises ModelError."""
    found: dict[str, Tensor | None] = {}
    for i in range(sizes.layers):
        at = f"model.layers.{i}."
        found |= layer_weights(weights, sizes, at, True, True)
        if config["qk_norm"]:
            names = (f"{at}self_attn.{part}.weight" for part in ("q_norm", "k_norm"))
            found |= {name: weights.get(name, sizes.head_dim) for name in names}
    return found
