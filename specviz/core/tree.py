"""The draft tree, proposed by a drafter and verified by a verifier. A chain is a tree; plain decoding uses
an empty one.

Every sampled node refers to the draw (an opened distribution) that it came from, so that one rule can
verify chains, i.i.d. siblings, siblings drawn without replacement, chosen siblings (top-k, n-gram,
retrieval) and mixtures. Three invariants keep this exact: sampled siblings come before chosen ones;
duplicate sampled siblings are never merged; if nodes were dropped because of their tokens, the remaining
nodes count as chosen.
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
    """Where a copied draft token comes from: ``source`` ("context" or a datastore's name) and token
    positions [start, end) in it."""

    source: str
    start: int
    end: int


@dataclass(frozen=True)
class HiddenInput:
    """Hidden states that replace those of some nodes at the input of a layer, for nodes whose input is not
    a vocabulary token (a mask token, a mixture of tokens).

    layer: index of the layer (0: in place of the embeddings); nodes: whose states are replaced; make:
    returns the new states [len(nodes), hidden], given the states [rows, hidden] of the whole pass at that
    layer.
    """

    layer: int
    nodes: tuple[int, ...]
    make: Callable[[Tensor], Tensor]  # hidden [rows, d] -> [len(nodes), d]


@dataclass(frozen=True, eq=False)
class DeviceTopology:
    """Topology of a draft tree whose parents are on a device, for a target with static shapes: depths (on
    the host), parents [nodes], and the tree attention mask ``sees`` [1 + nodes, 1 + nodes], bool, with row
    0 for the root. Each row attends to itself, too."""

    depths: tuple[int, ...]
    parents: Tensor
    sees: Tensor


@dataclass(frozen=True)
class DraftTree:
    """A draft tree: nodes in topological order under the root (-1, the last committed token).

    tokens   token ids; -1 for a probe without a vocabulary token
    parents  index of each node's parent, -1 = root; siblings in draw order, sampled ones before chosen ones
    draw     per node, the index of the draw that it was sampled in; -1 = chosen, not sampled
    probs    [draws, vocab], the distribution of each draw's first token, over the target's vocabulary
    drawn    per draw, its label: "iid", "without_replacement" or another one that some verifier lists
    probes   nodes that are scored for the drafter's own use and never accepted; no candidate is below one
    inputs   hidden states that replace those of some nodes at a layer
    origin   per node, where it was copied from (may be shorter than tokens)
    token_probs  per node, its probability under its draw's distribution, where these were read from a device
    device_topology  depths and mask of a tree that is still growing on a device
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    draw: tuple[int, ...] = ()
    probs: Tensor | None = None
    drawn: tuple[str, ...] = ()
    probes: frozenset[int] = frozenset()
    inputs: tuple[HiddenInput, ...] = ()
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
        """Depth of each node: 1 for the children of the root."""
        if self.device_topology is not None:
            return self.device_topology.depths
        out: list[int] = []
        for parent in self.parents:
            out.append(1 if parent < 0 else out[parent] + 1)
        return tuple(out)

    def children(self, i: int) -> list[int]:
        """Return the children of node i (-1 = root) in draw order, without probes."""
        return self._children.get(i, [])

    def path(self, i: int) -> list[int]:
        """Return the nodes on the path from the root (not included) down to node i."""
        out: list[int] = []
        while i >= 0:
            out.append(i)
            i = self.parents[i]
        return out[::-1]

    def label(self, i: int) -> str:
        """Return how node i was produced, one of core/draft_labels.py: "chosen", or the label of its draw
        ("iid", "without_replacement", ...)."""
        return CHOSEN if self.draw[i] < 0 else self.drawn[self.draw[i]]

    def draft_probs(self, i: int) -> Tensor | None:
        """Return the distribution [vocab] from which node i was sampled, given its earlier siblings; None
        for a chosen node."""
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
        """Return the draft probability of node i: with which its token was sampled, given its earlier
        siblings; None for a chosen node."""
        if self.draw[i] >= 0 and self.token_probs is not None:
            return self.token_probs[i]
        probs = self.draft_probs(i)
        return None if probs is None else float(probs[self.tokens[i]])

    def after_end(self, stop: frozenset[int]) -> set[int]:
        """Return the candidates below an end token: nothing is written after it. Empty if there are none, if
        tokens are still on a device, or if the tree has hidden inputs or probes below an end token, which
        their drafter places."""
        if not stop or self.inputs or any(map(is_lazy, self.tokens)):
            return set()
        after: set[int] = set()
        for node, parent in enumerate(self.parents):
            if parent in after or parent >= 0 and parent not in self.probes and self.tokens[parent] in stop:
                if node in self.probes:
                    return set()
                after.add(node)
        return after

    def token_probs_on(self, device: torch.device) -> Tensor | None:
        """Return the draft probability of each node, [nodes], on the device where the distributions are.
        None if they are on another device or a draw is without replacement."""
        if self.probs is None or self.probs.device != device or WITHOUT_REPLACEMENT in self.drawn:
            return None
        tokens = [token if is_lazy(token) else max(0, token) for token in self.tokens]
        return self.probs[token_tensor(device, [max(0, k) for k in self.draw]), token_tensor(device, tokens)]

    def add(self, token: int, parent: int, draw: int = -1, probe: bool = False) -> DraftTree:
        """Return the tree with one more node under node ``parent``. draw: index of its draw, -1 for a
        chosen node. For many nodes use TreeBuilder, which does not copy."""
        probes = self.probes | {len(self)} if probe else self.probes
        return replace(
            self,
            tokens=self.tokens + (token,),
            parents=self.parents + (parent,),
            draw=self.draw + (draw,),
            probes=probes,
        )

    def begin(self, probs: Tensor, drawn: str) -> tuple[DraftTree, int]:
        """Open a draw: add a distribution probs [vocab] that nodes are sampled from. drawn: its label.
        Return the tree and the draw's index."""
        row = probs[None]
        rows = row if self.probs is None else torch.cat([self.probs, row])
        return replace(self, probs=rows, drawn=self.drawn + (drawn,)), len(self.drawn)

    def keep(self, nodes: Iterable[int], by_token: bool) -> DraftTree:
        """Return the subtree of ``nodes`` (which must include all ancestors), renumbered.

        by_token: whether the choice of nodes depended on the tokens of dropped nodes; then the remaining
        nodes count as chosen. Otherwise a prefix of each draw's siblings must be kept, because dropping an
        earlier sibling would change the distribution of a later one. Raises InvalidUse (a ValueError) for
        any other choice.
        """
        nodes = sorted(nodes)
        at = {c: i for i, c in enumerate(nodes)} | {-1: -1}
        if not by_token:
            for k in range(len(self.drawn)):
                have = [c in at for c in range(len(self)) if self.draw[c] == k]
                if have != sorted(have, reverse=True):
                    raise InvalidUse(
                        "a cut that did not look must keep a prefix of each draw", "tree.cut_prefix"
                    )
        if any(self.parents[c] not in at for c in nodes):
            raise InvalidUse("a cut must keep the parents of what it keeps", "tree.cut_parents")
        inputs: list[HiddenInput] = []
        for entry in self.inputs:
            if any(c in at for c in entry.nodes):
                if not all(c in at for c in entry.nodes):
                    raise InvalidUse(
                        "the rows of one Entry are kept together or not at all", "tree.cut_entry"
                    )
                inputs.append(replace(entry, nodes=tuple(at[c] for c in entry.nodes)))
        return replace(
            self,
            tokens=tuple(self.tokens[c] for c in nodes),
            parents=tuple(at[self.parents[c]] for c in nodes),
            draw=tuple(-1 if by_token else self.draw[c] for c in nodes),
            probs=None if by_token else self.probs,
            drawn=() if by_token else self.drawn,
            probes=frozenset(at[c] for c in self.probes if c in at),
            inputs=tuple(inputs),
            origin=tuple(self.origin[c] if c < len(self.origin) else None for c in nodes)
            if self.origin
            else (),
            token_probs=None,
        )

    @classmethod
    def chain(cls, tokens: Sequence[int], probs: Tensor | None = None, drawn: str = IID) -> DraftTree:
        """Return a chain. With probs [len(tokens), vocab] each token was sampled from its row and gets the
        label ``drawn``; without, the tokens were chosen."""
        n = len(tokens)
        draw, labels = ((-1,) * n, ()) if probs is None or not n else (tuple(range(n)), (drawn,) * n)
        return cls(tuple(tokens), tuple(range(-1, n - 1)), draw, probs if labels else None, labels)


@dataclass
class TreeBuilder:
    """A draft tree under construction, with the fields of DraftTree as lists; ``tree()`` returns it as a
    DraftTree. distributions: the [vocab] distribution of each draw."""

    tokens: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    draw: list[int] = field(default_factory=list[int])
    distributions: list[Tensor] = field(default_factory=list[Tensor])
    drawn: list[str] = field(default_factory=list[str])
    probes: set[int] = field(default_factory=set[int])
    inputs: list[HiddenInput] = field(default_factory=list[HiddenInput])
    origin: list[Origin | None] = field(default_factory=list[Origin | None])

    def __len__(self) -> int:
        return len(self.tokens)

    def begin(self, probs: Tensor, drawn: str) -> int:
        """Open a draw: add a distribution probs [vocab] that nodes are sampled from, with its label
        ``drawn``. Return the draw's index."""
        self.distributions.append(probs)
        self.drawn.append(drawn)
        return len(self.drawn) - 1

    def add(
        self, token: int, parent: int, draw: int = -1, probe: bool = False, origin: Origin | None = None
    ) -> int:
        """Add a node under node ``parent`` (-1 = root) and return its index. draw: index of its draw, -1
        for a chosen node; probe: it is scored and never accepted; origin: where its token was copied
        from."""
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

    def cut_after_end(self, stop: frozenset[int]) -> tuple[TreeBuilder, dict[int, int]]:
        """Return the tree under construction without the nodes below an end token, and {node: its number
        there} with -1 for the root."""
        tree = self.tree()
        dropped = tree.after_end(stop)
        kept = [node for node in range(len(tree)) if node not in dropped]
        at = {-1: -1} | {node: number for number, node in enumerate(kept)}
        if not dropped:
            return self, at
        tree = tree.keep(kept, by_token=False)
        cut = TreeBuilder(
            list(tree.tokens),
            list(tree.parents),
            list(tree.draw),
            [] if tree.probs is None else list(tree.probs),
            list(tree.drawn),
            origin=list(tree.origin) or [None] * len(tree),
        )
        return cut, at

    def tree(self) -> DraftTree:
        """Return the finished tree."""
        return DraftTree(
            tuple(self.tokens),
            tuple(self.parents),
            tuple(self.draw),
            torch.stack(self.distributions) if self.distributions else None,
            tuple(self.drawn),
            frozenset(self.probes),
            tuple(self.inputs),
            tuple(self.origin) if any(self.origin) else (),
        )
