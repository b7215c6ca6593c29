"""Lossy by design: where the knob makes them exact they are plain decoding, and elsewhere they follow the
distribution that they say."""

from __future__ import annotations

import math

import pytest
import torch

from specviz.core import Budget, DraftTree, RandomStreams, Scores, State
from specviz.drafters.layers.layer_skipping import evenly_spaced_layers, skip_schedule
from specviz.drafters.model.chain import DraftChain
from specviz.drafters.model.short_context import HEAD, ShortContext, score_chunks
from specviz.drafters.parallel.superposed import UNKNOWN, WEIGHTS, Superposed
from specviz.methods.lookup import rapid
from specviz.methods.parallel_decoding import parallel_branches, superposed
from specviz.methods.self_speculation import layer_skipping_decoder, skipdecode
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.trace.events import Noted, Verified
from specviz.trace.metrics import Totals
from specviz.verifiers.rapid import RapidVerification

from ..lookup.toys import (
    FREE,
    check_distribution,
    check_greedy,
    greedy,
    kit,
    layered,
    play_all,
    play_loop,
    probs_of,
)

RAPID, SKIP, COMB, BLUR, BRANCH = (
    m.METHOD for m in (rapid, skipdecode, layer_skipping_decoder, superposed, parallel_branches)
)
LONG = [3, 1, 4, 1, 5, 9, 2, 6] * 9


def notes(events, kind):
    return [e.data for e in events if isinstance(e, Noted) and e.kind == kind]


# --- RAPID ---------------------------------------------------------------------------------------------------------------
def test_without_transfer_rapid_is_exact():
    for reader in ("draft model", "the target itself"):
        check_greedy(RAPID, [kit(12, 1)], ([1], LONG), 24, transfer=0.0, reader=reader, room=32, piece=8)
    check_distribution(RAPID, kit(3), transfer=0.0, gamma=2, sure=0.2)


def test_the_distribution_with_transfer_is_the_one_that_is_reported():
    """One drafted token: accepted with min(1, p'/q), else a draw from the largest of 0, p - q and p - p'."""
    q = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    logits = torch.tensor([[0.2, 1.0, -0.5, 0.4], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    p = logits[0].softmax(-1)
    gap = torch.where(q >= 0.2 * 0.5, p - q, 0.0)
    rich = (logits[0] - 3.0 * gap).softmax(-1)
    rest = torch.maximum((p - q).clamp(min=0), p - rich).clamp(min=0)
    want = torch.minimum(q, rich) + (1 - torch.minimum(q, rich).sum()) * rest / rest.sum()
    verifier = RapidVerification(3.0, 0.2, list)

    def once(rng):
        state = State([0], FREE, rng)
        tree = DraftTree.chain([rng.pick("draft", q)], q[None])
        verdict = verifier.verify(tree, Scores(logits), state)
        return tree.tokens[0] if verdict.path else verdict.token

    probs = probs_of(once)
    assert [probs[i] for i in range(4)] == pytest.approx(want.tolist(), abs=1e-12) and float(
        (want - p).abs().sum()
    ) > 0.05


def test_transfer_moves_the_text_towards_the_draft():
    one = kit(12, 1, share=0.3)
    texts = [play_all(RAPID, one, [3, 7, 1], 40, transfer=x, sure=0.0)[0] for x in (0.0, 50.0)]
    assert texts[0] == greedy(one.net, [3, 7, 1], 40) != texts[1]
    _, _, state = play_all(RAPID, one, [3, 7, 1], 20, FREE, RandomStreams(3), transfer=5.0)
    reported = [data for kind, data in state.notes if kind == "enriched"]
    assert reported and all(
        0 <= t[name] <= 1 for one in reported for t in one["tests"] for name in ("p", "q", "moved")
    )
    assert max(nat for kind, data in state.notes if kind == "drift" for nat in data["nats"]) > 0


def test_the_drafter_reads_the_pieces_that_share_rare_tokens():
    prompt = [0] * HEAD + [1, 2, 3, 4] * 8 + [1, 2, 9, 8] + [1, 2, 3, 4] * 8 + [3, 9, 8, 1]
    scored = score_chunks(prompt, 4)
    assert [p.start for p in scored] == list(range(HEAD, len(prompt) - 4, 4))
    best = max(scored, key=lambda p: p.score)
    assert prompt[best.start : best.end] == [1, 2, 9, 8]
    drafter = ShortContext(TinyTarget(kit(12).net, 128), max_chunk_tokens=8, size=4, min_prob=0.0)
    state = State(list(prompt))
    drafter.start(state, None, None)
    assert (
        drafter.opening[:HEAD] == prompt[:HEAD]
        and drafter.opening[-4:] == prompt[-4:]
        and len(drafter.opening) == HEAD + 8 + 4
    )
    assert [p.start for p in drafter.kept_chunks] == sorted(
        p.start for p in drafter.kept_chunks
    ) and best in drafter.kept_chunks
    state.tokens += [5, 6]
    tree = drafter.propose(state, Budget(3))
    plain = DraftChain(TinyTarget(kit(12).net, 128)).propose(State(drafter.opening + [5, 6]), Budget(3))
    assert tree.tokens == plain.tokens and len(drafter.beliefs) == len(tree)
    assert state.notes[0][1]["read"] == HEAD + 14 and state.notes[0][1]["of"] == len(prompt) + 2


# --- fewer layers --------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tiny")


@pytest.mark.parametrize("method, knobs", [(SKIP, {"least": 1.0}), (COMB, {"speedup": 1})])
def test_with_all_layers_it_is_plain_decoding(method, knobs, folder):
    for one in (layered(folder, 12, 6), layered(folder, 7, 2, 2), kit(12, 1)):
        for prompt in ([1], [3, 7 % one.vocab, 1]):
            assert play_loop(method, one, prompt, 24, **knobs)[0] == greedy(one.net, prompt, 24)


def test_layers_fade_from_below_and_never_come_back():
    skipped = skip_schedule(12, 1.0, 0.5, 10, 1)
    assert skipped(0) == frozenset() and skipped(10) == skipped(99) == frozenset(range(2, 14))
    for written in range(12):
        assert skipped(written) <= skipped(written + 1) and not skipped(written) & {0, 1, 22, 23}
    assert (
        skip_schedule(2, 0.1, 0.1, 5, 4)(3) == frozenset()
        and skip_schedule(1, 0.1, 0.1, 5, 1)(3) == frozenset()
    )


def by_hand(net, prompt, count, skipped):
    """Token by token with nothing shared: the prompt through all layers, each further token through its
    own."""
    heads = net.heads
    width = net.width
    tokens = list(prompt)
    slots = torch.zeros(len(net.layers), 2, heads, len(prompt) + count, width // heads, dtype=torch.float64)
    for at in range(len(prompt) + count - 1):
        left_out = skipped(at + 1 - len(prompt)) if at + 1 > len(prompt) else frozenset()
        x, mask = net.embed([tokens[at]]), torch.zeros(1, at + 1, dtype=torch.float64)
        for depth, layer in enumerate(net.layers):
            if 2 * depth not in left_out:
                x = net.attend(layer, x, slots[depth, :, :, : at + 1], at, net.rotations([at]), mask)
            if 2 * depth + 1 not in left_out:
                x = net.transform(layer, x)
        if at + 1 >= len(prompt):
            tokens.append(int(net.head(net.norm(x))[0].argmax()))
    return tokens[len(prompt) :]


def test_every_token_goes_through_its_own_layers():
    one = kit(12, 1)
    one.net = TinyNet(12, 4, layers=6)
    one.fresh = lambda: TinyTarget(one.net, 128)
    one.target = one.fresh()
    skipped = skip_schedule(6, 1.0, 0.4, 12, 1)
    tokens, events = play_loop(SKIP, one, [3, 7, 1], 24, least=0.4, length=12)
    assert tokens == by_hand(one.net, [3, 7, 1], 24, skipped) != greedy(one.net, [3, 7, 1], 24)
    assert [n["skipped"] for n in notes(events, "layers")] == [sorted(skipped(i)) for i in range(24)]
    comb = frozenset(
        s for layer in range(6) if layer not in evenly_spaced_layers(6, 2) for s in (2 * layer, 2 * layer + 1)
    )
    assert comb and play_loop(COMB, one, [3, 7, 1], 24)[0] == by_hand(
        one.net, [3, 7, 1], 24, lambda written: comb
    )


# --- superposed ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("length", [1, 4, 10])
def test_one_draft_without_counts_is_plain_decoding(length, folder):
    for one in (kit(12, 1), layered(folder, 12, 6)):
        for prompt in ([1], [3, 7, 1]):
            plain = greedy(one.net, prompt, 24)
            assert play_loop(BLUR, one, prompt, 24, drafts=1, blend=0.0, length=length)[0] == plain
            end = frozenset({plain[6]})
            assert play_loop(BLUR, one, prompt, 24, stop=end, drafts=1, blend=0.0, length=length)[
                0
            ] == greedy(one.net, prompt, 24, end)


def test_several_drafts_share_their_passes():
    tokens, events = play_loop(BLUR, kit(12, 1), [3, 7, 1], 30, drafts=3, length=6, ranking_temperature=0.5)
    reported, totals = notes(events, "superposed"), Totals()
    for event in events:
        totals.fold(event)
    assert len(tokens) == totals.tokens == 30 and totals.metrics()["block_efficiency"] <= 1
    assert sum(isinstance(e, Verified) for e in events) == sum(t["passes"] for t in reported) + len(reported)
    assert all(
        len(t["drafts"]) == 3 and sum(d["chance"] for d in t["drafts"]) == pytest.approx(1, abs=1e-3)
        for t in reported
    )
    assert (
        reported[0]["drafts"][0]["tokens"] == tokens[:6]
        and len({tuple(d["tokens"]) for d in reported[0]["drafts"]}) == 3
    )
    assert all(sum(w) == pytest.approx(1, abs=1e-3) for t in reported for w in t["weights"])


def test_counts_of_the_text_tell_the_drafts_apart():
    """(1 - a) log p + a log p_ngram, by hand: behind 1, 2 the text has always gone on with 3; what it never
    saw costs UNKNOWN."""
    drafter, state = Superposed(drafts=4, best=4, temperature=0.5, blend=0.4), State([1, 2, 3, 1, 2])
    drafter.start(state, None, None)
    logits = torch.tensor([0.3, 0.1, 0.0, 0.2], dtype=torch.float64)
    logs = (logits / 0.5).log_softmax(-1)
    known = math.log(
        (WEIGHTS[2] + WEIGHTS[3]) / sum(WEIGHTS.values())
    )  # of two and of three tokens; longer ones are new
    want = {(t,): 0.6 * float(logs[t]) + (0.4 * known if t == 3 else -UNKNOWN) for t in range(4)}
    found = {draft: score for score, draft in drafter._extend([(0.0, ())], logits, state)}
    assert found == pytest.approx(want) and max(found, key=found.get) == (3,)


def test_what_is_fed_is_the_weighted_sum_of_embeddings():
    """The second distribution is that of a row whose input is the blend: computed here without the engine's
    cache."""
    one = kit(12, 1)
    net, prompt = one.net, [3, 7, 1]
    _, events = play_loop(
        BLUR, one, prompt, 8, drafts=2, length=2, ranking_temperature=1.0, blend=0.0, best=12
    )
    reported = notes(events, "superposed")[0]
    first = net.logits(prompt)[-1].log_softmax(-1)
    top = first.topk(2)
    weights = top.values.softmax(-1)
    x = torch.cat([net.embed(prompt), (weights @ net.embed(top.indices.tolist()))[None]])
    turn, mask = net.rotations(range(4)), torch.full((4, 4), -torch.inf, dtype=torch.float64).triu(1)
    for layer in net.layers:
        x = net.block(layer, x, x.new_zeros(2, net.heads, 4, net.width // net.heads), 0, turn, mask)
    second = net.head(net.norm(x))[-1].log_softmax(-1)
    scores = {(a, b): float(first[a] + second[b]) for a in top.indices.tolist() for b in range(12)}
    assert [tuple(d["tokens"]) for d in reported["drafts"]] == sorted(scores, key=lambda d: -scores[d])[:2]


# --- branches ------------------------------------------------------------------------------------------------------------
def test_branches_are_what_each_would_be_alone():
    one, prompt = kit(12, 5), [3, 7, 1]
    one.ends_line = lambda token: False
    tokens, events = play_loop(BRANCH, one, prompt, 90, branches=3, title=4, length=8)
    reported = notes(events, "branches")[0]
    outline = [
        t
        for i, title in enumerate(reported["titles"], 1)
        for t in one.encode(f"{i}." if i == 1 else f"\n{i}.") + title["tokens"]
    ]
    assert tokens[: len(outline)] == outline and [len(t["tokens"]) for t in reported["titles"]] == [4, 4, 4]
    for i, (title, part) in enumerate(zip(reported["titles"], reported["parts"]), 1):
        head = one.encode(f"\n\n{i}.") + title["tokens"] + one.encode(":")
        assert part["tokens"] == head + greedy(one.net, prompt + outline + head, 8)
    joined = [t for part in reported["parts"] for t in part["tokens"]]
    assert tokens[len(outline) : len(outline) + len(joined)] == joined
    after = prompt + outline + joined
    assert (
        tokens[len(outline) + len(joined) :] == greedy(one.net, after, 90)[: 90 - len(outline) - len(joined)]
    )
    assert reported["passes"] == 8 and len(reported["parts"]) == 3


def test_branches_end_at_their_lines_and_limits():
    for count in (1, 2, 5, 17, 40):
        tokens, _ = play_loop(BRANCH, kit(12, 5), [3, 7, 1], count, branches=2, title=3, length=5)
        assert len(tokens) == count
    for seed in range(4):
        one = kit(5, seed)
        tokens, events = play_loop(
            BRANCH, one, [1, 2], 80, FREE, RandomStreams(seed), frozenset({4}), branches=2, title=4, length=6
        )
        assert 4 not in tokens[:-1]
        for reported in notes(events, "branches"):
            assert all(0 not in t["tokens"] for t in reported["titles"])
