"""Plausible data of every lens, over the rounds of a hand-made trace."""

from __future__ import annotations

NODE = [11, 12, 13, 14]
LENSES: dict[str, dict] = {
    "match": {"start": 1, "end": 3, "n": 2, "copied": 4},
    "suffix": {"source": "context", "n": 2, "score": 1.5, "nodes": 4, "chances": [0.5, 0.4]},
    "pool": {"keys": 7, "guesses": [NODE, NODE[:2]], "window": [NODE, NODE[1:]]},
    "grid": {"block": NODE, "carried": 2},
    "confidence": {"expected": 1.4, "grown": 9, "kept": 4},
    "sequoia": {"accept": [0.6, 0.2], "nodes": 3, "depth": 2, "table": [[1.0, 1.5, None], [1.0, 1.6, 1.9]]},
    "staged": {"rounds": 2, "sizes": [2, 2]},
    "threshold": {"value": 0.4},
    "entropy": {"line": [0.1, 0.2, 0.5], "limit": 0.3},
    "length": {"gamma": 4, "acceptance": 0.7},
    "arms": {"arm": 1, "gammas": [2, 4, 8], "pulls": [3, 4, 1], "means": [0.5, 0.7, 0.2], "names": ["lookup", "chain of 4", "tree of 8"]},
    "arm": {"arm": 1, "of": 2},
    "drift": {"nats": [0.01, 0.2], "threshold": 0.09},
    "retrieved": {"source": "stories", "n": 2, "places": 12, "nodes": 4},
    "search": {"iterations": 40, "pairs": 90, "visits": [9, 5, 3, 1], "priors": [0.5, 0.2, 0.1, 0.1]},
    "fused": {"by": ["draft", "retrieved", "both", "draft"], "found": 4, "kept": 2},
    "neighbours": {"places": [4, 9], "likeness": [0.9, 0.7], "nodes": 4},
    "backoff": {"orders": [4, 3, 2, 2], "longest": 5},
    "gate": {"matched": 2, "found": 6, "kept": 4, "first": 0.6, "next": 0.8, "row": 0.1},
    "layers": {"count": 8, "skipped": [3, 5, 6], "reused": 2, "matched": 0.8, "trials": 9},
    "side_by_side": {"layers": 8, "size": 3, "groups": 2, "exact": 1, "steps": 4},
    "unit": {"tokens": NODE, "chances": [0.9, 0.5, 0.4, 0.2], "blanks": 3},
    "timeline": {"mode": "post-verify", "clock": "simulated", "draft": [0.1, 0.12], "verify": [0.1, 0.14], "waiting": 3, "written": 4, "kept": 2},
    "fallback": {"at": 9, "sure": [0.9, 0.8, 0.4], "least": 0.6, "why": "unsure"},
    "rollback": {"at": 9, "nats": [0.2, 6.5], "bound": 5.0, "back": True, "gone": 2},
    "switch": {"writer": "small", "entropy": 0.4, "mean": 0.9, "limit": 1.5},
    "combined": {"tokens": NODE, "asked": [True, False, True, True], "large": [0.5, 0.2, 0.9, 0.1], "small": [0.4, 0.9, 0.8, 0.1], "combined": [0.6, 0.9, 1.0, 0.2]},
    "grade": {"grade": 7.4, "least": 7.0, "passed": True, "length": 9},
    "step": {"step": 2, "writer": "small", "tokens": NODE},
    "optimum": {"drafts": 3, "accept": 0.7, "best": 0.8, "gap": 0.1},
    "alignment": {"theirs": [["The s", 0, 5], ["ky", 5, 7]], "tokens": NODE[:2], "ours": [[0, 3], [3, 7]], "shared": [True, False], "overlap": 0.6},
    "branches": {"titles": [{"tokens": NODE}], "parts": [{"tokens": NODE}], "passes": 3},
    "superposed": {"drafts": [{"tokens": NODE, "chance": 0.6}, {"tokens": NODE[::-1], "chance": 0.4}], "weights": [[0.6, 0.4]], "passes": 4},
    "successors": {"rows": [{"tok": 11, "tokens": NODE, "fresh": True}, {"tok": 12, "tokens": NODE, "fresh": False}], "keep": 4},
    "chunks": {"kept": [{"start": 3, "end": 9, "score": 0.7}], "read": 40, "of": 90, "whole": False},
    "enriched": {"weight": 0.3, "tests": [{"tok": 11, "p": 0.4, "q": 0.5, "moved": 0.45}]},
}


def lensed(records: list[dict], lane: int, data: dict[str, dict] = LENSES, every: int = 1) -> list[dict]:
    """The records with lens records of every kind after each round's text."""
    out, seq = [], -1
    for r in records:
        if r["lane"] != lane:
            out.append(r)
            continue
        new = [r]
        if r["type"] == "text" and r["round"] % every == 0:
            new += [{"type": "lens", "lane": lane, "round": r["round"], "kind": kind, "data": d} for kind, d in data.items()]
        for one in new:
            seq += 1
            out.append({**one, "seq": seq})
    return out
