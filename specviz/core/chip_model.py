"""A cost model of an accelerator that runs speculative decoding: seconds and joules of a forward pass and
of a round.

A pass takes as long as reading its bytes or its arithmetic, whichever is longer (roofline). A chip that
accepts tokens and rolls back without the host (HADES, 2412.19925) needs no host synchronisation and keeps
the draft's weights in on-chip memory. Nothing here is measured, and no number is taken from the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Chip:
    """The parameters of a chip.

    bandwidth, sram_bandwidth: bytes/s; arithmetic: operations/s; dram, sram: joules per byte; operation:
    joules per operation; sync: seconds of host synchronisation per round; on_chip: accepts tokens and rolls
    back without the host, with draft weights in SRAM."""

    bandwidth: float = 100e9
    arithmetic: float = 1e12
    sram_bandwidth: float = 1000e9
    dram: float = 60e-12
    sram: float = 5e-12
    operation: float = 1e-12
    sync: float = 50e-6
    on_chip: bool = True

    @property
    def host_variant(self) -> Chip:
        """Return the same chip with acceptance and rollback on the host and all weights in DRAM."""
        return replace(self, on_chip=False)


@dataclass(frozen=True)
class Model:
    """The size of a model. parameters: number of weights, each multiplied once per token; bytes: size of
    the weights; cache: bytes of keys and values read per forward pass."""

    parameters: float
    bytes: float
    cache: float = 0.0


@dataclass(frozen=True)
class Cost:
    """The seconds and joules of a forward pass."""

    seconds: float
    joules: float


@dataclass(frozen=True)
class Round:
    """The seconds of each phase of a round (draft, verify, sync), and the joules of the whole round."""

    draft: float
    verify: float
    sync: float
    joules: float

    @property
    def seconds(self) -> float:
        """Seconds of the whole round."""
        return self.draft + self.verify + self.sync


def transformer_size(layers: int, hidden: int, vocab: int, bytes_each: float) -> Model:
    """Return the approximate size of a transformer: 12 d^2 parameters per layer and an output matrix."""
    parameters = 12.0 * layers * hidden**2 + float(vocab) * hidden
    return Model(parameters, parameters * bytes_each)


def pass_cost(chip: Chip, model: Model, tokens: int, in_sram: bool = False) -> Cost:
    """Return the cost of a forward pass over ``tokens`` tokens. in_sram: the weights are in on-chip
    memory."""
    moved, sums = model.bytes + model.cache, 2.0 * model.parameters * tokens
    bandwidth, energy = (chip.sram_bandwidth, chip.sram) if in_sram else (chip.bandwidth, chip.dram)
    return Cost(max(moved / bandwidth, sums / chip.arithmetic), moved * energy + sums * chip.operation)


def round_cost(chip: Chip, target: Model, draft: Model, length: int) -> Round:
    """Return the cost of drafting ``length`` tokens one by one and verifying them in one pass; length 0 is
    a plain pass."""
    step, verify = pass_cost(chip, draft, 1, chip.on_chip), pass_cost(chip, target, length + 1)
    return Round(
        length * step.seconds,
        verify.seconds,
        0.0 if chip.on_chip or not length else chip.sync,
        length * step.joules + verify.joules,
    )


def tokens_per_round(acceptance: float, length: int) -> float:
    """Return the expected tokens of a round, (1 - a^(length + 1)) / (1 - a), if each draft token is
    accepted with probability a (Leviathan et al. 2211.17192)."""
    return sum(acceptance**i for i in range(length + 1))
