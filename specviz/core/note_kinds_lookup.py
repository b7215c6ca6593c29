"""Kinds of notes written by lookup drafters; part of the table in note_kinds.py."""

from __future__ import annotations

from .note_kind import IDS as _IDS
from .note_kind import Note
from .note_kind import note as _note

LOOKUPS: dict[str, Note] = {
    "match": _note(
        "match",
        "Where the suffix of the text occurred before, and what is copied from there.",
        start=("first position of the match", 1),
        end=("position after the match", 3),
        n=("tokens that match", 2),
        copied=("tokens drafted from `end` on", 4),
        source_=("name of the source; default: this text", "answers"),
    ),
    "backoff": _note(
        "sources",
        "Size of the n-gram that predicted each drafted token (ANPD).",
        orders=("`[n, ...]`, one per drafted token", [4, 3, 2, 2]),
        longest=("largest n", 5),
    ),
    "suffix": _note(
        "match",
        "The longest suffix seen before and what follows it (SuffixDecoding).",
        source=("where it occurred", "context"),
        n=("tokens matched", 2),
        score=("expected accepted tokens", 1.5),
        nodes=("drafted", 4),
        chances=("`[0..1, ...]` of each node's path", [0.5, 0.4]),
    ),
    "retrieved": _note(
        "sources",
        "Continuations of the suffix in a datastore (REST, SAM-Decoding with a datastore).",
        source=("the store", "stories"),
        n=("tokens matched", 2),
        places=("number of occurrences", 12),
        nodes=("drafted", 4),
    ),
    "neighbours": _note(
        "sources",
        "Positions with a similar hidden state of the target (DReSD).",
        places=("`[position, ...]` of the token after each match", [4, 9]),
        likeness=("`[-1..1, ...]`, cosine similarities", [0.9, 0.7]),
        nodes=("drafted", 4),
        source_=("name of a datastore; default: this text", "stories"),
        how_=("`exact` or the index that was used", "exact"),
    ),
    "gate": _note(
        "sources",
        "Whether a copied draft is worth its verification cost (lookups with `caution` > 0); `kept` 0: not drafted.",
        matched=("matching tokens before the copied position", 2),
        found=("the draft's nodes", 6),
        kept=("nodes kept", 4),
        first=("estimated acceptance probability of the first token", 0.6),
        next=("and of the next one", 0.8),
        row=("extra cost per token, in passes", 0.1),
        extra=("extra cost of any draft, in passes", 0.05),
        rest_=("rounds without a lookup from here on, because lookups take a noticeable share of a pass", 2),
    ),
    "successors": _note(
        "branches",
        "The table of successors the tree was read from (token recycling).",
        rows=(
            "`[{tok, tokens, fresh}]`, the root's first, best successor first; `fresh`: updated in the previous round",
            [{"tok": 11, "tokens": _IDS, "fresh": True}, {"tok": 12, "tokens": _IDS, "fresh": False}],
        ),
        keep=("successors per token", 4),
    ),
    "pool": _note(
        "pool",
        "Size of the table or n-gram pool (token recycling; lookahead).",
        keys=("rows or keys known", 7),
        nodes_=("drafted", 4),
        guesses_=("`[[id, ...], ...]`: n-grams known for the last token, newest first", [_IDS, _IDS[:2]]),
        window_=(
            "`[[id, ...], ...]`: the levels, the first without its column 0, which is the root",
            [_IDS, _IDS[1:]],
        ),
    ),
    "search": _note(
        "sources",
        "A tree search over the tri-gram matrix (ADED).",
        iterations=("of the search", 40),
        pairs=("token pairs in the matrix", 90),
        visits=("of each node", [9, 5, 3, 1]),
        priors=("`[0..1, ...]` of each node", [0.5, 0.2, 0.1, 0.1]),
    ),
    "fused": _note(
        "sources",
        "Which drafter proposed each node of a fused tree (RASD, TR-Jacobi).",
        by=(
            "`[name, ...]`: `draft`, `guess`, `retrieved` or `both`",
            ["draft", "retrieved", "both", "draft"],
        ),
        found_=("retrieved nodes before pruning", 4),
        kept_=("and after pruning", 2),
        places_=("positions with guesses", 3),
    ),
    "chunks": _note(
        "branches",
        "Which chunks of the prompt the draft model reads (RAPID).",
        kept=("`[{start, end, score}]`, in order", [{"start": 3, "end": 9, "score": 0.7}]),
        read=("tokens it reads", 40),
        of=("tokens of the prompt", 90),
        whole=("whether a short prompt is read as a whole", False),
    ),
}
