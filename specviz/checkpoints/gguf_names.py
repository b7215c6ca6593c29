"""Map the tensors of a GGUF file to the names and layouts of Hugging Face, per architecture.

llama.cpp renames tensors; for architectures such as ``llama`` it also reorders the rows of queries and keys (a
rotary pair becomes two adjacent rows), and for Gemma it stores norm weights with 1 added. Both are undone
here. A tensor that is not in the table is refused, because ignoring it would run another model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from .errors import ModelError
from .gguf_reader import GGUFFile

LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GEMMA2 = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
FUSED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
MIXER = {  # LFM2: layers of short convolutions and of attention, with other names than Llama's
    "attn_norm": "operator_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    "shortconv.conv": "conv.conv",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.out_proj": "conv.out_proj",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "feed_forward.w1",
    "ffn_up": "feed_forward.w3",
    "ffn_down": "feed_forward.w2",
}
CONVOLUTION = "shortconv.conv.weight"  # a filter for each channel, [channels, taps]
EXPERTS = {  # one tensor for all experts of a layer, the expert first
    "ffn_gate_exps": "gate_proj",
    "ffn_up_exps": "up_proj",
    "ffn_down_exps": "down_proj",
}
FACTORS = (
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
)  # read with the config, not as weights


@dataclass(frozen=True)
class Layout:
    """How an architecture stores its tensors in GGUF.

    layer: tensor names of a layer -> names in Hugging Face's layout; paired: the two rows of a rotary pair
    are adjacent; norms_plus_one: norm weights are stored with 1 added; biases: tensors that have one; top: names
    outside the layers; experts: the feed-forwards are stacks of experts.
    """

    layer: dict[str, str]
    paired: bool = False
    norms_plus_one: bool = False
    biases: tuple[str, ...] = ()
    top: dict[str, str] = field(default_factory=lambda: TOP)
    experts: bool = False


LAYOUTS = {
    "llama": Layout(LAYER, paired=True),
    "qwen2": Layout(LAYER, biases=("attn_q", "attn_k", "attn_v")),
    "qwen3": Layout(LAYER | HEAD_NORMS),
    "qwen3moe": Layout(
        {name: there for name, there in LAYER.items() if name not in ("ffn_gate", "ffn_up", "ffn_down")}
        | HEAD_NORMS
        | {"ffn_gate_inp": "mlp.gate"},
        experts=True,
    ),
    "lfm2": Layout(
        MIXER,
        top={"token_embd": TOP["token_embd"], "token_embd_norm": "model.embedding_norm", "output": "lm_head"},
    ),
    "smollm3": Layout(LAYER, paired=True),
    "granite": Layout(LAYER, paired=True),
    "olmo2": Layout(
        {name: there for name, there in LAYER.items() if not name.endswith("_norm")}
        | HEAD_NORMS
        | {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
    ),
    "gemma": Layout(LAYER, norms_plus_one=True),
    "gemma2": Layout(LAYER | GEMMA2, norms_plus_one=True),
    "gemma3": Layout(LAYER | GEMMA2 | HEAD_NORMS, norms_plus_one=True),
    "phi3": Layout(
        {
            name: there
            for name, there in LAYER.items()
            if name not in ("attn_q", "attn_k", "attn_v", "ffn_gate")
        }
        | FUSED
    ),
}


class GGUFTensors:
    """The tensors of a GGUF file by their Hugging Face names: ``names`` holds for each the name in the file, and
    the number of the expert where it is one of a stack. Raises ModelError for an unknown architecture or an
    unknown tensor."""

    def __init__(self, file: GGUFFile):
        self.file, self.architecture = file, architecture(file)
        self._layout = LAYOUTS[self.architecture]
        layers = positive_integer(file, f"{self.architecture}.block_count")
        self.names: dict[str, tuple[str, int | None]] = {}
        for name in file.tensors:
            if name not in FACTORS:
                self.names |= self._names(name, layers)

    def _names(self, name: str, layers: int) -> dict[str, tuple[str, int | None]]:
        """Return the Hugging Face names of a tensor: one, or one for each expert."""
        part = name.removesuffix(".weight").rpartition(".")[2]
        if not (self._layout.experts and part in EXPERTS and name.endswith(".weight")):
            return {self._name(name, layers): (name, None)}
        at = self._name(name.replace(part, "ffn_norm"), layers).replace("post_attention_layernorm.weight", "")
        count = positive_integer(self.file, f"{self.architecture}.expert_count")
        shape = self.file.tensors[name].shape
        if len(shape) != 3 or shape[0] != count:
            raise ModelError(
                f"{name} of {self.file.name} has shape {shape}; {count} experts share it out", "gguf.experts"
            )
        return {f"{at}mlp.experts.{i}.{EXPERTS[part]}.weight": (name, i) for i in range(count)}

    def _name(self, name: str, layers: int) -> str:
        stem, _, ending = name.rpartition(".")
        where, _, rest = stem.partition(".")
        number, _, part = rest.partition(".")
        known = ending == "weight" or ending == "bias" and part in self._layout.biases
        if stem in self._layout.top and ending == "weight":
            return f"{self._layout.top[stem]}.weight"
        if not (
            known
            and where == "blk"
            and number.isdecimal()
            and int(number) < layers
            and part in self._layout.layer
        ):
            raise ModelError(
                f"{self.file.name} holds {name!r}, which a model of the architecture {self.architecture} does not have here",
                "gguf.tensor",
            )
        return f"model.layers.{int(number)}.{self._layout.layer[part]}.{ending}"

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it."""
        there, expert = self.names[name]
        shape = self.file.tensors[there].shape
        if there.endswith(CONVOLUTION) and len(shape) == 2:
            return shape[0], 1, shape[1]
        return shape if expert is None else shape[1:]

    def get(self, name: str) -> Tensor:
        """Return a tensor in Hugging Face's layout, float32."""
        there, expert = self.names[name]
        tensor = self.file.tensor(there, expert)
        if there.endswith(CONVOLUTION):
            return tensor.view(self.shape(name))
        if self._layout.norms_plus_one and there.endswith("norm.weight"):
            return tensor - 1
        if self._layout.paired and (".attn_q." in there or ".attn_k." in there):
            heads = positive_integer(self.file, f"{self.architecture}.attention.head_count")
            if ".attn_k." in there:
                heads = positive_integer(self.file, f"{self.architecture}.attention.head_count_kv", heads)
            if len(tensor) % (2 * heads):
                raise ModelError(
                    f"{there} of {self.file.name} has {len(tensor)} rows, which {heads} heads cannot share",
                    "gguf.rows",
                )
            return unpair_rotary_rows(tensor, heads)
        return tensor


def unpair_rotary_rows(tensor: Tensor, heads: int) -> Tensor:
    """Reorder the rows [heads * size, ...] of each head from llama.cpp's order to Hugging Face's: rows 2i
    and 2i + 1, which rotate as a pair, become rows i and i + size / 2."""
    return tensor.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(tensor.shape)


def architecture(file: GGUFFile) -> str:
    """Return the architecture of a file, one of LAYOUTS. Raises ModelError."""
    found = file.metadata.get("general.architecture")
    if found not in LAYOUTS:
        raise ModelError(
            f"{file.name} holds a model of the architecture {str(found)[:40]!r}; {', '.join(LAYOUTS)} are read",
            "gguf.architecture",
        )
    return found


def positive_integer(file: GGUFFile, key: str, default: int | None = None) -> int:
    """Return a positive integer of the file's metadata. Raises ModelError."""
    found = file.metadata.get(key, default)
    if type(found) is not int or not 0 < found < 2**31:
        raise ModelError(
            f"{file.name} says {key} is {str(found)[:40]}, where a whole number above 0 must stand",
            "gguf.value",
        )
    return found
