"""KV cache bookkeeping shared by every target: which tokens are cached, which draft rows follow them, and
how accepted draft rows are committed.

A forward pass works on rows; one row is one position (token). Slots of the KV cache are filled in order:
the committed rows first, then the draft rows (row 0: the root, row i + 1: node i of the last scored tree),
which are not committed yet. A target adds the network through three primitives: run rows, gather draft
rows, crop. The handling of tokens (prefill, rewind, catch-up, commit of an accepted path) is implemented
here, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..core import DraftTree, Scores, Verdict, common_prefix_length
from ..core.errors import CodedError, InvalidUse
from ..core.work_time import work_seconds
from .rows import AppendableRows, Rows

PREFILL_CHUNK = 512  # largest number of prompt tokens in one forward pass, so that masks stay small
MAX_PENDING = 8  # largest number of tokens deferred to the next score()


class ContextOverflow(CodedError, ValueError):
    """Error: the text is longer than the context of the model."""


class CachedTarget:
    """Base class of targets: bookkeeping of the tokens in the KV cache. A subclass implements the network
    by three primitives: ``_forward``, ``_gather``, ``_crop``.

    vocab (size of the vocabulary), context (longest text in tokens), hidden (width), layers: sizes of the
    network; busy: seconds spent in forward passes; passes: number of forward passes; cached_tokens: the
    committed tokens that are in the cache; root: the last token of the text, which is not cached yet;
    max_pending: largest number of tokens that ``sync`` defers; prefix_id, caption: see CapableTarget and
    Kit.
    """

    capabilities: frozenset[str] = frozenset({"tree", "rewind"})
    name = "the model"
    max_pending = MAX_PENDING
    prefix_id = ""  # of rows before the first token that are not tokens; equal ids: equal rows
    caption: tuple[int, ...] = ()  # tokens that name what such rows show
    vocab: int
    context: int
    hidden: int
    layers: int

    def __init__(self):
        self.busy, self.passes = 0.0, 0
        self.cached_tokens: list[int] = []
        self.root: int | None = None
        self._want: frozenset[str] = frozenset()
        self._tree, self._rows = DraftTree(), 0
        self._pending: list[int] = []
        self._logits: AppendableRows | None = None
        self._hidden_states: dict[str, AppendableRows] = {}
        self.drop_draft_rows()

    # --- implemented by a target ----------------------------------------------------------------------------------------
    def _forward(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the rows and store their keys and values from slot past+lo on; return their logits and
        captured hidden states."""
        raise NotImplementedError(f"{type(self).__name__} has no network")

    def _gather(self, past: int, rows: list[int]) -> None:
        """Move these draft rows (given by index, increasing) to the first draft slots."""
        raise NotImplementedError(f"{type(self).__name__} has no cache")

    def _crop(self, length: int) -> None:
        """Make the slots from ``length`` on free. Nothing to do where the next rows simply overwrite them;
        a subclass with other state overrides this."""

    def _restorable(self, length: int) -> int:
        """Return the largest number of committed tokens, at most ``length``, that the cache can be brought
        back to."""
        return length

    def set_picture(self, pixels: Any) -> None:
        """Set the picture that the model reads before every text from now on. Raises InvalidUse if the
        target reads no pictures."""
        raise InvalidUse(f"{self.name} reads no pictures", "target.picture")

    def expect(self, rows: int) -> None:
        """Announce the largest number of rows (root and draft nodes) of one pass. A target with static
        shapes chooses its bucket by it; others ignore it."""

    # --- the contract ----------------------------------------------------------------------------------------------
    def capture(self, names: frozenset[str]) -> None:
        """Request hidden states along with the logits: "final" (after the final norm), "layer:k" (input of
        layer k). Raises InvalidUse (a ValueError) for a state this target does not have."""
        for name in names:
            kind, _, layer = name.partition(":")
            known = (
                "tap:final" if name == "final" else "tap:layer" if kind == "layer" and layer.isdigit() else ""
            )
            if known not in self.capabilities or (layer and int(layer) >= self.layers):
                raise InvalidUse(f"{self.name} has no state named {name!r}", "target.state")
        if self._want != names:
            self.flush()
            self._want = frozenset(names)
            self._drop()  # rows scored before lack the new states

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Bring the KV cache to tokens[:-1]; the last token becomes the root.

        The common prefix is kept, including draft rows that lie on the text's path; the rest is dropped,
        and missing tokens are computed. The returned hidden states cover every computed token, the logits
        only the last one; ``num_computed`` counts them. If no hidden states are captured, a few missing
        tokens are deferred to the next score(), so that a draft model catches up without a pass of its own.
        Raises ContextOverflow, or ValueError if there is no token.
        """
        tokens = list(tokens)
        self._check(tokens)
        if tokens[-1] == self.root and tokens[:-1] == self.cached_tokens + self._pending:
            return self._nothing()
        self._follow(tokens)
        keep = self._restorable(common_prefix_length(self.cached_tokens, tokens[:-1]))
        del self.cached_tokens[keep:]
        self._drop()
        self.root, missing = tokens[-1], tokens[keep:-1]
        if keep and len(missing) <= self.max_pending and not self._want:
            self._readable(missing)
            self._pending = missing
            return self._nothing()
        return self._extend(missing)

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return logits and captured hidden states of the root and every node, from one forward pass.

        start: number of leading nodes that were scored by the previous call and whose draft rows are still
        in the cache; only the other rows are run. A HiddenInput gives states for rows that are run. Raises
        InvalidUse (a ValueError) if the draft rows are those of other nodes.
        """
        rows = self._rows_to_run(tree, start)
        if rows is None:
            return self._held(tree)
        with self.timed():
            self.passes += 1
            return self._scored(tree, rows, *self._forward(rows))

    def _rows_to_run(self, tree: DraftTree, start: int = 0) -> Rows | None:
        """Return the rows that score() of this tree has to run; None if all of them are cached draft rows."""
        root = self.root
        if root is None:
            raise InvalidUse("score() before sync(): there is no root", "target.not_synced")
        if self._pending and tree.inputs:  # an Entry addresses rows relative to the root
            self.flush()
        old = self._tree
        if start and (
            start >= self._rows
            or tree.tokens[:start] != old.tokens[:start]
            or tree.parents[:start] != old.parents[:start]
        ):
            raise InvalidUse(
                f"the draft rows are not those of the first {start} nodes of this tree", "target.scratch"
            )
        lone_root = not start and self._rows == 1 and len(tree) > 0 and not tree.inputs
        lo = (
            start + 1 if start else int(lone_root)
        )  # a root scored alone is not scored again with its first children
        if lo > len(tree):
            return None
        ids, pending = self.row_token_ids(tree, lo), self._pending
        if pending:
            return Rows(
                _prepend_pending(pending, root, tree), pending + ids, len(self.cached_tokens), 0, False
            )
        return Rows(tree, ids, len(self.cached_tokens), lo, False)

    def _scored(
        self, tree: DraftTree, rows: Rows, logits: Tensor, hidden_states: dict[str, Tensor]
    ) -> Scores:
        """Store the results of ``_rows_to_run`` as the draft rows and return the Scores of the tree."""
        pending, lo = len(self._pending), rows.lo
        if pending:
            logits, hidden_states = (
                logits[pending:],
                {name: states[pending:] for name, states in hidden_states.items()},
            )
            self.cached_tokens, self._pending = self.cached_tokens + self._pending, []
        if lo:
            assert self._logits is not None  # the rows before lo are draft rows
            logits = self._logits.add(lo, logits)
            hidden_states = {
                name: self._hidden_states[name].add(lo, states) for name, states in hidden_states.items()
            }
        else:
            self._logits = AppendableRows(logits)
            self._hidden_states = {name: AppendableRows(states) for name, states in hidden_states.items()}
        self._tree, self._rows = tree, len(tree) + 1
        return Scores(logits, hidden_states, len(self.cached_tokens))

    def _held(self, tree: DraftTree) -> Scores:
        """Return the scores of a tree whose rows are all cached draft rows."""
        n = len(tree) + 1
        assert self._logits is not None
        return Scores(
            self._logits.first(n),
            {name: rows.first(n) for name, rows in self._hidden_states.items()},
            len(self.cached_tokens),
        )

    def commit(self, verdict: Verdict) -> None:
        """Keep the root and the accepted path in the KV cache; the verdict's token becomes the root."""
        self._keep([0] + [i + 1 for i in verdict.path])
        self.root = verdict.token

    def close(self) -> None:
        """Free the KV cache. A later sync starts with an empty one."""
        self.cached_tokens, self.root = [], None
        self._drop()

    # --- bookkeeping -----------------------------------------------------------------------------------------------
    def drop_draft_rows(self) -> None:
        """Drop the draft rows and the deferred tokens. The committed tokens stay in the cache."""
        self._tree = DraftTree()
        self._rows = 0
        self._pending = []
        self._logits, self._hidden_states = None, {}

    def _drop(self) -> None:
        self.drop_draft_rows()
        self._crop(len(self.cached_tokens))

    def _check(self, tokens: list[int]) -> None:
        if not tokens:
            raise ValueError("there is nothing to decode from: the prompt is empty")
        if len(tokens) > self.context:
            raise ContextOverflow(
                f"{len(tokens)} tokens exceed the context of {self.name} ({self.context})", "context.overflow"
            )

    def _nothing(self) -> Scores:
        empty = torch.empty(0)
        return Scores(
            empty.view(0, 1).expand(0, self.vocab),
            {t: empty.view(0, 1).expand(0, self.hidden) for t in self._want},
            len(self.cached_tokens),
        )

    def _follow(self, tokens: list[int]) -> None:
        """Commit the draft rows that lie on the path of tokens[:-1]."""
        n = len(self.cached_tokens)
        if (
            not self._rows
            or len(tokens) < n + 2
            or tokens[n] != self.root
            or tokens[:n] != self.cached_tokens
        ):
            return
        made = {
            node for entry in self._tree.inputs for node in entry.nodes
        }  # these rows hold replaced states
        ends, best = [-1], -1
        for token in tokens[n + 1 : -1]:  # duplicate siblings are followed in parallel
            ends = [
                c
                for end in ends
                for c in self._tree.children(end)
                if self._tree.tokens[c] == token and c not in made
            ]
            if not ends:
                break
            best = ends[0]
        self._keep([0] + [i + 1 for i in self._tree.path(best)])

    def _keep(self, rows: list[int]) -> None:
        past = len(self.cached_tokens)
        if rows[-1] >= self._rows:
            raise InvalidUse("commit() of a path that was not scored", "target.not_scored")
        if rows[-1] >= len(rows):
            self._gather(past, rows)
        root = self.root
        assert root is not None  # scored rows have a root
        self.cached_tokens += [root if row == 0 else int(self._tree.tokens[row - 1]) for row in rows]
        self._drop()

    def _extend(self, tokens: list[int]) -> Scores:
        """Run tokens as a chain after the committed ones and commit them."""
        at = len(self.cached_tokens)
        pieces = []
        logits = None
        for i in range(0, len(tokens), PREFILL_CHUNK):
            part = tokens[i : i + PREFILL_CHUNK]
            self._readable(part)
            with self.timed():
                self.passes += 1
                logits, hidden_states = self._forward(
                    Rows(DraftTree.chain(part[1:]), part, len(self.cached_tokens), 0, True)
                )
            self.cached_tokens += part
            pieces.append(hidden_states)
        if logits is None:
            return self._nothing()
        hidden_states = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
        return Scores(logits[-1:], hidden_states, at, len(tokens))

    def _readable(self, ids: Sequence[int]) -> None:
        if ids and (max(ids) >= self.vocab or min(ids) < 0):
            alien = next(i for i in ids if not 0 <= i < self.vocab)
            raise InvalidUse(
                f"token {alien} is not in the vocabulary of {self.name} ({self.vocab} tokens)", "target.token"
            )

    # --- used by views -------------------------------------------------------------------------------------------------
    def flush(self) -> None:
        """Compute the tokens that ``sync`` deferred, so that the cache holds all of tokens[:-1]."""
        if self._pending:
            self._extend(self._pending)
            self._pending = []

    def row_token_ids(self, tree: DraftTree, lo: int) -> list[int]:
        """Return the token ids of the draft rows from row ``lo`` on (row 0: the root, row i + 1: node i). A
        node without a vocabulary token (-1) gets id 0; its hidden state is replaced later."""
        ids = [max(int(token), 0) for token in self._tokens_from(tree, lo)]
        self._readable(ids)
        return ids

    def _tokens_from(self, tree: DraftTree, lo: int) -> tuple[int, ...]:
        """Return the tokens of the draft rows from row ``lo`` on, as they are in the tree."""
        if lo:
            return tree.tokens[lo - 1 :]
        assert self.root is not None
        return self.root, *tree.tokens

    @contextmanager
    def timed(self):
        """Context manager around every forward pass: adds its duration to ``busy``. If the pass fails, the
        target must be synced again before its next use."""
        began = work_seconds()
        try:
            with torch.inference_mode():
                yield
        except BaseException:
            self.root = None
            self._drop()
            raise
        finally:
            self.busy += work_seconds() - began


def _prepend_pending(pending: list[int], root: int, tree: DraftTree) -> DraftTree:
    """Return deferred tokens, root and tree as one tree below the first deferred token."""
    n = len(pending)
    return DraftTree(
        (*pending[1:], root, *tree.tokens),
        (*range(-1, n - 1), *(parent + n for parent in tree.parents)),
        (-1,) * (n + len(tree)),
    )
