"""What share of a round is tree building and judging, on the embedded pair: ``python -m
tests.drafters.vocabulary.shares [method ...]``.

Seconds of this process on one thread, so that other work on the machine does not count. Not a test: figures
for the log.
"""

from __future__ import annotations

import sys
import time

import torch

from specviz import load
from specviz.core import Clock, Sampling, State, open_run, play
from specviz.evidence.certificate import encode
from specviz.methods import catalogue
from specviz.targets import base

KNOBS = {
    "draft_tree": dict(nodes=64, width=4, depth=6),
    "confidence_tree": dict(nodes=64, beam=10, depth=6),
    "opt_tree": dict(nodes=64, depth=6),
    "dyspec": dict(nodes=64, width=8, depth=10),
    "sequoia": dict(nodes=64, depth=8, width=8),
    "specinfer": dict(width=8, split=1, depth=8),
    "traversal": dict(nodes=64, width=4, depth=6),
    "spectr": dict(drafts=8, gamma=8),
    "spechub": dict(nodes=64, depth=10),
    "greedy_multidraft": dict(nodes=64, width=4, depth=6),
    "rsd_s": dict(width=10, depth=6),
}
PROMPTS = ("Write a short story about a cat and the sea.", "Tell me a joke about a dog and a bone.")
WARM, TOKENS = 3, 100


def shares(loaded, key: str, sampling: Sampling) -> dict[str, float]:
    method = catalogue()[key]
    seconds = {}
    drafting = 0.0
    nodes = 0
    rounds = 0
    knobs = KNOBS[key] | ({"children": "sampled"} if key == "draft_tree" and not sampling.greedy else {})
    for prompt in PROMPTS:
        kit = loaded.kit()
        parts = method.build(kit, **method.read_knobs(knobs))
        state = State(encode(loaded, prompt), sampling, limit=TOKENS, clock=Clock(time.process_time))
        open_run(parts, kit.target, state)
        for _ in range(WARM):
            play(parts, kit.target, state)
        before = kit.opened[1].busy
        while not state.done:
            outcome = play(parts, kit.target, state)
            for part, took in outcome.seconds.items():
                seconds[part] = seconds.get(part, 0.0) + took
            nodes, rounds = nodes + len(outcome.tree), rounds + 1
        drafting += kit.opened[1].busy - before
        kit.close()
    whole = sum(seconds.values())
    return {
        "nodes": nodes / rounds,
        "ms": 1e3 * whole / rounds,
        "draft forwards": drafting / whole,
        "target forward": seconds["verify"] / whole,
        "build": (seconds["draft"] - drafting) / whole,
        "judge": seconds["judge"] / whole,
        "build + judge": (seconds["draft"] - drafting + seconds["judge"]) / whole,
    }


def main(keys: list[str]) -> None:
    torch.set_num_threads(1)
    base.time.perf_counter = time.process_time  # ``busy`` counts this process alone, too
    loaded = load(device="cpu")
    with torch.inference_mode():
        for key in keys or KNOBS:
            for temperature in (0.0, 1.0):
                found = shares(loaded, key, Sampling(temperature, seed=1))
                reported = "  ".join(
                    f"{name} {value:.1%}" for name, value in found.items() if name not in ("nodes", "ms")
                )
                print(
                    f"{key:18} T={temperature:.0f}  {found['nodes']:5.1f} nodes  {found['ms']:6.1f} ms  {reported}",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
