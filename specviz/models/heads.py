"""The files of trained draft heads, and the facts about a target that a head needs.

A trained head is a small network that drafts from a target's hidden states: Medusa, Hydra, EAGLE, Kangaroo.
Its folder has a config.json and safetensors. Parameter names differ between publishers, so a reader looks
for known names instead of trusting a version field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints.pickles import PICKLES
from ..checkpoints.weights import ModelError, Weights, read_json
from ..core.errors import code_of
from .eagle_layers import Layer
from .linear import PlainLinear

STANDALONE_KINDS = (
    "pard",
)  # kinds that are models of their own, of any width; a vocabulary that was padded otherwise will do
PACKED_FROM = 2**16  # numbers of a matrix from which on it is worth packing
TARGET_COPIES = (
    r"embed_tokens\.weight",
    r".*rotary_emb\.inv_freq",
)  # the target has them; old Llama files store the second


@dataclass(frozen=True)
class TargetInfo:
    """The facts about a target that a trained head needs, to be built or loaded.

    hidden: hidden size; vocab: vocabulary size; layers: number of layers; config: the target's config.json,
    if it has one; keys: (number, width) of key/value heads, where the config does not give them; static:
    the target's forward pass has static shapes, which the head then uses, too; use_int8: the target
    multiplies in int8, so that the head may, too; folder: of the target's weights, for heads that modify
    the target itself.
    """

    name: str
    hidden: int
    vocab: int
    layers: int
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32
    config: dict[str, Any] = field(default_factory=dict)
    keys: tuple[int, int] | None = None  # heads and width of its keys, where the config does not say
    static: bool = False
    use_int8: bool = False
    folder: Path | None = None


class HeadWeights(Weights):
    """The tensors of a trained head's folder, read on demand; ``names`` and ``shape`` serve to recognise
    the published layout. Raises ModelError."""

    def __init__(self, folder: Path, target: TargetInfo):
        super().__init__(folder, target.device, target.dtype)
        self._read: set[str] = set()

    def get(self, name: str, *shape: int) -> Tensor:
        """Return a tensor, as Weights.get does, and record that it was read."""
        self._read.add(name)
        return super().get(name, *shape)

    def check_none_unread(self, *ignored: str) -> None:
        """Raise ModelError if the file has weights that were not read, because it is then another kind of
        head. ignored: patterns of names that may stay unread, such as copies of the target's weights."""
        left = [
            name
            for name in self.names
            if name not in self._read
            and not any(re.fullmatch(one, name) for one in (*ignored, *TARGET_COPIES))
        ]
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            raise ModelError(
                f"{self.title} has weights that no reader here knows ({', '.join(left[:3])}{more}): "
                "it is another kind of head",
                "head.unknown_weights",
            )

    def _index(self) -> dict[str, str]:
        """Return the file of each tensor, as for a model; a single file may have any name."""
        found = sorted(path.name for path in self._folder.glob("*.safetensors"))
        if (self._folder / "model.safetensors.index.json").exists() or len(found) > 1:
            return super()._index()
        if not found:
            pickled = sorted(path.name for kind in PICKLES for path in self._folder.glob(kind))
            raise ModelError(
                f"{self._folder.name} holds its weights in {pickled[0]}, a format that can run code and is not opened here: "
                "take its safetensors, or convert it to safetensors with `python -m specviz.checkpoints.pickles FOLDER`"
                if pickled
                else f"{self._folder.name} has no safetensors",
                "head.pickled",
            )
        return dict.fromkeys(self._file(found[0]).keys(), found[0])

    @property
    def title(self) -> str:
        """Name of the folder, for messages."""
        return self._folder.name

    @property
    def names(self) -> list[str]:
        """All tensor names, sorted."""
        return sorted(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it."""
        if name not in self._where:
            raise ModelError(f"{self._folder.name} lacks the weight {name}", "head.lacks_weight")
        if self._gguf is not None:
            return self._gguf.shape(name)
        try:
            return tuple(self._file(self._where[name]).get_slice(name).get_shape())
        except SafetensorError:
            raise ModelError(
                f"{self._where[name]} of {self._folder.name} lacks the weight {name} that its index names",
                "head.index",
            ) from None

    def get_target_wide(self, name: str, target: TargetInfo, *shape: int) -> Tensor:
        """Return a matrix, as ``get`` does, whose input width depends on the target's hidden size. Raises
        ModelError that names both widths if the head was made for another one."""
        wide = self.shape(name)[-1]
        if wide != shape[-1] and wide % target.hidden:
            raise ModelError(
                f"{self.title} does not fit {target.name}: it reads states of {wide} numbers, and {target.name} has "
                f"{target.hidden}",
                "head.states",
            )
        return self.get(name, *shape)

    def ids(self, name: str, vocab: int) -> Tensor:
        """Return a tensor of token ids, int64 [n]. Raises ModelError if one is not in the vocabulary."""
        self._read.add(name)
        ids = self._file(self._where[name]).get_tensor(name).long()
        if ids.dim() != 1 or not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= vocab:
            raise ModelError(
                f"{name} of {self.title} names tokens that are not in the vocabulary", "head.tokens"
            )
        return ids.to(self._device)

    def first(self, pattern: str) -> re.Match[str] | None:
        """Return the match of the first tensor name that matches the regular expression completely; None
        without one."""
        return next(filter(None, (re.fullmatch(pattern, name) for name in self.names)), None)

    def indices(self, pattern: str) -> list[int]:
        """Return the distinct integers that the first group of a regular expression matches at the start of
        tensor names, such as [0, 1, 2] for three heads."""
        return sorted(
            {int(found.group(1)) for found in (re.match(pattern, name) for name in self._where) if found}
        )


class SharedWeights(HeadWeights):
    """The tensors of a head's folder that stores only what differs from another head of the same target,
    which is in the folder ``base``."""

    def __init__(self, folder: Path, target: TargetInfo, base: Path):
        super().__init__(folder, target)
        self._base = HeadWeights(base, target)

    def __contains__(self, name: str) -> bool:
        return super().__contains__(name) or name in self._base

    def get(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of this folder, else of the base head."""
        return (super() if name in self._where else self._base).get(name, *shape)


def head_weights(folder: Path, target: TargetInfo) -> HeadWeights:
    """Return the tensors of a head's folder, together with those of the head that its config.json shares
    weights with. Raises ModelError."""
    base = base_of(folder, config_of(folder))
    return HeadWeights(folder, target) if base is None else SharedWeights(folder, target, base)


def base_of(folder: Path, config: dict[str, Any]) -> Path | None:
    """Return the folder of the head that this one shares weights with, None for none: ``base_head`` in
    config.json names its kind, and its folder is next to this one. Raises ModelError if it is missing."""
    base, own = config.get("base_head"), config.get("specviz")
    if base is None:
        return None
    kind = own.get("kind", "") if isinstance(own, dict) else ""
    if not isinstance(base, str) or not base.isidentifier() or not folder.name.endswith(kind):
        raise ModelError(
            f"config.json of {folder.name} names a head to share weights with that makes no sense",
            "head.base",
        )
    found = folder.with_name(folder.name.removesuffix(kind) + base)
    if not (found / "config.json").is_file():
        raise ModelError(
            f"{folder.name} holds only what differs from {found.name}, which is not there",
            "head.base_missing",
        )
    return found


def config_of(folder: Path) -> dict[str, Any]:
    """Return the config.json (or adapter_config.json) of a head; published ones may be nearly empty. Raises
    ModelError."""
    adapter = not (folder / "config.json").exists() and (folder / "adapter_config.json").exists()
    return read_json(folder, "adapter_config.json" if adapter else "config.json")


def key_shape(target: TargetInfo) -> tuple[int, int]:
    """Return (number of key/value heads, head_dim) of the target."""
    whole = target.config.get("text_config") or target.config
    heads = whole.get("num_attention_heads") or max(1, target.hidden // 64)
    return target.keys or (
        whole.get("num_key_value_heads") or heads,
        whole.get("head_dim") or target.hidden // heads,
    )


def calibration(config: dict[str, Any], name: str) -> tuple[list[list[float]], int]:
    """Return, from a head's config.json, (accuracy: for each head, the share of positions at which its k-th
    guess was right; number of nodes of the tree that it was measured for); ([], 0) if there is no
    calibration. Raises ModelError."""
    try:
        accuracy = [[float(share) for share in row] for row in config.get("accuracy") or []]
        nodes = int(config.get("nodes") or 0)
    except (TypeError, ValueError):
        raise ModelError(
            f"config.json of {name} holds a calibration that is not numbers", "head.calibration"
        ) from None
    if nodes < 0 or not all(0 <= share <= 1 for row in accuracy for share in row):
        raise ModelError(
            f"config.json of {name} holds a calibration that is not shares", "head.calibration_shares"
        )
    return accuracy, nodes


def unsupported_reason(folder: Path, name: str, hidden: int, vocab: int, kind: str = "") -> str | None:
    """Return why the head in a folder does not fit a target of this name, hidden size and vocabulary size;
    None if it fits. kind: of the head."""
    try:
        check_fit(folder, name, hidden, vocab, kind)
    except ModelError as error:
        return str(error)
    return None


def check_fit(folder: Path, name: str, hidden: int, vocab: int, kind: str = "") -> None:
    """Raise ModelError if the head in a folder does not fit a target of this name, hidden size and
    vocabulary size. kind: of the head.

    Reads the config and the headers of the weights only, so it is quick; other problems are found when the
    head is loaded.
    """
    config = config_of(folder)
    base_of(folder, config)
    weights = HeadWeights(folder, TargetInfo(name, hidden, vocab, 0))
    for shard in sorted(set(weights._where.values())):
        weights._file(shard)
    if kind == "eagle" and (third := eagle3_mark(weights.names, config)):
        raise ModelError(
            f"{folder.name} is an EAGLE-3 head ({third}), which reads other states of the target than EAGLE's: "
            "its kind is eagle3, not eagle",
            "head.eagle3",
        )
    if kind in STANDALONE_KINDS:
        return
    if config.get("hidden_size", hidden) != hidden:
        raise ModelError(
            f"{folder.name} does not fit {name}: it reads states of {config['hidden_size']} numbers, and {name} has "
            f"{hidden}",
            "head.states",
        )
    if config.get("vocab_size", vocab) != vocab:
        raise ModelError(
            f"{folder.name} does not fit {name}: it speaks {config['vocab_size']} tokens, and {name} has {vocab}",
            "head.vocabulary",
        )


def eagle3_mark(names: list[str], config: dict[str, Any]) -> str | None:
    """Return the tensor name or config key that identifies a head as EAGLE-3 (Li et al. 2503.01840), in any
    published layout; None for other heads."""
    found = [
        name
        for name in names
        if name in ("d2t", "t2d") or name.startswith("midlayer.") or name.endswith(".hidden_norm.weight")
    ]
    marks = [
        f"{key} {config[key]!r}"
        for key in ("draft_vocab_size", "speculators_model_type", "eagle_config")
        if key in config
    ]
    return (found or marks or [None])[0]


M = TypeVar("M", bound=nn.Module)


def fill(module: M, tensors: dict[str, Tensor], target: TargetInfo) -> M:
    """Load tensors into a module and return it ready for drafting (see ``ready``). Raises ModelError if
    names or shapes differ."""
    try:
        module.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise ModelError(" ".join(str(error).split()), code_of(error)) from None
    return ready(module, target)


def ready(module: M, target: TargetInfo) -> M:
    """Prepare a trained head for drafting with its target and return it: on the target's device, in its
    data type, without gradients, with static shapes or int8 where the target has them, and with large
    matrices packed."""
    for part in module.modules():
        if isinstance(part, Layer):
            part.static, part.use_int8 = target.static, target.use_int8
    module = module.to(target.device, target.dtype).eval().requires_grad_(False)
    if target.use_int8:
        for part in module.modules():
            if type(part) is nn.Linear and part.weight.numel() >= PACKED_FROM:
                part.forward = StreamedLinear(part)  # pyright: ignore[reportAttributeAccessIssue] (torch names the parameter input)
    return module


class StreamedLinear:
    """Replaces the ``forward`` of a head's large nn.Linear: x [rows, in] -> [rows, out], with the weights in
    int8 and inputs of 16 bits.

    With few rows the product is bound by memory bandwidth, so narrow weights are faster. They are packed at
    first use, and again after they change.
    """

    def __init__(self, linear: nn.Linear):
        self._linear = linear
        self._of: tuple[int, int] | None = None  # the weights that were packed: address and version
        self._run: PlainLinear | None = None

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = self._linear.weight, self._linear.bias
        now = weight.data_ptr(), 0 if weight.is_inference() else weight._version
        if torch.is_grad_enabled() or x.dim() > 2:
            return F.linear(x, weight, bias)
        if self._run is None or self._of != now:
            from .compiled_linear import CompiledInt8Linear  # imports numba

            self._of, self._run = now, CompiledInt8Linear(weight, int16_input=True)
        y = self._run(x if x.dim() == 2 else x[None])
        y = y if bias is None else y.add_(bias)
        return y if x.dim() == 2 else y[0]
