"""Convert logits to the distribution a token is sampled from, and make all random decisions of a run.

Temperature, top-k, top-p and min-p are applied here only, because verification compares the distributions
of draft and target.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import InvalidUse
from .lazy_scalars import LazyScalar, is_on_device, lazy_ints, raise_if, to_device, to_list

SLACK = 1e-2  # tolerated error of a distribution's sum: float32 sums of a hundred thousand numbers, and half precision


class InvalidDistribution(ValueError):
    """A distribution of the next token holds NaN, or does not sum to one."""

    def __init__(self):
        super().__init__(
            "a model's distribution of the next token is not one: it holds values that are not numbers, "
            "or does not sum to one"
        )


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters. ``temperature=0`` is greedy; ``top_k=0``, ``top_p=1`` and ``min_p=0`` keep the
    whole vocabulary.

    min_p: tokens below ``min_p`` times the top token's probability are dropped. Filters apply after the
    temperature, in vLLM's order min-p, top-k, top-p (transformers has min-p last). Raises ValueError for a
    temperature outside [0, 2], a negative top_k, a top_p outside (0, 1], or a min_p outside [0, 1].
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0

    def __post_init__(self):
        for name, kinds in (
            ("temperature", (int, float)),
            ("top_k", (int,)),
            ("top_p", (int, float)),
            ("seed", (int,)),
            ("min_p", (int, float)),
        ):
            if isinstance(getattr(self, name), bool) or not isinstance(getattr(self, name), kinds):
                raise InvalidUse(
                    f"{name} must be a {'whole ' * (kinds == (int,))}number, not {str(getattr(self, name))[:40]!r}",
                    "sampling.number",
                )
        if not 0 <= self.temperature <= 2:  # NaN fails too
            raise InvalidUse(
                f"temperature must lie between 0 and 2, not {str(self.temperature)[:40]}",
                "sampling.temperature",
            )
        if not 0 < self.top_p <= 1:
            raise InvalidUse(
                f"top_p must lie above 0 and at most 1, not {str(self.top_p)[:40]}", "sampling.top_p"
            )
        if self.top_k < 0:
            raise InvalidUse(
                f"top_k must be 0 (off) or positive, not {str(self.top_k)[:40]}", "sampling.top_k"
            )
        if not 0 <= self.min_p <= 1:
            raise InvalidUse(f"min_p must lie between 0 and 1, not {str(self.min_p)[:40]}", "sampling.min_p")

    @property
    def unfiltered(self) -> bool:
        """Whether every token keeps its probability: no top-k, top-p or min-p."""
        return not self.top_k and self.top_p == 1 and not self.min_p

    @property
    def greedy(self) -> bool:
        """Whether decoding is greedy: temperature 0, or so small that dividing the logits by it would
        overflow."""
        return self.temperature < 1e-6

    def probs(self, logits: Tensor) -> Tensor:
        """Return the distribution of the next token for logits [..., vocab], one-hot at temperature 0.
        float64 for float64 logits, else float32.

        Raises InvalidDistribution for logits with NaN.
        """
        x = logits if logits.dtype == torch.float64 else logits.float()
        if self.greedy:
            # argmax breaks ties as plain decoding does, and nothing is divided by a tiny temperature
            at = x.argmax(-1, keepdim=True)  # a NaN, where there is one
            raise_if(torch.isnan(x.gather(-1, at)).any(), InvalidDistribution)
            return torch.zeros_like(x).scatter_(-1, at, 1.0)
        x = x if self.temperature == 1 else x / self.temperature
        if self.min_p:
            x = x.masked_fill(x < x.amax(-1, keepdim=True) + math.log(self.min_p), -torch.inf)
        if 0 < self.top_k < x.shape[-1]:
            floor = x.topk(self.top_k, dim=-1).values[..., -1:]
            x = x.masked_fill(x < floor, -torch.inf)
        p = x.softmax(-1)
        raise_if(torch.isnan(p[..., 0]).any(), InvalidDistribution)  # one NaN makes the whole row NaN
        if self.top_p < 1:
            p = _nucleus(p, self.top_p)
        return p


def _nucleus(p: Tensor, top_p: float) -> Tensor:
    """Keep the smallest set of top tokens whose mass reaches top_p, and renormalise."""
    best, order = p.sort(dim=-1, descending=True, stable=True)
    before = best.cumsum(-1) - best  # mass of all more probable tokens
    dropped = before >= top_p
    dropped[..., 0] = False  # the top token stays, however small top_p is
    best = best.masked_fill(dropped, 0.0)
    p = torch.zeros_like(p).scatter_(-1, order, best)
    return p / p.sum(-1, keepdim=True)


class RandomStreams:
    """The source of all random decisions of a run, on named streams ("draft", "verify", "policy").

    The streams are independent, so draws of a drafter never shift those of a verifier. Tests replace this
    object by one with the same methods and scripted decisions, and so enumerate all runs of the engine.
    """

    def __init__(self, seed: int = 0):
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str) -> random.Random:
        """Return the random generator of a stream, seeded by the run's seed and the stream's name."""
        if name not in self._streams:
            self._streams[name] = random.Random(f"{self.seed}/{name}")
        return self._streams[name]

    def pick(self, stream: str, probs: Tensor) -> int:
        """Sample a token id from probs [vocab] with the next number of a stream; a token of probability 0
        is never returned. Raises InvalidDistribution. On a device this synchronises once."""
        if is_on_device(probs):
            return int(self.draw(stream, probs))  # synchronises once
        total = probs.cumsum(-1)
        mass = float(total[-1])
        if not abs(mass - 1) <= SLACK:  # true for NaN, too
            raise InvalidDistribution
        u = self.stream(stream).random() * mass
        index = int(
            torch.searchsorted(total, torch.tensor(u, dtype=total.dtype, device=total.device), right=True)
        )
        if index >= len(probs) or float(probs[index]) <= 0:  # u rounded up to the whole mass
            index = int(probs.argmax())
        return index

    def draw(self, stream: str, probs: Tensor) -> LazyScalar:
        """Sample a token id from probs [vocab], as ``pick`` does, without synchronising: for probs on a
        device the token is a lazy scalar, which is read later."""
        return lazy_ints(sample_rows(probs[None], [self.stream(stream).random()]))[0]

    def uniforms(self, stream: str, count: int) -> list[float]:
        """Return the next ``count`` uniform random numbers in [0, 1) of a stream."""
        source = self.stream(stream)
        return [source.random() for _ in range(count)]

    def ahead(self, stream: str, count: int) -> list[float]:
        """Return the next ``count`` uniform random numbers of a stream without consuming them: the next
        call returns the same."""
        source = self.stream(stream)
        now = source.getstate()
        found = [source.random() for _ in range(count)]
        source.setstate(now)
        return found

    def flip(self, stream: str, accept: float) -> tuple[bool, float | None]:
        """Decide with probability ``accept``. Return the decision and the uniform random number u behind it
        (True iff u < accept). Raises InvalidDistribution for NaN."""
        if accept != accept:
            raise InvalidDistribution
        u = self.stream(stream).random()
        return u < accept, u

    def uniform_tensor(
        self, stream: str, shape: tuple[int, ...], device: torch.device | str = "cpu"
    ) -> Tensor:
        """Return uniform random numbers in [0, 1) as a float64 tensor of this shape, for decisions on the
        device."""
        source = self.stream(stream)
        flat = [source.random() for _ in range(math.prod(shape))]
        return torch.tensor(flat, dtype=torch.float64, device=device).reshape(shape)


def sample_rows(distributions: Tensor, uniforms: list[float]) -> Tensor:
    """Sample one token per row: ``uniforms`` [n] choose tokens [n] from ``distributions`` [n, vocab] by
    inverse transform sampling, as ``RandomStreams.pick`` does, on the distributions' device."""
    total = distributions.cumsum(-1)
    mass = total[:, -1:].double()
    raise_if((~((mass - 1).abs() <= SLACK)).any(), InvalidDistribution)
    u = to_device(torch.tensor(uniforms, dtype=torch.float64)[:, None], distributions.device)
    found = torch.searchsorted(total, (u * mass).to(total.dtype), right=True)
    inside = found.clamp(max=distributions.shape[-1] - 1)
    good = (found < distributions.shape[-1]) & (distributions.gather(-1, inside) > 0)
    return torch.where(good, inside, distributions.argmax(-1, keepdim=True))[:, 0]


def argmax_tokens(x: Tensor) -> list[int]:
    """Return the argmax of each row of x [n, vocab] as a list; of equal values the first. Uses numpy on a
    CPU, where it is ten times faster than torch."""
    on_host = not is_on_device(x) and x.dtype in (torch.float32, torch.float64)
    return to_list((x.detach().numpy() if on_host else x).argmax(-1))


def check_distributions(distributions: Tensor) -> Tensor:
    """Return distributions [n, vocab] unchanged. Raises InvalidDistribution if one does not sum to one
    within SLACK."""
    if not bool(((distributions.sum(-1) - 1).abs() <= SLACK).all()):
        raise InvalidDistribution
    return distributions


class SingleStream:
    """The random streams of a run inside a run, such as the speculative run of a draft model: same methods
    as RandomStreams, but all draws come from one stream of the outer run."""

    def __init__(self, rng: RandomStreams | SingleStream, name: str):
        self._rng, self._name = rng, name

    def pick(self, stream: str, probs: Tensor) -> int:
        """Sample a token as RandomStreams.pick, from the one stream."""
        return self._rng.pick(self._name, probs)

    def draw(self, stream: str, probs: Tensor) -> LazyScalar:
        """Sample a lazy token as RandomStreams.draw, from the one stream."""
        return self._rng.draw(self._name, probs)

    def uniforms(self, stream: str, count: int) -> list[float]:
        """Return the next ``count`` uniform random numbers of the one stream."""
        return self._rng.uniforms(self._name, count)

    def ahead(self, stream: str, count: int) -> list[float]:
        """Return the next ``count`` uniform random numbers of the one stream without consuming them."""
        return self._rng.ahead(self._name, count)

    def flip(self, stream: str, accept: float) -> tuple[bool, float | None]:
        """Decide with probability ``accept`` as RandomStreams.flip, by the one stream."""
        return self._rng.flip(self._name, accept)

    def uniform_tensor(
        self, stream: str, shape: tuple[int, ...], device: torch.device | str = "cpu"
    ) -> Tensor:
        """Return uniform random numbers of this shape from the one stream."""
        return self._rng.uniform_tensor(self._name, shape, device)
