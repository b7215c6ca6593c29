"""Hand-made traces for the viewer's tests: deterministic, consistent (every verdict follows from p, q and
u), no model.

`trace(method, ...)` gives one lane's records as docs/TRACE.md has them; `race(...)` several lanes on one
text; `frames(...)` cuts records into live frames. The texts hold what breaks viewers: characters split over
tokens, right-to-left text, markup.
"""

from __future__ import annotations

import base64
import json
import random
import re

STORY = (
    "The sky appears blue because molecules in the air scatter short wavelengths of sunlight much more than long ones."
    " Blue light therefore arrives from every direction, while red light mostly keeps going straight."
    " Near sunset the path through the air is longer, so the blue is lost and orange and red remain.\n\n"
    "The same effect makes distant hills look hazy and pale, and it turns the shadow of the earth a soft violet at dusk."
)
UNICODE = (
    "Emoji \U0001f469\u200d\U0001f680 and \U0001f44d\U0001f3fd, Arabic \u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645, \u4e2d\u6587\u5b57\u7b26 and \u65e5\u672c\u8a9e, caf\u00e9 na\u00efve.\tTab,"
    + " " * 40
    + "forty spaces."
)
HOSTILE = (
    "<img src=x onerror=alert(1)> ${alert(1)} {{7*7}} <script>alert(2)</script> </script><!-- `${globalThis.hacked=1}` "
    "C:\\x \\u{zz} ${userName} \u202eoverride\u202c \u2066isolate\u2069 bell\x07 nul\x00 zero\u200bwidth <|end|> &lt;b&gt; "
    "javascript:alert(3) \" onfocus=alert(4) autofocus='"
)
WRONG = [
    " molecules",
    " because",
    " the",
    " light",
    " of",
    " sunlight",
    " more",
    " a",
    " and",
    " red",
    ",",
    ".",
    " gases",
    " bends",
]
METHODS = {
    "plain": ("autoregressive", "Plain decoding", "baseline"),
    "chain": ("speculative", "Speculative decoding", "draft model"),
    "tree": ("draft_tree", "Draft tree", "draft model"),
    "lookup": ("prompt_lookup", "Prompt lookup", "lookup"),
}
KNOBS = {"plain": {}, "chain": {"gamma": 4}, "tree": {"width": 3, "depth": 4}, "lookup": {"n": 3, "gamma": 4}}


def pieces(text: str, split: bool = False) -> list[bytes]:
    """Words with their leading space, as byte strings; with `split`, characters beyond ASCII are cut into
    single bytes."""
    out = []
    for part in re.findall(r"\n+| {3,}| ?[^\s\x00-\x1f<>{}$.,]+|[\s\S]", text):
        raw = part.encode()
        out += [bytes([b]) for b in raw] if split and len(raw) > len(part) else [raw]
    return out


class Toy:
    """A vocabulary that grows as pieces are met, and the records written so far."""

    def __init__(self, lane: int, seed: int) -> None:
        self.lane = lane
        self.rng = random.Random(seed)
        self.ids = {}
        self.known = set()
        self.records = []

    def tok(self, raw: bytes) -> int:
        return self.ids.setdefault(raw, len(self.ids) + 10)

    def put(self, type: str, **fields) -> None:
        self.records.append({"type": type, "seq": len(self.records), "lane": self.lane, **fields})

    def vocab(self) -> None:
        new = {str(i): base64.b64encode(raw).decode() for raw, i in self.ids.items() if i not in self.known}
        self.known |= {int(i) for i in new}
        if new:
            self.put("vocab", tokens=new, special=[i for raw, i in self.ids.items() if raw.startswith(b"<|")])


def distributions(toy: Toy, guess: int, truth: int, accept: bool, q_known: bool = True) -> dict:
    """p, q, the draw and the residual for one test of `guess`, such that the verdict follows; `truth` is
    what comes instead."""
    rng, others = toy.rng, [t for t in (toy.tok(w.encode()) for w in WRONG) if t not in (guess, truth)]
    rng.shuffle(others)
    q = rng.uniform(0.35, 0.7)
    p = q * rng.uniform(0.75, 1.5) if accept else q * rng.uniform(0.1, 0.6)
    p = min(p, 0.93)
    top_p, top_q = {guess: p}, {guess: q}
    if truth != guess:
        top_p[truth], top_q[truth] = (1 - p) * rng.uniform(0.5, 0.8), (1 - q) * rng.uniform(0.1, 0.25)
    for t in others[:3]:
        top_p[t], top_q[t] = (
            (1 - sum(top_p.values())) * rng.uniform(0.2, 0.4),
            (1 - sum(top_q.values())) * rng.uniform(0.2, 0.5),
        )
    a = min(1.0, p / q) if q_known else p
    if accept and a < 0.4:
        a, p = 0.8, 0.8
    u = a * rng.uniform(0.05, 0.95) if accept else a + (1 - a) * rng.uniform(0.05, 0.95)
    resid = {
        t: max(0.0, x - (top_q.get(t, 0) if q_known else (1 if t == guess else 0))) for t, x in top_p.items()
    }
    z = sum(resid.values()) or 1
    ranked = lambda d: [[t, round(x, 6)] for t, x in sorted(d.items(), key=lambda kv: -kv[1]) if x > 0]  # noqa: E731
    return {
        "p": p, "q": q if q_known else None, "a": a, "u": u, "top_p": ranked(top_p), "top_q": ranked(top_q),
        "resid": None if accept else ranked({t: x / z for t, x in resid.items()}),
    }  # fmt: skip


def chain(toy: Toy, y: list[int], gamma: int, alpha: float, lookup: bool) -> tuple:
    nodes = []
    judges = []
    path = []
    alive = True
    for i in range(min(gamma, max(0, len(y) - 1))):
        right = toy.rng.random() < alpha * (0.96**i) and alive
        wrong = [t for t in (toy.tok(w.encode()) for w in WRONG) if t != y[i]]
        tok = y[i] if right else toy.rng.choice(wrong)
        probs = distributions(toy, tok, y[i], right, not lookup)
        node = {
            "id": i,
            "parent": i - 1,
            "depth": i + 1,
            "tok": tok,
            "q": probs["q"],
            "how": "chosen" if lookup else "iid",
        }
        node |= (
            {"src": {"source": "context", "start": 3 + i, "end": 4 + i}}
            if lookup
            else {"top": probs["top_q"]}
        )
        nodes.append(node)
        verdict = ("accepted" if right else "rejected") if alive else "skipped"
        judges.append(_judge(i, probs, verdict, "one_hot" if lookup else "ratio"))
        path += [i] if verdict == "accepted" else []
        alive = alive and right
    return nodes, judges, path


def tree(toy: Toy, y: list[int], depth: int, width: int, alpha: float) -> tuple:
    nodes = []
    judges = []
    path = []
    parent = -1
    add = lambda up, tok, probs: nodes.append(  # noqa: E731
        {
            "id": len(nodes),
            "parent": up,
            "depth": 1 + (nodes[up]["depth"] if up >= 0 else 0),
            "tok": tok,
            "q": probs["q"],
            "how": "without_replacement",
            "top": probs["top_q"],
        }
    )
    alive = True
    for d in range(min(depth, max(0, len(y) - 1))):
        if not alive:
            break
        hit = toy.rng.choice([0, 0, 0, 1, 2]) if toy.rng.random() < alpha else -1
        wrong = toy.rng.sample([t for t in (toy.tok(w.encode()) for w in WRONG) if t != y[d]], width)
        level, nxt = [], None
        for s in range(width if d < 2 else 2):
            right = s == hit
            probs = distributions(toy, y[d] if right else wrong[s], y[d], right)
            add(parent, y[d] if right else wrong[s], probs)
            level.append(len(nodes) - 1)
            judges.append(
                _judge(
                    len(nodes) - 1,
                    probs,
                    "skipped" if nxt is not None else "accepted" if right else "rejected",
                    "sibling",
                )
            )
            nxt = len(nodes) - 1 if right else nxt
        for n in level:
            if n != nxt and len(nodes) < 30:
                extra = toy.rng.choice(wrong)
                probs = distributions(toy, extra, y[d], False)
                add(n, extra, probs)
                judges.append(_judge(len(nodes) - 1, probs, "skipped", "sibling"))
        alive, parent = nxt is not None, nxt if nxt is not None else parent
        path += [nxt] if nxt is not None else []
    return nodes, judges, path


def draft(toy: Toy, kind: str, rest: list[int], alpha: float, gamma: int) -> tuple:
    if kind == "plain":
        return [], [], []
    return (
        tree(toy, rest, 4, 3, alpha)
        if kind == "tree"
        else chain(toy, rest, gamma, 0.7 if kind == "lookup" else alpha, kind == "lookup")
    )


def _judge(node: int, probs: dict, verdict: str, rule: str) -> dict:
    if verdict == "skipped":
        return {
            "node": node,
            "rule": rule,
            "p": None,
            "q": probs["q"],
            "a": None,
            "u": None,
            "verdict": verdict,
        }
    out = {
        "node": node,
        "rule": rule,
        "p": probs["p"],
        "q": probs["q"],
        "a": probs["a"],
        "u": probs["u"],
        "verdict": verdict,
        "top_p": probs["top_p"],
    }
    return out | ({"resid": probs["resid"]} if verdict == "rejected" else {})


def header(method: str, prompt: str, mode: str, turns: list, tokens: int) -> dict:
    key, title, family = METHODS[method]
    return {
        "schema": "specviz-trace/1", "run_id": f"sample-{method}", "created": "2026-11-20T12:00:00Z", "mode": mode,
        "method": {"key": key, "title": title, "family": family, "exactness": "exact", "paper": "", "summary": ""}, "knobs": KNOBS[method],
        "prompt": {"text": prompt, "ids": [1, 2, 3], "turns": turns}, "sampling": {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "seed": 7},
        "max_new_tokens": tokens, "target": {"name": "toy-large", "layers": 8, "hidden": 256, "vocab": 4096, "parameters": 12_000_000, "backend": "toy"},
        "draft": {"name": "toy-small", "parameters": 1_000_000} if method in ("chain", "tree") else None, "tokenizer": "toy",
        "env": {"machine": "sample machine", "device": "cpu", "dtype": "float32", "threads": 2, "torch": "-", "transformers": "-"},
        "clock": "engine", "top_k_saved": 5, "baseline_run_id": None,
    }  # fmt: skip


def trace(
    method: str = "chain", *, lane: int = 0, text: str = STORY, seed: int = 7, mode: str = "simulated", prompt: str = "Explain briefly why the sky is blue.",
    turns: list | None = None, split: bool = False, alpha: float = 0.8, tokens: int | None = None, gamma: int = 4,
) -> list[dict]:  # fmt: skip
    toy = Toy(lane, seed)
    raw = pieces(text, split)
    while tokens and len(raw) < tokens:
        raw += pieces(" " + text, split)
    raw = raw[:tokens] if tokens else raw
    y = [toy.tok(r) for r in raw] + [toy.tok(b"<|end|>")]
    toy.put("header", **header(method, prompt, mode, turns or [], len(y)))
    clock = 0.038
    at = 0
    r = 0
    byte = 0
    sums = {"drafted": 0, "accepted": 0, "tried": 0, "draft": 0.0, "verify": 0.0}
    toy.put("prefill", t0=0.0, t1=clock, n=12)
    while at < len(y):
        want, rest = method, y[at:]
        if method == "lookup" and toy.rng.random() < 0.6:
            want = "plain"
        nodes, judges, path = draft(toy, want, rest, alpha, gamma)
        toy.vocab()
        t0 = clock
        dt = 0.0025 * max((n["depth"] for n in nodes), default=0) if method != "lookup" else 0.0004
        vt = 0.024 + 0.0003 * len(nodes)
        ot = 0.0015
        toy.put(
            "draft",
            round=r,
            t0=t0,
            t1=t0 + dt,
            kind={"tree": "tree"}.get(want, "chain") if nodes else "none",
            nodes=nodes,
        )
        toy.put("verify", round=r, t0=t0 + dt, t1=t0 + dt + vt, n_in=len(nodes) + 1)
        for j in judges:
            toy.put("judge", round=r, **j)
        clock = t0 + dt + vt + ot
        rejected = any(
            j["verdict"] == "rejected"
            for j in judges
            if j["node"] not in path and (nodes[j["node"]]["parent"] == (path[-1] if path else -1))
        )
        why = "correction" if rejected else "bonus" if nodes else "plain"
        tail = rest[len(path)]
        top = [[tail, 0.62]] + [
            [toy.tok(w.encode()), 0.3 / (k + 2)]
            for k, w in enumerate(WRONG[:3])
            if toy.tok(w.encode()) != tail
        ]
        toy.put(
            "commit",
            round=r,
            t=clock,
            path=path,
            tail={"tok": tail, "why": why, "p": 0.62, "top": top},
            n_new=len(path) + 1,
            kv={"before": 12 + at, "after": 13 + at + len(path), "dropped": len(nodes) - len(path)},
        )
        new, out = y[at : at + len(path) + 1], []
        for tok in new:
            b = next(k for k, v in toy.ids.items() if v == tok)
            b = b"" if b == b"<|end|>" else b
            out.append({"tok": tok, "b": base64.b64encode(b).decode(), "span": [byte, byte + len(b)]})
            byte += len(b)
        toy.put("text", round=r, pieces=out)
        toy.put(
            "timing",
            round=r,
            draft_ns=round(dt * 1e9),
            verify_ns=round(vt * 1e9),
            judge_ns=500_000,
            cache_ns=500_000,
            other_ns=500_000,
        )
        sums["drafted"] += len(nodes)
        sums["accepted"] += len(path)
        sums["tried"] += sum(j["verdict"] != "skipped" for j in judges)
        at, r = at + len(path) + 1, r + 1
    toy.put(
        "done",
        finish="stop",
        totals={
            "tokens": len(y),
            "rounds": r,
            **{k: sums[k] for k in ("drafted", "accepted", "tried")},
            "seconds": clock - 0.038,
            "prefill_seconds": 0.038,
        },
        peak_mem=None,
    )
    return toy.records


def bushy(records: list[dict], nodes: int, seed: int = 3) -> list[dict]:
    """The same run with every draft grown to `nodes` nodes: chosen ones that an earlier test made
    unnecessary."""
    rng = random.Random(seed)
    out = []
    seq = {}
    for r in records:
        new = [r]
        if r["type"] == "draft" and r["nodes"]:
            grown = [dict(n) for n in r["nodes"]]
            toks = [n["tok"] for n in grown]
            while len(grown) < nodes:
                up = rng.randrange(-1, len(grown))
                if up < 0 or grown[up]["depth"] < 9:
                    grown.append(
                        {
                            "id": len(grown),
                            "parent": up,
                            "depth": 1 + (grown[up]["depth"] if up >= 0 else 0),
                            "tok": rng.choice(toks),
                            "q": None,
                            "how": "chosen",
                        }
                    )
            more = [
                {
                    "type": "judge",
                    "lane": r["lane"],
                    "round": r["round"],
                    **_judge(n["id"], {"q": None}, "skipped", ""),
                }
                for n in grown[len(r["nodes"]) :]
            ]
            new = [{**r, "kind": "tree", "nodes": grown}, *more]
        for one in new:
            seq[r["lane"]] = seq.get(r["lane"], -1) + 1
            out.append({**one, "seq": seq[r["lane"]]})
    return out


def race(methods=("plain", "chain", "tree", "lookup"), **kw) -> list[dict]:
    return [rec for lane, m in enumerate(methods) for rec in trace(m, lane=lane, seed=7 + lane, **kw)]


def interleaved(records: list[dict]) -> list[dict]:
    """The lanes' records woven together round by round, as a live race sends them."""
    lanes: dict[int, list] = {}
    for rec in records:
        lanes.setdefault(rec["lane"], []).append(rec)
    keyed = [
        ((rec.get("round", -1 if rec["type"] != "done" else 10**9), lane), k, rec)
        for lane, rs in lanes.items()
        for k, rec in enumerate(_rounds(rs))
    ]
    return [rec for _, _, rec in sorted(keyed, key=lambda x: (x[0], x[1]))]


def _rounds(records: list[dict]) -> list[dict]:
    """A vocab record travels with the round after it."""
    now, out = -1, []
    for rec in reversed(records):
        now = rec.get("round", now if rec["type"] == "vocab" else -1)
        out.append(rec if "round" in rec or rec["type"] != "vocab" else {**rec, "round": now})
    return out[::-1]


def frames(records: list[dict], size: int = 40, window: int = 8) -> list[str]:
    """The values a live page receives: sliding windows of NDJSON frames, then the snapshot."""
    lines = [
        json.dumps({"s": i, "e": records[k : k + size], **({"new": True} if i == 0 else {})})
        for i, k in enumerate(range(0, len(records), size))
    ]
    values = ["\n".join(lines[max(0, i - window + 1) : i + 1]) for i in range(len(lines))]
    return [
        *values,
        json.dumps({"s": len(lines), "snap": True, "e": records, "status": {"state": "done", "text": ""}}),
    ]


if __name__ == "__main__":
    import sys

    names = sys.argv[1:] or ["plain", "chain", "tree", "lookup"]
    for rec in race(names):
        print(json.dumps(rec))
