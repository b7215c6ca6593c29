"""Any causal language model of Hugging Face transformers as a target.

The model's own code runs; only the KV cache is ours: slots per layer, written in order, never windowed, so that rows can be gathered
and dropped. Visibility, a sliding window included, is passed as a 4-D mask, and positions are passed explicitly. Loading scores a small
tree and compares it with the model's plain forward pass. A model that fails (recurrent and hybrid networks, masks or positions of its
own) runs without a cache, on chains only.
"""
from __future__ import annotations

import copy
import inspect
import threading
from contextlib import ExitStack
from typing import Any, Sequence

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ..core import DraftTree
from ..models.cuda_attention import disable_cudnn_attention
from ..models.quantised import quantised
from ..models.pretrained import WINDOWED, blocks_of, cache_word, load_causal, window_of
from .base import CachedTarget
from .learning import Learner
from .rows import Rows, shape_of

STEP = 256  # slots are allocated in multiples of this
UNBOUNDED = 32768  # context of a model that states no limit


class Slots(CacheLayerMixin):
    """KV cache of one layer, [1, heads, slots, width]; the first ``length`` slots are in use."""

    is_sliding = False

    def __init__(self, **_):
        super().__init__()
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (x.new_empty(*x.shape[:2], 0, x.shape[3]) for x in (key_states, value_states))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_, **__) -> tuple[Tensor, Tensor]:
        """Append rows and return all rows in use."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        past, self.length = self.length, self.length + key_states.shape[2]
        if self.length > self.keys.shape[2]:
            self.keys, self.values = (_grown(x, past, self.length) for x in (self.keys, self.values))
        self.keys[:, :, past:self.length], self.values[:, :, past:self.length] = key_states, value_states
        return self.keys[:, :, :self.length], self.values[:, :, :self.length]

    def gather(self, past: int, rows: list[int]) -> None:
        index = torch.tensor(rows, device=self.device) + past
        for store in (self.keys, self.values):
            store[:, :, past:past + len(rows)] = store.index_select(2, index)

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        return -1


def _grown(store: Tensor, used: int, need: int) -> Tensor:
    bigger = store.new_empty(*store.shape[:2], -(-max(need, 2 * used) // STEP) * STEP, store.shape[3])
    bigger[:, :, :used] = store[:, :, :used]
    return bigger


class HFModel:
    """A model from a local folder or a hub id (with its revision), read from safetensors, no remote code.

    device "auto" takes CUDA when there is one, spread over several devices where one is too small; dtype defaults to float32
    on a CPU and bfloat16 elsewhere. device_map: as in accelerate; quantise: a key of models/quantised.py. ``open()`` returns
    targets that share the weights; ``note`` is the reason if it runs without a cache, else None. Raises ModelError with a sentence.
    """

    def __init__(self, source: str, revision: str | None = None, device: str = "auto", dtype: torch.dtype | None = None,
                 device_map: str | dict[str, str] | None = None, quantise: str = "", **options):
        source, cuda = str(source), device == "cuda" or device == "auto" and torch.cuda.is_available()
        self.name = source.rstrip("/").rsplit("/", 1)[-1]
        dtype = dtype or (torch.bfloat16 if cuda else torch.float32)
        self.net = load_causal(self.name, source, revision, dtype=dtype, device_map=device_map or ("auto" if cuda else None),
                               **quantised(self.name, quantise), **options)
        self.config, self.dtype = self.net.config.get_text_config(), dtype
        # inputs go to the device of the first weights; offloaded weights of accelerate are "meta"
        self.device = next((p.device for p in self.net.parameters() if p.device.type != "meta"), torch.device("cpu"))
        disable_cudnn_attention(self.device)
        self.vocab, self.hidden = self.net.get_output_embeddings().weight.shape[0], self.config.hidden_size
        self.context = getattr(self.config, "max_position_embeddings", None) or UNBOUNDED
        self.parameters = sum(p.numel() for p in self.net.parameters())
        self.blocks = blocks_of(self.net, self.config)
        self.layers = len(self.blocks)
        self.accepts, self.cache_word = set(inspect.signature(self.net.forward).parameters), cache_word(self.net)
        self.window, self.hybrid = window_of(self.config)
        self.lock = threading.RLock()  # hooks are registered on shared modules, so passes must not overlap
        self.note = self._why_no_cache()

    def open(self) -> HFTarget:
        return HFTarget(self) if self.note is None else UncachedTarget(self)

    def capabilities(self) -> frozenset[str]:
        """Return the capabilities that hooks and the two embedding tables allow; tests cover the listed families."""
        table = self.net.get_input_embeddings().weight
        same_width = self.net.get_output_embeddings().weight.shape[1] == table.shape[1] == self.hidden
        found = {"rewind"} | ({"tap:final", "embed"} if same_width else set())
        plain = not any(getattr(self.config, k, None) for k in ("final_logit_softcapping", "logit_scale", "logits_scaling"))
        return frozenset(found | ({"head"} if same_width and plain else set()) | ({"tap:layer", "entry"} if self.blocks else set()))

    def run(self, ids: list[int], **inputs) -> Tensor:
        """Return logits [rows, vocab] of token ids from the model's own forward pass."""
        inputs = {k: v for k, v in inputs.items() if k in self.accepts or k in ("attention_mask", "use_cache")}
        return self.net(input_ids=torch.tensor([ids], device=self.device), **inputs).logits[0]

    def _why_no_cache(self) -> str | None:
        """Score a small tree with the cache and path by path without it; return a sentence if that fails or differs."""
        kinds = set(getattr(self.config, "layer_types", None) or ())
        if self.cache_word is None or kinds - WINDOWED:
            return f"{self.name} keeps a state that cannot be rewound"
        a, b, c, *prompt = (int(x) for x in torch.linspace(self.vocab // 8, self.vocab - 1, 7))
        try:
            target = HFTarget(self)
            target.sync(prompt)
            got = target.score(DraftTree((a, b, c), (-1, -1, 0), (-1,) * 3)).logits.double()
            with torch.inference_mode():
                left, right = (self.run(prompt + path, use_cache=False).double() for path in ([a, c], [b]))
        except Exception as error:  # a network with an unexpected cache may raise anything
            return f"{self.name} does not take our cache ({type(error).__name__})"
        want = torch.stack([left[-3], left[-2], right[-1], left[-1]])
        slack = 1e-3 if self.dtype in (torch.float32, torch.float64) else 0.05
        if not float((got - want).abs().mean()) <= slack * float(want.std()) + 1e-6:
            return f"{self.name} makes its own masks or positions, so it cannot score a tree"
        return None


class HFTarget(CachedTarget):
    """KV cache of one run over shared weights."""

    def __init__(self, model: HFModel):
        self.model, self.name = model, model.name
        self.vocab, self.context, self.hidden, self.layers = model.vocab, model.context, model.hidden, model.layers
        self.capabilities = self._provides()
        self._cache = Cache(layer_class_to_replicate=Slots)
        super().__init__()

    def _provides(self) -> frozenset[str]:
        return self.model.capabilities() | {"tree"}

    def embed(self, ids: Sequence[int] | Tensor) -> Tensor:
        """Return rows of the embedding table, [n, hidden]."""
        with torch.inference_mode():
            return self.model.net.get_input_embeddings()(torch.as_tensor(ids, device=self.model.device))

    def head(self, states: Tensor) -> Tensor:
        """Return logits of states [n, hidden] after the final norm."""
        head = self.model.net.get_output_embeddings()
        with torch.inference_mode():
            return head(states.to(head.weight.device))

    def learning(self) -> HFTarget:
        """Return this model with a trainable copy of its weights."""
        return (UncachedLearner if isinstance(self, UncachedTarget) else HFLearner)(self)

    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        positions = (rows.shape.depth + rows.past).clamp(max=self.context - 1).to(self.model.device)
        inputs = {"position_ids": positions[None], "attention_mask": self._mask(rows), self.model.cache_word: self._cache,
                  "use_cache": True}
        self._crop(rows.past + rows.lo)
        return self._watched(rows, 0, rows.ids, inputs)

    def _watched(self, rows: Rows, skip: int, ids: list[int], inputs: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the forward pass with temporary hooks for captured states and entries. skip: leading rows that are not returned."""
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
            near = sees & (slot > slot[rows.past + rows.lo:, None] - self.model.window)
        if self.model.hybrid:
            return {"full_attention": self._added(sees), "sliding_attention": self._added(near)}
        return self._added(near)

    def _added(self, sees: Tensor) -> Tensor:
        added = torch.zeros(sees.shape, dtype=self.model.dtype).masked_fill_(~sees, torch.finfo(self.model.dtype).min)
        return added[None, None].to(self.model.device)

    def _gather(self, past: int, rows: list[int]) -> None:
        with torch.inference_mode():
            for layer in self._cache.layers:
                if layer.is_initialized:  # a layer may share the cache of another
                    layer.gather(past, rows)

    def _crop(self, length: int) -> None:
        for layer in self._cache.layers if hasattr(self, "_cache") else ():
            layer.length = min(layer.length, length)

    def close(self) -> None:
        super().close()
        self._cache = Cache(layer_class_to_replicate=Slots)


class UncachedTarget(HFTarget):
    """Target for a model whose state cannot be rewound: every pass runs the whole text. Chains only; slow but exact."""

    def _provides(self) -> frozenset[str]:
        return self.model.capabilities()

    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        if not rows.chain:
            raise ValueError(f"{self.name} scores chains only: {self.model.note}")
        before = self.cached_tokens + ([self.root, *rows.tree.tokens[:rows.lo - 1]] if rows.lo else [])
        return self._watched(rows, len(before), before + rows.ids, dict(use_cache=False))

    def _crop(self, length: int) -> None:
        """Do nothing, since there is no cache."""


class HFLearner(Learner, HFTarget):
    """Trainable copy of a model. Raises ValueError for quantised or offloaded weights."""

    def __init__(self, whole: HFTarget):
        self.whole, model = whole, copy.copy(whole.model)
        if any(not weight.is_floating_point() or weight.device.type == "meta" for weight in model.net.parameters()):
            raise ValueError(f"{whole.name} cannot be trained: its weights are quantised or on several devices")
        with torch.inference_mode(False):
            model.net = copy.deepcopy(whole.model.net).float().requires_grad_(True)
        model.dtype, model.blocks = torch.float32, blocks_of(model.net, model.config)
        self.weights = list(model.net.parameters())
        super().__init__(model)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        return self.model.run(list(tokens), use_cache=False)


class UncachedLearner(HFLearner, UncachedTarget):
    """Trainable copy of a model whose state cannot be rewound."""


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
