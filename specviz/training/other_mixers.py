"""Start a target with other mixers from an embedded Llama: its embedding, norms and feed-forward layers
stay, its attention is replaced, and a larger embedded target teaches the result (as The Mamba in the Llama
does, Wang et al. 2408.15237).

Two processor cores train a few million tokens in twelve minutes. That teaches mixers; it does not teach a
language.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from transformers import BambaConfig, BambaForCausalLM, LlamaForCausalLM

from ..models.pretrained import open_network
from ..models.trainable import LinearLlamaConfig, LinearLlamaForCausalLM, with_scanned_mixers
from .data import TASKS
from .draft import hidden_states_at
from .files import FRONT
from .job import Job
from .runner import bfloat16_is_faster

KEPT = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "rms_norm_eps",
    "max_position_embeddings",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)
RENAMED = {
    ".mlp.": ".feed_forward.",
    "post_attention_layernorm": "pre_ff_layernorm",
    "model.norm.": "model.final_layernorm.",
}


def with_linear_attention(old: LlamaForCausalLM, hparams: dict) -> LinearLlamaForCausalLM:
    """Return a network with linear attention whose query, key, value and output projections start from
    those of ``old``."""
    config: Any = old.config
    kept = {name: getattr(config, name) for name in (*KEPT, "head_dim", "rope_parameters")}
    new = LinearLlamaForCausalLM(
        LinearLlamaConfig(**kept, group=hparams["group"], conv=hparams["conv"], use_cache=False)
    )
    new.load_state_dict(old.state_dict(), strict=False)
    return new


@torch.no_grad()
def with_mamba(old: LlamaForCausalLM, hparams: dict) -> BambaForCausalLM:
    """Return a network with Mamba-2 mixers in place of attention. Untrained, a mixer adds nothing to the
    residual stream."""
    kept = {name: getattr(old.config, name) for name in KEPT}
    new = with_scanned_mixers(
        BambaForCausalLM(
            BambaConfig(
                **kept,
                mamba_n_heads=hparams["state_heads"],
                mamba_d_state=hparams["state"],
                mamba_n_groups=hparams["state_groups"],
                use_cache=False,
            )
        )
    )
    weights = {}
    for name, weight in old.state_dict().items():
        for there, here in RENAMED.items():
            name = name.replace(there, here)
        weights[name] = weight
    new.load_state_dict(weights, strict=False)
    for layer in new.model.layers:
        mixer: Any = layer.mamba
        mixer.out_proj.weight.zero_()
        steps = torch.exp(torch.empty_like(mixer.dt_bias).uniform_(math.log(1e-3), math.log(0.1)))
        mixer.dt_bias.copy_(steps + torch.log(-torch.expm1(-steps)))  # the inverse of softplus
        mixer.A_log.copy_(torch.linspace(1, 16, len(mixer.A_log)).log())
    return new


MIXERS = {"linear_attention": with_linear_attention, "mamba": with_mamba}


def card(model: Any, hparams: dict, figures: dict) -> str:
    """Return the model card, with the held-out loss by task."""
    losses = "".join(f"| {task} | {figures[task]:.2f} |\n" for task in TASKS if task in figures)
    return CARD.format(
        **{name: hparams[name] for name in ("name", "from", "teacher", "layers", "hidden", "length")},
        mixer=ABOUT[hparams["mixer"]].format(**hparams),
        parameters=sum(p.numel() for p in model.parameters()) / 1e6,
        steps=figures["steps"],
        minutes=figures["minutes"],
        millions=figures["tokens"] / 1e6,
        losses=losses,
        size=hparams["size"],
    )


ABOUT = {
    "linear_attention": "linear attention (2406.07368): squared relu of cosines within groups of {group} positions, a learned factor times "
    "the cosine to earlier groups, a causal convolution of {conv} taps over the values, no normaliser",
    "mamba": "Mamba-2 mixers (2405.21060) of {state_heads} heads and a state of {state}, in the layout of Bamba without attention layers",
}
CARD = (
    FRONT
    + """A toy target without keys and values: {layers} layers of {hidden}, {parameters:.2f} million parameters, with {mixer}.
Made to be watched while draft trees are verified on it. Its **facts are unreliable**.

Embedding, norms and feed-forward parts began as those of [{from}](../{from}); the mixers learned from the distribution of
[{teacher}](../{teacher}) along {millions:.2f} million tokens, {steps} steps in {minutes:.0f} minutes of one processor core.

It writes short stories in its teacher's words. It cannot do what needs an exact memory: copying and editing a text, sums, questions
about a passage. Rows of training had {length} tokens; longer texts get worse. Matrices are stored in MXINT8, which transformers does
not read.

| held-out answers of | loss, nats a token |
|---|---|
{losses}
Sources and licences: [LICENSES.md](../LICENSES.md).

```
python -m specviz.training target --size {size} --data DIR
```
"""
)


class Teacher:
    """A frozen embedded model whose distributions the new target learns."""

    def __init__(self, job: Job, name: str, top: int, device: torch.device):
        self.network = (
            open_network(job.model(name), torch.bfloat16 if bfloat16_is_faster(device) else torch.float32)
            .to(device)
            .eval()
        )
        self.top = top

    @torch.no_grad()
    def leaders(self, ids: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
        """Return (top_ids, top_logp), both [n, top]: the most probable next tokens and their
        log-probabilities at flat positions ``where`` [n] of ids [rows, width]."""
        states = hidden_states_at(self.network, ids, where)
        parts = []
        for piece in states.split(512):
            logits = self.network.lm_head(piece).float()
            best = logits.topk(self.top, -1)
            parts.append((best.indices, best.values - logits.logsumexp(-1, keepdim=True)))
        ids, logp = (torch.cat(part) for part in zip(*parts))
        return ids, logp
