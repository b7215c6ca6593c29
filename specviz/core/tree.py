"""The draft tree, proposed by a drafter and verified by a verifier. A chain is a tree; plain decoding uses an empty one.

Every node refers to the draw it came from, so that one rule can verify chains, i.i.d. siblings, siblings drawn without
replacement, chosen siblings (top-k, n-gram, retrieval) and mixtures. Three invariants keep this exact: sampled siblings
come before chosen ones; duplicate sampled siblings are never merged; if nodes were dropped because of their tokens, the
remaining nodes count as chosen.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from .draft_labels import CHOSEN, IID, WITHOUT_REPLACEMENT
from .errors import InvalidUse
from .lazy_scalars import is_lazy, token_tensor


class Origin(NamedTuple):  # made for every copied token: three times quicker than a frozen dataclass
    """Where a node's token was copied from: ``source`` ("context" or a datastore's name), token positions [start, end)."""

    source: str
    start: int
    end: int


@dataclass(frozen=True)
class Entry:
    """Hidden states for ``nodes`` that are not vocabulary tokens; they enter the network at ``layer`` (0: in place of
    the embeddings)."""

    layer: int
    nodes: tuple[int, ...]
    make: Callable[[Tensor], Tensor]  # hidden [rows, d] -> [len(nodes), d]


@dataclass(frozen=True, eq=False)
class DeviceTopology:
    """Topology of a tree on a device, for a target with static shapes: depths (on the host), parents [nodes], and the
    attention mask ``sees`` [1 + nodes, 1 + nodes] with row 0 for the root. Each row attends to itself, too."""

    depths: tuple[int, ...]
    parents: Tensor
    sees: Tensor


@dataclass(frozen=True)
class DraftTree:
    """Nodes in topological order under the root (-1, the last committed token).

    tokens   ids, -1 where a probe is not a vocabulary token
    parents  index of each node's parent, -1 = root; siblings in draw order, drawn before chosen
    draw     per node, the index of its draw; -1 = chosen, not drawn
    probs    [draws, vocab], the distribution of each draw's first token, in the target's width
    drawn    per draw, "iid", "without_replacement" or a label that some verifier lists
    probes   nodes that are scored but never accepted, never above a candidate
    inputs   rows that enter the network as hidden states instead of tokens
    origin   per node, where it was copied from (may be shorter than tokens)
    token_probs  per node, its probability under its draw's distribution; only where read from a device with everything else
    device_topology  of a tree that is still growing on a device
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    draw: tuple[int, ...] = ()
    probs: Tensor | None = None
    drawn: tuple[str, ...] = ()
    probes: frozenset[int] = frozenset()
    inputs: tuple[Entry, ...] = ()
    origin: tuple[Origin | None, ...] = ()
    token_probs: tuple[float, ...] | None = None
    device_topology: DeviceTopology | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        out: dict[int, list[int]] = {}
        for i, parent in enumerate(self.parents):
            if i not in self.probes:
                out.setdefault(parent, []).append(i)
        return out

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of each node from the root, 1 for its children."""
        if self.device_topology is not None:
            return self.device_topology.depths
        out: list[int] = []
        for parent in self.parents:
            out.append(1 if parent < 0 else out[parent] + 1)
        return tuple(out)

    def children(self, i: int) -> list[int]:
        """Return the candidates under node i (-1 = root), in draw order."""
        return self._children.get(i, [])

    def path(self, i: int) -> list[int]:
        """Return the nodes from below the root down to i."""
        out: list[int] = []
        while i >= 0:
            out.append(i)
            i = self.parents[i]
        return out[::-1]

    def label(self, i: int) -> str:
        return CHOSEN if self.draw[i] < 0 else self.drawn[self.draw[i]]

    def draft_probs(self, i: int) -> Tensor | None:
        """Return the distribution from which node i was sampled, given its earlier siblings; None for a chosen node."""
        k = self.draw[i]
        if k < 0:
            return None
        assert self.probs is not None  # a draw has a distribution
        row = self.probs[k]
        if self.drawn[k] == WITHOUT_REPLACEMENT:
            gone = [self.tokens[j] for j in self.children(self.parents[i]) if j < i and self.draw[j] == k]
            if gone:
                row = row.clone()
                row[gone] = 0
                row = row / row.sum()
        return row

    def prob(self, i: int) -> float | None:
        """Return the probability with which node i was sampled, given its earlier siblings; None for a chosen node."""
        if self.draw[i] >= 0 and self.token_probs is not None:
            return self.token_probs[i]
        probs = self.draft_probs(i)
        return None if probs is None else float(probs[self.tokens[i]])

    def token_probs_on(self, device: torch.device) -> Tensor | None:
        """Return ``token_probs`` as a tensor on the distributions' device; None on another device, and for draws without replacement."""
        if self.probs is None or self.probs.device != device or WITHOUT_REPLACEMENT in self.drawn:
            return None
        tokens = [token if is_lazy(token) else max(0, token) for token in self.tokens]
        return self.probs[token_tensor(device, [max(0, k) for k in self.draw]), token_tensor(device, tokens)]

    def add(self, token: int, parent: int, draw: int = -1, probe: bool = False) -> DraftTree:
        """Return the tree with one more node. For many nodes use TreeBuilder, which does not copy."""
        probes = self.probes | {len(self)} if probe else self.probes
        return replace(self, tokens=self.tokens + (token,), parents=self.parents + (parent,), draw=self.draw + (draw,), probes=probes)

    def begin(self, probs: Tensor, drawn: str) -> tuple[DraftTree, int]:
        """Open a draw from probs [vocab]; return the tree and the draw's index."""
        row = probs[None]
        rows = row if self.probs is None else torch.cat([self.probs, row])
        return replace(self, probs=rows, drawn=self.drawn + (drawn,)), len(self.drawn)

    def keep(self, nodes: Iterable[int], looked: bool) -> DraftTree:
        """Return the subtree on ``nodes`` (which must include all ancestors), renumbered.

        looked: whether the choice of nodes depended on the tokens of dropped nodes; then the remaining nodes count as
        chosen. Otherwise a prefix of each draw's siblings must be kept, or ValueError is raised: dropping an earlier
        sibling would change the distribution of a later one.
        """
        nodes = sorted(nodes)
        at = {c: i for i, c in enumerate(nodes)} | {-1: -1}
        if not looked:
            for k in range(len(self.drawn)):
                have = [c in at for c in range(len(self)) if self.draw[c] == k]
                if have != sorted(have, reverse=True):
                    raise InvalidUse("a cut that did not look must keep a prefix of each draw", "tree.cut_prefix")
        if any(self.parents[c] not in at for c in nodes):
            raise InvalidUse("a cut must keep the parents of what it keeps", "tree.cut_parents")
        inputs: list[Entry] = []
        for entry in self.inputs:
            if any(c in at for c in entry.nodes):
                if not all(c in at for c in entry.nodes):
                    raise InvalidUse("the rows of one Entry are kept together or not at all", "tree.cut_entry")
                inputs.append(replace(entry, nodes=tuple(at[c] for c in entry.nodes)))
        return replace(
            self,
            tokens=tuple(self.tokens[c] for c in nodes),
            parents=tuple(at[self.parents[c]] for c in nodes),
            draw=tuple(-1 if looked else self.draw[c] for c in nodes),
            probs=None if looked else self.probs,
            drawn=() if looked else self.drawn,
            probes=frozenset(at[c] for c in self.probes if c in at),
            inputs=tuple(inputs),
            origin=tuple(self.origin[c] if c < len(self.origin) else None for c in nodes) if self.origin else (),
            token_probs=None,
        )

    @classmethod
    def chain(cls, tokens: Sequence[int], probs: Tensor | None = None, drawn: str = IID) -> DraftTree:
        """Return a chain. With probs [len(tokens), vocab] each token was sampled from its row; without, the tokens were
        chosen."""
        n = len(tokens)
        draw, labels = ((-1,) * n, ()) if probs is None or not n else (tuple(range(n)), (drawn,) * n)
        return cls(tuple(tokens), tuple(range(-1, n - 1)), draw, probs if labels else None, labels)


@dataclass
class TreeBuilder:
    """A tree under construction; ``tree()`` returns it as a DraftTree."""

    tokens: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    draw: list[int] = field(default_factory=list[int])
    distributions: list[Tensor] = field(default_factory=list[Tensor])
    drawn: list[str] = field(default_factory=list[str])
    probes: set[int] = field(default_factory=set[int])
    inputs: list[Entry] = field(default_factory=list[Entry])
    origin: list[Origin | None] = field(default_factory=list[Origin | None])

    def __len__(self) -> int:
        return len(self.tokens)

    def begin(self, probs: Tensor, drawn: str) -> int:
        """Open a draw from probs [vocab]; return its index."""
        self.distributions.append(probs)
        self.drawn.append(drawn)
        return len(self.drawn) - 1

    def add(self, token: int, parent: int, draw: int = -1, probe: bool = False, origin: Origin | None = None) -> int:
        """Add a node; return its index."""
        index = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(parent)
        self.draw.append(draw)
        self.origin.append(origin)
        if probe:
            self.probes.add(index)
        return index

    def chain(self, tokens: list[int], origin: list[Origin | None]) -> None:
        """Add a chain of chosen nodes under the root."""
        index, n = len(self.tokens), len(tokens)
        self.tokens += tokens
        self.parents += (-1, *range(index, index + n - 1)) if n else ()
        self.draw += (-1,) * n
        self.origin += origin

    def tree(self) -> DraftTree:
        return DraftTree(
            tuple(self.tokens), tuple(self.parents), tuple(self.draw),
            torch.stack(self.distributions) if self.distributions else None, tuple(self.drawn),
            frozenset(self.probes), tuple(self.inputs),
            tuple(self.origin) if any(self.origin) else (),
        )
