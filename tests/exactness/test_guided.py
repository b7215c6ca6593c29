"""Classifier-free guidance: methods on a guided target have its guided distribution, cache included; a
target that guides only its root does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specviz.core import DraftTree, Sampling
from specviz.methods import catalogue
from specviz.targets.guided import GuidedTarget

from .enumeration import distance, joint, probs_of_engine
from .toys import PROMPT, SMALL, TinyTarget, begin, greedy, player, small_knobs, toy

VOCAB = 3
SCALE = 2.5
COUNT = 3
UNGUIDED = [0, 0, 2]  # token 1 is a word
METHODS = ("autoregressive", "speculative", "prompt_lookup", "speculative_jacobi", "token_recycling")


class RootOnly(GuidedTarget):
    """Wrong: nodes of the draft keep the logits of the row with the prompt."""

    def score(self, tree: DraftTree, start: int = 0):
        found, plain = super().score(tree, start), self._model.score(tree)
        return replace(found, logits=torch.cat([found.logits[:1], plain.logits[1:]]))


class OnePrompt(GuidedTarget):
    """Wrong: the second row reads the prompt, too."""

    def sync(self, tokens):
        self._other.sync(tokens)
        return self._model.sync(tokens)


def guided_logits(net):
    def logits(tokens):
        without = net.logits([UNGUIDED[token] for token in tokens])
        return without + SCALE * (net.logits(tokens) - without)

    return logits


def guided_kit(kind=GuidedTarget):
    kit = toy(VOCAB, share=0.5, sharp=0.8)
    kit.open_net = lambda net: kind(
        TinyTarget(net, kit.context), TinyTarget(net, kit.context), UNGUIDED, SCALE
    )
    kit.target = kit.open_net(kit.net)
    return kit


def off(key, kind=GuidedTarget):
    kit, method = guided_kit(kind), catalogue()[key]
    parts = method.build(kit, **small_knobs(method, SMALL)[0])
    state = begin(parts, kit, Sampling(1.0), COUNT, 1, prompt=[token % VOCAB for token in PROMPT])
    want = joint(guided_logits(kit.net), state.tokens, COUNT, Sampling(1.0), VOCAB, frozenset())
    probs, _ = probs_of_engine(parts, kit.target, state, COUNT, lambda *_: None, (kit.net, kit.small), 10**9)
    assert sum(probs.values()) == pytest.approx(1, abs=1e-12)
    return distance(probs, want)


@pytest.mark.parametrize("key", METHODS)
def test_the_joint_distribution_is_the_guided_one(key):
    assert off(key) < 1e-12


@pytest.mark.parametrize("kind", [RootOnly, OnePrompt])
def test_wrong_guidance_is_caught(kind):
    assert off("speculative", kind) > 0.01


def test_scale_one_is_the_target_and_zero_the_one_without_words():
    for scale, words in ((1.0, list(range(VOCAB))), (0.0, UNGUIDED)):
        kit = toy(VOCAB)
        target = GuidedTarget(TinyTarget(kit.net, 96), TinyTarget(kit.net, 96), UNGUIDED, scale)
        target.sync(PROMPT)
        tree = DraftTree((1, 2, 0), (-1, 0, -1), (-1,) * 3)
        rows = target.score(tree).logits
        for row, path in enumerate(((), (1,), (1, 2), (0,))):
            wanted = kit.net.logits([words[token] for token in (*PROMPT, *path)])[-1]
            assert torch.allclose(rows[row], wanted, atol=1e-9)


def test_only_tokens_of_the_output_are_drawn():
    kit = toy(VOCAB)
    target = GuidedTarget(TinyTarget(kit.net, 96), TinyTarget(kit.net, 96), UNGUIDED, 9.0, range(1, 2))
    assert target.sync(PROMPT).logits.isneginf().all(0).tolist() in ([], [True, False, True])
    rows = target.score(DraftTree((1, 2), (-1, 0), (-1,) * 2)).logits
    assert rows.softmax(-1).tolist() == [[0.0, 1.0, 0.0]] * 3


def test_greedy_text_is_that_of_the_guided_logits():
    for key in METHODS:
        kit, method = guided_kit(), catalogue()[key]
        parts, prompt = (
            method.build(kit, **small_knobs(method, SMALL)[0]),
            [token % VOCAB for token in PROMPT],
        )
        state = begin(parts, kit, Sampling(0.0), 9, prompt=prompt)
        while not state.done:
            player(parts)(parts, kit.target, state)
        assert state.tokens == greedy(guided_logits(kit.net), prompt, 9), key
