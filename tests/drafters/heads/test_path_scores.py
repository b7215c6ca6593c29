"""Corrections of a block drafter: the published arithmetic on random weights, written again place by place;
trees and chains over them."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from specviz.core import IID, Budget, Parts, Sampling, State, TreeBuilder
from specviz.drafters.heads.level_tree import LevelTree
from specviz.drafters.heads.masked_block import BlockChain, BlockTree
from specviz.drafters.heads.path_scores import Block, PathScores
from specviz.drafters.heads.reduced_output import ReducedTarget, with_reduced_output
from specviz.methods.trained_heads.taps.taps_drafter import ReachTree
from specviz.methods.trained_heads.xpress.xpress_drafter import RefinedBlock
from specviz.models.heads import ready
from specviz.policies import Fixed
from specviz.training.job import Job
from specviz.training.recipes import module_of
from specviz.verifiers import TokenRejection
from specviz.zoo.trained_heads import network_of

from ...exactness.enumeration import distance, joint, probs_of_engine
from ...exactness.toys import PROMPT, begin, toy
from ...models import tiny

KINDS = ("domino", "treeflash", "lilicorr", "dflash2", "taps", "xpress")
VOCAB, PLACES = 12, 3


@pytest.fixture
def kit():
    return toy(VOCAB)


def material(kit, seed=0):
    """A random block over the toy's own embedding and output matrix."""
    rng = torch.Generator().manual_seed(seed)
    d = kit.target.hidden
    raw, gain = (torch.randn(*shape, d, generator=rng, dtype=torch.float64) for shape in ((PLACES,), ()))
    states = norm(raw, gain)
    return Block(
        kit.target,
        states,
        raw,
        lambda x: norm(x, gain),
        kit.target.head(states),
        torch.randn(d, generator=rng, dtype=torch.float64),
    )


def norm(x, gain, eps=1e-6):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * gain


def opened(kit, kind, block):
    head = kit.head(kind)
    return head, (head.with_previous(VOCAB) if kind == "treeflash" else head).open(block)


def along(scores, path):
    """The logits [vocab] of each place along a path: the root, then the tokens drafted."""
    carry, rows = scores.start(), []
    for place, token in enumerate(path):
        logits, carry = scores.step(place, carry, torch.tensor([token]))
        rows.append(scores.expand_to_vocab(place, logits)[0])
    return torch.stack(rows)


def restated_domino(kit, head, block, path):
    w, out = dict(head.named_parameters()), []
    state = torch.zeros(head.prefix_gru.hidden_size, dtype=torch.float64)
    for place, token in enumerate(path):
        x = kit.target.embed([token])[0]
        (r, z, n), (hr, hz, hn) = (
            (w[f"prefix_gru.weight_{name}_l0"] @ y).chunk(3) for name, y in (("ih", x), ("hh", state))
        )
        keep = torch.sigmoid(z + hz)
        state = (1 - keep) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + keep * state
        hidden = w["embed_proj.0.weight"] @ torch.cat([block.states[place], state])
        out.append(block.logits[place] + w["embed_proj.2.weight"] @ (hidden * torch.sigmoid(hidden)))
    return torch.stack(out)


def restated_dflash2(kit, head, block, path):
    w, out = {name.rpartition("selector.")[2]: x for name, x in head.named_parameters()}, []
    for place, token in enumerate(path):
        query = w["predecessor_codebook"][token] * (w["hidden_projection.weight"] @ block.states[place])
        out.append(
            torch.stack([block.logits[place, b] + query @ w["successor_codebook"][b] for b in range(VOCAB)])
        )
    return torch.stack(out)


def restated_treeflash(kit, head, block, path):
    w, out = {name.rpartition("approximation.")[2]: x for name, x in head.named_parameters()}, []
    for place, token in enumerate(path):
        x = torch.cat([norm(kit.target.embed([token])[0], w["norm.weight"]), block.states[place]])
        up, gate = (w["ug.weight"] @ x + w["ug.bias"]).chunk(2)
        out.append(
            kit.target.head(
                block.norm(block.raw[place] + w["d.weight"] @ (gate * torch.sigmoid(gate) * up))[None]
            )[0]
        )
    return torch.stack(out)


def restated_lilicorr(kit, head, block, path):
    """The authors' scores, one row of the lattice at a time; the base log-probability is ours."""
    log_probs, k = block.logits.log_softmax(-1), head.top_k
    ids = block.logits.topk(k).indices
    rows, slots = [], []
    for place in range(PLACES):
        best = log_probs[place, ids[place, 0]]
        for rank, token in enumerate(ids[place]):
            value = log_probs[place, token]
            told = torch.tensor(
                [value, value.exp(), value - best, rank / (k - 1), float(rank == 0)], dtype=torch.float64
            )
            rows.append(
                head.token_proj(kit.target.embed([int(token)])[0])
                + head.pass_hidden_proj(block.states[place])
                + head.feature_mlp(told)
                + head.slot_embedding[0, 0, place, 0]
                + head.rank_embedding[0, 0, 0, rank]
            )
            slots.append(place)
    x = torch.stack(rows)
    for layer in head.layers:
        seen = layer.attn_norm(x)
        mixed = []
        width = x.shape[1] // layer.attn.heads
        q, k_, v = (
            part.unflatten(-1, (-1, width))
            for part in F.linear(seen, layer.attn.in_proj_weight, layer.attn.in_proj_bias).chunk(3, -1)
        )
        for i in range(len(x)):
            heads = []
            for h in range(layer.attn.heads):
                weights = torch.stack(
                    [
                        q[i, h] @ k_[j, h] / math.sqrt(width)
                        + head.relative_slot_bias[h, slots[i] - slots[j] + head.block - 1]
                        + (slots[i] == slots[j]) * head.same_slot_bias[h]
                        for j in range(len(x))
                    ]
                ).softmax(0)
                heads.append(weights @ v[:, h])
            mixed.append(torch.cat(heads))
        x = x + layer.attn.out_proj(torch.stack(mixed))
        x = x + layer.mlp(layer.mlp_norm(x))
    x, anchor = head.output_norm(x), head.anchor_norm(head.context_proj(block.text))
    factors = F.silu(head.factor_input_proj(torch.cat([x, anchor.expand_as(x), x * anchor], -1)))
    unit = [
        F.normalize(part, dim=-1)
        for part in (head.out_head(factors), head.in_head(factors), head.anchor_out_head(anchor))
    ]
    out, above = [], unit[2]
    for place in range(PLACES):
        row, at = torch.full((VOCAB,), -torch.inf, dtype=torch.float64), slice(place * k, place * k + k)
        row[ids[place]] = log_probs[place, ids[place]] + head.logit_scale * (unit[1][at] @ above)
        out.append(row)
        if place + 1 < PLACES:
            above = unit[0][at][ids[place].tolist().index(path[place + 1])]
    return torch.stack(out)


def restated_xpress(kit, head, block, path):
    """One position after the other, every sum written out."""
    w, out, rows = dict(head.named_parameters()), [], []
    mean = sum(block.states) / len(block.states)
    for place, token in enumerate(path):
        fused = torch.cat(
            [
                w["down_h.weight"] @ block.states[place],
                w["down_g.weight"] @ mean,
                w["prev_proj.weight"] @ kit.target.embed([token])[0],
            ]
        )
        rows.append(w["in_proj.weight"] @ fused)
        x = torch.stack(
            [
                sum(w["mix"][channel, place, j] * rows[j][channel] for j in range(place + 1))
                for channel in range(head.rank)
            ]
        )
        gate = w["gate.weight"] @ x
        x = x + w["down.weight"] @ (gate * torch.sigmoid(gate) * (w["up.weight"] @ x))
        out.append(block.logits[place] + w["w2.weight"] @ x)
    return torch.stack(out)


RESTATED = {
    "domino": restated_domino,
    "dflash2": restated_dflash2,
    "treeflash": restated_treeflash,
    "lilicorr": restated_lilicorr,
    "xpress": restated_xpress,
}


@pytest.mark.parametrize("kind", RESTATED)
def test_scores_are_the_authors_arithmetic(kit, kind):
    """Against restatements of jianuo-huang/Domino, SGLang 35371 (DFlash2), ETH-DISCO/TreeFlash e0c9c1c,
    vLLM 57934 (LiLiCorr) and vLLM 54448 (XPress)."""
    block = material(kit)
    head, scores = opened(kit, kind, block)
    path = [5, *(int(block.logits[place].topk(2).indices[place % 2]) for place in range(PLACES - 1))]
    with torch.inference_mode():
        found, want = along(scores, path), RESTATED[kind](kit, head, block, path)
    named = found.isfinite()
    assert named.sum() >= 2 * PLACES
    assert float((found[named] - want[named]).abs().max()) < 1e-9


@torch.inference_mode()
def test_a_scale_of_embeddings_in_training_moves_into_the_weights(kit):
    """LiLiCorr is trained on longer embeddings where a target's are short; what is written drafts the same
    without them."""
    block, sizes = material(kit), Job(size="tiny").hparams("lilicorr") | {"lilicorr_hidden_size": 6}
    head = ready(network_of("lilicorr").build(tiny.body(kit.target), sizes), tiny.body(kit.target))
    plain = along(head.open(block), [1, 2, 3])
    head.embed_scale = 14.5
    scaled = along(head.open(block), [1, 2, 3])
    head.fold_scale()
    folded = along(head.open(block), [1, 2, 3])
    known = scaled.isfinite()
    assert (
        head.embed_scale == 1.0
        and torch.allclose(folded[known], scaled[known])
        and not torch.allclose(plain[known], scaled[known])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_matrix_of_few_tokens_changes_nothing_else(kit, kind):
    """Scores with the matrix restricted to some tokens, against the whole matrix with the other logits at
    minus infinity."""
    head, tokens = kit.head(kind), torch.tensor([1, 2, 3, 5, 7, 8, 9, 11])
    left_out = torch.ones(VOCAB, dtype=torch.bool).index_fill(0, tokens, False)
    masked = ReducedTarget(
        kit.target, lambda states: kit.target.head(states).masked_fill(left_out, -torch.inf)
    )
    plain = material(kit)
    found = []
    for target in (masked, with_reduced_output(kit.target, head, tokens)):
        block = replace(plain, target=target, logits=target.head(plain.states))
        path = [5, *(int(block.logits[place].topk(2).indices[place % 2]) for place in range(PLACES - 1))]
        opened_head = head.with_previous(len(tokens)) if kind == "treeflash" else head
        with torch.inference_mode():
            found.append(along(opened_head.open(block), path))
    assert found[0].isfinite().sum() >= 2 * PLACES
    torch.testing.assert_close(found[1], found[0], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_training_reads_the_same_scores_as_drafting(kit, kind):
    """Teacher-forced, all places at once, as the recipe reads them, against one step after the other."""
    block = material(kit)
    head, scores = opened(kit, kind, block)
    count = getattr(head, "top_k", 6)
    log_probs = block.logits.log_softmax(-1)
    values, ids = log_probs.topk(count)
    path = [5, *(int(ids[place, 1]) for place in range(PLACES - 1))]
    output = kit.target.head(torch.eye(kit.target.hidden, dtype=torch.float64)).T
    features = SimpleNamespace(
        embedding=kit.target.embed(list(range(VOCAB))).float(),
        head=output.float(),
        drafter=SimpleNamespace(norm=lambda x: block.norm(x.double())),
    )
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    parts = dict(
        states=block.states,
        raw=block.raw,
        text=block.text,
        embeds=kit.target.embed(path),
        log_probs=values,
        logits=block.logits.gather(1, ids),
        entropy=entropy,
    )
    blocks = SimpleNamespace(
        before=torch.tensor([path]), ids=ids[None], **{name: x.float()[None] for name, x in parts.items()}
    )
    with torch.inference_mode():
        want = along(scores, path).gather(1, ids)
        found = module_of(kind).scores(head.float(), features, blocks)[0].double()
    assert float((found.log_softmax(-1) - want.log_softmax(-1)).abs().max()) < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_correction_uses_the_path(kit, kind):
    """The second place's scores change with the token before it, by more than rounding; the drafter's own
    do not."""
    block = material(kit)
    _, scores = opened(kit, kind, block)
    first, second = (int(token) for token in block.logits[0].topk(2).indices)
    with torch.inference_mode():
        changed = [along(scores, [5, token])[1].log_softmax(-1) for token in (first, second)]
        assert float((changed[0] - changed[1]).nan_to_num(0.0).abs().max()) > 1e-3
        same = [along(PathScores(block), [5, token])[1] for token in (first, second)]
    assert torch.equal(*same)


def test_tokens_that_no_place_offered_get_no_children_or_the_drafters_own_scores(kit):
    block = material(kit)
    outside = int(block.logits[0].argmin())
    with torch.inference_mode():
        few = kit.head("treeflash").with_previous(2).open(block)
        assert not along(few, [5, outside])[1].isfinite().any()
        lattice = kit.head("lilicorr").open(block)
        row = along(lattice, [5, outside])[1]
    named = row.isfinite()
    assert torch.allclose(row[named], block.logits.log_softmax(-1)[1][named])


def drafted(kit, drafter, budget=None, **state):
    state, target = State(list(PROMPT), Sampling(0.0), limit=50, **state), kit.open_net(kit.net)
    target.capture(drafter.hidden_states)
    drafter.start(state, target, target.sync(state.tokens))
    return drafter.propose(state, budget or Budget(9, 9, 99)), state


def paths(tree):
    return {tuple(tree.tokens[i] for i in tree.path(node)) for node in range(len(tree))}


def test_a_tree_grown_by_levels_keeps_the_best_of_all_nodes(kit):
    """With room for every path it is the best-first tree; with one path a level it is the greedy chain."""
    dflash, domino = kit.head("dflash"), kit.head("domino")
    whole, state = drafted(kit, LevelTree(dflash, domino, 10**4, 9, VOCAB))
    first, _ = drafted(kit, BlockTree(dflash, VOCAB, 9, domino), Budget(9, VOCAB, 99))
    assert len(whole) == 9 and paths(whole) == paths(first)
    assert sorted(state.notes[-1][1]["reached"], reverse=True)[0] == pytest.approx(
        max(drafted(kit, BlockTree(dflash, VOCAB, 9, domino))[1].notes[-1][1]["reached"])
    )
    chain, _ = drafted(kit, BlockChain(dflash, correction=domino))
    alone, _ = drafted(kit, LevelTree(dflash, domino, 1, 9, 1))
    assert alone.tokens == chain.tokens and len(set(alone.depths)) == len(alone) == dflash.length


def authors_pruned_tree(scores, root, width, budget, expansion):
    """Facts of magneto0124/DARTree 0ceefcd, eval_dartree.py (build_dartree_supertree,
    select_topb_prefix_tree) with depth_bonus 0: the ``width`` best path scores of each depth are kept, then
    the ``budget`` best of all nodes, as paths of tokens."""
    frontier, every = [((), 0.0)], []
    for _ in range(len(scores)):
        found = []
        for path, above in frontier:
            values, tokens = along(scores, [root, *path])[-1].log_softmax(-1).topk(expansion)
            found += [
                ((*path, token), above + value) for value, token in zip(values.tolist(), tokens.tolist())
            ]
        frontier = sorted(found, key=lambda one: -one[1])[:width]
        every += frontier
    return {path for path, _ in sorted(every, key=lambda one: -one[1])[:budget]}


@pytest.mark.parametrize("width, nodes", [(1, 2), (2, 4), (3, 5), (4, 9)])
@torch.inference_mode()
def test_a_level_tree_is_the_authors_pruned_tree(kit, width, nodes):
    drafter = LevelTree(kit.head("dflash"), kit.head("domino"), width, nodes, 4)
    tree, state = drafted(kit, drafter, Budget(9, 9, 99))
    assert paths(tree) == authors_pruned_tree(
        drafter.scores(state, drafter.net.length), state.tokens[-1], width, nodes, 4
    )


def test_a_level_scores_all_its_nodes_in_one_batch(kit, monkeypatch):
    domino, sizes = kit.head("domino"), []
    read = type(domino).read
    monkeypatch.setattr(
        type(domino),
        "read",
        lambda self, embeds, carry: sizes.append(len(embeds)) or read(self, embeds, carry),
    )
    drafted(kit, LevelTree(kit.head("dflash"), domino, 4, 9, 4))
    assert sizes == [1, 4, 4]


def test_reach_by_cost_decides_and_ends_the_tree(kit):
    """Deeper nodes cost more, so a cost makes the tree no deeper; a threshold ends it before the first node
    below, and no sooner."""
    dflash, taps = kit.head("dflash"), kit.head("taps")
    free, state = drafted(kit, ReachTree(dflash, 4, 9, taps, 0.0, 0.0))
    dear, _ = drafted(kit, ReachTree(dflash, 4, 9, taps, 1.0, 0.0))
    assert sum(dear.depths) <= sum(free.depths) and len(free) == len(dear) == 9
    reached = state.notes[-1][1]["reached"]
    assert reached == sorted(reached, reverse=True)
    cut, _ = drafted(kit, ReachTree(dflash, 4, 9, taps, 0.0, (reached[3] + reached[4]) / 2))
    assert cut.tokens == free.tokens[:4] and cut.parents == free.parents[:4]


class ForgetsTheCorrection(BlockChain):
    """Wrong: tokens are drawn from the corrected distribution, the drafter's own is recorded."""

    def propose(self, state, budget):
        tree = super().propose(state, budget)
        if not len(tree):
            return tree
        own = state.sampling.probs(self.scores(state, len(tree)).block.logits)
        build = TreeBuilder()
        for token, probs in zip(tree.tokens, own):
            build.add(token, len(build) - 1, build.begin(probs, IID))
        return build.tree()


class SaysDrawn:
    """Mixin. Wrong: the best nodes of a tree are chosen, and recorded as drawn from the corrected
    distribution of their parent."""

    def propose(self, state, budget):
        tree = super().propose(state, budget)
        build = TreeBuilder()
        rows = {}
        scores = self.scores(state, self.net.length)
        for token, parent in zip(tree.tokens, tree.parents):
            if parent not in rows:
                path = (
                    [state.tokens[-1], *(tree.tokens[i] for i in tree.path(parent))]
                    if parent >= 0
                    else [state.tokens[-1]]
                )
                rows[parent] = build.begin(state.sampling.probs(along(scores, path)[-1]), IID)
            build.add(token, parent, rows[parent])
        return build.tree()


class DrawnBlockTree(SaysDrawn, BlockTree):
    pass


class DrawnLevelTree(SaysDrawn, LevelTree):
    pass


class DrawnReachTree(SaysDrawn, ReachTree):
    pass


def off(make):
    kit = toy(3, share=0.5, sharp=0.8)
    parts = Parts(make(kit), Fixed(2, 2, 8), TokenRejection())
    state = begin(parts, kit, Sampling(1.0), 3, prompt=[token % 3 for token in PROMPT])
    probs, _ = probs_of_engine(parts, kit.target, state, 3, shared=(kit.net, kit.small))
    return distance(probs, joint(kit.net.logits, state.tokens, 3, Sampling(1.0), 3))


def correction_of(kit, kind):
    return kit.head(kind).with_previous(3) if kind == "treeflash" else kit.head(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drafter, right", [(BlockChain, True), (ForgetsTheCorrection, False)])
def test_the_recorded_distribution_must_be_the_corrected_one(kind, drafter, right):
    found = off(lambda kit: drafter(kit.head("dflash"), correction=correction_of(kit, kind)))
    assert (found > 1e-3) != right and (not right or found < 1e-12)


TREES = {
    BlockTree: (DrawnBlockTree, lambda tree, kit: tree(kit.head("dflash"), 2, 3, kit.head("domino"))),
    LevelTree: (DrawnLevelTree, lambda tree, kit: tree(kit.head("dflash"), kit.head("domino"), 2, 3, 2)),
    ReachTree: (DrawnReachTree, lambda tree, kit: tree(kit.head("dflash"), 2, 3, kit.head("taps"), 0.1, 0.0)),
}


@pytest.mark.parametrize("tree", TREES)
def test_the_best_nodes_of_a_tree_are_chosen_and_not_drawn(tree):
    wrong, make = TREES[tree]
    assert off(lambda kit: make(tree, kit)) < 1e-12 and off(lambda kit: make(wrong, kit)) > 1e-3


def walked(kit, scores, root):
    """The chain of best tokens, left to right."""
    carry, path = scores.start(), [root]
    for place in range(len(scores)):
        logits, carry = scores.step(place, carry, torch.tensor(path[-1:]))
        path.append(int(scores.expand_to_vocab(place, logits)[0].argmax()))
    return path[1:]


@torch.inference_mode()
def test_a_refined_block_settles_from_the_left_at_the_chain_of_best_tokens(kit):
    """Jacobi iteration of a causal refiner: after n passes the first n tokens are those of the walk from left
    to right, whatever the block was."""
    head = kit.head("xpress")
    moved = 0
    for seed in range(12):
        block = material(kit, seed)
        scores = head.open(block)
        want = walked(kit, scores, 5)
        guess = scores.ids[:, 0]
        moved += guess.tolist() != want
        for done in range(1, PLACES + 1):
            before = torch.cat([torch.tensor([5]), guess[:-1]])
            logits = scores.all_at_once(before)
            guess = scores.ids.gather(1, logits.argmax(-1, keepdim=True))[:, 0]
            assert guess[:done].tolist() == want[:done]
    assert moved > 3, "the refiner changes blocks"


def test_a_refined_block_is_drafted_and_noted_pass_by_pass(kit):
    drafter = RefinedBlock(kit.head("dflash"), kit.head("xpress"), 8)
    tree, state = drafted(kit, drafter)
    [(kind, note)] = state.notes
    with torch.inference_mode():
        scores = drafter.scores(state, drafter.net.length)
        assert list(tree.tokens) == walked(kit, scores, state.tokens[-1])
    assert kind == "refined" and note["rows"][-1]["tokens"] == list(tree.tokens)
    assert note["changed"][-1] == 0, "the last pass found the block settled"
    one_pass, _ = drafted(kit, RefinedBlock(kit.head("dflash"), kit.head("xpress"), 1))
    assert one_pass.tokens[0] == tree.tokens[0]


class DrawnRefinedBlock(SaysDrawn, RefinedBlock):
    """Wrong: the refined tokens are chosen, and recorded as drawn from the refined distribution."""


def test_refined_tokens_are_chosen_and_not_drawn():
    def make(kind):
        return lambda kit: kind(kit.head("dflash"), kit.head("xpress"), 6)

    assert off(make(RefinedBlock)) < 1e-12 and off(make(DrawnRefinedBlock)) > 1e-3
