"""Whether a painted picture shows what was asked for, by a nearest-neighbour classifier of our own (not FID).

`python -m specviz.training.recognise` prints a table: accuracy on fresh drawings and on pictures painted by plain decoding, speculative
Jacobi decoding, LANTERN and, with `--target specviz-scales`, CoDe; passes of the target and seconds for each picture. The classifier
compares outlines: the difference from the ground, cut to what is there and scaled to one size.
"""
from __future__ import annotations

import argparse
import random
from typing import Any

import numpy as np
from PIL import Image

from ..methods import catalogue
from ..run.request import GenerationRequest
from ..run.result import collect
from ..run.session import Session
from ..zoo import load
from . import drawings

SIZE, TEMPLATES = 16, 24
THINGS = (*drawings.SHAPES, *drawings.LETTERS.upper())
CASES = (("autoregressive", {}), ("speculative_jacobi", {"window": 16}),
         *(("lantern", {"window": 16, "delta": delta}) for delta in (0.1, 0.2, 0.4)),
         *(("collaborative_decoding", {"large_scales": scales}) for scales in range(5, -1, -1)))


def outline(picture: np.ndarray) -> np.ndarray:
    """Return the outline of what differs from the background, cut out and scaled, float [SIZE * SIZE] of unit length."""
    away = np.abs(picture.astype(np.float32) - np.median(picture[[0, 0, -1, -1], [0, -1, 0, -1]], axis=0)).sum(-1)
    away = np.minimum(away / max(1.0, float(np.quantile(away, 0.98))), 1)
    rows, columns = (np.flatnonzero((away > 0.4).sum(axis) > 1) for axis in (1, 0))
    if len(rows) and len(columns):
        away = away[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1]
    scaled = np.asarray(Image.fromarray((away * 255).astype(np.uint8)).resize((SIZE, SIZE), Image.Resampling.BOX), np.float32).ravel()
    return scaled / max(1.0, float(np.linalg.norm(scaled)))


class Classifier:
    """Recognises the thing in a picture: that of the training drawing with the most similar outline."""

    def __init__(self, seed: int = 0):
        rng = random.Random(f"{seed} templates")
        self.names = [thing for thing in THINGS for _ in range(TEMPLATES)]
        self.templates = np.stack([outline(drawings.paint(drawings.Wish(name, "red"), rng)) for name in self.names])

    def __call__(self, picture: np.ndarray) -> str:
        return self.names[int((self.templates @ outline(picture)).argmax())]


def sample_prompts(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Return (prompt, thing) pairs for random things in plain style."""
    rng = random.Random(seed)
    wishes = [drawings.Wish(rng.choice(THINGS), rng.choice(list(drawings.COLOURS))) for _ in range(count)]
    return [(f"a {wish.colour} {wish.thing if wish.thing in drawings.SHAPES else f'capital {wish.thing}'}", wish.thing) for wish in wishes]


def measure(loaded, key: str, knobs: dict, wanted: list[tuple[str, str]], classify: Classifier,
            **request: Any) -> tuple[float, float, float]:
    """Return the share of pictures that are recognised, and target passes and seconds for each, without the prompt's."""
    right, passes, seconds = 0, 0, 0.0
    for seed, (prompt, thing) in enumerate(wanted):
        result = collect(Session(loaded, key, knobs, request=GenerationRequest(seed=seed, max_tokens=4096, **request)).run(prompt, 4096))
        right += classify(loaded.codec.pixels(result.data)) == thing
        passes, seconds = passes + result.totals.rounds, seconds + sum(result.totals.phase_seconds.values())
    return right / len(wanted), passes / len(wanted), seconds / len(wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="specviz-pictures")
    parser.add_argument("--pictures", type=int, default=100, help="pictures of each method")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--guidance-scale", type=float, default=1.0)
    args = parser.parse_args()
    loaded, classify, wanted, rng = load(args.target, None, "cpu"), Classifier(), sample_prompts(args.pictures), random.Random(2)
    right = [classify(drawings.paint(drawings.Wish(thing, "blue"), rng)) == thing for _, thing in wanted]
    print(f"| painted by | recognised of {args.pictures} | target passes | ms a picture |\n|---|---|---|---|\n"
          f"| the program (fresh drawings) | {np.mean(right):.0%} | | |")
    for key, knobs in CASES:
        if loaded.unsupported_reason(catalogue()[key]) is None:
            share, passes, seconds = measure(loaded, key, knobs, wanted, classify, temperature=args.temperature,
                                              guidance_scale=args.guidance_scale)
            print(f"| `{key}`{''.join(f', {name} {value}' for name, value in knobs.items())} | {share:.0%} | {passes:.1f} | "
                  f"{1000 * seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
