"""EAGLE-3's draft head (Li et al. 2503.01840): hidden states at the input of three target layers, joined by
``fc``, instead of the last one; its own output matrix over part of the vocabulary.

Row t reads token t + 1 and the joined states of token t, and outputs a state that predicts token t + 2;
when drafting further, that output replaces the joined states. The first layer's queries, keys and values
read the normed embedding concatenated with the normed state, twice the layer's width. The draft
vocabulary's token i is the target's token i + d2t[i].

``load`` reads the authors' layout (``midlayer.*``) and that of "speculators" (``layers.*``). Layers are
numbered in two ways: top-level ``eagle_aux_hidden_state_layer_ids`` name a layer whose input is read (1 =
after the first layer); those inside ``eagle_config``, and ``target_layer_ids``, a layer whose output is
read, one less. Default: layer 2, the middle and the third from the end. Later variants:
``norm_before_residual``; a norm per state (``fc_norm.*``) or of all together (``input_norm``),
``norm_output``. Speculators' config states ``norm_before_residual``: without it vLLM reads true (036a00d)
and speculators false (c05b95b), so such a file is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..checkpoints.weights import ModelError
from .eagle import config_like, layer_weights
from .eagle_layers import KV, FusedLayers, Layer, Sizes, angles_of
from .heads import HeadWeights, TargetInfo, check_fit, config_of, fill
from .rms_norm import Norm
from .row_cache import RowCache

FLAGS = ("norm_before_residual", "norm_output")
VERIFIER = (r"verifier_(norm|lm_head)\.weight",)  # copies of the target's


class Eagle3Layer(Layer):
    """The first decoder layer of EAGLE-3's head, an nn.Module that reads an embedding and a hidden state,
    concatenated. before: the residual starts from the normalised state (config key
    ``norm_before_residual``)."""

    def __init__(self, sizes: Sizes, bias: bool, qk_norm: bool, before: bool):
        super().__init__(sizes, True, True, bias, input_factor=2, qk_norm=qk_norm)
        self.hidden_norm, self.before = nn.RMSNorm(sizes.hidden, eps=sizes.eps), before

    def forward_pair(
        self, embeds: Tensor, x: Tensor, angles: Tensor, past: KV | None, mask: Tensor | int | None
    ) -> tuple[Tensor, KV]:
        """Return (output [batch, n, hidden]; keys and values of past and these rows). embeds, x: embedding
        and state, each [batch, n, hidden]; the other arguments as in Attention.forward."""
        state = self.hidden_norm(x)
        y, kv = self.self_attn(torch.cat([self.input_layernorm(embeds), state], -1), angles, past, mask)
        x = (state if self.before else x) + y
        return self.feed_forward(x), kv


class Eagle3(nn.Module):
    """EAGLE-3's draft head, an nn.Module: one decoder layer over hidden states of several of the target's
    layers.

    config: a Llama-like config.json with vocab_size of the target, read_layers (whose inputs are read),
    draft_vocab_size, norm_before_residual, norm_output, fc_norm, norm_before_fc, attention_bias, qk_norm,
    own_head (an output matrix of its own; default true).
    """

    d2t: Tensor | None
    t2d: Tensor | None

    def __init__(self, config: dict[str, Any], name: str = "the EAGLE-3 head"):
        super().__init__()
        self.config = config
        self.name = name
        self.sizes = Sizes.of(config, name)
        self.read_layers = tuple(config["read_layers"])
        d = self.sizes.hidden
        vocab = config["vocab_size"]
        hidden_states = len(self.read_layers)
        draft_vocab = config.get("draft_vocab_size") or vocab
        if type(draft_vocab) is not int or not 0 < draft_vocab <= vocab:
            raise ModelError(
                f"config.json of {name} says draft_vocab_size is {str(draft_vocab)[:40]}",
                "eagle3.draft_vocab_size",
            )
        self.vocab, self.norm_output = vocab, bool(config.get("norm_output"))
        bias, qk_norm = bool(config.get("attention_bias")), bool(config.get("qk_norm"))
        self.fc = nn.Linear(hidden_states * d, d, bias=False)
        self.fc_norm = (
            nn.ModuleList(nn.RMSNorm(d, eps=self.sizes.eps) for _ in range(hidden_states))
            if config.get("fc_norm")
            else None
        )
        self.input_norm = (
            nn.RMSNorm(hidden_states * d, eps=self.sizes.eps) if config.get("norm_before_fc") else None
        )
        first = Eagle3Layer(self.sizes, bias, qk_norm, bool(config.get("norm_before_residual")))
        later = (Layer(self.sizes, True, True, bias, qk_norm=qk_norm) for _ in range(1, self.sizes.layers))
        self.layers, self.norm = nn.ModuleList([first, *later]), nn.RMSNorm(d, eps=self.sizes.eps)
        self.lm_head = nn.Linear(d, draft_vocab, bias=False) if config.get("own_head", True) else None
        self.register_buffer(
            "d2t", torch.zeros(draft_vocab, dtype=torch.long) if draft_vocab < vocab else None
        )
        self.register_buffer("t2d", torch.arange(vocab) < draft_vocab if draft_vocab < vocab else None)

    @property
    def hidden_states(self) -> tuple[str, ...]:
        """Names of the target's hidden states that the head reads."""
        return tuple(f"layer:{i}" for i in self.read_layers)

    @property
    def tokens(self) -> Tensor | None:
        """Target token ids of the draft vocabulary, [draft vocabulary]; None if it is the full vocabulary."""
        return None if self.d2t is None else self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def set_draft_vocab(self, ids: Tensor) -> None:
        """Set the draft vocabulary to these target token ids; they are sorted."""
        ids = ids.sort().values
        assert (
            self.d2t is not None and self.t2d is not None
        )  # the head was built for a part of the vocabulary
        self.d2t.copy_(ids - torch.arange(len(ids), device=ids.device))
        self.t2d.zero_()[ids] = True

    def joined(self, states: Tensor) -> Tensor:
        """Return the target's states [..., layers * hidden] projected by ``fc`` to the layer's width [...,
        hidden]."""
        if self.fc_norm is not None:
            states = torch.cat(
                [norm(part) for norm, part in zip(self.fc_norm, states.chunk(len(self.fc_norm), -1))], -1
            )
        return self.fc(states if self.input_norm is None else self.input_norm(states))

    def draft_logits(self, states: Tensor) -> Tensor:
        """Return logits [..., draft vocabulary] of output states [..., hidden], from the head's own output
        matrix."""
        assert self.lm_head is not None
        return self.lm_head(states if self.norm_output else self.norm(states))

    def logits(self, states: Tensor, target_head: Callable[[Tensor], Tensor]) -> Tensor:
        """Return logits [n, vocab] of output states [n, hidden], minus infinity outside the draft
        vocabulary. target_head: the target's output layer, used if the head has none of its own."""
        if self.lm_head is None:
            return target_head(states if self.norm_output else self.fused.final(states))
        logits, tokens = self.draft_logits(states), self.tokens
        if tokens is None:
            return logits
        return logits.new_full((*logits.shape[:-1], self.vocab), -torch.inf).index_copy_(-1, tokens, logits)

    def forward(self, embeds: Tensor, states: Tensor, steps: int = 1) -> list[Tensor]:
        """Training: return ``steps`` tensors [batch, n, hidden] of output states. embeds [batch, n, hidden]
        of the tokens after those with states [batch, n, layers * hidden]. Row t of prediction j depends on
        true states up to t - j and on the head's own for the last j (the paper's training-time test); the
        first j rows are invalid."""
        n = embeds.shape[1]
        angles = angles_of(self.config, self.sizes.head_dim, n, embeds.device)
        past: list = [None] * len(self.layers)
        out, state = [], self.joined(states).to(states.dtype)
        for step in range(steps):
            x, past[0] = cast(Eagle3Layer, self.layers[0]).forward_pair(embeds, state, angles, past[0], step)
            for i, layer in enumerate(self.layers[1:], 1):
                x, past[i] = layer(x, angles, past[i], step)
            x = self.norm(x) if self.norm_output else x
            out.append(x)
            state = torch.cat([state[:, :1], x[:, :-1]], 1)
        return out

    @cached_property
    def fused(self) -> Eagle3Net:
        """The weights in inference layout; converted once and shared by all runs."""
        return Eagle3Net(self)

    def open(self) -> Eagle3Rows:
        """Return a KV cache over these weights for one run."""
        return Eagle3Rows(self)


class Eagle3Net(FusedLayers):
    """EAGLE-3's layers in inference layout; input rows are twice as wide as the layers: the embedding, then
    the state."""

    def __init__(self, head: Eagle3):
        super().__init__(head.layers, head.config, head.fc)
        first = cast(Eagle3Layer, head.layers[0])
        self.state_norm, self.before = Norm(first.hidden_norm.weight.detach(), self.eps), first.before
        self.final = Norm(head.norm.weight.detach(), self.eps)
        self.after = self.final if head.norm_output else None
        self.whole = None if head.input_norm is None else Norm(head.input_norm.weight.detach(), self.eps)
        self.each = (
            None
            if head.fc_norm is None
            else [Norm(cast(nn.RMSNorm, norm).weight.detach(), self.eps) for norm in head.fc_norm]
        )

    def joined(self, states: Tensor) -> Tensor:
        """Return the target's states [n, layers * hidden] projected to the layer's width [n, hidden]."""
        if self.each is not None:
            states = torch.cat(
                [norm(part) for norm, part in zip(self.each, states.chunk(len(self.each), -1))], -1
            )
        return self.lead(states if self.whole is None else self.whole(states))

    def run(
        self, x: Tensor, rotation: Tensor, slots: Tensor, at: int | Tensor, mask: Tensor | None
    ) -> Tensor:
        """Run all layers over rows x [n, 2 * hidden]; return outputs [n, hidden]. The other arguments as in
        ``Llama.attend``."""
        embeds, state = x.split(self.hidden, -1)
        normed = self.state_norm(state)
        both = torch.cat([self.blocks[0].norm_in(embeds), normed], -1)  # twice as wide as the residual
        x = self.run_blocks(normed if self.before else state, rotation, slots, at, mask, reads=both)[0]
        return x if self.after is None else self.after(x)


class Eagle3Rows(RowCache):
    """KV cache of EAGLE-3's head for one run. Each row is a pair (embedding of token t + 1, states of token
    t); its output predicts token t + 2."""

    net: Eagle3Net

    def __init__(self, head: Eagle3):
        super().__init__(head.fused)

    def read(self, embeds: Tensor, states: Tensor) -> Tensor:
        """Append rows of the text: embeds [n, hidden] and the target's states [n, layers * hidden]; return
        their outputs [n, hidden]."""
        kind = self.net.dtype
        return super().read(torch.cat([embeds.to(kind), self.net.joined(states.to(kind))], -1))

    def branch(self, embeds: Tensor, states: Tensor, parents, depths) -> Tensor:
        """Run nodes of a draft tree, with the head's own output states [n, hidden] in place of the
        target's; return their outputs. The rows are dropped after the round."""
        kind = self.net.dtype
        return super().branch(torch.cat([embeds.to(kind), states.to(kind)], -1), parents, depths)


def default_layers(layers: int) -> list[int]:
    """Return the default layers whose inputs are read: three spread over the target, fewer for a small
    one."""
    return [2, layers // 2, layers - 3] if layers > 6 else list(range(max(1, layers - 3), layers)) or [0]


def build(target: TargetInfo, hparams: dict[str, Any]) -> Eagle3:
    """Return an untrained head with a layer like the target's. hparams, all optional: draft_vocab (size of
    the draft vocabulary, the first ids until ``set_draft_vocab``), own_head (default true; without it the
    target's output matrix and full vocabulary are used), read_layers, layers, heads, kv_heads, head_dim,
    intermediate, qk_norm, and the flags of later variants."""
    settings = {
        "read_layers": list(hparams.get("read_layers") or default_layers(target.layers)),
        "own_head": bool(hparams.get("own_head", True)),
        "draft_vocab_size": min(target.vocab, hparams.get("draft_vocab") or target.vocab),
        "qk_norm": bool(hparams.get("qk_norm")),
    }
    flags = {name: bool(hparams.get(name)) for name in (*FLAGS, "fc_norm")}
    return Eagle3({**config_like(target, hparams), **settings, **flags}, f"the EAGLE-3 head of {target.name}")


def load(folder: str | Path, target: TargetInfo) -> Eagle3:
    """Load the head of a checkpoint folder, in this project's or a published layout. Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab, "eagle3")
    weights = HeadWeights(folder, target)
    config, found = read(weights, config_of(folder), target)
    weights.check_none_unread(*VERIFIER)
    return fill(Eagle3(config, folder.name), found, target)


def read(
    weights: HeadWeights, raw: dict[str, Any], target: TargetInfo
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return (config, tensors by this project's names) of a head's weight file. raw: its config.json.
    Raises ModelError."""
    nested = raw.get("transformer_layer_config")
    config = {
        "hidden_size": target.hidden,
        **(nested if isinstance(nested, dict) else {}),
        **raw,
        "vocab_size": target.vocab,
    }
    at = {0: "midlayer." if "midlayer.hidden_norm.weight" in weights else "layers.0."}
    layers = max([0, *weights.indices(r"layers\.(\d+)\.")]) + 1
    at |= {i: f"layers.{i}." for i in range(1, layers)}
    config |= {
        "num_hidden_layers": layers,
        "read_layers": _read_layers(config, target, weights.title),
        "qk_norm": f"{at[0]}self_attn.q_norm.weight" in weights,
        "attention_bias": f"{at[0]}self_attn.q_proj.bias" in weights,
        "fc_norm": "fc_norm.0.weight" in weights,
        "norm_before_fc": "input_norm.weight" in weights,
        "own_head": "lm_head.weight" in weights,
        "draft_vocab_size": None,
    }
    if raw.get("speculators_model_type") == "eagle3" and config.get("norm_before_residual") is None:
        raise ModelError(
            f"config.json of {weights.title} does not say norm_before_residual, and readers differ in its default",
            "head.config_lacks",
        )
    sizes = Sizes.of(config, weights.title)
    d = target.hidden
    hidden_states = len(config["read_layers"])
    found: dict[str, Tensor | None] = {
        "fc.weight": weights.get_target_wide("fc.weight", target, d, hidden_states * d)
    }
    found["norm.weight"] = weights.get("norm.weight", d)
    if config["fc_norm"]:
        found |= {f"fc_norm.{i}.weight": weights.get(f"fc_norm.{i}.weight", d) for i in range(hidden_states)}
    if config["norm_before_fc"]:
        found["input_norm.weight"] = weights.get("input_norm.weight", hidden_states * d)
    for i, name in at.items():
        mine = layer_weights(weights, sizes, name, True, True, 2 if i == 0 else 1)
        mine |= {f"{name}hidden_norm.weight": weights.get(f"{name}hidden_norm.weight", d)} if i == 0 else {}
        if config["qk_norm"]:
            mine |= {
                f"{name}self_attn.{part}.weight": weights.get(
                    f"{name}self_attn.{part}.weight", sizes.head_dim
                )
                for part in ("q_norm", "k_norm")
            }
        found |= {f"layers.{i}." + key.removeprefix(name): tensor for key, tensor in mine.items()}
    if config["own_head"]:
        draft_vocab = config["draft_vocab_size"] = weights.shape("lm_head.weight")[0]
        found |= {"lm_head.weight": weights.get("lm_head.weight", draft_vocab, d)} | draft_vocabulary(
            weights, draft_vocab, target
        )
    return config, {name: tensor for name, tensor in found.items() if tensor is not None}


def draft_vocabulary(weights: HeadWeights, draft_vocab: int, target: TargetInfo) -> dict[str, Tensor | None]:
    """Return the tensors d2t and t2d that define a file's draft vocabulary of ``draft_vocab`` tokens; empty
    if it is the target's own. Raises ModelError."""
    if draft_vocab == target.vocab and "d2t" not in weights:
        return {}
    if "d2t" not in weights:
        raise ModelError(
            f"{weights.title} has logits for {draft_vocab} of {target.vocab} tokens and no d2t that says which",
            "eagle3.no_d2t",
        )
    d2t = weights.ids("d2t", target.vocab)
    ids = d2t + torch.arange(len(d2t), device=d2t.device)
    if len(ids) != draft_vocab or int(ids.max()) >= target.vocab or len(ids.unique()) != draft_vocab:
        raise ModelError(
            f"d2t of {weights.title} does not name {draft_vocab} different tokens of {target.vocab}",
            "eagle3.d2t",
        )
    t2d = torch.zeros(target.vocab, dtype=torch.bool, device=ids.device)
    t2d[ids] = True
    if "t2d" in weights and not torch.equal(weights.get("t2d", target.vocab).bool(), t2d):
        raise ModelError(f"d2t and t2d of {weights.title} name different tokens", "eagle3.t2d")
    return {"d2t": d2t, "t2d": t2d} if draft_vocab < target.vocab else {}


def _read_layers(config: dict[str, Any], target: TargetInfo, name: str) -> list[int]:
    """Return the layers of the target whose inputs a file's head reads. Raises ModelError for layers that
    cannot be read."""
    inner = config.get("eagle_config")
    ours = config.get("read_layers")
    key = "eagle_aux_hidden_state_layer_ids"
    inner = inner if isinstance(inner, dict) else {}
    inputs, outputs = ours or config.get(key), inner.get(key) or config.get("target_layer_ids")
    try:
        found = (
            [int(i) for i in inputs]
            if inputs
            else [int(i) + 1 for i in outputs]
            if outputs
            else default_layers(target.layers)
        )
    except (TypeError, ValueError):
        raise ModelError(
            f"config.json of {name} does not say which layers are read", "head.config_layers"
        ) from None
    if min(found) < 0 or max(found) >= target.layers:
        raise ModelError(
            f"{name} reads what enters layer {max(found)}; {target.name} has layers 0 to {target.layers - 1}",
            "head.read_layers",
        )
    return found
