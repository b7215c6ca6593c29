"""The definitions of all displayed figures; each is computed from raw counts.

block_efficiency      mean accepted length: tokens committed / target passes, the bonus or correction token
included; the same
                      quantity is mean_accepted_length in HTTP answers and accepted_length of servers
mean_accepted_tokens  draft tokens accepted / target passes acceptance_rate       draft tokens accepted /
draft tokens tried, for every verifier: examined nodes whose parent was accepted examined_acceptance   draft
tokens accepted / nodes examined; lower where a verifier examines whole branches at once draft_yield
draft tokens accepted / draft tokens proposed tokens_per_second     tokens / engine seconds after the
prefill, which includes the prefill of drafters; interrupted passes are replaced (trace/speed.py)
time_to_first_token   engine seconds of the prefill and of
the first round walltime_speedup      plain decoding's seconds per token / the method's: same target, prompt
and sampling, measured in turns in one run
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from .answer_places import Places, add_round, added, place_figures
from .events import Committed, Decided, Drafted, Event, Prefilled, Verified
from .speed import RunTime, Steady, TimedRound, steady

PHASES = ("plan", "draft", "verify", "judge", "commit", "observe")


@dataclass
class Totals:
    """Raw counts of one run, accumulated from its events; totals of several runs are added with ``+``.

    drafted, accepted: draft tokens; tried: draft tokens whose parent was accepted; examined: draft tokens
    that were tested; by_position: [tried, accepted] for each depth; by_place: for each stretch of the answer
    its passes, tokens, tried and accepted draft tokens (answer_places.py)."""

    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tried: int = 0
    prefill_seconds: float = 0.0
    phase_seconds: dict[str, float] = field(default_factory=dict)
    by_position: list[list[int]] = field(
        default_factory=list
    )  # depth-1 -> [rounds that tried it, that accepted it]
    examined: int = 0
    by_place: Places = field(default_factory=list)
    first_token_seconds: float | None = None  # from the begin of the prefill to the end of the first round
    timed_rounds: list[TimedRound] = field(default_factory=list, repr=False)
    _verified: list[int] = field(default_factory=list, repr=False)  # rows of the round's passes
    _draft: tuple[int, int] = field(default=(0, 0), repr=False)  # nodes and depth of the round's draft
    _depths: dict[int, int] = field(default_factory=dict, repr=False)
    _parents: dict[int, int] = field(default_factory=dict, repr=False)
    _decisions: tuple = field(default=(), repr=False)

    def fold(self, event: Event) -> None:
        """Add the counts of an event."""
        if isinstance(event, Prefilled):
            self.prefill_seconds += event.t1 - event.t0
        elif isinstance(event, Drafted):
            self._depths = {node["id"]: node["depth"] for node in event.nodes if not node.get("probe")}
            self._parents = {node["id"]: node["parent"] for node in event.nodes}
            self.drafted += len(self._depths)
            self._draft = len(event.nodes), max((node["depth"] for node in event.nodes), default=0)
        elif isinstance(event, Verified):
            self.rounds += 1
            self._verified.append(event.rows)
        elif isinstance(event, Decided):
            self._decisions = event.decisions
        elif isinstance(event, Committed):
            tried, passes = self.tried, self.rounds - sum(row[0] for row in self.by_place)
            self._fold_trials(event)
            counts = (passes, len(event.tokens), self.tried - tried, event.accepted)
            add_round(self.by_place, self.tokens, counts)
            if self.first_token_seconds is None:
                self.first_token_seconds = self.prefill_seconds + sum(event.seconds.values())
            self.tokens += len(event.tokens)
            self.accepted += event.accepted
            for phase, seconds in event.seconds.items():
                self.phase_seconds[phase] = self.phase_seconds.get(phase, 0.0) + seconds
            self._fold_times(event)

    def _fold_times(self, event: Committed) -> None:
        verify, draft = event.seconds.get("verify", 0.0), event.seconds.get("draft", 0.0)
        rest = sum(event.seconds.values()) - verify - draft
        passes, rows = len(self._verified), sum(self._verified)
        self.timed_rounds.append(
            TimedRound(len(event.tokens), passes, rows, verify, *self._draft, draft, rest)
        )
        self._verified, self._draft = [], (0, 0)

    def _fold_trials(self, event: Committed) -> None:
        depth_tried: dict[int, bool] = {}
        reached = {-1, *event.path}
        decisions = self._decisions
        self._decisions = ()
        for decision in decisions:
            if decision["verdict"] == "skipped":
                continue
            self.examined += 1
            if self._parents[decision["node"]] not in reached:
                continue
            self.tried += 1
            depth = self._depths[decision["node"]]
            depth_tried[depth] = depth_tried.get(depth, False) or decision["verdict"] == "accepted"
        for depth, ok in depth_tried.items():
            while len(self.by_position) < depth:
                self.by_position.append([0, 0])
            self.by_position[depth - 1][0] += 1
            self.by_position[depth - 1][1] += ok

    def __add__(self, other: Totals) -> Totals:
        longer = max(len(self.by_position), len(other.by_position))
        both = [
            [sum(t.by_position[i][k] for t in (self, other) if i < len(t.by_position)) for k in (0, 1)]
            for i in range(longer)
        ]
        phases = {
            k: self.phase_seconds.get(k, 0.0) + other.phase_seconds.get(k, 0.0)
            for k in {*self.phase_seconds, *other.phase_seconds}
        }
        return Totals(
            self.tokens + other.tokens,
            self.rounds + other.rounds,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
            self.tried + other.tried,
            self.prefill_seconds + other.prefill_seconds,
            phases,
            both,
            self.examined + other.examined,
            timed_rounds=self.timed_rounds + other.timed_rounds,
            by_place=added(self.by_place, other.by_place),
        )

    def along_the_answer(self) -> list[dict[str, Any]]:
        """Return the mean accepted length and the acceptance rate for each 64 tokens of the answer."""
        return place_figures(self.by_place)

    @property
    def seconds(self) -> float:
        """Engine seconds after the prefill, as the clock measured them."""
        return sum(self.phase_seconds.values())

    @property
    def steady(self) -> Steady:
        """The rounds' durations with interrupted passes replaced."""
        return steady(self.timed_rounds)

    @property
    def steady_seconds(self) -> float:
        """Engine seconds after the prefill, with interrupted passes replaced: what speeds are computed from."""
        return sum(self.steady.seconds) if self.timed_rounds else self.seconds

    @property
    def run_time(self) -> RunTime:
        """Tokens and seconds of a run, as all comparisons of speed take them."""
        return RunTime(self.tokens, self.steady_seconds)

    def record(self) -> dict[str, Any]:
        """Return the totals as the trace's last record holds them."""
        ph = self.phase_seconds
        return {
            "tokens": self.tokens,
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "tried": self.tried,
            "seconds": self.seconds,
            "prefill_seconds": self.prefill_seconds,
            "draft_seconds": ph.get("draft", 0.0),
            "verify_seconds": ph.get("verify", 0.0),
            "judge_seconds": ph.get("judge", 0.0),
            "cache_seconds": ph.get("commit", 0.0),
            "other_seconds": ph.get("plan", 0.0) + ph.get("observe", 0.0),
            "by_position": self.by_position,
            "by_place": self.by_place,
        }

    def metrics(self) -> dict[str, float | None]:
        """Return the figures defined above; None where nothing was counted."""
        return {
            "block_efficiency": _ratio(self.tokens, self.rounds),
            "mean_accepted_tokens": _ratio(self.accepted, self.rounds),
            "acceptance_rate": _ratio(self.accepted, self.tried),
            "examined_acceptance": _ratio(self.accepted, self.examined),
            "draft_yield": _ratio(self.accepted, self.drafted),
            "tokens_per_second": _ratio(self.tokens, self.steady_seconds),
            "seconds_per_token": _ratio(self.steady_seconds, self.tokens),
            "time_to_first_token": self.first_token_seconds,
        }


class Timed(Protocol):
    """A run's tokens and seconds."""

    @property
    def tokens(self) -> int:
        """Number of generated tokens."""
        ...

    @property
    def seconds(self) -> float:
        """Seconds in which they were generated."""
        ...


def walltime_speedup(plain: Timed, ours: Timed) -> float | None:
    """Return plain decoding's seconds per token divided by ours; None if either run generated nothing."""
    if not (plain.tokens and ours.tokens and plain.seconds > 0 and ours.seconds > 0):
        return None
    return (plain.seconds / plain.tokens) / (ours.seconds / ours.tokens)


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None
