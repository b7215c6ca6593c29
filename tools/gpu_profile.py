"""Measure the forward pass on a device with the sizes of real models: the table of docs/gpu.md.

    python -m tools.gpu_profile --device cuda --shapes 1B,8B

Weights are random: that does not matter for the duration of a pass, but acceptance has to be measured with
real weights. Five measurements: plain decoding against the bound by memory bandwidth; a pass over k tokens
against a pass over one; captured CUDA graphs against eager passes; the share of a round that is spent
outside forward passes; transformers' generate and assisted generation with the same weights."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from specviz.core import DraftTree, Sampling, State, open_run, play
from specviz.methods import catalogue
from specviz.models.llama import Llama
from specviz.targets.fast import FastModel
from specviz.targets.static_shapes import StaticModel
from specviz.trace.file_writer import write_file
from specviz.zoo.device import environment, read_device

SHAPES = {  # config.json of a Llama: hidden, layers, heads, kv heads, inner, vocabulary
    "tiny": (64, 2, 4, 2, 128, 256),
    "1B": (2048, 16, 32, 8, 8192, 128256),
    "8B": (4096, 32, 32, 8, 14336, 128256),
}
ROWS = (1, 2, 4, 8, 16, 32, 64)
CONTEXT = 512  # tokens before those timed
STREAM = 2**28  # bytes copied to see what the memory gives
KEY = "speculative"


def measure(
    shape: str, device: torch.device, repeats: int = 20, tokens: int = 64, context: int = CONTEXT
) -> Iterator[dict[str, Any]]:
    """Yield rows {what, ...} as they are measured. shape: a key of SHAPES. Raises ModelError if the weights
    do not fit into memory."""
    with tempfile.TemporaryDirectory(prefix="specviz-gpu-") as folder:
        place = write_checkpoint(Path(folder) / shape, SHAPES[shape], 2 * context + 8 * tokens, device)
        eager, static = FastModel(place, device), StaticModel(place, device)
        static.blocks, static.head, static.embedding = (
            eager.blocks,
            eager.head,
            eager.embedding,
        )  # the weights once
        yield {
            "what": "environment",
            **environment(device, eager.dtype),
            "shape": shape,
            "parameters": eager.parameters,
        }
        yield from pass_times(eager, static, context, repeats)
        yield from roofline(eager, static, context, tokens, bandwidth(device))
        yield from time_outside_passes(static, context, tokens)
        yield from transformers_on(place, eager, context, tokens, device)


def write_checkpoint(folder: Path, sizes: tuple[int, ...], positions: int, device: torch.device) -> Path:
    """Write a checkpoint folder of random 16-bit weights; return it. sizes: as in SHAPES."""
    from safetensors.torch import save_file

    d, layers, heads, kv, inner, vocab = sizes
    width, source = d // heads, torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=source, device=device) * 0.02).bfloat16().cpu()

    weights = {
        "model.embed_tokens.weight": normal(vocab, d),
        "lm_head.weight": normal(vocab, d),
        "model.norm.weight": torch.ones(d),
    }
    for i in range(layers):
        at = f"model.layers.{i}."
        weights |= {
            f"{at}{name}.weight": torch.ones(d) for name in ("input_layernorm", "post_attention_layernorm")
        }
        weights |= {
            f"{at}self_attn.{name}_proj.weight": normal(rows * width, d)
            for name, rows in (("q", heads), ("k", kv), ("v", kv))
        }
        weights |= {
            f"{at}self_attn.o_proj.weight": normal(d, heads * width),
            f"{at}mlp.gate_proj.weight": normal(inner, d),
            f"{at}mlp.up_proj.weight": normal(inner, d),
            f"{at}mlp.down_proj.weight": normal(d, inner),
        }
    folder.mkdir()
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": d,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "max_position_embeddings": positions,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def pass_times(eager: FastModel, static: StaticModel, context: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the seconds of a forward pass over k tokens, alternately eager and with static shapes, and
    their ratio to a pass over one token."""
    first: dict[str, float] = {}
    for rows in ROWS:
        seconds = {}
        for name, model in (("eager", eager), (static.forward, static)):
            target = model.open()
            target.sync(random_tokens(model, context))
            tree = DraftTree.chain(random_tokens(model, rows)[1:])
            seconds[name] = median(lambda target=target, tree=tree: target.score(tree), repeats, model.device)
            target.close()
        first = first or dict(seconds)
        yield {
            "what": "pass",
            "rows": rows,
            **{f"{name}_ms": 1e3 * s for name, s in seconds.items()},
            **{f"{name}_to_one": s / first[name] for name, s in seconds.items()},
        }


def roofline(
    eager: FastModel, static: StaticModel, context: int, tokens: int, bytes_a_second: float
) -> Iterator[dict[str, Any]]:
    """Yield plain decoding's tokens per second, and their share of the memory-bandwidth bound (each weight
    read once per token)."""
    read = eager.parameters - eager.embedding.numel() + static.hidden  # of the embedding one row
    allowed = bytes_a_second / (read * eager.dtype.itemsize)
    for name, model in (("eager", eager), (static.forward, static)):
        _, seconds, _ = greedy_run(model, "autoregressive", context, tokens)
        yield {
            "what": "plain",
            "forward": name,
            "tokens_per_second": tokens / seconds,
            "roofline": allowed,
            "share": tokens / seconds / allowed,
            "bandwidth_gb": bytes_a_second / 1e9,
        }


def time_outside_passes(model: StaticModel, context: int, tokens: int) -> Iterator[dict[str, Any]]:
    """Yield the share of a run's time that is spent outside forward passes. The model drafts for itself, so
    every draft is accepted."""
    for key in ("autoregressive", KEY):
        _, seconds, inside = greedy_run(model, key, context, tokens)
        yield {"what": "round", "method": key, "seconds": seconds, "outside": 1 - inside / seconds}


def transformers_on(
    place: Path, model: FastModel, context: int, tokens: int, device: torch.device
) -> Iterator[dict[str, Any]]:
    """Yield the speed of transformers' generate and assisted generation on the same weights. The assistant
    is the model itself, as in ``time_outside_passes``."""
    from specviz.models.pretrained import load_causal

    net = load_causal(place.name, str(place), None, dtype=model.dtype).to(device)
    ids = torch.tensor([random_tokens(model, context)], device=device)
    ours = tokens / greedy_run(model, "autoregressive", context, tokens)[1]
    for name, options in (("generate", {}), ("assisted", {"assistant_model": net})):

        def run(count: int, options=options) -> None:
            with torch.inference_mode():
                net.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=count,
                    min_new_tokens=count,
                    do_sample=False,
                    pad_token_id=0,
                    **options,
                )

        run(2)
        seconds = timed(lambda run=run: run(tokens), device) - timed(
            lambda run=run: run(1), device
        )  # without the prompt
        yield {
            "what": "transformers",
            "way": name,
            "tokens_per_second": (tokens - 1) / max(seconds, 1e-9),
            "ours_eager_plain": ours,
        }


def greedy_run(model: Any, key: str, context: int, tokens: int) -> tuple[list[int], float, float]:
    """Run a method greedily, after one warm-up run. Return (tokens, seconds after the prefill, part of
    these seconds inside forward passes)."""
    for length in (4, tokens):
        kit = _Kit(model)
        method = catalogue()[key]
        parts, state = (
            method.build(kit, **method.read_knobs({})),
            State(random_tokens(model, context), Sampling(0.0), limit=length),
        )
        open_run(parts, kit.target, state)
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        before, began = sum(one.busy for one in kit.opened), time.perf_counter()
        while not state.done:
            play(parts, kit.target, state)
        seconds = time.perf_counter() - began
        inside = sum(one.busy for one in kit.opened) - before
        for one in kit.opened:
            one.close()
    return state.tokens[context:], seconds, inside


class _Kit:
    """Kit of a target that is its own draft model."""

    def __init__(self, model: Any):
        self._model = model
        self.vocab = model.vocab
        self.target = model.open()
        self.opened = [self.target]

    def open(self, role: str) -> Any:
        self.opened.append(self._model.open())
        return self.opened[-1]


def bandwidth(device: torch.device) -> float:
    """Return the measured memory bandwidth in bytes per second: a large copy, read plus write."""
    source = torch.zeros(STREAM if device.type == "cuda" else STREAM // 8, dtype=torch.uint8, device=device)
    into = torch.empty_like(source)
    return 2 * source.numel() / median(lambda: into.copy_(source), 10, device)


def median(work: Callable[[], Any], repeats: int, device: torch.device | None = None) -> float:
    """Return the median seconds of ``repeats`` calls, after two warm-up calls. device: synchronised after
    each call."""
    work(), work()
    return statistics.median(timed(work, device) for _ in range(repeats))


def timed(work: Callable[[], Any], device: torch.device | None = None) -> float:
    """Return the seconds of one call. device: synchronised at its end."""
    began = time.perf_counter()
    work()
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def random_tokens(model: Llama, count: int) -> list[int]:
    """Return random token ids without immediate repetition."""
    return [(7919 * i + 13) % model.vocab for i in range(count)]


def main(argv: list[str] | None = None) -> int:
    """Run the measurements as the command line asks; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_profile", description="What a forward costs on a device."
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--shapes", default="1B,8B", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal: tiny shapes, few repeats")
    parser.add_argument("--out", help="also write the rows here as .jsonl, each as it is measured")
    args = parser.parse_args(argv)
    how = {"repeats": 2, "tokens": 8, "context": 16} if args.tiny else {}
    lines: list[str] = []
    for shape in ["tiny"] if args.tiny else args.shapes.split(","):
        for row in measure(shape, read_device(args.device), **how):
            lines.append(json.dumps({"shape": shape, **row}))
            print(lines[-1], flush=True)
            if args.out:
                write_file(args.out, "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
