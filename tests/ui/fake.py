"""A backend for the page's tests: scripted lanes on a virtual clock, no model, no torch.

The answer repeats the prompt, so whatever a test puts into the prompt comes back as model text. ``hold(n)``
makes the engine wait after n rounds until it is released or stopped; ``fault`` makes it fail in a chosen
way.
"""

from __future__ import annotations

import random
import re
import threading
from base64 import b64encode
from dataclasses import replace

from specviz.core.method import Knob, Method
from specviz.engine.cards import card_data
from specviz.engine.limits import BASELINE
from specviz.engine.messages import Refused

WORDS = (
    "the little fox walked along the river and the river sang to the little fox until the moon came up over the hill "
    "and the stars lit the path home while the owl counted one two three four five and fell asleep at last"
).split()


class Scripted(Method):
    """A card whose method is nowhere in the catalogue."""

    def read_knobs(self, given):
        return {knob.name: given.get(knob.name, knob.default) for knob in self.knobs}


GAMMA = Knob("gamma", 4, 1, 8, "draft tokens a round")
CARDS = [
    Scripted(
        BASELINE,
        "Plain decoding",
        "",
        "One token a pass: what every method is measured against.",
        family="baseline",
    ),
    Scripted(
        "chain",
        "Draft chain",
        "2211.17192",
        "A small model guesses a few tokens; the target checks them.",
        family="draft model",
        knobs=(
            GAMMA,
            Knob("shape", "even", help="how depth is spent", choices=("even", "front")),
            Knob("warm", True, help="keep the draft's cache"),
        ),
        differs="The paper's chain; the cache is kept between rounds.",
        published={"gamma": 8, "warm": True},
    ),
    Scripted(
        "tree",
        "Draft tree",
        "2305.09781",
        "Several guesses a place, checked together.",
        family="draft model",
        aliases=("speculative eagle topk",),
        knobs=(
            GAMMA,
            Knob("threshold", 0.2, 0.0, 1.0, "drop branches below this"),
            Knob("drawn", "best", help="which children", choices=("best", "apart", "pairs")),
            Knob(
                "judge",
                "token",
                help="how they are judged",
                choices=("token", "hub"),
                only_with=(("token", "drawn", ("best", "apart")), ("hub", "drawn", ("best", "pairs"))),
            ),
        ),
    ),
    Scripted(
        "lookup", "Prompt lookup", "", "Copies what followed the same words earlier.", family="retrieval"
    ),
    Scripted(
        "heads",
        "Extra heads",
        "2401.10774",
        "Heads on the target guess ahead.",
        family="heads",
        needs=frozenset({"heads"}),
    ),
]
SKILL = {"chain": 0.75, "tree": 0.85, "lookup": 0.4, BASELINE: 0.0}
TOP = 4


class FakeBackend:
    questions, light = (
        frozenset({"catalogue", "unavailable", "echo", "slow"}),
        frozenset({"catalogue", "unavailable"}),
    )

    def __init__(self):
        self.cards = {card.key: card for card in CARDS}
        self._limit = None
        self._held = False
        self._gate = threading.Condition()
        self.loaded, self.slow = set(), set()  # slow: models whose loading lasts until they are taken out
        self.renew()

    def renew(self) -> None:
        """As it was before any test."""
        self.mode = "simulated"  # of the headers of its runs
        self.fault = ""
        self.runs = []
        self.active = 0
        self.most_active = 0
        self.rounds = 0
        self.hold(None)

    # what a test steers
    def hold(self, rounds: int | None) -> None:
        """Wait after this many rounds of a run; None releases."""
        with self._gate:
            self._limit = rounds
            self._gate.notify_all()

    def idle(self, timeout: float = 120) -> bool:
        """Wait until no run is under way."""
        with self._gate:
            return self._gate.wait_for(lambda: self.active == 0, timeout)

    def held(self, timeout: float = 120) -> bool:
        """Wait until a run waits where ``hold`` said."""
        with self._gate:
            return self._gate.wait_for(lambda: self._held, timeout)

    def _wait(self, played: int, cancel: threading.Event) -> None:
        with self._gate:
            while self._limit is not None and played >= self._limit and not cancel.is_set():
                self._held = True
                self._gate.notify_all()
                self._gate.wait(0.01)
            self._held = False

    # what the page calls
    def ready(self, target):
        return target in self.loaded

    def fetches(self, target):
        return False

    def fetch(self, target, stop):
        raise AssertionError("nothing has to be fetched")

    def load(self, target):
        if target not in (None, "other", "|wide", "|none", "other|none"):
            raise Refused("run.engine", why=f"There is no model {target!r}; there is fake.")
        with self._gate:
            while target in self.slow:
                self._gate.wait(0.01)
        self.loaded.add(target)
        return f"{target or 'Fake'} target, fake draft, on nothing"

    def targets(self):
        return [
            {
                "name": "",
                "model": "fake",
                "title": "fake",
                "about": "A scripted one.",
                "languages": "English",
                "draft": "fake-draft",
            },
            {"name": "other", "model": "other", "title": "Other, 9 M", "about": ""},
        ]

    def drafts(self, target=None):
        return [] if target == "other" else [{"name": "wide", "title": "Wide, 2 M"}]

    def progress(self, target):
        return "3 MB here" if target in self.slow else ""

    def wants(self, payload):
        return None

    def knob_limits(self, key, target=None):
        return {}

    def unsupported_reason(self, target=None):
        return {"heads": "Extra heads need heads trained for this target; there are none."}

    def answer(self, name, payload, cancel, seconds):
        if name == "catalogue":
            yield [card_data(card) for card in self.cards.values()]
            return
        if name == "unavailable":
            yield self.unsupported_reason()
            return
        self.active += 1
        self.most_active = max(self.active, self.most_active)
        try:
            if self.fault == "crash":
                raise RuntimeError("a secret path /home/someone/token")
            yield "Thinking."
            self._wait(0, cancel)
            yield payload
        finally:
            with self._gate:
                self.active -= 1
                self._gate.notify_all()

    def run(self, ask, cancel, seconds):
        self.runs.append(ask)
        self.active += 1
        self.most_active = max(self.active, self.most_active)
        try:
            if self.fault == "crash":
                raise RuntimeError("a secret path /home/someone/token")
            if self.fault == "oom":
                raise MemoryError
            if self.fault == "nan":
                yield [
                    {"type": "header", "seq": 0, "lane": 0, "method": {"title": "x"}, "broken": float("nan")}
                ]
            yield from self._race(ask, cancel)
        finally:
            with self._gate:
                self.active -= 1
                self._gate.notify_all()

    def _race(self, ask, cancel):
        self.rounds = 0
        self._wait(0, cancel)
        for answer in range(ask.answers):
            own = replace(ask, seed=ask.seed + answer)
            lanes = [
                Lane(i, self.cards[key], knobs, own)
                for i, (key, knobs) in enumerate(ask.lanes, answer * len(ask.lanes))
            ]
            yield from self._play(lanes, answer, cancel)

    def _play(self, lanes, answer, cancel):
        for lane in lanes:
            if cancel.is_set():
                return
            yield lane.open(self.mode, answer)
        while any(not lane.over for lane in lanes):
            lane = min((x for x in lanes if not x.over), key=lambda x: x.clock)
            self._wait(self.rounds, cancel)
            if cancel.is_set():
                for lane in lanes:
                    yield lane.close("stopped")
                return
            yield (
                lane.fail() if self.fault == "lane" and lane.number == 0 and lane.round == 2 else lane.play()
            )
            self.rounds += 1


class Lane:
    """One scripted lane: the same text for every lane at temperature 0, cut into rounds by luck and skill."""

    def __init__(self, number, card, knobs, ask):
        self.number = number
        self.card = card
        self.ask = ask
        self.knobs = {k.name: knobs.get(k.name, k.default) for k in card.knobs}
        self.rng = random.Random(f"{ask.seed}/{card.key}")
        self.words, self.ids = [], {}
        pool = random.Random(0 if ask.temperature == 0 else f"{ask.seed}/{card.key}/text")
        text = re.findall(r"\s*\S+", "You said: " + ask.prompt + "\nAnd then")
        self.text = [self._id(w) for w in text] + [
            self._id(" " + pool.choice(WORDS)) for _ in range(ask.max_new_tokens)
        ]
        self.text = self.text[: ask.max_new_tokens]
        self.told = set()
        self.seq = 0
        self.clock = 0.0
        self.round = 0
        self.at = 0
        self.bytes = 0
        self.over = False
        self.count = dict(drafted=0, accepted=0, tried=0)
        self.by_position = []

    def _id(self, word):
        if word not in self.ids:
            self.ids[word] = len(self.words)
            self.words.append(word)
        return self.ids[word]

    def _record(self, name, /, **fields):
        self.seq += 1
        return {"type": name, "seq": self.seq - 1, "lane": self.number, **fields}

    def _vocab(self, ids):
        new = [i for i in dict.fromkeys(ids) if i not in self.told]
        self.told.update(new)
        tokens = {str(i): b64encode(self.words[i].encode()).decode() for i in new}
        return [self._record("vocab", tokens=tokens, special=[])] if new else []

    def open(self, mode, answer=0):
        several = {"answer": {"index": answer, "of": self.ask.answers}} if self.ask.answers > 1 else {}
        prompt = [self._id(w) for w in re.findall(r"\s*\S+", self.ask.prompt)]
        c = self.card
        header = self._record(
            "header",
            schema="specviz-trace/1",
            run_id=f"fake-{self.number}",
            created="2026-11-20T12:00:00Z",
            mode=mode,
            method=dict(
                key=c.key,
                title=c.title,
                family=c.family,
                exactness=c.exactness,
                paper=c.paper,
                summary=c.summary,
            ),
            knobs=self.knobs,
            prompt=dict(
                text=self.ask.prompt,
                ids=prompt,
                turns=[{"role": t["role"], "text": t["content"]} for t in self.ask.turns],
            ),
            sampling=dict(
                temperature=self.ask.temperature, top_k=0, top_p=self.ask.top_p, seed=self.ask.seed
            ),
            max_new_tokens=self.ask.max_new_tokens,
            target=dict(
                name=self.ask.target or "fake",
                layers=4,
                hidden=64,
                vocab=512,
                parameters=1_000_000,
                backend="scripted",
            ),
            draft=None
            if self.ask.draft == "none"
            else dict(name=self.ask.draft or "fake-draft", parameters=100_000),
            tokenizer="words",
            env=dict(
                machine="no machine",
                device="none",
                dtype="none",
                threads=1,
                torch="none",
                transformers="none",
            ),
            clock="engine",
            top_k_saved=TOP,
            baseline_run_id=f"fake-{len(self.ask.lanes) - 1}",
            **several,
        )
        self.clock = 0.02
        return [header, *self._vocab(prompt), self._record("prefill", t0=0.0, t1=0.02, n=len(prompt))]

    def _probs(self, token, prob):
        others = [self._id(" " + w) for w in self.rng.sample(WORDS, TOP + 1)]
        others = [i for i in dict.fromkeys(others) if i != token][: TOP - 1]
        share = (1 - prob) / (len(others) + 1)
        return [[token, prob]] + [[i, share] for i in others]

    def play(self):
        depth = min(self.knobs.get("gamma", 3) if SKILL[self.card.key] else 0, len(self.text) - self.at - 1)
        width = 2 if self.card.key == "tree" else 1
        nodes = []
        judges = []
        path = []
        parent = -1
        alive = True
        for d in range(depth):
            true = self.text[self.at + d]
            guesses = [
                true if self.rng.random() < SKILL[self.card.key] else self._id(" " + self.rng.choice(WORDS))
            ]
            while len(guesses) < width:
                other = self._id(" " + self.rng.choice(WORDS))
                guesses += [other] if other not in guesses else []
            best = None
            for token in guesses:
                i, q = len(nodes), round(self.rng.uniform(0.2, 0.9), 6)
                nodes.append(
                    dict(
                        id=i, parent=parent, depth=d + 1, tok=token, q=q, how="iid", top=self._probs(token, q)
                    )
                )
                if not alive or best is not None:
                    judges.append(dict(node=i, rule="", p=None, q=None, a=None, u=None, verdict="skipped"))
                    continue
                judges.append(self._judge(i, token == true, q, token))
                self._count(d, token == true)
                if token == true:
                    best = i
                    path.append(i)
            alive = alive and best is not None
            parent = best if best is not None else len(nodes) - len(guesses)
        return self._tell(nodes, judges, path)

    def _judge(self, node, good, q, token):
        p = q * self.rng.uniform(1, 1.1) if good else q * self.rng.uniform(0.05, 0.6)
        a = min(1.0, p / q)
        u = self.rng.uniform(0, 0.9 * a) if good else self.rng.uniform(a, 1)
        return dict(
            node=node,
            rule="token",
            p=min(p, 1.0),
            q=q,
            a=a,
            u=u,
            verdict="accepted" if good else "rejected",
            top_p=self._probs(token, min(p, 0.99)),
            **({} if good else {"resid": self._probs(token, 0.0)}),
        )

    def _count(self, d, good):
        self.count["tried"] += 1
        while len(self.by_position) <= d:
            self.by_position.append([0, 0])
        self.by_position[d][0] += 1
        self.by_position[d][1] += good

    def _tell(self, nodes, judges, path):
        r = self.round
        t = self.clock
        ms = 0.001
        t1 = t + 0.6 * ms * max((n["depth"] for n in nodes), default=0)
        t2 = t1 + (12 + 0.15 * len(nodes)) * ms
        t3 = t2 + 0.8 * ms
        tail = self.text[self.at + len(path)]
        why = (
            "plain"
            if not nodes
            else "correction"
            if any(j["verdict"] == "rejected" for j in judges) and len(path) < max(n["depth"] for n in nodes)
            else "bonus"
        )
        new = [nodes[i]["tok"] for i in path] + [tail]
        top = self._probs(tail, 0.7)
        distributions = [n["top"] for n in nodes] + [j.get("top_p", ()) for j in judges] + [top]
        ids = [x for probs in distributions for x, _ in probs] + new
        out = self._vocab(ids)
        kind = "none" if not nodes else "chain" if all(n["parent"] == n["id"] - 1 for n in nodes) else "tree"
        out.append(self._record("draft", round=r, t0=t, t1=t1, kind=kind, nodes=nodes))
        out.append(self._record("verify", round=r, t0=t1, t1=t2, n_in=len(nodes) + 1))
        out += [self._record("judge", round=r, **j) for j in judges]
        before = 8 + self.at
        out.append(
            self._record(
                "commit",
                round=r,
                t=t3,
                path=path,
                tail=dict(tok=tail, why=why, p=0.7, top=top),
                n_new=len(new),
                kv=dict(before=before, after=before + len(new), dropped=len(nodes) + 1 - len(new)),
            )
        )
        ns = lambda s: round(s * 1e9)  # noqa: E731
        out.append(
            self._record(
                "timing",
                round=r,
                draft_ns=ns(t1 - t),
                verify_ns=ns(t2 - t1),
                judge_ns=ns(0.4 * ms),
                cache_ns=ns(0.4 * ms),
                other_ns=0,
            )
        )
        pieces = []
        for token in new:
            raw = self.words[token].encode()
            pieces.append(
                dict(tok=token, b=b64encode(raw).decode(), span=[self.bytes, self.bytes + len(raw)])
            )
            self.bytes += len(raw)
        out.append(self._record("text", round=r, pieces=pieces))
        self.count["drafted"] += len(nodes)
        self.count["accepted"] += len(path)
        self.at = self.at + len(new)
        self.round = r + 1
        self.clock = t3
        return out + (self.close("length") if self.at >= len(self.text) else [])

    def close(self, finish):
        if self.over:
            return []
        self.over = True
        seconds = self.clock - 0.02
        totals = dict(
            tokens=self.at,
            rounds=self.round,
            **self.count,
            seconds=seconds,
            prefill_seconds=0.02,
            draft_seconds=0.0,
            verify_seconds=seconds,
            judge_seconds=0.0,
            cache_seconds=0.0,
            other_seconds=0.0,
            by_position=self.by_position,
        )
        totals |= (
            {"repeats": [{"tokens": self.at, "seconds": seconds}] * (self.ask.repeats - 1)}
            if self.ask.repeats > 1
            else {}
        )
        stop = [self._record("stop", why=finish)] if finish in ("stopped", "deadline") else []
        return [*stop, self._record("done", finish=finish, totals=totals, peak_mem=None)]

    def fail(self):
        self.over = True
        return [
            self._record("error", why="This lane failed on purpose."),
            self._record("done", finish="error", totals={}, peak_mem=None),
        ]
