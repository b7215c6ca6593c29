"""Lens records among the rounds of a hand-made trace."""

from __future__ import annotations

from specviz.methods import note_kinds

LENSES = {kind: note.example for kind, note in note_kinds().items()}


def lensed(records: list[dict], lane: int, data: dict[str, dict] = LENSES, every: int = 1) -> list[dict]:
    """The records with lens records of every kind after each round's text."""
    out, seq = [], -1
    for r in records:
        if r["lane"] != lane:
            out.append(r)
            continue
        new = [r]
        if r["type"] == "text" and r["round"] % every == 0:
            new += [
                {"type": "lens", "lane": lane, "round": r["round"], "kind": kind, "data": d}
                for kind, d in data.items()
            ]
        for one in new:
            seq += 1
            out.append({**one, "seq": seq})
    return out
