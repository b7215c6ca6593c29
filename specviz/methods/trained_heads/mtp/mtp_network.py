"""Multi-token prediction module (DeepSeek-V3, arXiv 2412.19437; Qwen3-Next, MiMo): ``fc`` over the
normalised embedding concatenated with the target's normalised hidden state, one decoder layer, a norm, and
the target's output matrix.

Position t reads token t + 1 and the target's final hidden state of token t, after the final norm, and
predicts token t + 2. When it drafts further, the module reads its own state instead of the target's: after
the module's final norm, or before it in DeepSeek's layout.

``load`` reads four published layouts. The order of the concatenated halves, and the zeroed embedding at
position 0, follow these readers: Qwen (``mtp.fc``; vLLM 055e47c, qwen3_next_mtp.py), whose newer norms
store what is added to one; speculators (``mtp_layers.0.input_proj``, embedding first since commit 60280bd
of June 2026, layer config nested; c05b95b); MiMo (the same names, state first, position 0 zeroed; vLLM
0bb55d6, mimo_mtp.py); DeepSeek (``enorm``, ``hnorm``, ``eh_proj``, position 0 zeroed; vLLM 03356f8,
deepseek_mtp.py), where the layer is dense and has its own queries, keys and values. The folder holds the
module only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ....checkpoints.weights import ModelError
from ....models.eagle import EagleRows, config_like, layer_weights
from ....models.eagle_layers import FusedLayers, Layer, Sizes, angles_of
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill
from ....models.rms_norm import Norm

ADDED_TO_ONE = ("qwen3_next", "qwen3_5")  # model types whose norms store what is added to one


class Layout(NamedTuple):
    """One published layout of an MTP module's weights. pattern: regular expression for a parameter name
    that identifies it; names: of fc, of the norms of embedding and hidden state, of the final norm, and the
    prefix of the layer's names; state_first: the hidden state is the first half of fc's input."""

    pattern: str
    names: tuple[str, str, str, str, str]
    state_first: bool = False
    feeds_normed: bool = True  # the state that is fed back comes after the last norm
    zero_first: bool = False  # the embedding at position 0 is zeroed


_INPUT_PROJ = (
    r"((?:model\.)?mtp_layers\.0\.)input_proj\.weight",
    ("{}input_proj", "{}token_layernorm", "{}hidden_layernorm", "{}final_layernorm", "{}"),
)
QWEN = Layout(
    r"((?:mtp\.)?)pre_fc_norm_embedding\.weight",
    ("{}fc", "{}pre_fc_norm_embedding", "{}pre_fc_norm_hidden", "{}norm", "{}layers.0."),
)
SPECULATORS = Layout(*_INPUT_PROJ)
MIMO = Layout(*_INPUT_PROJ, state_first=True, zero_first=True)
DEEPSEEK = Layout(
    r"(model\.layers\.\d+\.)eh_proj\.weight",
    ("{}eh_proj", "{}enorm", "{}hnorm", "{}shared_head.norm", "{}"),
    feeds_normed=False,
    zero_first=True,
)


class Mtp(nn.Module):
    """A multi-token prediction module (DeepSeek-V3, 2412.19437), an nn.Module: norms on the target's final
    hidden state and on the token embedding, a projection, one decoder layer, a final norm.

    config: a Llama-like config.json; attention_bias, qk_norm, feeds_normed (default true), zero_first
    (default false); see Layout."""

    hidden_states = ("final",)  # the target's hidden states that it reads

    def __init__(self, config: dict[str, Any], name: str = "the MTP module"):
        super().__init__()
        self.config = config
        self.name = name
        self.sizes = Sizes.of(config, name)
        d, eps = self.sizes.hidden, self.sizes.eps
        self.feeds_normed = bool(config.get("feeds_normed", True))
        self.zero_first = bool(config.get("zero_first"))
        self.fc = nn.Linear(2 * d, d, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (
            nn.RMSNorm(d, eps=eps) for _ in range(3)
        )
        bias, qk_norm = bool(config.get("attention_bias")), bool(config.get("qk_norm"))
        self.layers = nn.ModuleList([Layer(self.sizes, True, True, bias, qk_norm=qk_norm)])

    def logits(self, states: Tensor, target_head: Callable[[Tensor], Tensor]) -> Tensor:
        """Return logits [n, vocab] of the module's output states [n, hidden]. target_head: applies the
        target's output matrix."""
        return target_head(states if self.feeds_normed else self.norm(states))

    def forward(self, embeds: Tensor, states: Tensor, steps: int = 1) -> list[Tensor]:
        """Training: return ``steps`` predictions [batch, n, hidden] from token embeddings and the target's
        final hidden states, both [batch, n, hidden]. Position t of prediction j depends on true states up
        to t - j and on the module's own states for the last j; its first j positions are invalid."""
        n = embeds.shape[1]
        angles = angles_of(self.config, self.sizes.head_dim, n, embeds.device)
        past, out = None, []
        if self.zero_first:
            embeds = torch.cat([torch.zeros_like(embeds[:, :1]), embeds[:, 1:]], 1)
        for step in range(steps):
            x = self.fc(
                torch.cat([self.pre_fc_norm_embedding(embeds), self.pre_fc_norm_hidden(states)], -1)
            ).to(states.dtype)
            x, past = self.layers[0](x, angles, past, step)
            x = self.norm(x) if self.feeds_normed else x
            out.append(x)
            states = torch.cat([states[:, :1], x[:, :-1]], 1)
        return out

    @cached_property
    def fused(self) -> MtpNet:
        """The weights in inference layout (fused matrices); converted once and shared by all runs."""
        return MtpNet(self)

    def open(self) -> MtpRows:
        """Return a KV cache over these weights for one run."""
        return MtpRows(self.fused)


class MtpNet(FusedLayers):
    """The module's layer in inference layout, with its norms."""

    def __init__(self, module: Mtp):
        super().__init__(module.layers, module.config, module.fc)
        norms = (module.pre_fc_norm_embedding, module.pre_fc_norm_hidden, module.norm)
        self.of_embedding, self.of_state, self.after = (
            Norm(norm.weight.detach(), self.eps) for norm in norms
        )
        self.feeds_normed, self.zero_first = module.feeds_normed, module.zero_first

    def run(
        self, x: Tensor, rotation: Tensor, slots: Tensor, at: int | Tensor, mask: Tensor | None
    ) -> Tensor:
        x = super().run(x, rotation, slots, at, mask)
        return self.after(x) if self.feeds_normed else x


class MtpRows(EagleRows):
    """KV cache of an MTP module for one run: pairs (embedding of token t + 1, the target's final hidden
    state of token t) -> states that predict token t + 2."""

    net: MtpNet

    def read(self, embeds: Tensor, features: Tensor) -> Tensor:
        if self.net.zero_first and not self.first + self.count:
            embeds = torch.cat([torch.zeros_like(embeds[:1]), embeds[1:]])
        return super().read(embeds, features)

    def _joined(self, embeds: Tensor, features: Tensor) -> Tensor:
        kind = self.net.dtype
        return self.net.lead(
            torch.cat([self.net.of_embedding(embeds.to(kind)), self.net.of_state(features.to(kind))], -1)
        )


def build(target: TargetInfo, hparams: dict[str, Any]) -> Mtp:
    """Return an untrained module for a target, with a layer like the target's. hparams, all optional:
    heads, kv_heads, head_dim, intermediate, qk_norm."""
    config = config_like(target, {**hparams, "layers": 1})
    return Mtp({**config, "qk_norm": bool(hparams.get("qk_norm"))}, f"the MTP module of {target.name}")


def load(folder: str | Path, target: TargetInfo) -> Mtp:
    """Load the module of a checkpoint folder, in this project's or a published layout. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "mtp")
    weights, raw = HeadWeights(folder, target), config_of(folder)
    nested = raw.get("transformer_layer_config")
    config = {"hidden_size": target.hidden, **raw, **(nested if isinstance(nested, dict) else {})}
    layouts = (QWEN, SPECULATORS if raw.get("speculators_model_type") == "mtp" else MIMO, DEEPSEEK)
    layout, name = next(
        ((one, name) for one in layouts if (name := weights.first(one.pattern))), (None, None)
    )
    if layout is None or name is None:
        raise ModelError(
            f"{folder.name} is no MTP module: it has no pre_fc_norm_embedding, input_proj or eh_proj",
            "head.other_kind",
        )
    fc, embedding, hidden, last, at = (part.format(name[1]) for part in layout.names)
    kind = str(config.get("model_type") or "")
    if config["hidden_size"] != target.hidden:
        raise ModelError(
            f"{folder.name} does not fit {target.name}: it reads states of {config['hidden_size']} numbers, and {target.name} "
            f"has {target.hidden}",
            "head.states",
        )
    config |= {
        "num_hidden_layers": 1,
        "layer_types": None,
        "use_sliding_window": None,  # full attention in hybrids, too (c05b95b)
        "attention_bias": f"{at}self_attn.q_proj.bias" in weights,
        "feeds_normed": layout.feeds_normed,
        "zero_first": layout.zero_first,
        "qk_norm": f"{at}self_attn.q_norm.weight" in weights,
    }
    sizes, d = Sizes.of(config, folder.name), target.hidden
    joint = weights.get_target_wide(f"{fc}.weight", target, d, 2 * d)
    found: dict[str, Tensor | None] = {
        "fc.weight": torch.cat(joint.chunk(2, 1)[::-1], 1) if layout.state_first else joint
    }
    ours = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    found |= {
        f"{name}.weight": weights.get(f"{theirs}.weight", d)
        for name, theirs in zip(ours, (embedding, hidden, last))
    }
    mine = layer_weights(weights, sizes, at, True, True)
    if config["qk_norm"]:
        mine |= {
            f"{at}self_attn.{part}.weight": weights.get(f"{at}self_attn.{part}.weight", sizes.head_dim)
            for part in ("q_norm", "k_norm")
        }
    found |= {"layers.0." + name.removeprefix(at): tensor for name, tensor in mine.items()}
    if kind.startswith(ADDED_TO_ONE):
        found = {
            name: tensor + 1 if "norm" in name and tensor is not None else tensor
            for name, tensor in found.items()
        }
    weights.check_none_unread(
        r".*embed_tokens\.weight", r".*shared_head\.head\.weight", r"lm_head\.weight"
    )  # copies of the target's
    return fill(
        Mtp(config, folder.name),
        {name: tensor for name, tensor in found.items() if tensor is not None},
        target,
    )
