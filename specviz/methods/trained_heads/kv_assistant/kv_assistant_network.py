"""A drafter that borrows the target's keys and values, as Gemma 4's assistants do: layers with queries only,
which read the target's KV cache and write nothing.

One step reads the last token's embedding and the target's last hidden state, both of the target's width, and
returns a hidden state of the same width for the next step. All steps of a draft look from the same position,
that of the last token in the target's KV cache, at the same keys: a draft token is seen through its embedding
and the state only. The output is computed for the tokens of the best clusters of the vocabulary; all others
have draft probability 0.

The file layout is the published one (``gemma4_assistant``, as vLLM's gemma4_mtp.py reads it). A checkpoint
without ``lm_head`` and ``model.embed_tokens`` scores its clusters with the target's output matrix, which
keeps the file small; the recipe writes such files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checkpoints.weights import ModelError
from ....models.eagle import config_like
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill, key_shape
from ....models.llama import inverse_frequencies, rope_of

ACTIVATIONS = {"silu": F.silu, "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh")}
KINDS = ("full_attention", "sliding_attention")


class QueryAttention(nn.Module):
    """Attention of queries to keys and values that come from elsewhere, an nn.Module. keys: (number, width)
    of the target's key heads. The norm of the queries has the scale in its weight."""

    def __init__(self, width: int, heads: int, keys: tuple[int, int], eps: float):
        super().__init__()
        self.keys = keys
        self.q_proj = nn.Linear(width, heads * keys[1], bias=False)
        self.o_proj = nn.Linear(heads * keys[1], width, bias=False)
        self.q_norm = nn.RMSNorm(keys[1], eps=eps)

    def forward(
        self, x: Tensor, angles: Tensor, keys: Tensor, values: Tensor, sees: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return (output [batch, n, width], attention weights [batch, kv_heads, heads / kv_heads, n, c]).

        x [batch, n, width]; angles [n or 1, head_dim / 2]: rotary angles of the queries' positions; keys
        (rotated) and values [batch, kv_heads, c, head_dim]; sees [n, c]: True where a query may attend,
        None: everywhere. A query that may attend to nothing gets zeros."""
        q = self.q_norm(self.q_proj(x).unflatten(-1, (self.keys[0], -1, self.keys[1])))
        q = _rotated(q.permute(0, 2, 3, 1, 4), angles).to(x)  # [batch, kv_heads, group, n, head_dim]
        scores = q @ keys.to(x)[:, :, None].transpose(-1, -2)
        if sees is not None:
            scores = scores.masked_fill(~sees, -torch.inf)
        weights = scores.softmax(-1).nan_to_num(0.0)  # a row that sees nothing
        y = weights @ values.to(x)[:, :, None]
        return self.o_proj(y.permute(0, 3, 1, 2, 4).flatten(2)), weights


def _rotated(x: Tensor, angles: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class GatedMlp(nn.Module):
    """Gated feed-forward with a choice of activation, an nn.Module."""

    def __init__(self, width: int, inner: int, activation: str):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, width, bias=False)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Return down(activation(gate(x)) * up(x)), [..., width]."""
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class AssistantLayer(nn.Module):
    """A layer of queries only, an nn.Module: norms before and after the attention and the feed-forward, and
    a learned scale at the end."""

    layer_scalar: Tensor

    def __init__(self, sizes: dict[str, Any], keys: tuple[int, int]):
        super().__init__()
        width, eps = sizes["hidden_size"], sizes["rms_norm_eps"]
        self.self_attn = QueryAttention(width, sizes["num_attention_heads"], keys, eps)
        self.mlp = GatedMlp(width, sizes["intermediate_size"], sizes["hidden_activation"])
        self.input_layernorm = nn.RMSNorm(width, eps=eps)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=eps)
        self.pre_feedforward_layernorm = nn.RMSNorm(width, eps=eps)
        self.post_feedforward_layernorm = nn.RMSNorm(width, eps=eps)
        self.layer_scalar = nn.Parameter(torch.ones(1))

    def forward(
        self, x: Tensor, angles: Tensor, kv: tuple[Tensor, Tensor], sees: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return (output [batch, n, width], attention weights); arguments as in QueryAttention.forward."""
        y, weights = self.self_attn(self.input_layernorm(x), angles, *kv, sees)
        x = x + self.post_attention_layernorm(y)
        x = x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        return x * self.layer_scalar, weights


class Clusters(nn.Module):
    """The clusters of the vocabulary, an nn.Module: a score for each, and the tokens of each, all of the
    same number."""

    token_ordering: Tensor

    def __init__(self, width: int, vocab: int, count: int):
        super().__init__()
        self.centroids = nn.Linear(width, count, bias=False)
        self.register_buffer("token_ordering", torch.arange(vocab))

    @property
    def tokens(self) -> Tensor:
        """Token ids [clusters, tokens of each]."""
        return self.token_ordering.view(self.centroids.out_features, -1)

    def cluster_of(self) -> Tensor:
        """Return the cluster of each token, [vocab]."""
        each = self.tokens.shape[1]
        at = torch.arange(len(self.token_ordering), device=self.token_ordering.device) // each
        return torch.empty_like(at).scatter_(0, self.token_ordering, at)


class Backbone(nn.Module):
    """Layers and final norm, and the drafter's own token table where it has one, an nn.Module."""

    def __init__(self, sizes: dict[str, Any], keys: tuple[int, int], vocab: int, own_table: bool):
        super().__init__()
        self.layers = nn.ModuleList(AssistantLayer(sizes, keys) for _ in range(sizes["num_hidden_layers"]))
        self.norm = nn.RMSNorm(sizes["hidden_size"], eps=sizes["rms_norm_eps"])
        if own_table:
            self.embed_tokens = nn.Embedding(vocab, sizes["hidden_size"])


class KvAssistant(nn.Module):
    """The drafter's network, an nn.Module. config: a config.json of the published layout: sizes of the
    drafter in text_config, and backbone_hidden_size, num_centroids, centroid_intermediate_top_k (0
    centroids: the whole vocabulary is scored); keys: (number, width) of the target's key heads; reads: for
    each layer, the target's layer whose keys and values it reads; own_table: the output matrix is the
    drafter's own, not the target's."""

    def __init__(
        self,
        config: dict[str, Any],
        keys: tuple[int, int],
        reads: list[int],
        rope: dict[str, Any],
        own_table: bool,
        name: str = "the assistant",
    ):
        super().__init__()
        self.config, self.name, self.keys, self.reads, self.own_table = config, name, keys, reads, own_table
        sizes = _sizes(config, name)
        self.width, self.wide = sizes["hidden_size"], config["backbone_hidden_size"]
        self.vocab, self.top = sizes["vocab_size"], config.get("centroid_intermediate_top_k") or 0
        count = (config.get("num_centroids") or 0) if config.get("use_ordered_embeddings", True) else 0
        if sizes["num_attention_heads"] % keys[0] or len(reads) != sizes["num_hidden_layers"]:
            raise ModelError(f"config.json of {name} gives sizes that do not fit together", "head.sizes")
        if count and (self.vocab % count or not 0 < self.top <= count):
            raise ModelError(f"{name} has clusters of unequal sizes", "kv_assistant.clusters")
        self.pre_projection = nn.Linear(2 * self.wide, self.width, bias=False)
        self.post_projection = nn.Linear(self.width, self.wide, bias=False)
        self.model = Backbone(sizes, keys, self.vocab, own_table)
        if own_table:
            self.lm_head = (
                nn.Identity()
            )  # tied, as published: the file's output matrix is no one for the target's states
        self.masked_embedding = Clusters(self.width, self.vocab, count) if count else None
        self.inverse = inverse_frequencies(rope, keys[1])

    hidden_states = ("final",)

    def forward(
        self,
        embeds: Tensor,
        states: Tensor,
        positions: Tensor,
        target_kv: list[tuple[Tensor, Tensor]],
        sees: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (drafter's states [batch, n, width], states [batch, n, wide] of the target's width, mean
        attention weights [batch, n, c]).

        embeds, states [batch, n, wide]: embeddings of the last tokens, hidden states before them; positions
        [n or 1]: from which they look; target_kv: keys and values [batch, kv_heads, c, head_dim] for each
        layer; sees [n, c]: which keys each may read, None: all."""
        x = self.pre_projection(torch.cat([embeds, states], -1))
        angles = (positions.float()[:, None] * self.inverse.to(x.device)).to(x.device)
        looked: Any = 0.0  # a tensor from the first layer on
        for layer, kv in zip(self.model.layers, target_kv):
            x, weights = layer(x, angles, kv, sees)
            looked = looked + weights.mean((1, 2)) / len(self.reads)
        x = self.model.norm(x)
        return x, self.post_projection(x), looked


def _sizes(config: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the drafter's sizes, checked. Raises ModelError."""
    text = config.get("text_config") or {}
    sizes = {
        "rms_norm_eps": text.get("rms_norm_eps", 1e-6),
        "hidden_activation": text.get("hidden_activation", "gelu_pytorch_tanh"),
    }
    for key in ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers", "vocab_size"):
        if type(text.get(key)) is not int or text[key] < 1:
            raise ModelError(f"config.json of {name} does not say {key}", "head.config_lacks")
        sizes[key] = text[key]
    if type(config.get("backbone_hidden_size")) is not int:
        raise ModelError(f"config.json of {name} does not say backbone_hidden_size", "head.config_lacks")
    if sizes["hidden_activation"] not in ACTIVATIONS:
        raise ModelError(f"{name} has an activation that is not known here", "kv_assistant.activation")
    return sizes


def target_layers(config: dict[str, Any], target: TargetInfo, name: str) -> list[int]:
    """Return the target's layer that each layer of the drafter reads: ``target_reads`` of its config.json,
    else, as published, the last of the target's layers of the same kind (sliding or full attention) that
    has keys of its own. Raises ModelError."""
    text, whole = config.get("text_config") or {}, target.config.get("text_config") or target.config
    count = text.get("num_hidden_layers", 0)
    given = config.get("target_reads")
    if given is None:
        own = target.layers - (whole.get("num_kv_shared_layers") or 0)
        kinds = (whole.get("layer_types") or ["full_attention"] * target.layers)[:own]
        last = {kind: at for at, kind in enumerate(kinds)}
        wanted = text.get("layer_types") or ["full_attention"] * count
        given = [last.get(kind, -1) for kind in wanted]
    if not isinstance(given, list) or not all(type(at) is int and 0 <= at < target.layers for at in given):
        raise ModelError(f"{name} reads layers that {target.name} does not have", "kv_assistant.layers")
    return given


def largest_divisor(vocab: int, most: int) -> int:
    """Return the largest number of clusters of equal size, at most ``most``."""
    return max(count for count in range(1, min(most, vocab) + 1) if vocab % count == 0)


def build(target: TargetInfo, hparams: dict[str, Any]) -> KvAssistant:
    """Return an untrained drafter for a target. hparams: width, layers, intermediate, clusters, best;
    optional: heads. Half of its layers read the target's middle layer, the others its last one."""
    keys, like = key_shape(target), config_like(target, {})
    layers, clusters = hparams["layers"], largest_divisor(target.vocab, hparams["clusters"])
    heads = hparams.get("heads") or like["num_attention_heads"]
    early = target.layers // 2
    reads = [early if i < layers // 2 else target.layers - 1 for i in range(layers)]
    text = {
        "hidden_size": hparams["width"],
        "num_hidden_layers": layers,
        "num_attention_heads": heads if heads % keys[0] == 0 else keys[0],
        "num_key_value_heads": keys[0],
        "head_dim": keys[1],
        "intermediate_size": hparams["intermediate"],
        "hidden_activation": "silu",
        "rms_norm_eps": like["rms_norm_eps"],
        "vocab_size": target.vocab,
    }
    config = {
        "model_type": "gemma4_assistant",
        "backbone_hidden_size": target.hidden,
        "use_ordered_embeddings": True,
        "num_centroids": clusters,
        "centroid_intermediate_top_k": min(hparams["best"], clusters),
        "target_reads": reads,
        "text_config": text,
    }
    made = KvAssistant(config, keys, reads, rope_of(like), False, f"the assistant of {target.name}")
    for layer in made.model.layers:
        nn.init.constant_(cast(AssistantLayer, layer).self_attn.q_norm.weight, keys[1] ** -0.5)
    return made


def load(folder: str | Path, target: TargetInfo) -> KvAssistant:
    """Load the drafter of a checkpoint folder, in the published layout or without a token table of its own.
    Raises ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights, config = HeadWeights(folder, target), config_of(folder)
    sizes, keys = _sizes(config, folder.name), key_shape(target)
    if config["backbone_hidden_size"] != target.hidden or sizes["vocab_size"] != target.vocab:
        raise ModelError(
            f"{folder.name} does not fit {target.name}: it reads states of {config['backbone_hidden_size']} numbers and "
            f"has {sizes['vocab_size']} tokens",
            "head.states",
        )
    table = next((one for one in ("lm_head.weight", "model.embed_tokens.weight") if one in weights), None)
    whole = target.config.get("text_config") or target.config
    reads, rope = target_layers(config, target, folder.name), rope_of(config_like(target, {}) | whole)
    made = KvAssistant(config, keys, reads, rope, table is not None, folder.name)
    found: dict[str, Tensor] = {}
    for name, tensor in made.state_dict().items():
        if name == "model.embed_tokens.weight":
            found[name] = weights.get(cast(str, table), *tensor.shape)
        elif name == "masked_embedding.token_ordering":
            ids = weights.ids(name, target.vocab)
            if len(ids.unique()) != target.vocab:
                raise ModelError(f"{name} of {folder.name} is no order of all tokens", "head.tokens")
            found[name] = ids
        else:
            found[name] = weights.get(name, *tensor.shape)
    weights.check_none_unread(r"lm_head\.weight", r"model\.embed_tokens\.weight", r"masked_embedding\..*")
    return fill(made, found, target)
