"""Any causal language model of Hugging Face transformers as a target.

The model's own code runs; only the KV cache is replaced, by one with slots per layer, written in order and
never windowed, so that rows can be gathered and dropped. Visibility, including a sliding window, is passed
as a 4-D mask, and positions are passed explicitly. When a model is loaded, a small tree is scored and
compared with the model's plain forward pass. A model that fails this test (recurrent and hybrid networks,
masks or positions of its own) scores chains only: with copies of its own cache if that reproduces the plain
forward pass, else without a cache. The comparisons are repeated beyond the smallest widths of the config at
which attention changes (models/attention_borders.py).
"""

from __future__ import annotations

import inspect
import threading

import torch
from torch import Tensor

from ..checkpoints.config_defaults import context_of
from ..checkpoints.quantised import quantised
from ..checkpoints.weights import ModelError
from ..core import DraftTree, Verdict
from ..models.attention_borders import BEYOND, borders
from ..models.cuda_attention import disable_cudnn_attention
from ..models.pretrained import WINDOWED, cache_argument, decoder_layers, load_causal, sliding_window_of
from ..models.rotary_limits import fixed_rotary_length
from .hf_targets import CheckpointedTarget, HFTarget, UncachedTarget

UNBOUNDED = 32768  # context of a model that states no limit


class HFModel:
    """A transformers model from a local folder or a hub id (with its revision), read from safetensors,
    without remote code.

    device "auto": CUDA if available, spread over several devices if one is too small; dtype: float32 on a
    CPU and bfloat16 elsewhere by default; device_map: as in accelerate; quantise: a key of
    checkpoints/quantised.py. ``open()`` returns targets that share the weights; ``note``: the reason why it
    scores chains only, None if it scores trees. Raises ModelError.
    """

    def __init__(
        self,
        source: str,
        revision: str | None = None,
        device: str = "auto",
        dtype: torch.dtype | None = None,
        device_map: str | dict[str, str] | None = None,
        quantise: str = "",
        **options,
    ):
        source, cuda = str(source), device == "cuda" or device == "auto" and torch.cuda.is_available()
        self.name = source.rstrip("/").rsplit("/", 1)[-1]
        dtype = dtype or (torch.bfloat16 if cuda else torch.float32)
        self.net = load_causal(
            self.name,
            source,
            revision,
            dtype=dtype,
            device_map=device_map or ("auto" if cuda else None),
            **quantised(self.name, quantise),
            **options,
        )
        self.config, self.dtype = self.net.config.get_text_config(), dtype
        # inputs go to the device of the first weights; offloaded weights of accelerate are "meta"
        self.device = next(
            (p.device for p in self.net.parameters() if p.device.type != "meta"), torch.device("cpu")
        )
        disable_cudnn_attention(self.device)
        self.vocab, self.hidden = self.net.get_output_embeddings().weight.shape[0], self.config.hidden_size
        limits = {
            "max_position_embeddings": getattr(self.config, "max_position_embeddings", None)
        }  # a class may map another key to it
        self.context = context_of(self.config.to_dict() | limits) or UNBOUNDED
        fixed = fixed_rotary_length(self.config.to_dict())
        self.context = min(
            self.context, fixed or self.context
        )  # beyond it a row would depend on the rows after it
        self.parameters = sum(p.numel() for p in self.net.parameters())
        self.blocks = decoder_layers(self.net, self.config)
        self.layers = len(self.blocks)
        self.accepts, self.cache_argument = (
            set(inspect.signature(self.net.forward).parameters),
            cache_argument(self.net),
        )
        self.window, self.hybrid = sliding_window_of(self.config)
        self.borders = borders(self.net.config.to_dict() | self.config.to_dict(), self.context)
        self.lock = threading.RLock()  # hooks are registered on shared modules, so passes must not overlap
        if self._depends_on_pass_length() or any(map(self._depends_on_pass_length_beyond, self.borders)):
            raise ModelError(
                f"{self.name} computes a token differently in a longer forward pass, so drafts cannot be verified",
                "forward.pass_length",
            )
        self.note, self._kind = self._why_no_cache(), HFTarget
        if self.note is not None:
            self._kind = CheckpointedTarget if self._can_be_checkpointed() else UncachedTarget

    def open(self) -> HFTarget:
        """Return a target with a KV cache of its own over these weights."""
        return self._kind(self)

    def capabilities(self) -> frozenset[str]:
        """Return the capabilities (core.parts.Target) that follow from the module tree: "embed", "head",
        "tap:...", "entry", "rewind"."""
        table = self.net.get_input_embeddings().weight
        same_width = self.net.get_output_embeddings().weight.shape[1] == table.shape[1] == self.hidden
        found = {"rewind"} | ({"tap:final", "embed"} if same_width else set())
        plain = not any(
            getattr(self.config, k, None)
            for k in ("final_logit_softcapping", "logit_scale", "logits_scaling")
        )
        return frozenset(
            found
            | ({"head"} if same_width and plain else set())
            | ({"tap:layer", "entry"} if self.blocks else set())
        )

    def run(self, ids: list[int], **inputs) -> Tensor:
        """Return logits [rows, vocab] of token ids from the model's own forward. inputs: further keyword
        arguments; those that it does not accept are left out."""
        inputs = {
            k: v for k, v in inputs.items() if k in self.accepts or k in ("attention_mask", "use_cache")
        }
        return self.net(input_ids=torch.tensor([ids], device=self.device), **inputs).logits[0]

    def _depends_on_pass_length(self) -> bool:
        """Run two tokens alone and before one at the last position of the context; return whether their
        logits differ."""
        if "position_ids" not in self.accepts:
            return False
        ids = [int(x) for x in torch.linspace(self.vocab // 8, self.vocab - 1, 3)]
        try:
            with torch.inference_mode():
                alone, longer = (
                    self.run(
                        ids[:n],
                        position_ids=torch.tensor([[0, 1, self.context - 1][:n]], device=self.device),
                        use_cache=False,
                    )[:2].double()
                    for n in (2, 3)
                )
        except Exception:  # a network may refuse positions that do not follow each other
            return False
        return not self._close(longer, alone)

    def _depends_on_pass_length_beyond(self, border: int) -> bool:
        """Run texts that end beyond a border alone and as part of a longer one; return whether the logits
        of their last rows differ."""
        text = self._text(min(2 * border + 32, self.context))
        try:
            with torch.inference_mode():
                longer = self.run(text, use_cache=False).double()
                for n in sorted({border + BEYOND // 2, (border + len(text)) // 2}):
                    if not self._close(longer[n - 4 : n], self.run(text[:n], use_cache=False)[-4:].double()):
                        return True
        except Exception:  # a network may refuse a text of this length
            pass
        return False

    def _text(self, length: int) -> list[int]:
        return torch.randint(
            self.vocab // 8, self.vocab, (length,), generator=torch.Generator().manual_seed(0)
        ).tolist()

    def _close(self, got: Tensor, want: Tensor) -> bool:
        slack = 1e-3 if self.dtype in (torch.float32, torch.float64) else 0.05
        return (
            got.shape == want.shape and float((got - want).abs().mean()) <= slack * float(want.std()) + 1e-6
        )

    def _why_no_cache(self) -> str | None:
        """Score a small tree with the cache and path by path without it; return a sentence if that fails or
        differs."""
        kinds = set(getattr(self.config, "layer_types", None) or ())
        if self.cache_argument is None or kinds - WINDOWED:
            return f"{self.name} keeps a state that cannot be rewound"
        text = [int(x) for x in torch.linspace(self.vocab // 8, self.vocab - 1, 7)]
        texts = [(text[3:], text[:2], text[2])]
        texts += [
            (found[9:], found[:8], found[8])
            for found in (self._text(border + BEYOND) for border in self.borders)
        ]
        return next(filter(None, (self._why_no_tree(*parts) for parts in texts)), None)

    def _why_no_tree(self, prompt: list[int], drafts: list[int], last: int) -> str | None:
        """Score drafts side by side behind a prompt, and ``last`` after the first of them; compare with two
        paths without a cache."""
        first, wide = drafts[0], len(drafts)
        try:
            target = HFTarget(self)
            target.sync(prompt)
            got = (
                target.score(DraftTree((*drafts, last), (-1,) * wide + (0,), (-1,) * (wide + 1)))
                .logits[[0, 1, -2, -1]]
                .double()
            )
            with torch.inference_mode():
                left, right = (
                    self.run(prompt + path, use_cache=False).double() for path in ([first, last], drafts[-1:])
                )
        except Exception as error:  # a network with an unexpected cache may raise anything
            return f"{self.name} does not take our cache ({type(error).__name__})"
        if not self._close(got, torch.stack([left[-3], left[-2], right[-1], left[-1]])):
            return f"{self.name} makes its own masks or positions, so it cannot score a tree"
        return None

    def _can_be_checkpointed(self) -> bool:
        """Verify three chains over copies of the model's own cache, the first kept in part and the second
        as a whole, and compare with passes over the whole text."""
        if self.cache_argument is None:
            return False
        text = [int(x) for x in torch.linspace(self.vocab // 8, self.vocab - 1, 14)]
        return self._reproduces(text, 5) and all(
            self._reproduces(self._text(border + BEYOND), border - 1) for border in self.borders
        )

    def _reproduces(self, text: list[int], known: int) -> bool:
        """Return whether three chains after the first ``known`` tokens of a text have the logits of one
        pass over it."""
        try:
            target, found = CheckpointedTarget(self), []
            target.sync(text[:known])
            for first, drafted, accepted in ((0, 3, 1), (2, 2, 2), (5, 3, 0)):
                found.append(
                    target.score(
                        DraftTree.chain(tuple(text[known + first : known + first + drafted]))
                    ).logits[: accepted + 1]
                )
                target.commit(Verdict(tuple(range(accepted)), text[known + first + accepted], "bonus"))
            with torch.inference_mode():
                want = self.run(text[: known + 5], use_cache=False)[known - 1 :].double()
        except Exception:  # a network with an unexpected cache may raise anything
            return False
        return self._close(torch.cat(found).double(), want)
