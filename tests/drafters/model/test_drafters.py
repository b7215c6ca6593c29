"""Drafters against naive rewrites of what their papers say."""

import random

import pytest
import torch

from specviz.core import Budget, Parts, RandomStreams, Sampling, State, Step, open_run, play
from specviz.drafters.lookup.prompt_lookup import PromptLookup
from specviz.drafters.lookup.token_recycling import TokenRecycling
from specviz.drafters.model.chain import DraftChain
from specviz.drafters.parallel.jacobi import Jacobi
from specviz.drafters.parallel.lookahead import Lookahead
from specviz.indexes.suffix_automaton import NgramIndexes
from specviz.policies import Fixed
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.trees import RECYCLING
from specviz.verifiers import TokenRejection

from ...methods.toys import Rows, kit


def naive_match(tokens, longest, latest):
    for n in range(longest, 0, -1):
        ends = [e for e in range(n, len(tokens)) if tokens[e - n : e] == tokens[len(tokens) - n :]]
        if ends:
            return (ends[-1] if latest else ends[0]), n
    return 0, 0


@pytest.mark.parametrize("latest", [False, True])
def test_lookup_finds_what_a_naive_search_finds(latest):
    source = random.Random(5)
    for _ in range(400):
        tokens = [source.randrange(3) for _ in range(source.randrange(1, 20))]
        longest = source.randrange(1, 5)
        index = NgramIndexes(longest)
        index.follow(tokens)
        assert index.match(latest) == naive_match(tokens, longest, latest)


def test_lookup_copies_with_origins_and_stops_at_an_end_token():
    state = State([5, 6, 7, 9, 8, 5, 6], stop=frozenset({9}))
    tree = PromptLookup(3).propose(state, Budget(gamma=5))
    assert tree.tokens == (7, 9) and [o.start for o in tree.origin] == [2, 3]
    assert state.notes == [("match", {"start": 0, "end": 2, "n": 2, "copied": 2})]
    assert len(PromptLookup(3).propose(State([1, 2, 3]), Budget(gamma=5))) == 0
    assert len(PromptLookup(3).propose(state, Budget(gamma=0))) == 0
    assert PromptLookup(3).propose(State([1, 1]), Budget(gamma=5)).tokens == (1,)


def play_all(drafter, policy, count=30, vocab=12, prompt=(1, 2, 0, 3, 1, 2)):
    """Outcomes of a greedy run, with state.tokens before each round."""
    target, state = TinyTarget(TinyNet(vocab, 3), 128), State(list(prompt), limit=count)
    parts = Parts(drafter, policy, TokenRejection())
    open_run(parts, target, state)
    while not state.done:
        before = list(state.tokens)
        yield before, play(parts, target, state), state


def test_recycling_keeps_the_last_rows_successors():
    drafter, table = TokenRecycling(RECYCLING, keep=8, warm=False), {}
    rounds = 0
    for before, outcome, _ in play_all(drafter, Fixed(6, 8, 80)):
        for token, row in zip((before[-1], *outcome.tree.tokens), outcome.scores.logits):
            table[token] = row.argsort(descending=True)[:8].tolist()
        assert drafter.successors == table
        rounds += 1
    assert 1 < rounds < 30


def test_recycling_fills_the_template_and_skips_what_it_does_not_know():
    drafter = TokenRecycling(RECYCLING, warm=False)
    drafter.successors = {1: [2, 3], 2: [1]}
    tree = drafter.propose(State([1]), Budget(gamma=3, width=8))
    assert (tree.tokens, tree.parents) == ((2, 3, 1, 2, 3), (-1, -1, 0, 2, 2))
    assert drafter.propose(State([1]), Budget(gamma=3, width=1)).tokens == (2, 1, 2)


def test_recycling_starts_warm_with_the_pairs_of_the_prompt():
    drafter = TokenRecycling(RECYCLING)
    drafter.start(State([1, 2, 1, 3, 1, 2]), None, None)
    assert drafter.successors == {1: [2, 3], 2: [1], 3: [1]}


def test_lookahead_pool_and_window_are_a_replay_of_the_paper():
    """The window as a table of columns, read from the target without any tree."""
    W = 4
    N = 4
    G = 3
    drafter = Lookahead(W, N, G)
    net = TinyNet(12, 3)
    pool = {}
    levels = None
    for before, outcome, _ in play_all(drafter, Fixed(N - 1, G)):
        if levels is None:
            levels = [[before[:6][7 * i % 6] for i in range(W + N - 3)]]
        if not outcome.tree.probes:
            assert len(before) == 6 + 29
            break
        depth = len(levels) - 1

        # what column j of the newest level follows: the root and level 0 up to it, then its column downwards
        columns = range(W + N - 2 - depth) if depth < N - 2 else range(W)
        seen = [before + levels[0][:j] + [levels[l][j] for l in range(1, depth + 1)] for j in columns]
        new = [int(net.logits(tokens)[-1].argmax()) for tokens in seen]
        if len(levels) < N - 1:
            levels = [level[1:] for level in levels + [new]]
        else:
            for j in range(W):
                key = before[-1] if j == 0 else levels[0][j - 1]
                gram = tuple(levels[l][j] for l in range(1, N - 1)) + (new[j],)
                pool[key] = ([gram] + [g for g in pool.get(key, []) if g != gram])[:G]
            levels = [levels[1][1:], *levels[2:], new]
        assert drafter.pool == pool and drafter.levels == levels
    assert pool and len(levels) == N - 1 and [len(level) for level in levels] == [W - 1] + [W] * (N - 2)


def test_lookahead_drafts_the_phrases_of_the_pool_as_a_trie():
    drafter = Lookahead(2, 4, 3)
    state = State([1, 2])
    drafter.start(state, None, None)
    drafter.pool = {2: [(3, 4, 5), (3, 4, 6), (7, 8, 9)]}
    tree = drafter.propose(state, Budget(gamma=3))
    real = [i for i in range(len(tree)) if i not in tree.probes]
    assert [tree.tokens[i] for i in real] == [3, 4, 5, 6, 7, 8, 9]
    assert [tree.parents[i] for i in real] == [-1, 0, 1, 1, -1, 4, 5]


def test_jacobi_guesses_are_the_targets_answers_to_its_last_guesses():
    net, guesses = TinyNet(12, 3), None
    for before, outcome, _ in play_all(Jacobi(), Fixed(4)):
        if guesses is not None:
            n = min(len(guesses), len(outcome.tree))
            assert list(outcome.tree.tokens[:n]) == guesses[:n]
        answers = net.logits(before + list(outcome.tree.tokens))[len(before) - 1 :].argmax(-1).tolist()
        guesses = answers[len(outcome.verdict.path) + 1 :]


def test_a_chain_stops_when_asked_and_keeps_the_token_it_looked_at():
    seen = []

    def stop(step: Step):
        seen.append(step)
        return step.depth == 1

    things = kit(6)
    for sampling in (Sampling(), Sampling(1.0)):
        seen.clear()
        tree = DraftChain(things.open("draft")).propose(
            State([1, 2, 3], sampling, RandomStreams(2)), Budget(gamma=5, stop=stop)
        )
        assert len(tree) == 2 and [s.token for s in seen] == list(tree.tokens)
        assert all(float(s.probs.sum()) == pytest.approx(1) for s in seen)
    assert float(seen[0].probs.max()) < 1


def test_chain_draws_from_the_distributions_it_records():
    probs = torch.tensor([[0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.8, 0.1, 0.1]], dtype=torch.float64)
    model = Rows(lambda tokens: probs[tokens[-1]], 3)
    tree = DraftChain(model).propose(State([0, 1], Sampling(1.0), RandomStreams(4)), Budget(gamma=3))
    for i in range(3):
        assert torch.allclose(tree.draft_probs(i), probs[tree.tokens[i - 1] if i else 1])
