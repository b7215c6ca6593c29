"""Load any causal language model with transformers, from safetensors or GGUF and without remote code.

transformers is imported only when a model is loaded; a config.json can be checked without it.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..checkpoints.errors import about_files
from ..checkpoints.gguf_reader import gguf_in
from ..checkpoints.mx import QUANTISED
from ..checkpoints.sizes import SCALES, check_config, check_memory, check_weights, weight_devices
from ..checkpoints.weights import DERIVED, ModelError, Weights, read_json
from ..core.errors import code_of

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WINDOWED = {"full_attention", "sliding_attention"}  # kinds of layers whose keys and values a mask can window


def unsupported_reason(config: dict[str, Any]) -> str | None:
    """Return why transformers has no causal model for that config.json, as far as the file alone shows;
    None if it has one."""
    if config.get("is_encoder_decoder"):
        return "it is an encoder-decoder, not a causal language model"
    if not config.get("model_type"):
        return "its config.json names no model_type"
    return None


def capabilities(config: dict[str, Any]) -> frozenset[str]:
    """Return the capabilities (core.parts.Target) that a target with that config.json is expected to have.
    After loading, the target's own ``capabilities`` are authoritative."""
    kinds = set((config.get("text_config") or config).get("layer_types") or ())
    capabilities = {"rewind", "tap:final", "tap:layer", "entry", "embed", "head"}
    return frozenset(capabilities if kinds - WINDOWED else capabilities | {"tree"})


def cache_argument(net: torch.nn.Module) -> str | None:
    """Return the name of the KV cache argument of the network's forward; None if it has none. Since
    transformers 5.24 it is `cache`."""
    takes = inspect.signature(net.forward).parameters
    return next((word for word in ("cache", "past_key_values") if word in takes), None)


def with_cache(net: torch.nn.Module, cache: Any) -> dict[str, Any]:
    """Return the keyword argument that passes a KV cache to the network's forward."""
    word = cache_argument(net)
    assert word is not None  # every network that is trained after has one
    return {word: cache}


def open_config(source: str | Path, revision: str | None = None) -> Any:
    """Return the transformers configuration of a model, without the attention kernels that config.json
    names: transformers would download and run them."""
    import transformers

    stored = read_json(Path(source), "config.json") if Path(source).is_dir() else {}
    if stored.get("model_type") == "linear_llama":
        from . import trainable  # noqa: F401 - registers the architecture

    config = transformers.AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
    if stored.get("quantization_config") == QUANTISED:  # transformers gets these weights decoded
        config.__dict__.pop("quantization_config", None)
    config._attn_implementation = (
        None  # None: transformers' own choice for the class; the setters reach the inner configurations
    )
    config._experts_implementation = None
    for name in ("kernel_config", "use_kernels"):
        config.__dict__.pop(name, None)
    return config


def open_network(folder: str | Path, dtype: torch.dtype) -> Any:
    """Return the transformers network in a folder of this project (safetensors, or a GGUF file in parts),
    for training and reports. Mixers that are slow on a CPU are replaced by faster ones with the same
    weights."""
    if read_json(Path(folder), "config.json").get("model_type") in ("bamba", "linear_llama"):
        from .trainable import open_trained

        return open_trained(Path(folder), open_config(folder), dtype)
    return from_files(folder, open_config(folder), dtype=dtype)


def from_files(source: str | Path, config: Any, **options: Any) -> Any:
    """Return what from_pretrained returns for a folder or a name of the hub: from safetensors, MXINT8 or a
    folder's GGUF file."""
    import transformers

    state = _decoded_state(Path(source), options.get("dtype"))
    if state is None:
        return transformers.AutoModelForCausalLM.from_pretrained(
            source, config=config, trust_remote_code=False, **options
        )
    network: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return network.from_pretrained(None, config=config, state_dict=state, trust_remote_code=False, **options)


def _checked_config(name: str, source: str, revision: str | None, width: int, spread: bool):
    """Return the configuration of a causal model that fits here. Raises ModelError."""
    import transformers

    if Path(source).is_dir():
        try:
            _check_files(name, Path(source), width, spread)
        except ModelError as error:
            raise ModelError(f"{name} cannot be loaded: {error}", code_of(error, "checkpoint.load")) from None
    config = open_config(source, revision)
    if config.is_encoder_decoder or type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"{name} is not a causal language model ({config.model_type})", "checkpoint.not_causal"
        )
    _check_sizes(name, config, width, spread)
    return config


def load_causal(name: str, source: str, revision: str | None, **options):
    """Return a causal language model, loaded with transformers. options: of from_pretrained. Raises
    ModelError for any unusable checkpoint."""
    import transformers

    refuse_code_prompts()
    spread = bool(options.get("device_map"))
    width = 1 if options.get("quantization_config") else (options.get("dtype") or torch.float32).itemsize
    try:
        with _quiet(transformers.utils.logging):
            config = _checked_config(name, source, revision, width, spread)
            state = _decoded_state(Path(source), options.get("dtype"))
            known = (
                dict(output_loading_info=True, ignore_mismatched_sizes=True) | options
            )  # the report names sizes; an error would not
            if state is None:
                found: Any = transformers.AutoModelForCausalLM.from_pretrained(
                    source,
                    config=config,
                    revision=revision,
                    trust_remote_code=False,
                    use_safetensors=True,
                    **known,
                )
            else:
                network: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
                found = network.from_pretrained(
                    None, config=config, state_dict=state, trust_remote_code=False, **known
                )
            net, report = found
    except ModelError:
        raise
    except Exception as error:  # transformers, safetensors and the hub each raise their own
        words = about_files(Path(source), error)
        if isinstance(error, KeyError) and Path(source).is_dir():  # a name that transformers has no entry for
            key = next(
                (
                    key
                    for key, value in read_json(Path(source), "config.json").items()
                    if value == error.args[0]
                ),
                None,
            )
            words = f"transformers has no {key} {words[:80]}" if key else words
        raise ModelError(f"{name} cannot be loaded: {words}", "checkpoint.load") from None
    if report["missing_keys"]:
        raise ModelError(
            f"{name} lacks the weight {sorted(report['missing_keys'])[0]}", "checkpoint.lacks_weight"
        )
    if report["mismatched_keys"]:
        key, found, wanted = sorted(report["mismatched_keys"])[0]
        raise ModelError(
            f"{key} of {name} has shape {tuple(found)}; its config says {tuple(wanted)}", "checkpoint.shape"
        )
    if getattr(config, "quantization_config", None) and getattr(net, "hf_quantizer", None) is None:
        raise ModelError(
            f"{name} is quantised in a way that transformers does not know", "checkpoint.quantised"
        )
    unread = sorted(key for key in report["unexpected_keys"] if not DERIVED.search(key))
    if unread:
        what = "is quantised, and" if any(SCALES.search(key) for key in unread) else "holds weights, and"
        raise ModelError(
            f"{name} {what} transformers leaves out its {unread[0][:120]}", "checkpoint.unread_weight"
        )
    for key, weight in net.named_parameters():
        if weight.device.type != "meta" and weight.dtype in FLOATS and not bool(torch.isfinite(weight).all()):
            raise ModelError(f"{key} of {name} holds values that are not numbers", "checkpoint.not_numbers")
    return net.eval()


def _decoded_state(folder: Path, dtype: torch.dtype | None) -> dict[str, torch.Tensor] | None:
    """Return the weights of a folder that transformers does not read, decoded, under Hugging Face names:
    those of a GGUF file or in MXINT8. None for any other."""
    if not folder.is_dir():
        return None
    gguf = not any(folder.glob("*.safetensors*")) and gguf_in(folder) is not None
    if not gguf and read_json(folder, "config.json").get("quantization_config") != QUANTISED:
        return None
    weights = Weights(folder, torch.device("cpu"), dtype or torch.float32)
    return {name: weights.get(name, *head["shape"]) for name, head in weights.headers().items()}


def refuse_code_prompts() -> None:
    """Make transformers refuse at once, instead of asking on standard input, whether to run a folder's own
    code."""
    from transformers import dynamic_module_utils

    dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0


def _check_files(name: str, folder: Path, width: int, spread: bool) -> None:
    config = read_json(folder, "config.json")
    check_config(config, name)
    check_weights(
        config, Weights(folder, torch.device("cpu"), torch.float32), name, width, *weight_devices(spread)
    )


def _check_sizes(name: str, config: Any, width: int, spread: bool) -> None:
    """Build the network of config.json on the meta device and check that its memory is free."""
    import transformers

    with torch.device("meta"):
        net = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    need = sum(p.numel() for p in net.parameters()) * (
        1 if getattr(config, "quantization_config", None) else width
    )
    check_memory(
        name, need + sum(b.numel() * b.element_size() for b in net.buffers()), *weight_devices(spread)
    )


@contextmanager
def _quiet(logging):
    """Silence progress bars and load reports of transformers, which would end up in the page or in JSON."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def decoder_layers(net, config) -> list[torch.nn.Module]:
    """Return the decoder's layers in order; empty if the module tree does not show them."""
    for module in net.modules():
        if type(module) is torch.nn.ModuleList and len(module) == getattr(config, "num_hidden_layers", -1):
            return list(module)
    return []


def sliding_window_of(config) -> tuple[int | None, bool]:
    """Return (width of the sliding window, None if no layer has one; whether only some layers have it)."""
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    if kinds and "sliding_attention" not in kinds or not getattr(config, "use_sliding_window", True):
        window = None
    return window, bool(window) and kinds == WINDOWED
