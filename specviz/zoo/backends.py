"""Choose the implementation of the forward pass for a checkpoint: this project's for the Llama family,
transformers' for everything else (table: models.yaml)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..checkpoints.errors import about_files, shown
from ..checkpoints.sizes import check_config
from ..checkpoints.weights import ModelError
from ..methods import head_kinds
from ..models.fallbacks import log_fallback
from .registry import Entry, ZooError
from .tokenizer import read_json

if TYPE_CHECKING:  # so that the register can be read without torch
    import torch

    from ..core import CapableTarget, Parts, State
    from ..targets.base import CachedTarget
    from ..trace.events import Event

    Loop = Callable[[Parts, CapableTarget, State], Generator[Event]]

log = logging.getLogger(__name__)

Config = dict[str, Any]


class LoadedModel(Protocol):
    """A model's loaded weights, shared by all runs. ``open`` makes a target over them for one run."""

    @property
    def vocab(self) -> int:
        """Vocabulary size: the width of the logits."""
        ...

    @property
    def context(self) -> int:
        """Maximum number of tokens in the KV cache."""
        ...

    @property
    def hidden(self) -> int:
        """Size of a hidden state."""
        ...

    @property
    def layers(self) -> int:
        """Number of layers."""
        ...

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights in matrix products."""
        ...

    def open(self) -> CachedTarget:
        """Return a target over these weights, with a KV cache of its own."""
        ...


@dataclass(frozen=True)
class Forward:
    """One implementation of the forward pass.

    load(folder, device): read a checkpoint folder and return a LoadedModel; refuses(config): why it cannot
    run a checkpoint with this config.json, or None; capabilities(config): capabilities of its targets,
    known without loading; times_layouts: whether it times several memory layouts of the weights on a CPU
    and keeps the fastest; device_type: the only type of device it runs on ("" for any; on another device
    the table of models.yaml is used instead); package: what it needs installed, else the table is used;
    loop(): the decoding loop of its targets, None for the
    ordinary one."""

    name: str
    load: Callable[[Path, Any], LoadedModel]
    refuses: Callable[[Config], str | None]
    capabilities: Callable[[Config], frozenset[str]]
    times_layouts: bool = False
    device_type: str = ""
    package: str = ""
    loop: Callable[[], Loop | None] = lambda: None


def _load_fast(folder: Path, device: Any) -> LoadedModel:
    """Load for captured CUDA graphs if they outlive a call: on CUDA, except on hosts that attach the GPU
    per call (ZeroGPU)."""
    from ..targets.fast import FastModel

    per_call = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "true")
    return FastModel(folder, device) if device.type != "cuda" or per_call else _load_static(folder, device)


def _load_static(folder: Path, device: Any) -> LoadedModel:
    from ..targets.static_shapes import StaticModel

    return StaticModel(folder, device)


def _fast_refuses(config: Config) -> str | None:
    from ..models.llama import unsupported_reason

    return unsupported_reason(config)


def _fast_provides(config: Config) -> frozenset[str]:
    from ..targets.fast import FastTarget

    return FastTarget.capabilities


def _load_int8(folder: Path, device: Any) -> LoadedModel:
    from ..targets.int8 import Int8Model

    return Int8Model(folder, device)


def _int8_refuses(config: Config) -> str | None:
    from ..targets.int8 import unsupported_reason

    return unsupported_reason(config)


def _load_tree_scan(folder: Path, device: Any) -> LoadedModel:
    from ..targets.recurrent import RecurrentModel

    return RecurrentModel(folder, device)


def _tree_scan_refuses(config: Config) -> str | None:
    from ..models.recurrent import unsupported_reason

    return unsupported_reason(config)


def _tree_scan_provides(config: Config) -> frozenset[str]:
    from ..models.recurrent import ARCHITECTURES
    from ..targets.recurrent import RecurrentTarget

    return RecurrentTarget.capabilities | {ARCHITECTURES[config["model_type"]].state_capability} - {""}


def _load_vision(folder: Path, device: Any) -> LoadedModel:
    from ..targets.vision import VisionModel

    return VisionModel(folder, device)


def _vision_refuses(config: Config) -> str | None:
    from ..targets.vision import unsupported_reason

    return unsupported_reason(config)


def _vision_provides(config: Config) -> frozenset[str]:
    from ..targets.vision import VisionTarget

    return VisionTarget.capabilities


def _load_scales(folder: Path, device: Any) -> LoadedModel:
    from ..targets.next_scale import load

    return load(folder, device)


def _scales_refuses(config: Config) -> str | None:
    from ..models.scales import unsupported_reason

    return unsupported_reason(config)


def _scales_provides(config: Config) -> frozenset[str]:
    from ..targets.next_scale import NextScaleTarget

    return NextScaleTarget.capabilities


def _paint_scales() -> Loop:
    from ..loops.next_scale import paint_scales

    return paint_scales


def _load_experts(folder: Path, device: Any) -> LoadedModel:
    from ..targets.experts import ExpertsModel

    return ExpertsModel(folder, device)


def _experts_refuses(config: Config) -> str | None:
    from ..models.blockffn import unsupported_reason

    return unsupported_reason(config)


def _experts_provides(config: Config) -> frozenset[str]:
    from ..targets.experts import ExpertsTarget

    return ExpertsTarget.capabilities


def _load_hf(folder: Path, device: Any, device_map: str | None = None, quantise: str = "") -> LoadedModel:
    from ..targets.hf import HFModel

    return HFModel(str(folder), device=device.type, device_map=device_map, quantise=quantise)


def _hf_refuses(config: Config) -> str | None:
    return "it is an encoder with a decoder" if config.get("is_encoder_decoder") else None


def _hf_provides(config: Config) -> frozenset[str]:
    """Return the expected capabilities by the kinds of layers; the network itself is probed when it is
    loaded."""
    recurrent = set(config.get("layer_types") or ()) - {"full_attention", "sliding_attention"}
    capabilities = frozenset({"rewind", "embed", "head", "tap:final", "tap:layer", "entry"})
    return capabilities if recurrent else capabilities | {"tree"}


FORWARDS = {
    found.name: found
    for found in (
        Forward("fast", _load_fast, _fast_refuses, _fast_provides, True),
        Forward("static", _load_static, _fast_refuses, _fast_provides, True),
        Forward("int8", _load_int8, _int8_refuses, _fast_provides, device_type="cpu", package="numba"),
        Forward("tree_scan", _load_tree_scan, _tree_scan_refuses, _tree_scan_provides),
        Forward("scales", _load_scales, _scales_refuses, _scales_provides, loop=_paint_scales),
        Forward("vision", _load_vision, _vision_refuses, _vision_provides, True),
        Forward("experts", _load_experts, _experts_refuses, _experts_provides, True),
        Forward("hf", _load_hf, _hf_refuses, _hf_provides),
    )
}


def _is_head(config: Config) -> bool:
    """Return whether config.json is a head's. A kind of head may have the name of a model type of
    transformers (falcon), and is then the model."""
    kind = config.get("model_type")
    if kind not in head_kinds():
        return bool(config.get("speculators_model_type"))
    from transformers import CONFIG_MAPPING  # takes seconds: only for these names

    return kind not in CONFIG_MAPPING


def chosen_for(entry: Entry, table: dict[str, tuple[str, ...]], folder: Path, device: Any = None) -> Forward:
    """Return the forward-pass implementation for an entry of models.yaml on a device (None: this machine's
    default). Raises ZooError.

    An entry with device_map or quantise uses transformers, the only implementation that supports them; the
    returned name then contains them."""
    options = {name: value for name in ("device_map", "quantise") if (value := getattr(entry, name))}
    asked = FORWARDS.get(entry.backend)
    elsewhere = asked and asked.device_type not in ("", "cpu" if device is None else device.type)
    if asked and asked.package and find_spec(asked.package) is None:
        log_fallback(asked.package, "the forward pass is the next one that models.yaml lists")
        elsewhere = True
    found = first_supporting_forward(table, folder, "hf" if options else "" if elsewhere else entry.backend)
    if not options:
        return found
    return replace(found, name=f"hf, {', '.join(options.values())}", load=partial(_load_hf, **options))


def first_supporting_forward(table: dict[str, tuple[str, ...]], folder: Path, required: str = "") -> Forward:
    """Return the first implementation in the table of models.yaml that lists the checkpoint's model_type
    and can run it. required: the name of the only implementation to consider; "" for any. Raises
    ZooError."""
    config = read_json(folder, "config.json")
    kind, why = config.get("model_type"), ""
    if not isinstance(kind, (str, type(None))):
        raise ZooError(f"config.json of {folder.name} names no model_type.", "config.model_type")
    if _is_head(config):
        raise ZooError(
            f"{folder.name} is a {shown(kind)} head, a part of a model: name the model it sits on, and the head in models.yaml.",
            "model.is_head",
        )
    for name, kinds in table.items():
        if name not in FORWARDS:
            raise ZooError(
                f"models.yaml names a forward {shown(name)!r}; there are {', '.join(FORWARDS)}.",
                "forward.unknown",
            )
        if required in ("", name) and ("*" in kinds or kind in kinds):
            try:
                check_config(config, folder.name)
                why = FORWARDS[name].refuses(config) or ""
            except ModelError as error:
                raise ZooError(
                    f"{folder.name} cannot be run: {about_files(folder, error).rstrip('.')}.", "forward.load"
                ) from None
            if not why:
                return FORWARDS[name]
            log.info("forward %s does not run %s: %s", name, folder.name, why)
    why = (
        about_files(folder, why).rstrip(".") if why else f"nothing here runs a model of type {shown(kind)!r}"
    )
    raise ZooError(f"{folder.name} cannot be run: {why}.", "forward.none")
