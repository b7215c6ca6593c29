"""Targets of a transformers model: with this project's KV cache, with checkpoints of the model's own state,
or without a cache.

The first kind scores trees. A recurrent or hybrid network has a state that cannot be cropped. For it, the
transformers cache is copied before each verification. If everything was accepted, the copy becomes the new
state; otherwise the accepted tokens are computed again from the last checkpoint, together with the next
pass.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from ..core import DraftTree
from ..core.errors import InvalidUse
from ..models.draft_path import DraftPath, fits
from ..models.pretrained import decoder_layers
from .base import CachedTarget
from .draft_path import block_rows
from .learning import Learner
from .rows import Rows, shape_of

STEP = 256  # slots are allocated in multiples of this
MOST_REPLAYED = 16  # tokens that are run again with each pass until the state is advanced past them in a pass of their own


class Slots(CacheLayerMixin):
    """KV cache of one layer for transformers, [1, heads, slots, width]; the first ``length`` slots are in
    use."""

    is_sliding = False

    def __init__(self, **_):
        super().__init__()
        self.length = 0

    keys: Tensor
    values: Tensor

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate empty tensors of the right type on the first update."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (
            x.new_empty(*x.shape[:2], 0, x.shape[3]) for x in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_, **__) -> tuple[Tensor, Tensor]:
        """Append keys and values of new rows, [1, heads, rows, width]; return those of all rows in use."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        past, self.length = self.length, self.length + key_states.shape[2]
        if self.length > self.keys.shape[2]:
            self.keys, self.values = (_grown(x, past, self.length) for x in (self.keys, self.values))
        self.keys[:, :, past : self.length], self.values[:, :, past : self.length] = key_states, value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def gather(self, past: int, rows: list[int]) -> None:
        """Move these draft rows (indices after ``past`` committed rows) to the first draft slots."""
        index = torch.tensor(rows, device=self.device) + past
        for store in (self.keys, self.values):
            store[:, :, past : past + len(rows)] = store.index_select(2, index)

    def get_seq_length(self) -> int:
        """Return the number of slots in use."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (length of the keys after an update with ``query_length`` rows, offset 0), as
        transformers' masks need them."""
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1


def _grown(store: Tensor, used: int, need: int) -> Tensor:
    bigger = store.new_empty(*store.shape[:2], -(-max(need, 2 * used) // STEP) * STEP, store.shape[3])
    bigger[:, :, :used] = store[:, :, :used]
    return bigger


class HFTarget(CachedTarget):
    """Target over a transformers model with this project's KV cache, so that it scores trees. learner: the
    class of its trainable copies."""

    learner: type[HFTarget]

    def __init__(self, model: Any):
        self.model, self.name = model, model.name
        self.vocab = model.vocab
        self.context = model.context
        self.hidden = model.hidden
        self.layers = model.layers
        self.capabilities = self._provides()
        self._cache = Cache(layer_class_to_replicate=Slots)
        super().__init__()

    def _provides(self) -> frozenset[str]:
        found = (
            {"tree", "learning", "draft_path"}
            if self.model.blocks and all(map(fits, self.model.blocks))
            else {"tree", "learning"}
        )
        return self.model.capabilities() | found

    def embed(self, ids: Sequence[int] | Tensor) -> Tensor:
        """Return the embeddings [n, hidden] of token ids."""
        with torch.inference_mode():
            return self.model.net.get_input_embeddings()(torch.as_tensor(ids, device=self.model.device))

    def head(self, states: Tensor) -> Tensor:
        """Multiply hidden states [n, hidden], to which the final norm has already been applied, by the
        output matrix (lm_head); return logits [n, vocab]."""
        head = self.model.net.get_output_embeddings()
        with torch.inference_mode():
            return head(states.to(head.weight.device))

    def draft_path(self, path: DraftPath) -> HFDraftPath:
        """Return draft passes through a trained second path, over this target's KV cache."""
        return HFDraftPath(self, path)

    def learning(self) -> HFTarget:
        """Return a target over a trainable copy of the weights."""
        return self.learner(self)

    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        return self._watched(rows, 0, rows.ids, self.inputs(rows))

    def inputs(self, rows: Rows) -> dict[str, Any]:
        """Return the model's arguments for rows, with the cache cropped to the rows before them."""
        positions = (rows.shape.depth + rows.past).clamp(max=self.context - 1).to(self.model.device)
        self._crop(rows.past + rows.lo)
        return {
            "position_ids": positions[None],
            "attention_mask": self._mask(rows),
            self.model.cache_argument: self._cache,
            "use_cache": True,
        }

    def _watched(
        self, rows: Rows, skip: int, ids: list[int], inputs: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the forward pass with temporary hooks for captured states and entries. skip: leading rows
        that are not returned."""
        hidden_states: dict[str, Tensor] = {}
        with self.model.lock, ExitStack() as stack:
            for layer, block in enumerate(self.model.blocks):
                if f"layer:{layer}" in self._want or any(entry.layer == layer for entry in rows.tree.inputs):
                    hook = _before(layer, rows, skip, hidden_states if f"layer:{layer}" in self._want else {})
                    stack.callback(block.register_forward_pre_hook(hook, with_kwargs=True).remove)
            if "final" in self._want:

                def final(module, args):
                    hidden_states["final"] = args[0][0, skip:]

                stack.callback(self.model.net.get_output_embeddings().register_forward_pre_hook(final).remove)
            elif rows.last:
                inputs["logits_to_keep"] = 1
            logits = self.model.run(ids, **inputs)
        if logits.is_cuda:
            torch.cuda.synchronize(logits.device)  # so that timings include the work, not only its launch
        return logits[-1:] if rows.last else logits[skip:], hidden_states

    def _mask(self, rows: Rows) -> Tensor | dict[str, Tensor]:
        """Return the bias added to scores, [1, 1, rows, slots]; one per layer type for mixed types."""
        sees = torch.cat([torch.ones(len(rows.ids), rows.past, dtype=torch.bool), rows.shape.sees], 1)
        near = sees
        if self.model.window:
            slot = torch.cat([torch.arange(rows.past), rows.past + shape_of(rows.tree.parents, 0).depth])
            near = sees & (slot > slot[rows.past + rows.lo :, None] - self.model.window)
        if self.model.hybrid:
            return {"full_attention": self._added(sees), "sliding_attention": self._added(near)}
        return self._added(near)

    def _added(self, sees: Tensor) -> Tensor:
        added = torch.zeros(sees.shape, dtype=self.model.dtype).masked_fill_(
            ~sees, torch.finfo(self.model.dtype).min
        )
        return added[None, None].to(self.model.device)

    def _gather(self, past: int, rows: list[int]) -> None:
        with torch.inference_mode():
            for layer in cast("list[Slots]", self._cache.layers):
                if layer.is_initialized:  # a layer may share the cache of another
                    layer.gather(past, rows)

    def _crop(self, length: int) -> None:
        for layer in cast("list[Slots]", self._cache.layers) if hasattr(self, "_cache") else ():
            layer.length = min(layer.length, length)

    def close(self) -> None:
        """Free the KV cache."""
        super().close()
        self._cache = Cache(layer_class_to_replicate=Slots)


class HFDraftPath:
    """Draft passes of a transformers model through a second path (targets/draft_path.py)."""

    def __init__(self, target: HFTarget, path: DraftPath):
        self._target, self._path = target, path

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return logits [1 + tokens, vocab] of the root and the tokens after it, run as one block."""
        target, path = self._target, self._path
        rows = block_rows(target, path, tokens)
        on = torch.arange(len(rows.ids), device=target.model.device) >= path.first
        with target.timed(), target.model.lock, path.through(target.model.blocks, lambda x: on):
            logits = target.model.run(rows.ids, **target.inputs(rows))
        target._crop(rows.past)
        return logits


class UncachedTarget(HFTarget):
    """Target for a model whose state cannot be rewound: every pass runs the whole text. Scores chains only;
    slow but exact."""

    def _provides(self) -> frozenset[str]:
        return self.model.capabilities()

    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        if not rows.chain:
            raise InvalidUse(f"{self.name} scores chains only: {self.model.note}", "target.chains_only")
        before = self.cached_tokens + ([self.root, *rows.tree.tokens[: rows.lo - 1]] if rows.lo else [])
        return self._watched(rows, len(before), before + rows.ids, dict(use_cache=False))

    def _crop(self, length: int) -> None:
        """Do nothing, since there is no cache."""


class CheckpointedTarget(UncachedTarget):
    """Target for a recurrent or hybrid network: the model's own cache is copied (checkpointed) and
    restored. Scores chains only.

    The checkpoint covers the first ``_at`` committed tokens. A pass runs, on a copy of the checkpoint, the
    committed tokens after it, then the root and the draft. If all of them are accepted, the copy becomes
    the checkpoint.
    """

    def __init__(self, model: Any):
        self._restart()
        super().__init__(model)

    def _restart(self) -> None:
        self._checkpoint = None
        self._at = 0
        self._copy = None
        self._copied = 0

    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        if not rows.chain:
            raise InvalidUse(f"{self.name} scores chains only: {self.model.note}", "target.chains_only")
        if rows.past - self._at > MOST_REPLAYED and not rows.last:
            self._advance(self.cached_tokens[self._at :])
        before = [self.root, *rows.tree.tokens[: rows.lo - 1]] if rows.lo else []
        if rows.lo and self._copied == rows.lo:
            before, start = [], rows.past + rows.lo
        else:
            before, start = self.cached_tokens[self._at :] + before, self._at
            self._copy = (
                copy.deepcopy(self._checkpoint)
                if self._checkpoint is not None
                else DynamicCache(config=self.model.config)
            )
        found = self._run(rows, before, rows.ids, start)
        self._copied = rows.lo + len(rows.ids)
        if rows.last:
            self._adopt(rows.past + len(rows.ids))
        return found

    def _run(
        self, rows: Rows, before: list[int], ids: list[int], start: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        positions = torch.arange(start, start + len(before) + len(ids), device=self.model.device).clamp(
            max=self.context - 1
        )
        return self._watched(
            rows,
            len(before),
            before + ids,
            {"position_ids": positions[None], self.model.cache_argument: self._copy, "use_cache": True},
        )

    def _advance(self, tokens: list[int]) -> None:
        """Bring the checkpoint to all committed tokens in a pass of its own."""
        wanted, self._want = self._want, frozenset()
        self._copy = copy.deepcopy(self._checkpoint)
        self._run(Rows(DraftTree.chain(tuple(tokens[1:])), tokens, self._at, 0, True), [], tokens, self._at)
        self._want = wanted
        self._adopt(self._at + len(tokens))

    def _adopt(self, length: int) -> None:
        self._checkpoint = self._copy
        self._at = length
        self._copy = None
        self._copied = 0

    def _keep(self, rows: list[int]) -> None:
        if self._copy is not None and len(rows) == self._copied:
            self._adopt(len(self.cached_tokens) + len(rows))
        super()._keep(rows)

    def _gather(self, past: int, rows: list[int]) -> None:
        """A chain is contiguous, so there is nothing to move."""

    def _crop(self, length: int) -> None:
        self._copy, self._copied = None, 0
        if length < self._at:
            self._restart()

    def _restorable(self, length: int) -> int:
        return length if length >= self._at else 0

    def close(self) -> None:
        """Free the checkpoint and its copy."""
        super().close()
        self._restart()


class HFLearner(Learner, HFTarget):
    """Target over a trainable float32 copy of a transformers model. Raises ValueError for quantised or
    offloaded weights."""

    def __init__(self, original: HFTarget):
        self.original, model = original, copy.copy(original.model)
        if any(
            not weight.is_floating_point() or weight.device.type == "meta"
            for weight in model.net.parameters()
        ):
            raise ValueError(
                f"{original.name} cannot be trained: its weights are quantised or on several devices"
            )
        with torch.inference_mode(False):
            model.net = copy.deepcopy(original.model.net).float().requires_grad_(True)
        model.dtype, model.blocks = torch.float32, decoder_layers(model.net, model.config)
        self.weights = list(model.net.parameters())
        super().__init__(model)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Return logits [n, vocab] of a text from its beginning, with gradients."""
        return self.model.run(list(tokens), use_cache=False)


class UncachedLearner(HFLearner, UncachedTarget):
    """Target over a trainable copy of a model whose state cannot be rewound; chains only."""


HFTarget.learner, UncachedTarget.learner = HFLearner, UncachedLearner


def _before(layer: int, rows: Rows, skip: int, hidden_states: dict[str, Tensor]):
    """Return a pre-forward hook that replaces states by entries and then captures them."""

    def hook(module, args, kwargs):
        x = args[0] if args else kwargs["hidden_states"]
        for entry, where in rows.entries(layer):
            made = entry.make(x[0, skip:])
            x = x.clone()
            x[0, [skip + i for i in where]] = made.to(x.dtype)
        hidden_states[f"layer:{layer}"] = x[0, skip:]
        return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

    return hook
