"""Scenes are functions of the seed; the grammar's probabilities are those of its own draws."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from specviz.pictures import scenes


def descriptions(count, seed=0):
    rng = random.Random(seed)
    for _ in range(count):
        yield scenes.split_words(scenes.description(scenes.draw_scene(rng), rng.choice(scenes.OPENINGS)))


def test_the_words_a_blind_reader_expects_have_the_grammars_frequencies():
    drawn, given = list(descriptions(4000)), ["I", "see", "a"]
    after = Counter(words[3] for words in drawn if words[:3] == given)
    expected = scenes.blind_probs(given)
    assert sum(expected.values()) == pytest.approx(1) and expected["small"] == pytest.approx(1 / 3)
    assert all(abs(after[word] / sum(after.values()) - share) < 0.05 for word, share in expected.items())
    ends = Counter(words[-1] for words in drawn)
    assert set(ends) == {"."} and all(not scenes.blind_probs(words) for words in drawn[:5])
    for words in drawn[:20]:
        assert all(scenes.blind_probs(words[:i])[word] > 0 for i, word in enumerate(words))


def test_a_blind_draft_is_accepted_on_grammar_and_refused_on_what_the_picture_decides():
    found = {}
    for words in descriptions(30):
        for i, word in enumerate(words):
            found.setdefault(scenes.kind_of(words, i), []).append(scenes.acceptance(words[:i], word))
    mean = {kind: np.mean(shares) for kind, shares in found.items()}
    assert mean["grammar"] == pytest.approx(1) and mean["thing"] < 0.075 and mean["colour or size"] < 0.2
    assert 0.5 < mean["place"] < 0.8 and 0.4 < mean["number of things"] < 0.8


def test_a_scene_is_painted_where_it_says():
    scene = (scenes.Item(4, "heart", "red", False), scenes.Item(8, "sun", "blue", True))
    picture = scenes.Painter(0, 2).paint(scene, random.Random(0))
    inked = (
        (np.abs(picture.astype(int) - picture[0, 0]).sum(-1) > 60)
        .reshape(3, scenes.CELL, 3, scenes.CELL)
        .any((1, 3))
    )
    assert picture.shape == (scenes.SIDE, scenes.SIDE, 3) and inked.flatten().nonzero()[0].tolist() == [4, 8]
