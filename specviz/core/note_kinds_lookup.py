"""Kinds of notes written by lookup drafters; part of the table in note_kinds.py."""
from __future__ import annotations

from .note_kind import IDS as _IDS
from .note_kind import Note
from .note_kind import note as _note

LOOKUPS: dict[str, Note] = {
    "match": _note(
        "match", "Where the end of the text was found before, and what is copied from there.",
        start=("the match begins here", 1), end=("and ends before this position", 3), n=("tokens that match", 2),
        copied=("tokens drafted from `end` on", 4), source_=("where, else this text", "answers")),
    "backoff": _note(
        "sources", "How long an n-gram each drafted token was predicted by (ANPD).",
        orders=("`[n, ...]`, one a drafted token", [4, 3, 2, 2]), longest=("the largest size that is counted", 5)),
    "suffix": _note(
        "match", "The longest suffix seen before and what follows it (SuffixDecoding).",
        source=("where it was seen", "context"), n=("tokens matched", 2), score=("accepted tokens expected", 1.5),
        nodes=("drafted", 4), chances=("`[0..1, ...]` of each node's path", [0.5, 0.4])),
    "retrieved": _note(
        "sources", "What a datastore knows after the end of the text (REST, SAM-Decoding with a store).",
        source=("the store", "stories"), n=("tokens matched", 2), places=("where they stand, counted", 12), nodes=("drafted", 4)),
    "neighbours": _note(
        "sources", "Places where the target was in a similar state (DReSD).",
        places=("`[position, ...]` of the token after each place", [4, 9]), likeness=("`[-1..1, ...]`", [0.9, 0.7]),
        nodes=("drafted", 4), source_=("a store, else this text", "stories"),
        how_=("`exact` or the index that was used", "exact")),
    "gate": _note(
        "sources", "Whether a copy is worth its rows (lookups with `caution` above 0); `kept` 0: it was seen and held back.",
        matched=("tokens before the copied place that agree with the end of the text", 2), found=("the draft's nodes", 6),
        kept=("those let through", 4), first=("learned chance that its first token is right", 0.6),
        next=("and the one after it", 0.8), row=("what a row adds to a pass, in passes", 0.1),
        extra=("what having a draft at all adds", 0.05),
        rest_=("rounds without a lookup that begin here, as the clock says that it takes a noticeable part of a pass", 2)),
    "successors": _note(
        "branches", "The table of successors the tree was read from (token recycling).",
        rows=("`[{tok, tokens, fresh}]`, the root's first, best successor first; `fresh`: written in the round before",
              [{"tok": 11, "tokens": _IDS, "fresh": True}, {"tok": 12, "tokens": _IDS, "fresh": False}]),
        keep=("successors kept a token", 4)),
    "pool": _note(
        "pool", "What has been gathered to guess from (token recycling; lookahead).",
        keys=("rows or keys known", 7), nodes_=("drafted", 4),
        guesses_=("`[[id, ...], ...]`: n-grams known for the last token, newest first", [_IDS, _IDS[:2]]),
        window_=("`[[id, ...], ...]`: the levels, the first without its column 0, which is the root", [_IDS, _IDS[1:]])),
    "search": _note(
        "sources", "A tree search over what followed each pair of tokens (ADED).",
        iterations=("of the search", 40), pairs=("known to the matrix", 90), visits=("of each node", [9, 5, 3, 1]),
        priors=("`[0..1, ...]` of each node", [0.5, 0.2, 0.1, 0.1])),
    "fused": _note(
        "sources", "Whose each node of a fused tree is (RASD, TR-Jacobi).",
        by=("`[name, ...]`: `draft`, `guess`, `retrieved` or `both`", ["draft", "retrieved", "both", "draft"]),
        found_=("retrieved nodes before pruning", 4), kept_=("and after", 2), places_=("places with guesses", 3)),
    "chunks": _note(
        "branches", "Which pieces of the prompt the drafter reads (RAPID).",
        kept=("`[{start, end, score}]`, in order", [{"start": 3, "end": 9, "score": 0.7}]), read=("tokens it reads", 40),
        of=("tokens there are", 90), whole=("a short prompt is read whole", False)),
}
