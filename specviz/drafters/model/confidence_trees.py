"""Trees whose shape follows the draft model's confidence: EAGLE-2's expand and re-rank, OPT-Tree, DySpec."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ...core import (
    WITHOUT_REPLACEMENT,
    Budget,
    DraftingModel,
    DraftTree,
    State,
    TreeBuilder,
    is_on_device,
    lazy_ints,
    read,
    to_device,
    token_tensor,
)
from ...trees import DeviceTree, Scorer, pick, top_k, top_k_entries, top_log_probs, with_temperature
from .chain import ModelDrafter


class ConfidentTree(ModelDrafter):
    """Drafter of a tree: levels of the most probable continuations are grown with a draft model, then the
    most probable nodes of all levels are kept (EAGLE-2, Li et al. 2406.16858; OPT-Tree, Wang et al.
    2406.17276). The selection depends on the tokens, so all nodes count as chosen.

    beam: number of nodes per level that get children, budget.width each; budget.nodes: number of nodes kept
    in the end, by path probability; gain: stop growing if a level adds no more than this to the expected
    accepted length; check_gain_on_device: do so on a device, too, at the cost of a synchronisation per
    level (otherwise all levels are grown there); with_temperature: path probabilities at the run's
    temperature; the authors use temperature 1.
    """

    def __init__(
        self,
        model: DraftingModel,
        beam: int,
        gain: float = 0.0,
        with_temperature: bool = False,
        check_gain_on_device: bool = False,
    ):
        super().__init__(model)
        self.beam = beam
        self.gain = gain
        self.with_temperature = with_temperature
        self.check_gain_on_device = check_gain_on_device

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder = TreeBuilder()
        scorer = Scorer(self.model, state)
        values = []
        frontier = [-1]
        hoped = 0.0
        grown = 0
        if budget.gamma > 0:
            self.model.sync(state.tokens)
        temperature = self._temperature(state)
        few = budget.width < budget.nodes
        for _ in range(budget.gamma):
            first = len(builder)
            worth = [values[parent] if parent >= 0 else 0.0 for parent in frontier]
            if few and scorer.finds_top:
                found = scorer.top_log_probs(builder, frontier, budget.width, temperature)
                grown += found[1].numel()
                children = self._few(found, worth, budget)
            else:
                rows = scorer.logits(builder, frontier)
                if (
                    not first
                    and is_on_device(rows)
                    and not state.processors
                    and (self.gain <= 0 or not self.check_gain_on_device)
                ):
                    grown = self._grow_on_device(builder, values, rows, budget, state)
                    hoped = sum(sorted((math.exp(v) for v in values), reverse=True)[: budget.nodes])
                    break
                grown += len(frontier) * min(budget.width, rows.shape[-1])
                if few and not is_on_device(rows):
                    children = self._few(top_log_probs(rows, budget.width, temperature), worth, budget)
                else:
                    children = self._many(rows, worth, budget, state)
            self._add(builder, values, frontier, children)
            kept = sorted(values, reverse=True)[: budget.nodes]
            token_probs = [math.exp(value) for value in kept]
            if sum(token_probs) - hoped <= self.gain:
                break
            hoped = sum(token_probs)
            # path probabilities never rise, so only nodes above the last kept one can have kept children
            least = kept[-1] if len(kept) == budget.nodes else -math.inf
            level = sorted(range(first, len(builder)), key=lambda node: -values[node])[: self._widest(budget)]
            frontier = [node for node in level if values[node] > least]
            if not frontier:
                break
        tree = builder.tree()
        if len(tree) > budget.nodes:
            order = sorted(range(len(tree)), key=lambda node: (-values[node], node))
            tree = tree.keep(
                order[: budget.nodes], by_token=True
            )  # path probabilities fall with depth, so parents are kept
        state.note("confidence", expected=hoped, grown=grown, kept=len(tree))
        return tree

    def _widest(self, budget: Budget) -> int:
        return 1 if budget.width == 1 else self.beam

    def _add(
        self,
        builder: TreeBuilder,
        values: list[float],
        frontier: list[int],
        children: Iterable[tuple[float, int, int]],
    ) -> None:
        """Add children (log-probability, parent index, token) of the frontier."""
        for value, at, token in sorted(
            (child for child in children if child[0] > -math.inf), key=lambda child: child[1]
        ):
            builder.add(int(token), frontier[int(at)])
            values.append(value)

    def _many(
        self, rows: Tensor, worth: list[float], budget: Budget, state: State
    ) -> Iterable[tuple[float, int, int]]:
        """Return the result of ``_children`` with one transfer."""
        above = to_device(torch.tensor(worth, dtype=rows.dtype), rows.device)
        found = torch.stack([x.double() for x in self._children(rows, above, budget, state)])
        return zip(*found.tolist())

    def _few(
        self, found: tuple[Tensor, Tensor], worth: list[float], budget: Budget
    ) -> list[tuple[float, int, int]]:
        """Do the work of ``_children`` in plain Python, which is faster for few rows: (log-probability,
        parent index, token). found: log-probabilities and tokens [rows, width] of the likely tokens."""
        distributions, tokens = (part.tolist() for part in found)
        children = [
            (min(above + value, above), at, token)
            for at, above in enumerate(worth)
            for value, token in zip(distributions[at], tokens[at])
        ]
        return sorted(children, key=lambda child: -child[0])[: budget.nodes]

    def _temperature(self, state: State) -> float:
        return state.sampling.temperature if self.with_temperature and not state.sampling.greedy else 1.0

    def _children(
        self, rows: Tensor, above: Tensor, budget: Budget, state: State
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return path log-probabilities, parent indices and tokens of the best children of a frontier with
        log-probabilities ``above``; at most budget.nodes of them, since no more can be kept."""
        temperature = self._temperature(state)
        rows = rows if temperature == 1.0 else rows / temperature
        offsets = (above - rows.logsumexp(-1)).unsqueeze(1)
        if budget.width < budget.nodes:
            found, tokens = top_k(rows, budget.width)
            found, at = (found + offsets).flatten().sort(descending=True, stable=True)
            found, at = found[: budget.nodes], at[: budget.nodes]
            parents, tokens = at // tokens.shape[1], tokens.flatten().index_select(0, at)
        else:
            found, parents, tokens = top_k_entries(
                rows + offsets, budget.nodes
            )  # a single node may have all of them
        return (
            found.minimum(above.index_select(0, parents)),
            parents,
            tokens,
        )  # clamp rounding errors above the parent

    def _grow_on_device(
        self, builder: TreeBuilder, values: list[float], rows: Tensor, budget: Budget, state: State
    ) -> int:
        """Grow all levels on the device and read the tree with one synchronisation; return the number of
        candidates examined."""
        growing = DeviceTree(rows, 1 + self.beam * budget.gamma)
        children = []
        grown = 0
        first = 0
        above, nodes = (
            rows.new_zeros(1),
            torch.full((1,), -1, device=rows.device),
        )  # frontier: log-probabilities, node indices
        for left in reversed(range(budget.gamma)):
            grown += len(rows) * min(budget.width, rows.shape[-1])
            found, at, tokens = self._children(rows, above, budget, state)
            order = at.argsort(stable=True)
            found, at, tokens = (x.index_select(0, order) for x in (found, at, tokens))
            children.append(
                torch.stack([found.double(), nodes.index_select(0, at).double(), tokens.double()])
            )
            if left:
                on = found.sort(descending=True, stable=True).indices[: self._widest(budget)]
                above, nodes = found.index_select(0, on), on + first
                rows = growing.score_level(self.model, tokens.index_select(0, on), at.index_select(0, on))
                first += len(found)
        table = torch.cat(children, 1)
        flat, count = read(table.flatten()), table.shape[1]
        for value, parent, token in zip(flat[:count], flat[count : 2 * count], flat[2 * count :]):
            builder.add(int(token), int(parent))
            values.append(value)
        return grown


class GreedyTree(ModelDrafter):
    """Drafter of a tree by DySpec (Xiong et al. 2410.11744): budget.nodes nodes are added one by one, each
    where the estimated probability that it is reached and accepted is highest.

    That estimate is known before the node's token is sampled, so each token follows the draft distribution,
    without replacement among siblings. ahead: number of nodes that one draft pass scores before it is known
    whether all are needed; temperature: of drafting; 0: the run's; layered: grow level by level with one
    draft pass each, adding every node with an estimate above 1 / budget.nodes.
    """

    def __init__(self, model: DraftingModel, ahead: int = 4, temperature: float = 0.0, layered: bool = False):
        super().__init__(model)
        self.ahead = ahead
        self.temperature = temperature
        self.layered = layered

    def propose(self, state: State, budget: Budget) -> DraftTree:
        builder, scorer = TreeBuilder(), Scorer(self.model, state)
        if budget.gamma > 0:
            self.model.sync(state.tokens)
        (self._layers if self.layered else self._one_by_one)(
            builder, scorer, with_temperature(state, self.temperature), budget
        )
        return builder.tree()

    @staticmethod
    def _layers(builder: TreeBuilder, scorer: Scorer, state: State, budget: Budget) -> None:
        """Fill all slots above the threshold level by level; at most budget.nodes."""
        level, least = [(1.0, -1)], 1 / budget.nodes
        for _ in range(budget.gamma):
            level = [place for place in level if place[0] > least]
            if not level or len(builder) >= budget.nodes:
                break
            below = []
            for (value, parent), row in zip(level, scorer.logits(builder, [parent for _, parent in level])):
                if len(builder) >= budget.nodes:
                    break
                slot = SiblingSampler(builder, row, state)
                while (
                    value > least
                    and slot.drawn < budget.width
                    and slot.has_more
                    and len(builder) < budget.nodes
                ):
                    node, prob = slot.draw(builder, parent, state)
                    below.append((value * prob, node))
                    value *= 1 - prob
            level = below

    def _one_by_one(self, builder: TreeBuilder, scorer: Scorer, state: State, budget: Budget) -> None:
        depth = {-1: 0}
        heap = [(-1.0, 0, -1)]
        slots = {}
        count = 0
        while heap and len(builder) < budget.nodes and budget.gamma > 0:
            value, _, parent = heapq.heappop(heap)
            if parent not in slots:
                waiting = [node for _, _, node in heapq.nsmallest(self.ahead, heap) if node not in slots]
                nodes = [parent, *waiting] if len(builder) else [parent]
                slots |= zip(
                    nodes, (SiblingSampler(builder, row, state) for row in scorer.logits(builder, nodes))
                )
            node, prob = slots[parent].draw(builder, parent, state)
            depth[node] = depth[parent] + 1
            count += 2
            if slots[parent].drawn < budget.width and slots[parent].has_more:
                heapq.heappush(heap, (value * (1 - prob), count, parent))
            if depth[node] < budget.gamma:
                heapq.heappush(heap, (value * prob, count + 1, node))


class SiblingSampler:
    """Samples the children of one node one by one without replacement; at temperature 0 they are the top
    tokens in order.

    logits [vocab]: the draft model's, after the node; drawn: number of children so far; has_more: whether
    tokens with positive probability are left.
    """

    def __init__(self, builder: TreeBuilder, logits: Tensor, state: State):
        self.greedy = state.sampling.greedy
        probs = logits.softmax(-1) if self.greedy else state.sampling.probs(logits)
        self.at = -1 if self.greedy else builder.begin(probs, WITHOUT_REPLACEMENT)
        self.drawn = 0
        self.has_more = True
        self._left = probs
        self._mass = 1.0

    def draw(self, builder: TreeBuilder, parent: int, state: State) -> tuple[int, float]:
        """Add the next child under node ``parent``; return its index and the probability with which its
        token was sampled."""
        left = self._left if self.drawn == 0 else self._left.div_(self._mass)
        if is_on_device(left):
            return self._draw_on_device(builder, parent, left, state)
        token = int(left.argmax()) if self.greedy else state.rng.pick("draft", left)
        prob = float(left[token])
        self._left = left.clone() if self.drawn == 0 else left
        self._left[token] = 0
        self._mass = float(self._left.sum())
        self.has_more, self.drawn = self._mass > 0, self.drawn + 1
        return builder.add(token, parent, self.at), prob

    def _draw_on_device(
        self, builder: TreeBuilder, parent: int, left: Tensor, state: State
    ) -> tuple[int, float]:
        """Do the same on a device with one synchronisation for token, probability and remaining mass."""
        token = lazy_ints(left.argmax(-1, keepdim=True))[0] if self.greedy else pick(left, state)
        place = token_tensor(left.device, [token])
        self._left = left.index_fill(0, place, 0.0)
        prob, self._mass = read(torch.cat([left.index_select(0, place), self._left.sum(dim=0, keepdim=True)]))
        self.has_more, self.drawn = self._mass > 0, self.drawn + 1
        return builder.add(int(token), parent, self.at), prob
