"""What every target shares: which tokens lie in its cache, which in its scratch, and how the one becomes the other.

Slots are filled in order: the committed rows first, then the scratch, which is the root followed by the nodes of the tree
scored last. A target adds the network through three primitives: run rows, gather scratch rows, crop. Everything about tokens
(prefill, rewind, catch-up, following an accepted path) is here, once.
"""
from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Sequence

import torch
from torch import Tensor

from ..core import DraftTree, Scores, Verdict, common
from .rows import Growing, Rows

CHUNK = 512  # most prompt rows in one forward, so that masks stay small
FEW = 8  # rows that may wait for the next score()


class ContextOverflow(ValueError):
    """More tokens than the model can read."""


class CachedTarget:
    """Token bookkeeping over three primitives: ``_forward``, ``_gather``, ``_crop``.

    vocab, context (most tokens it reads), hidden (width), layers: facts of the network; busy: seconds spent inside forwards;
    passes: forwards run; seen: the committed tokens whose rows the cache holds.
    """

    capabilities: frozenset[str] = frozenset({"tree", "rewind"})
    name = "the model"
    vocab: int
    context: int
    hidden: int
    layers: int

    def __init__(self):
        self.busy, self.passes = 0.0, 0
        self.seen: list[int] = []
        self.root: int | None = None
        self._want: frozenset[str] = frozenset()
        self.forget()

    # --- what a target adds ----------------------------------------------------------------------------------------
    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the rows, leaving their keys and values in slots past+lo and on; logits and taps of these rows."""
        raise NotImplementedError(f"{type(self).__name__} has no network")

    def _gather(self, past: int, rows: list[int]) -> None:
        """Move scratch rows (given by index, increasing) to the front of the scratch."""
        raise NotImplementedError(f"{type(self).__name__} has no cache")

    def _crop(self, length: int) -> None:
        """Slots from ``length`` on are stale."""

    def expect(self, rows: int) -> None:
        """At most so many rows will be scored at once, as far as is known. A target of fixed shapes chooses one by it."""

    # --- the contract ----------------------------------------------------------------------------------------------
    def capture(self, names: frozenset[str]) -> None:
        """Ask for states along with scores. Raises ValueError for a state this target does not have."""
        for name in names:
            kind, _, layer = name.partition(":")
            known = "tap:final" if name == "final" else "tap:layer" if kind == "layer" and layer.isdigit() else ""
            if known not in self.capabilities or (layer and int(layer) >= self.layers):
                raise ValueError(f"{self.name} has no state named {name!r}")
        if self._want != names:
            self.settle()
            self._want = frozenset(names)
            self._drop()  # rows scored so far lack the new states

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Make the cache hold tokens[:-1]; the last token becomes the root.

        What agrees is kept, also rows of the scratch (followed by token); the rest is dropped, what is missing is fed. Taps
        hold every row fed, logits the last one only, and ``fed`` counts them. A few rows behind many, when nothing is tapped,
        wait and are fed together with the next score(): a draft model catches up without a forward of its own.
        Raises ContextOverflow, or ValueError when there is no token.
        """
        tokens = list(tokens)
        self._check(tokens)
        if tokens[-1] == self.root and tokens[:-1] == self.seen + self._waiting:
            return self._nothing()
        self._follow(tokens)
        keep = common(self.seen, tokens[:-1])
        del self.seen[keep:]
        self._drop()
        self.root, missing = tokens[-1], tokens[keep:-1]
        if keep and len(missing) <= FEW and not self._want:
            self._readable(missing)
            self._waiting = missing
            return self._nothing()
        return self._feed(missing)

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Logits and taps of the root and every node.

        ``start``: nodes before it are those of the last call, whose rows still lie in the scratch; only the rest is run, and
        the states an Entry sees are those of the rows run. Raises ValueError when the scratch holds something else.
        """
        rows = self._rows_to_run(tree, start)
        if rows is None:
            return self._held(tree)
        with self.timed():
            self.passes += 1
            return self._scored(tree, rows, *self._forward(rows))

    def _rows_to_run(self, tree: DraftTree, start: int = 0) -> Rows | None:
        """The rows that score() of this tree has to run; None where all lie in the scratch."""
        if self.root is None:
            raise ValueError("score() before sync(): there is no root")
        if self._waiting and tree.inputs:  # an Entry counts rows from the root
            self.settle()
        old = self._tree
        if start and (start >= self._rows or tree.tokens[:start] != old.tokens[:start] or tree.parents[:start] != old.parents[:start]):
            raise ValueError(f"the scratch does not hold the first {start} nodes of this tree")
        lone_root = not start and self._rows == 1 and len(tree) > 0 and not tree.inputs
        lo = start + 1 if start else int(lone_root)  # a root scored alone is not scored again below its first children
        if lo > len(tree):
            return None
        ids, waiting = self.ids_of(tree, lo), self._waiting
        if waiting:
            return Rows(_behind(waiting, self.root, tree), waiting + ids, len(self.seen), 0, False)
        return Rows(tree, ids, len(self.seen), lo, False)

    def _scored(self, tree: DraftTree, rows: Rows, logits: Tensor, hidden_states: dict[str, Tensor]) -> Scores:
        """What the rows of ``_rows_to_run`` gave becomes the scratch."""
        waiting, lo = len(self._waiting), rows.lo
        if waiting:
            logits, hidden_states = logits[waiting:], {name: states[waiting:] for name, states in hidden_states.items()}
            self.seen, self._waiting = self.seen + self._waiting, []
        if lo:
            logits, hidden_states = self._logits.add(lo, logits), {name: self._taps[name].add(lo, states) for name, states in hidden_states.items()}
        else:
            self._logits, self._taps = Growing(logits), {name: Growing(states) for name, states in hidden_states.items()}
        self._tree, self._rows = tree, len(tree) + 1
        return Scores(logits, hidden_states, len(self.seen))

    def _held(self, tree: DraftTree) -> Scores:
        """Scores of a tree whose rows lie in the scratch already."""
        n = len(tree) + 1
        return Scores(self._logits.first(n), {name: rows.first(n) for name, rows in self._taps.items()}, len(self.seen))

    def commit(self, verdict: Verdict) -> None:
        """Keep the root and the accepted path; the verdict's token becomes the root."""
        self._keep([0] + [i + 1 for i in verdict.path])
        self.root = verdict.token

    def close(self) -> None:
        """Give the cache's memory back. A later sync starts from nothing."""
        self.seen, self.root = [], None
        self._drop()

    # --- bookkeeping -----------------------------------------------------------------------------------------------
    def forget(self) -> None:
        """Forget the scratch."""
        self._tree, self._rows, self._waiting = DraftTree(), 0, []
        self._logits, self._taps = None, {}

    def _drop(self) -> None:
        self.forget()
        self._crop(len(self.seen))

    def _check(self, tokens: list[int]) -> None:
        if not tokens:
            raise ValueError("there is nothing to decode from: the prompt is empty")
        if len(tokens) > self.context:
            raise ContextOverflow(f"{len(tokens)} tokens are more than {self.name} can read ({self.context})")

    def _nothing(self) -> Scores:
        empty = torch.empty(0)
        return Scores(empty.view(0, 1).expand(0, self.vocab), {t: empty.view(0, 1).expand(0, self.hidden) for t in self._want},
                      len(self.seen))

    def _follow(self, tokens: list[int]) -> None:
        """Commit the scratch rows that lie on the path of tokens[:-1]."""
        n = len(self.seen)
        if not self._rows or len(tokens) < n + 2 or tokens[n] != self.root or tokens[:n] != self.seen:
            return
        made = {node for entry in self._tree.inputs for node in entry.nodes}  # these rows are not their token's
        ends, best = [-1], -1
        for token in tokens[n + 1:-1]:  # twins are followed side by side
            ends = [c for end in ends for c in self._tree.children(end) if self._tree.tokens[c] == token and c not in made]
            if not ends:
                break
            best = ends[0]
        self._keep([0] + [i + 1 for i in self._tree.path(best)])

    def _keep(self, rows: list[int]) -> None:
        past = len(self.seen)
        if rows[-1] >= self._rows:
            raise ValueError("commit() of a path that was not scored")
        if rows[-1] >= len(rows):
            self._gather(past, rows)
        self.seen += [self.root if row == 0 else int(self._tree.tokens[row - 1]) for row in rows]
        self._drop()

    def _feed(self, tokens: list[int]) -> Scores:
        """Run tokens as a chain behind the committed ones and commit them."""
        at, pieces, logits = len(self.seen), [], None
        for i in range(0, len(tokens), CHUNK):
            part = tokens[i:i + CHUNK]
            self._readable(part)
            with self.timed():
                self.passes += 1
                logits, hidden_states = self._forward(Rows(DraftTree.chain(part[1:]), part, len(self.seen), 0, True))
            self.seen += part
            pieces.append(hidden_states)
        if logits is None:
            return self._nothing()
        hidden_states = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
        return Scores(logits[-1:], hidden_states, at, len(tokens))

    def _readable(self, ids: Sequence[int]) -> None:
        if ids and (max(ids) >= self.vocab or min(ids) < 0):
            alien = next(i for i in ids if not 0 <= i < self.vocab)
            raise ValueError(f"token {alien} is not in the vocabulary of {self.name} ({self.vocab} tokens)")

    # --- for views -------------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Feed the rows that wait, so that the cache holds all of tokens[:-1]."""
        if self._waiting:
            self._feed(self._waiting)
            self._waiting = []

    def ids_of(self, tree: DraftTree, lo: int) -> list[int]:
        """Token ids of the scratch rows from lo on; a probe that is not a token reads as token 0."""
        ids = [max(int(token), 0) for token in (tree.tokens[lo - 1:] if lo else (self.root, *tree.tokens))]
        self._readable(ids)
        return ids

    @contextmanager
    def timed(self):
        """Around every forward: its time is ``busy``; when it fails, a new sync() must come first."""
        began = time.perf_counter()
        try:
            with torch.inference_mode():
                yield
        except BaseException:
            self.root = None
            self._drop()
            raise
        finally:
            self.busy += time.perf_counter() - began


def _behind(waiting: list[int], root: int, tree: DraftTree) -> DraftTree:
    """The rows waiting, the root and the tree as one tree under the first of them."""
    n = len(waiting)
    return DraftTree((*waiting[1:], root, *tree.tokens), (*range(-1, n - 1), *(parent + n for parent in tree.parents)),
                     (-1,) * (n + len(tree)))
