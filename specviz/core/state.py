"""The state of a run: tokens, limits, random streams, timer, and the measured costs of earlier rounds."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from . import note_kinds as notes
from .sampling import RandomStreams, Sampling, SingleStream
from .work_time import thread_work


def common_prefix_length(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return the length of the longest common prefix of two lists. Uses bisection, so that comparisons run
    in C."""
    low, high = 0, min(len(a), len(b))
    if list(a[:high]) == list(b[:high]):
        return high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if list(a[low:middle]) == list(b[low:middle]) else (low, middle - 1)
    return low


class Clock:
    """The engine's timer. It counts seconds of work (core/work_time.py) of the thread that began or resumed it,
    whoever asks, except while paused. source: another timer.

    A loop pauses it around each ``yield``, so that timings exclude UI rendering and writing of files.
    """

    def __init__(self, source: Callable[[], float] | None = None):
        self._given = source
        self._source = source or thread_work()
        self._start = self._source()
        self._paused_at: float | None = None

    def now(self) -> float:
        """Return the seconds counted so far."""
        return (self._source() if self._paused_at is None else self._paused_at) - self._start

    def pause(self) -> None:
        """Stop counting. Without effect while paused."""
        if self._paused_at is None:
            self._paused_at = self._source()

    def resume(self) -> None:
        """Continue counting after a pause. Without effect while running."""
        if self._paused_at is not None:
            self._source = self._given or thread_work()
            self._start += self._source() - self._paused_at
            self._paused_at = None

    def beside(self) -> Clock:
        """Return a clock of the calling thread that goes on from this one's time. Read on another thread,
        this clock jumps back by its own thread's waiting, and a pause there stops it for both."""
        clock = Clock(self._given)
        clock._start -= self.now()
        return clock

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stop counting within a block: for work that only the page shows. A clock that is paused already
        stays so."""
        if self._paused_at is not None:
            yield
            return
        self.pause()
        try:
            yield
        finally:
            self.resume()


class Costs:
    """Running averages of the measured seconds of a target pass, by number of draft nodes, and of drafting,
    by depth.

    Costs are interpolated linearly between measured points and constant beyond them; without any
    measurement they are 1. weight: of a new measurement in the exponential moving average.
    """

    def __init__(
        self,
        verify: dict[int, float] | None = None,
        draft: dict[int, float] | None = None,
        weight: float = 0.2,
    ):
        self._verify = dict(verify or {})
        self._draft = dict(draft or {})
        self._weight = weight

    def verify(self, nodes: int) -> float:
        """Return the estimated seconds of a target pass over the root and this many draft nodes."""
        return _between(self._verify, nodes)

    def draft(self, depth: int) -> float:
        """Return the estimated seconds of drafting to this depth."""
        return _between(self._draft, depth)

    def new_empty(self) -> Costs:
        """Return costs of the same class without measurements, for another model."""
        return Costs(weight=self._weight)

    def decided(self, seconds: float) -> float:
        """Return the value of measured seconds that a part may base decisions on: here the measurement
        itself; FixedCosts returns 0."""
        return seconds

    def charged(self, nodes: int, depth: int, seconds: dict[str, float]) -> dict[str, float]:
        """Return the seconds of each phase of a round that policy and drafter learn from: here the measured
        ones; FixedCosts returns fixed ones."""
        return seconds

    def learn(self, nodes: int, verify: float, depth: int, draft: float) -> None:
        """Update the averages: ``nodes`` draft tokens were verified in ``verify`` seconds, ``depth`` steps
        drafted in ``draft`` seconds."""
        for table, key, seconds in ((self._verify, nodes, verify), (self._draft, depth, draft)):
            table[key] = seconds if key not in table else table[key] + self._weight * (seconds - table[key])


class FixedCosts(Costs):
    """Fixed costs instead of measured ones, for runs that depend on the seed alone. A target pass costs 1,
    plus FIRST and ROW per draft node if there are any; drafting costs ``step`` per depth; everything else
    costs nothing."""

    FIRST = 0.2  # cost of a pass with draft nodes besides ROW, in target passes
    ROW = 0.05  # cost of each draft node, in target passes

    def __init__(self, step: float = 0.15):
        super().__init__()
        self.step = step

    def new_empty(self) -> Costs:
        """Return fixed costs with the same step."""
        return FixedCosts(self.step)

    def decided(self, seconds: float) -> float:
        """Return 0: decisions do not depend on measured seconds."""
        return 0.0

    def charged(self, nodes: int, depth: int, seconds: dict[str, float]) -> dict[str, float]:
        """Return fixed costs for verify and draft and 0 for all other phases."""
        return dict.fromkeys(seconds, 0.0) | {"verify": self.verify(nodes), "draft": self.draft(depth)}

    def verify(self, nodes: int) -> float:
        """Return the fixed cost of a target pass over the root and this many draft nodes."""
        return 1.0 + (self.FIRST + self.ROW * nodes if nodes else 0.0)

    def draft(self, depth: int) -> float:
        """Return the fixed cost of drafting to this depth."""
        return self.step * depth

    def learn(self, nodes: int, verify: float, depth: int, draft: float) -> None:
        """Ignore measurements."""


def _between(table: dict[int, float], key: int) -> float:
    if not table:
        return 1.0
    if key in table:
        return table[key]
    below = max((k for k in table if k < key), default=None)
    above = min((k for k in table if k > key), default=None)
    if below is None or above is None:
        return next(table[k] for k in (below, above) if k is not None)
    share = (key - below) / (above - below)
    return table[below] * (1 - share) + table[above] * share


@dataclass
class State:
    """One run in progress. ``tokens``: prompt and output; the last one is the root of the next round.

    sampling: temperature and filters; rng: its random streams; start: length of the prompt; limit: maximum
    number of new tokens; stop: token ids that end the run; costs, clock: measured costs and timer;
    top_k_saved: number of top tokens of each distribution in the events; logprobs: number of top
    log-probabilities in the events besides those of the generated tokens (None: no log-probabilities);
    processors: the run's logits processors; draft_ready: returns False once a draft model cannot draft any
    more, after which rounds have no draft; round: number of rounds played; notes: annotations of the
    current round (``note``); draft_logits: the draft's saved logits (``save_draft_logits``).
    """

    tokens: list[int]
    sampling: Sampling = Sampling()
    rng: Any = None
    limit: int = 10**9
    start: int = -1
    stop: frozenset[int] = frozenset()
    costs: Costs = field(default_factory=Costs)
    clock: Clock = field(default_factory=Clock)
    top_k_saved: int = 0
    logprobs: int | None = None
    processors: Any = None  # Processors
    draft_ready: Callable[[], bool] = field(default=lambda: True, repr=False)
    round: int = 0
    notes: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    draft_logits: list[tuple[int, tuple[int, ...], Any]] = field(
        default_factory=list[tuple[int, tuple[int, ...], Any]], repr=False
    )

    def __post_init__(self):
        self.start = len(self.tokens) if self.start < 0 else self.start
        self.rng = RandomStreams(self.sampling.seed) if self.rng is None else self.rng

    @property
    def left(self) -> int:
        """Number of tokens that may still be generated."""
        return self.limit - (len(self.tokens) - self.start)

    @property
    def ended(self) -> bool:
        """Whether the last generated token is an end token."""
        return len(self.tokens) > self.start and self.tokens[-1] in self.stop

    @property
    def done(self) -> bool:
        """Whether the run is over: an end token or the limit of new tokens was reached."""
        return self.left <= 0 or self.ended

    def fork(self, extra: Sequence[int] = (), limit: int | None = None, stream: str | None = None) -> State:
        """Return the state of a hypothetical continuation by the tokens ``extra``. limit: its own maximum
        number of new tokens; None: unlimited, and end tokens are ignored; stream: the random stream for all
        of its draws."""
        return State(
            self.tokens + list(extra),
            self.sampling,
            SingleStream(self.rng, stream) if stream else self.rng,
            10**9 if limit is None else limit,
            self.start,
            self.stop if limit is not None else frozenset(),
            self.costs,
            self.clock,
            processors=self.processors,
        )

    def process_scores(self, tree: Any, scores: Any) -> Any:
        """Return the target's Scores of a draft tree with the run's logits processors applied; each row's
        context is the text and the draft tokens on its own path."""
        return self.processors.scores(tree, scores, self.tokens, self.start) if self.processors else scores

    @property
    def saves_draft_logits(self) -> bool:
        """Whether the draft's logits are saved for the events: if distributions are, and at temperature 0,
        where the draft distribution is one-hot."""
        return bool(self.top_k_saved) and self.sampling.greedy

    def save_draft_logits(self, logits: Any, paths: Sequence[Sequence[int]]) -> None:
        """Save a draft model's logits [rows, vocab], before logits processors, for this round's events.
        paths: draft tokens from the root to each row. Without effect unless ``saves_draft_logits``."""
        if not self.saves_draft_logits:
            return
        at = len(self.tokens)
        if self.draft_logits and self.draft_logits[0][0] != at:  # of an earlier round
            self.draft_logits.clear()
        # copied, because a captured CUDA graph writes its next output to the same memory
        self.draft_logits += [(at, tuple(path), row) for path, row in zip(paths, logits.clone())]

    def process_draft_logits(self, logits: Any, paths: Sequence[tuple[int, ...]]) -> Any:
        """Return a draft model's logits [rows, vocab] with the run's logits processors applied. paths:
        draft tokens from the root to each row.

        This raises the acceptance rate; the output is exact either way.
        """
        self.save_draft_logits(logits, paths)
        return (
            self.processors.draft_rows(logits, paths, self.tokens, self.start) if self.processors else logits
        )

    def process_draft_row(self, logits: Any, path: Sequence[int]) -> Any:
        """Return a draft model's logits [vocab] after one path of draft tokens with the run's logits
        processors applied."""
        if not (self.processors or self.saves_draft_logits):
            return logits
        return self.process_draft_logits(logits[None], [tuple(path)])[0]

    def note(self, kind: str, **data: Any) -> None:
        """Attach an annotation ("note") to this round, which a panel of the page draws. Values: plain
        numbers, strings, lists. Raises InvalidUse (a ValueError) if core/note_kinds.py does not declare the
        kind or its fields differ."""
        notes.check(kind, data)
        self.notes.append((kind, data))
