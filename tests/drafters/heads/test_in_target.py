"""Rows that ride along with a pass: each sees the text up to its token and its own chain, none is seen by a
token, and what hangs behind the last accepted token is what is drafted next. PPD's trees are those of the
best chain of states."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import Budget, Outcome, Sampling, State, Verdict
from specviz.drafters.heads.in_target import InTargetChain, InTargetTree, StreamTree, uniform_plan
from specviz.drafters.heads.shapes import calibrated_shape
from specviz.methods.trained_heads.ppd.ppd_drafter import prompt_trees
from specviz.models import in_target
from specviz.models.heads import TargetInfo
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.trees import Shape, full_tree

from ...message_codes import refuses
from ...models import tiny

NET, TEXT = TinyNet(12, 3, layers=4), [5, 1, 7, 2, 9]


def by_hand(heads, text):
    """Logits [steps, vocab] of the rows behind the last token of a text, by a plain pass over text and one
    chain at a time."""
    found = []
    for chain in range(heads.chains):
        n, steps = len(text), len(heads)
        mask = torch.full((n + steps, n + steps), -torch.inf, dtype=torch.float64).triu(1)
        x, turn = NET.embed([*text, *[0] * steps]), NET.rotations(list(range(n + steps)))
        for depth, layer in enumerate(NET.layers):
            for step, enters in enumerate(heads.layers):
                if enters == depth:
                    made = heads.input_states(step, torch.tensor([chain]), x[n - 1 : n])[0]
                    x = torch.cat([x[: n + step], made[None], x[n + step + 1 :]])
            x = NET.block(layer, x, x.new_zeros(2, 2, n + steps, 4), 0, turn, mask)
        found.append(NET.head(NET.norm(x))[n:])
    return torch.stack(found).mean(0)


def played(drafter, target, state, budget, path, token):
    """One round with a verdict of our own."""
    tree, verdict = drafter.propose(state, budget), Verdict(tuple(path), token, "bonus")
    scores = target.score(tree)
    plain = TinyTarget(NET)
    plain.sync(state.tokens)
    bare = tree.keep([i for i in range(len(tree)) if i not in tree.probes], by_token=True)
    assert torch.allclose(plain.score(bare).logits, scores.logits[: len(bare) + 1], atol=1e-12), (
        "no token sees a row"
    )
    committed = (*(tree.tokens[i] for i in path), token)
    drafter.observe(state, Outcome(tree, scores, verdict, budget, committed, (0, *(i + 1 for i in path)), {}))
    target.commit(verdict)
    state.tokens += committed
    return tree


@pytest.mark.parametrize("kind", ["ppd", "hidden_transfer"])
def test_rows_say_what_a_pass_over_text_and_chain_says(kind):
    target = TinyTarget(NET)
    heads = tiny.head(kind, TargetInfo("toy", 8, 12, 4, dtype=torch.float64))
    drafter, state = (
        InTargetTree(heads, uniform_plan(Shape.of_paths([(0,), (1,), (0, 0), (1, 0)]), 3)),
        State(list(TEXT), Sampling(0.0)),
    )
    drafter.start(state, target, target.sync(state.tokens))
    budget = Budget(3, 4)
    first = played(drafter, target, state, budget, (), 4)
    assert first.tokens == (-1,) * (3 * heads.chains) and state.notes[-1][1]["rows"] == []
    want = by_hand(heads, TEXT)
    assert torch.allclose(drafter.guesses, want, atol=1e-9)
    second = played(drafter, target, state, budget, (1, 3), 8)
    best = want.topk(2).indices.tolist()
    assert second.tokens[:4] == (best[0][0], best[0][1], best[1][0], best[1][0])
    assert torch.allclose(drafter.guesses, by_hand(heads, [*TEXT, 4, best[0][1], best[1][0]]), atol=1e-9)
    told = state.notes[-1][1]
    assert (
        told["behind"] == 5
        and told["probes"] == 15 * heads.chains
        and told["rows"][0]["tokens"][:2] == best[0]
    )


def test_streams_hang_behind_what_the_layers_below_believe():
    """A candidate goes, with all below it, where the states under the streams' layer find it unlikelier
    than the limit."""
    heads, cut = tiny.head("speculative_streaming", TargetInfo("toy", 8, 12, 4, dtype=torch.float64)), 0
    for least in (0.0, 5e-5, 1e-3):  # random weights believe little of each other
        target = TinyTarget(NET)
        state = State(list(TEXT), Sampling(0.0))
        budget = Budget(3, 4)
        drafter = StreamTree(heads, uniform_plan(full_tree((3, 2, 1)), 3), least)
        drafter.start(state, target, target.sync(state.tokens))
        played(drafter, target, state, budget, (), 4)
        best = drafter.guesses.topk(3).indices.tolist()
        want = []
        for path in ([x] for x in best[0]):
            for longer in (
                [],
                best[1][:1],
                best[1][:1] + best[2][:1],
                best[1][1:2],
                best[1][1:2] + best[2][:1],
            ):
                text, fine = [*TEXT, 4], True
                for token in path + longer:
                    x, n = NET.embed(text), len(text)
                    for layer in NET.layers[: heads.layers[0]]:
                        mask = torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)
                        x = NET.block(
                            layer, x, x.new_zeros(2, 2, n, 4), 0, NET.rotations(list(range(n))), mask
                        )
                    fine = (
                        fine and float(NET.head(NET.norm(heads.early(x[-1:])))[0].softmax(-1)[token]) >= least
                    )
                    text.append(token)
                want += [tuple(path + longer)] if fine else []
        tree = drafter.propose(state, budget)
        found = [
            tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree)) if i not in tree.probes
        ]
        assert sorted(found) == sorted(want) and len(tree.probes) == 3 * (1 + len(found))
        cut += 15 - len(found)
        told = state.notes[-1][1].get("dropped")
        assert told == (15 - len(found) if least else None)
        played(drafter, target, state, budget, (0,) if found else (), 7)
    assert 0 < cut < 30, "some go, and some stay"


def test_pass_draws_a_chain_and_knows_nothing_after_a_refusal():
    target, state = TinyTarget(NET), State(list(TEXT), Sampling(1.0, seed=3))
    heads = tiny.head("pass_sampling", TargetInfo("toy", 8, 12, 4, dtype=torch.float64))
    drafter, budget = InTargetChain(heads), Budget(3)
    drafter.start(state, target, target.sync(state.tokens))
    drafts = lambda tree: [x for x in tree.tokens if x >= 0]  # noqa: E731
    assert drafts(played(drafter, target, state, budget, (), 4)) == []
    distributions = drafter.guesses.softmax(-1)
    second = played(drafter, target, state, budget, (0, 1, 2), 8)
    assert (
        len(drafts(second)) == 3
        and torch.allclose(second.probs, distributions)
        and second.parents == (-1, 0, 1, 2, 3, 4)
    )
    third = played(drafter, target, state, budget, (0,), 6)
    assert len(drafts(third)) == 3 and drafter.guesses is None
    assert (
        drafts(played(drafter, target, state, budget, (), 1)) == []
        and len(drafts(drafter.propose(state, budget))) == 3
    )


def worth(trees, accuracy, rounds):
    """Tokens a round of the chain of states that trees make."""
    at = [1.0, *[0.0] * (len(trees) - 1)]
    for _ in range(rounds):
        after, earned = [0.0] * len(trees), 0.0
        for state, (shape, steps) in enumerate(trees):
            passed = [1.0]
            for place, (parent, rank) in enumerate(zip(shape.parents, shape.ranks)):
                passed.append(passed[parent + 1] * accuracy[shape.depths[place] - 1][rank])
            for place in range(len(passed)):
                last = passed[place] - sum(
                    passed[i + 1] for i, parent in enumerate(shape.parents) if parent == place - 1
                )
                after[steps[place]] += at[state] * last
            earned += at[state] * sum(passed)
        at = [(a + b) / 2 for a, b in zip(at, after)]  # the same long run, and no swinging
    return earned


def test_ppds_trees_are_the_best_of_all_with_so_many_rows():
    """Against every choice of candidates and chains there is, for a few rows."""
    accuracy, rows = ((0.6, 0.2), (0.3, 0.1)), 4
    every = []
    for state in range(3):
        every.append([])
        for nodes in range(rows + 1 if state else 1):
            shape = calibrated_shape([list(row) for row in accuracy[:state]], nodes)
            if len(shape) == nodes:
                every[-1] += [
                    (shape, steps)
                    for steps in itertools.product(range(3), repeat=nodes + 1)
                    if sum(steps) <= rows - nodes
                ]
    best = max(worth(trees, accuracy, 40) for trees in itertools.product([(Shape(), (2,))], *every[1:]))
    found = prompt_trees(accuracy, 2, rows)
    assert worth(found, accuracy, 40) == pytest.approx(best, abs=1e-3) and best > 1.3
    assert all(len(shape) + sum(steps) <= rows for shape, steps in found) and found[0] == (Shape(), (2,))
    wide = prompt_trees((), 3, 12, chains=2)
    assert all(len(shape) + 2 * sum(steps) <= 12 for shape, steps in wide)


def test_published_prompts_load_and_what_does_not_fit_is_refused(tmp_path):
    body, prompts = TargetInfo("toy", 8, 12, 4), torch.randn(6, 8)
    save_file({"prompt_embeddings": prompts}, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({"num_special_tokens": 3, "virtual_tokens_per_special_token": 2})
    )
    made = in_target.load(tmp_path, body)
    assert (
        len(made) == 3
        and made.chains == 2
        and torch.equal(made.input_states(1, torch.tensor([0, 1]), prompts[:2]), prompts[2:4])
    )
    with refuses(ModelError, "head.states", 8, 5, "other"):
        in_target.load(tmp_path, TargetInfo("other", 5, 12, 4))
    (tmp_path / "adapter_config.json").write_text(json.dumps({"num_special_tokens": 0}))
    with refuses(ModelError, "in_target.config", "num_special_tokens"):
        in_target.load(tmp_path, body)
    save_file(
        {"transfer.0.weight": torch.eye(8), "transfer.0.bias": torch.zeros(8)},
        tmp_path / "adapter_model.safetensors",
    )
    (tmp_path / "config.json").write_text(json.dumps({"layers": [4]}))
    with refuses(ModelError, "in_target.layer", "toy", "0 to 3"):
        in_target.load(tmp_path, body)
    save_file({"x": torch.ones(2)}, tmp_path / "adapter_model.safetensors")
    with refuses(ModelError, "head.other_kind"):
        in_target.load(tmp_path, body)


def test_streams_may_change_the_state_that_they_begin_from(tmp_path):
    """f of Speculative Streaming: the identity plus two matrices, which are 0 together before training."""
    body, states = TargetInfo("toy", 8, 12, 4), torch.randn(3, 8)
    made = in_target.build(body, {"how": "streams", "from_end": [2, 2], "rank": 3})
    start = made.input_states(1, torch.zeros(3, dtype=torch.long), states)
    assert made.layers == (2, 2) and torch.allclose(start, states + made.stream_embeddings[1])
    torch.nn.init.normal_(made.stream[1].weight)
    want = start + states @ made.stream[0].weight.T @ made.stream[1].weight.T
    save_file(dict(made.state_dict()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(made.config))
    read = in_target.load(tmp_path, body)
    assert torch.allclose(read.input_states(1, torch.zeros(3, dtype=torch.long), states), want, atol=1e-6)
    for rank in (-1, 9, 2.0, "3"):
        (tmp_path / "config.json").write_text(json.dumps(made.config | {"rank": rank}))
        with refuses(ModelError, "in_target.config", repr(rank)):
            in_target.load(tmp_path, body)
