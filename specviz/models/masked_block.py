"""Block drafters: all tokens of a round from one pass of a small network over mask tokens (DFlash,
2602.06036; DSpark adds the Markov and the confidence head, as in its authors' public code).

Hidden states at the input of several target layers are joined, pass ``fc`` and ``hidden_norm``, and give
each layer's keys and values for every token of the text. The block is one row for the last token and rows
of a mask token; they attend to the whole text and to each other, in both directions. In a block that is
``sampled from its anchor`` (DSpark), row j predicts the token j + 1 positions after the last one; in a
DFlash block row j predicts the token at its own position, so row 0 predicts nothing. Embedding and output
matrix are the target's; speculators' heads may have an output matrix over part of the vocabulary (``d2t``),
nest the layers' config, and count the inputs of layers in ``aux_hidden_state_layer_ids`` (c05b95b,
dflash/core.py).

Positions of a block are independent given the text: the Markov head adds a low-rank bias to a row's logits
from the token drafted before it, and the confidence head predicts the probability that the row's token is
accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints.head_keys import LayerAttention, block_attention
from ..checkpoints.weights import ModelError
from .eagle import config_like
from .eagle3 import VERIFIER, draft_vocabulary
from .eagle_layers import Attention, FusedLayers, Layer, Sizes, _rotated, angles_of, masked_attention
from .heads import TargetInfo, check_fit, config_of, fill, head_weights
from .rms_norm import Norm
from .row_cache import STEP, RowCache


class BlockAttention(Attention):
    """Attention of block rows over the text's rows and the block itself, with a norm on each head of
    queries and keys."""

    def __init__(self, sizes: Sizes, bias: bool = False):
        super().__init__(sizes, bias, qk_norm=True)

    @property
    def of_text(self) -> tuple[nn.Linear, nn.Linear]:
        """The projections to keys and values of the text's rows."""
        return self.k_proj, self.v_proj

    def heads(self, project: nn.Linear, x: Tensor) -> Tensor:
        """Return the projection of x [batch, n, hidden], split into heads: [batch, heads, n, head_dim]."""
        return project(x).unflatten(-1, (-1, self.sizes.head_dim)).transpose(1, 2)

    def across(self, x: Tensor, text: Tensor, angles: Tensor, text_angles: Tensor, mask: Tensor) -> Tensor:
        """Return the attention of a block's rows to the text and to each other.

        x [batch, n, hidden] and text [batch, c, hidden]; angles [batch, 1, n, head_dim / 2], text_angles
        [c, head_dim / 2]; mask [batch, 1, n, c + n], True where a row may attend.
        """
        assert self.q_norm is not None and self.k_norm is not None
        q = _rotated(self.q_norm(self.heads(self.q_proj, x)), angles)
        of_keys, of_values = self.of_text
        k = torch.cat(
            [
                _rotated(self.k_norm(self.heads(of_keys, text)), text_angles),
                _rotated(self.k_norm(self.heads(self.k_proj, x)), angles),
            ],
            2,
        )
        v = torch.cat([self.heads(of_values, text), self.heads(self.v_proj, x)], 2)
        y = masked_attention(q.type_as(v), k.type_as(v), v, mask)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class BlockLayer(Layer):
    """A decoder layer of a block drafter, an nn.Module, with attention to the text and within the block.
    attention: its attention class."""

    attention = BlockAttention

    def __init__(self, sizes: Sizes, bias: bool = False):
        super().__init__(sizes, True, True, bias)
        self.self_attn = self.attention(sizes, bias)

    def across(self, x: Tensor, text: Tensor, angles: Tensor, text_angles: Tensor, mask: Tensor) -> Tensor:
        """Return the layer's output [batch, n, hidden] for block rows x; arguments as in
        BlockAttention.across."""
        x = x + self.self_attn.across(self.input_layernorm(x), text, angles, text_angles, mask)
        return self.feed_forward(x)


def visible(ahead: Tensor, kind: LayerAttention) -> Tensor:
    """Return which rows a layer lets attend to which. ahead: by how many positions the seen row comes after
    the one that looks."""
    sees = torch.ones_like(ahead, dtype=torch.bool)
    if kind.causal:
        sees = sees & (ahead <= 0)
    return sees if kind.window is None else sees & (ahead.abs() < kind.window)


class MarkovHead(nn.Module):
    """A low-rank bias on a token's logits that depends on the token drafted before it, an nn.Module (DSpark).

    rank: of the two matrices; kind: "gated" if the bias is gated by the row's hidden state, else "vanilla".
    """

    def __init__(self, vocab: int, rank: int, hidden: int, kind: str):
        super().__init__()
        self.markov_w1, self.markov_w2 = nn.Embedding(vocab, rank), nn.Linear(rank, vocab, bias=False)
        self.gate_proj = nn.Linear(hidden + rank, rank) if kind == "gated" else None

    def latent(self, tokens: Tensor, states: Tensor) -> Tensor:
        """Return [..., rank] for the tokens before the rows with these states; multiplied by ``markov_w2``
        it is added to the rows' logits."""
        before = self.markov_w1(tokens)
        return (
            before
            if self.gate_proj is None
            else torch.sigmoid(self.gate_proj(torch.cat([states, before], -1))) * before
        )


class ConfidenceHead(nn.Module):
    """nn.Module: from a row's state [n, width], the logit [n] of the probability that its token is
    accepted."""

    def __init__(self, width: int):
        super().__init__()
        self.proj = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [n] for states x [n, width]."""
        return self.proj(x)[..., 0]


class BlockDrafter(nn.Module):
    """A block drafter (DFlash, DSpark): all tokens of a block in one pass over the target's states.

    config: a Llama-like config.json with block_size, mask_token_id, target_layer_ids (layers whose output
    is read, 0 first; -1: the embeddings), maybe markov_rank, markov_head_type ("vanilla" or "gated"),
    enable_confidence_head, confidence_head_with_markov and sample_from_anchor (default: whether there is a
    Markov head, or DSpark's trainer wrote the config), causal_head (JetSpec, 2606.18394: a row of the block
    attends to no later one); draft_vocab_size of an output matrix of its own, without it the target's is
    used. layer: the class of the layers."""

    layer: type[BlockLayer] = BlockLayer
    elsewhere: tuple[str, ...] = ()  # patterns of weights in a published file that other parts read
    d2t: Tensor | None
    t2d: Tensor | None

    def __init__(self, config: dict[str, Any], name: str = "the block drafter"):
        super().__init__()
        self.config = config
        self.name = name
        self.sizes = Sizes.of(config, name, causal=None)
        settings = {**config, **(config.get("dflash_config") or {})}
        d, rank = self.sizes.hidden, int(settings.get("markov_rank") or 0)
        try:
            self.block, self.mask_token = int(settings["block_size"]), int(settings["mask_token_id"])
            self.read_layers = tuple(int(i) for i in settings["target_layer_ids"])
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        if self.block < 2 or not self.read_layers or min(self.read_layers) < -1:
            raise ModelError(
                f"config.json of {name} gives a block or layers to read that make no sense",
                "masked_block.config",
            )
        kind = str(settings.get("markov_head_type") or "vanilla")
        if rank and kind not in ("vanilla", "gated"):
            raise ModelError(
                f"{name} has a Markov head of kind {kind!r}; vanilla and gated ones can be read",
                "masked_block.markov",
            )
        self.anchored = bool(settings.get("sample_from_anchor", rank > 0 or _trained_as_dspark(config)))
        self.layer_attention = block_attention(config, name, self.sizes.layers)
        self.fc = nn.Linear(len(self.read_layers) * d, d, bias=False)
        self.hidden_norm, self.norm = nn.RMSNorm(d, eps=self.sizes.eps), nn.RMSNorm(d, eps=self.sizes.eps)
        self.layers = nn.ModuleList(
            self.layer(self.sizes, bool(config.get("attention_bias"))) for _ in range(self.sizes.layers)
        )
        self.markov_head = MarkovHead(config["vocab_size"], rank, d, kind) if rank else None
        sure, with_markov = (
            bool(settings.get("enable_confidence_head")),
            bool(settings.get("confidence_head_with_markov")),
        )
        if sure and with_markov and not rank:
            raise ModelError(
                f"the confidence head of {name} reads a Markov head that is not there",
                "masked_block.confidence",
            )
        self.confidence_head = ConfidenceHead(d + rank * with_markov) if sure else None
        self.confidence_with_markov = with_markov
        draft_vocab, self.vocab = config.get("draft_vocab_size"), config["vocab_size"]
        self.lm_head = nn.Linear(d, draft_vocab, bias=False) if draft_vocab else None
        self.register_buffer("d2t", torch.zeros(draft_vocab, dtype=torch.long) if draft_vocab else None)
        self.register_buffer("t2d", torch.arange(self.vocab) < draft_vocab if draft_vocab else None)
        self.confidence_gated = bool(
            settings.get("confidence_head_gated", "specviz" in config)
        )  # heads trained here before had it so

    @property
    def hidden_states(self) -> tuple[str, ...]:
        """Names of the target's hidden states that are read; the output of a layer is the input of the
        next."""
        return tuple(f"layer:{i + 1}" for i in self.read_layers)

    @property
    def length(self) -> int:
        """Number of tokens drafted by a whole block."""
        return self.block if self.anchored else self.block - 1

    def logits(self, states: Tensor, target_head: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the logits [n, vocab] of rows, minus infinity outside the draft vocabulary. target_head:
        the target's output layer, used if the drafter has none of its own."""
        if self.lm_head is None or self.d2t is None:
            return target_head(states)
        part, tokens = self.lm_head(states), self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)
        return part.new_full((len(part), self.vocab), -torch.inf).index_copy_(-1, tokens, part)

    def forward(self, states: Tensor, embeds: Tensor, anchors: Tensor) -> Tensor:
        """Training: return the states [batch, blocks, block, hidden] of blocks after the final norm. states
        [batch, c, layers * hidden] of the text; embeds [batch, blocks, block, hidden] of the blocks'
        tokens; anchors [batch, blocks]: text position of each block's first token, before which the block
        sees the text."""
        return self.norm(self.raw(states, embeds, anchors))

    def raw(self, states: Tensor, embeds: Tensor, anchors: Tensor) -> Tensor:
        """Return the same states as ``forward``, before the final norm."""
        batch, blocks, size, _ = embeds.shape
        places = torch.arange(states.shape[1], device=states.device)
        rotations = angles_of(self.config, self.sizes.head_dim, len(places) + size, states.device)
        at = (anchors[:, :, None] + torch.arange(size, device=states.device)).flatten(
            1
        )  # [batch, blocks * size]
        seen = (places < anchors[:, :, None]).repeat_interleave(size, 1)  # [batch, rows, c]
        own = torch.block_diag(*[torch.ones(size, size, dtype=torch.bool)] * blocks).to(states.device)
        mask = torch.cat([seen, own.expand(batch, -1, -1)], 2)
        ahead = (
            torch.cat([places.expand(batch, -1), at], 1)[:, None] - at[:, :, None]
        )  # [batch, rows, c + rows]
        x = embeds.flatten(1, 2)
        for layer, text, kind in zip(self.layers, self.text_rows(states), self.layer_attention):
            sees = (mask & visible(ahead, kind))[:, None]
            x = cast(BlockLayer, layer).across(
                x, text, rotations[at][:, None], rotations[: len(places)], sees
            )
        return x.unflatten(1, (blocks, size))

    def text_rows(self, states: Tensor) -> list[Tensor]:
        """Training: return the text as each layer reads it, [..., hidden], from the target's states [...,
        layers * hidden]."""
        return [self.hidden_norm(self.fc(states))] * len(self.layers)

    def confidence(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Return the logits [n] of the probability that the tokens of rows are accepted, from the rows'
        states [n, hidden] and the tokens [n] drafted before them."""
        assert self.confidence_head is not None  # asked of a drafter that has one
        if not self.confidence_with_markov:
            return self.confidence_head(states)
        markov = self.markov_head
        assert markov is not None  # checked when it was built
        before = markov.latent(tokens, states) if self.confidence_gated else markov.markov_w1(tokens)
        return self.confidence_head(torch.cat([states, before], -1))

    @cached_property
    def fused(self) -> BlockNet:
        """The weights in inference layout; converted once and shared by all runs."""
        return BlockNet(self, self.fc)

    def open(self) -> BlockRows:
        """Return a KV cache over these weights for one run."""
        return BlockRows(self.fused)


class BlockNet(FusedLayers):
    """A block drafter's layers in inference layout, with one matrix for the keys and values of all layers
    from a row of text."""

    def __init__(self, head: BlockDrafter, lead: nn.Linear | None):
        super().__init__(head.layers, head.config, lead)
        with torch.inference_mode():
            self.layer_attention = head.layer_attention
            self.after_fc, self.after = (
                Norm(head.hidden_norm.weight.detach(), self.eps),
                Norm(head.norm.weight.detach(), self.eps),
            )
            parts = [
                cast(BlockAttention, layer.self_attn).of_text
                for layer in cast("list[BlockLayer]", list(head.layers))
            ]
            self.text = torch.cat([torch.cat([self._paired(k.weight), v.weight]) for k, v in parts]).detach()
            biases = [torch.cat([self._paired(k.bias), v.bias]) for k, v in parts if k.bias is not None]
            self.text_bias = torch.cat(biases).detach() if biases else None
            self.of_text = self._text_layer()

    def _text_layer(self) -> Callable[[Tensor], Tensor]:
        """Return the linear layer from a row of text to the keys and values of all layers."""
        if self.padded is not None:
            from .compiled_linear import CompiledInt8Linear

            return CompiledInt8Linear(self.text, self.text_bias, int16_input=True)
        return lambda x: F.linear(x, self.text, self.text_bias)

    def take(
        self, states: Tensor, rotation: Tensor | None, slots: Tensor, at: int | Tensor, mask: Any = None
    ) -> None:
        """Write keys and values of text rows [n, layers * hidden] into slots [layers, 2, kv_heads, slots,
        head_dim]: ``at``..at+n, or those of a tensor [n]. Text rows attend to nothing, so there is no
        mask; that of compiled layers gives the positions."""
        n = len(states)
        rotation = self.rotations_at(mask.positions.tolist()) if rotation is None else rotation
        kv = self.keys_and_values(states).view(n, self.layers, 2, self.kv_heads, self.head_dim)
        for i, block in enumerate(self.blocks):
            assert block.norm_k is not None
            keys = block.norm_k(kv[:, i, 0]).contiguous()
            self._rotate(keys, rotation)
            new = torch.stack([keys, kv[:, i, 1]]).transpose(1, 2)
            if isinstance(at, Tensor):
                slots[i].index_copy_(2, at, new)
            else:
                slots[i, :, :, at : at + n] = new

    def run(
        self,
        x: Tensor,
        rotation: Tensor,
        slots: Tensor,
        at: int | Tensor,
        mask: Tensor | list[Tensor | None] | None,
    ) -> Tensor:
        """Run all layers over the rows of one block, x [n, hidden]. mask: of all layers, or a list with one
        of each."""
        if not isinstance(mask, list):
            return super().run(x, rotation, slots, at, mask)
        for block, kept, own in zip(self.blocks, slots, mask):
            x = self.transform(block, self.attend(block, x, rotation, kept, at, own))
        return x

    def keys_and_values(self, states: Tensor) -> Tensor:
        """Return keys, not yet normed, and values of text rows [n, layers * hidden]: [n, layers * 2 *
        kv_heads * head_dim]."""
        return self.of_text(self.after_fc(self.lead(states)))


class BlockRows(RowCache):
    """KV cache of a block drafter for one run: the rows of the text. A block's rows are dropped after each
    pass."""

    net: BlockNet

    def read(self, states: Tensor) -> None:
        """Append text rows, the target's hidden states [n, layers * hidden]."""
        for part in states.to(self.net.dtype).split(STEP):
            n = len(part)
            self._run(part, list(range(n)), torch.ones(n, n, dtype=torch.bool), self.net.take)
            self.count += n

    def text(self, states: Tensor) -> Tensor:
        """Return text rows [n, layers * hidden] as the layers read them, after ``fc`` and its norm: [n,
        hidden]."""
        return self.net.after_fc(self.net.lead(states.to(self.net.dtype)))

    def draft(self, embeds: Tensor) -> Tensor:
        """Return the states [block, hidden], after the final norm, of a block whose first row follows the
        text. embeds [block, hidden]: embeddings of its tokens."""
        return self.net.after(self.draft_raw(embeds))

    def draft_raw(self, embeds: Tensor) -> Tensor:
        """Return the same states as ``draft``, before the final norm."""
        n = len(embeds)
        x = embeds.to(self.net.dtype)
        kinds = self.net.layer_attention
        rows = torch.arange(n)
        if len(set(kinds)) == 1 and kinds[0].window is None:
            return self._run(x, list(range(n)), visible(rows - rows[:, None], kinds[0]))
        slots, at = self._buffer(self.count + n, n - 1), self.first + self.count
        ahead = torch.arange(self.count + n) - (self.count + rows)[:, None]
        masks = {kind: self._seen(visible(ahead, kind), x) for kind in set(kinds)}
        rotation = self.net.rotations_at(list(range(at, at + n)))
        return self.net.run(x, rotation, slots, self.count, [masks[kind] for kind in kinds])

    def _seen(self, sees: Tensor, x: Tensor) -> Any:
        """Return the bias added to scores, [group * rows, slots], for a mask of all rows; None if it hides
        nothing; what compiled layers take instead."""
        if self.net.compiled is not None:
            return self.sequence_rows(sees, range(len(x)), 0, self.count)
        if bool(sees.all()):
            return None
        return (
            torch.zeros(sees.shape, dtype=x.dtype)
            .masked_fill_(~sees, -torch.inf)
            .repeat(self.net.group, 1)
            .to(x.device)
        )


def _trained_as_dspark(config: dict[str, Any]) -> bool:
    """Return whether DSpark's trainer made a drafter, with a Markov head or (DeepSpec's DFlash) without:
    its row j predicts j + 1 tokens ahead. DeepSpec names its class in the config (afdfa7c), speculators its
    type (c05b95b)."""
    names = config.get("architectures") or ()
    return config.get("speculators_model_type") == "dspark" or any("DSpark" in str(name) for name in names)


def build(
    target: TargetInfo, hparams: dict[str, Any], make: type[BlockDrafter] = BlockDrafter, **more: Any
) -> BlockDrafter:
    """Return an untrained drafter with layers like the target's. hparams: block, mask_token; read_layers
    (else three spread over the target), layers, heads, kv_heads, head_dim, intermediate, markov_rank,
    markov_kind, confidence. make: its class; more: further keys of its config.json."""
    rank, last = int(hparams.get("markov_rank") or 0), target.layers - 2
    spread = sorted({max(0, min(last, round(target.layers * share) - 1)) for share in (0.25, 0.5, 1)})
    settings = {
        "block_size": hparams["block"],
        "mask_token_id": hparams.get("mask_token", 0),
        "target_layer_ids": list(hparams.get("read_layers") or spread),
        "markov_rank": rank,
        "markov_head_type": hparams.get("markov_kind", "vanilla"),
        "enable_confidence_head": bool(hparams.get("confidence")),
        "confidence_head_with_markov": bool(hparams.get("confidence")) and rank > 0,
        "confidence_head_gated": False,
        "sample_from_anchor": rank > 0,
    }
    return make({**config_like(target, hparams), **settings, **more}, f"the block drafter of {target.name}")


def load(folder: str | Path, target: TargetInfo, make: type[BlockDrafter] = BlockDrafter) -> BlockDrafter:
    """Load the drafter of a folder, in this project's or a published layout. make: its class. Raises
    ModelError."""
    folder = Path(folder)
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights, config = head_weights(folder, target), _settings(config_of(folder), target)
    config["attention_bias"] = "layers.0.self_attn.q_proj.bias" in weights
    spoken = weights.shape("lm_head.weight")[0] if "d2t" in weights.names else target.vocab
    tokens = draft_vocabulary(weights, spoken, target)
    config["draft_vocab_size"] = spoken if tokens else None
    made = make(config, folder.name)
    if max(made.read_layers) >= target.layers - 1:
        raise ModelError(
            f"{folder.name} reads the output of layer {max(made.read_layers)}; of {target.name} layers 0 to "
            f"{target.layers - 2} can be read",
            "head.read_layers",
        )
    found = cast(dict[str, Tensor], dict(tokens))
    for name, tensor in made.state_dict().items():
        if name == "markov_head.markov_w2.weight" and (d2t := tokens.get("d2t")) is not None:
            found[name] = _spread(weights.get(name, spoken, tensor.shape[1]), d2t, target.vocab)
        elif name not in tokens:
            found[name] = weights.get(name, *tensor.shape)
    weights.check_none_unread(*VERIFIER, r"lm_head\.weight", *make.elsewhere)
    return fill(made, found, target)


def _settings(raw: dict[str, Any], target: TargetInfo) -> dict[str, Any]:
    """Return a config.json with the layers' config of speculators at its top, and its layers counted by
    their outputs."""
    nested, inputs = raw.get("transformer_layer_config"), raw.get("aux_hidden_state_layer_ids")
    config = {
        "hidden_size": target.hidden,
        "vocab_size": target.vocab,
        **(nested if isinstance(nested, dict) else {}),
        **raw,
    }
    if isinstance(inputs, list) and all(type(i) is int for i in inputs):
        config["target_layer_ids"] = [i - 1 for i in inputs]
    return config


def _spread(part: Tensor, d2t: Tensor, vocab: int) -> Tensor:
    """Expand the rows [draft vocabulary, rank] of a matrix to the whole vocabulary; the others are zero,
    and their logits minus infinity anyway."""
    return part.new_zeros(vocab, part.shape[1]).index_copy_(
        0, d2t + torch.arange(len(d2t), device=d2t.device), part
    )
