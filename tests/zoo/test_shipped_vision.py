"""The embedded target that sees a picture, as it ships: it says what new pictures show, its draft is
accepted where the grammar says, and every surface that takes a picture takes it or refuses it by code."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from specviz import load
from specviz.core import DraftTree, Sampling
from specviz.evidence import certificate as certify
from specviz.methods import catalogue
from specviz.pictures import scenes
from specviz.run.prefix_cache import PrefixPool
from specviz.run.request import GenerationRequest
from specviz.run.result import collect
from specviz.run.session import Session, SessionError
from specviz.zoo import survey
from specviz.zoo.codec import encode_png
from specviz.zoo.picture_input import data_url, decode_picture

SHOW = [{"role": "user", "content": scenes.DESCRIBE[0]}]


@pytest.fixture(scope="module")
def loaded():
    return load("specviz-vision", device="cpu")


@pytest.fixture(scope="module")
def pictures():
    """Fresh scenes with their pictures, drawn with outlines that the training did not see."""
    rng, painter = random.Random(77), scenes.Painter(77, 3)
    drawn = [scenes.draw_scene(rng) for _ in range(24)]
    return [(scene, data_url(decode_picture(encode_png(painter.paint(scene, rng))))) for scene in drawn]


def probs_after(model, prompt, answer):
    """Distributions [tokens, vocab] of an answer's tokens."""
    model.sync(prompt)
    return model.score(DraftTree.chain(answer)).logits[:-1].softmax(-1)


@pytest.fixture(scope="module")
def accepted(loaded, pictures):
    """By kind of word: rows of acceptance, computed from the grammar, measured on the text alone, behind a
    caption."""
    found = {}
    prompt = loaded.codec.encode(SHOW, False)
    rng = random.Random(0)
    with torch.inference_mode():
        for scene, image in pictures:
            kit = loaded.with_picture(image).kit()
            draft = kit.open("draft")
            words = scenes.split_words(scenes.description(scene, rng.choice(scenes.OPENINGS)))
            answer = loaded.tokenizer.encode(scenes.join_words(words), add_special_tokens=False)
            assert len(answer) == len(words)
            p = probs_after(kit.target, prompt, answer)
            blind = probs_after(draft, prompt, answer)
            captioned = probs_after(draft, [*kit.caption, *prompt], answer)
            for i, word in enumerate(words):
                found.setdefault(scenes.kind_of(words, i), []).append(
                    [
                        scenes.acceptance(words[:i], word),
                        *(float(torch.minimum(p[i], q[i]).sum()) for q in (blind, captioned)),
                        float(p[i, answer[i]]),
                    ]
                )
    return {kind: np.mean(rows, axis=0) for kind, rows in found.items()}


def test_the_target_says_what_a_new_picture_shows(loaded, pictures, accepted):
    right = 0
    for scene, image in pictures[:12]:
        text = collect(
            Session(loaded, "autoregressive", request=GenerationRequest(image=image)).run(SHOW, 48)
        ).text
        right += any(text == scenes.description(scene, opening) for opening in scenes.OPENINGS)
    assert right >= 10
    assert all(accepted[kind][3] > 0.9 for kind in accepted if kind != "grammar"), (
        "the probability of the right word"
    )


def test_a_draft_that_reads_the_text_alone_is_accepted_as_the_grammar_says(accepted):
    assert all(abs(measured - computed) < 0.06 for computed, measured, *_ in accepted.values()), accepted
    assert (
        accepted["grammar"][1] > 0.95 and accepted["thing"][1] < 0.15 and accepted["colour or size"][1] < 0.25
    )


def test_a_caption_gives_the_draft_the_things_and_not_their_places(accepted):
    assert accepted["thing"][2] > 0.85 and accepted["colour or size"][2] > 0.85
    assert abs(accepted["place"][2] - accepted["place"][0]) < 0.12


def test_without_the_picture_the_target_guesses_as_its_draft_does(loaded, pictures):
    image, texts = pictures[0][1], {}
    for hidden in (False, True):
        request = GenerationRequest(image=image, hide_image=hidden)
        result = collect(Session(loaded, "multimodal", request=request).run(SHOW, 48))
        texts[hidden] = result.text
    assert texts[True] != texts[False]
    blind = collect(Session(loaded, "multimodal").run(SHOW, 48))
    assert blind.text == texts[True] and blind.totals.accepted / blind.totals.tried > 0.6


def test_methods_write_what_plain_decoding_writes_behind_a_picture(loaded, pictures):
    seeing, greedy = loaded.with_picture(pictures[1][1]), {}
    for key in ("multimodal", "speculative", "specinfer", "prompt_lookup", "jacobi"):
        assert loaded.unsupported_reason(catalogue()[key]) is None
        greedy[key] = certify.greedy(seeing, key, [scenes.DESCRIBE[0], "What is in the middle?"], 40)[
            "status"
        ]
    assert set(greedy.values()) == {"identical"}, greedy
    found = certify.distribution(seeing, "multimodal", scenes.DESCRIBE[0], 60, Sampling(1.0))
    assert found["status"] == "pass", found


def test_a_conversation_reuses_its_cache_for_the_same_picture_alone(loaded, pictures):
    pool, reused = PrefixPool(), []
    first = [{"role": "user", "content": scenes.DESCRIBE[0]}]
    answer = collect(
        Session(loaded, "multimodal", request=GenerationRequest(image=pictures[0][1])).run(first, 40)
    ).text
    turns = [
        *first,
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "How many things are there?"},
    ]
    texts = []
    for image, messages in (
        (pictures[0][1], first),
        (pictures[0][1], turns),
        (pictures[1][1], turns),
        (None, turns),
    ):
        session = Session(loaded, "multimodal", request=GenerationRequest(image=image))
        session.lease(pool, "one", messages)
        result = collect(session.run(messages, 40))
        fresh = collect(
            Session(loaded, "multimodal", request=GenerationRequest(image=image)).run(messages, 40)
        )
        assert result.text == fresh.text
        texts.append(result.text)
        reused.append(result.reused)
    assert reused[1] > len(loaded.codec.encode(first, False)) and reused[0] == reused[2] == reused[3] == 0, (
        reused
    )
    assert scenes.NUMBERS[len(pictures[0][0]) - 1] in texts[1]


def test_targets_of_text_refuse_a_picture_by_code_and_the_method_names_what_it_needs(loaded, pictures):
    small = load("Llama-specviz-16M", device="cpu")
    for request in (
        GenerationRequest(image=pictures[0][1]),
        GenerationRequest(image=pictures[0][1], hide_image=True),
    ):
        with pytest.raises(SessionError) as error:
            Session(small, "autoregressive", request=request)
        assert error.value.code == "picture.target"
    assert (
        survey("Llama-specviz-16M")(catalogue()["multimodal"])
        and survey("specviz-vision")(catalogue()["multimodal"]) is None
    )


def test_a_picture_travels_with_the_trace(loaded, pictures):
    request = GenerationRequest(image=pictures[0][1], hide_image=True)
    header = next(iter(Session(loaded, "multimodal", request=request).run(SHOW, 4))).header
    assert header["request"]["image"] == pictures[0][1] and header["request"]["hide_image"] is True
    assert GenerationRequest.from_dict(header["request"]) == request


@pytest.mark.thorough
def test_every_exact_method_that_is_offered_writes_the_same_behind_a_picture(loaded):
    seeing = loaded.with_picture(loaded.codec.picture_samples[0]["image"])
    runs = [
        key
        for key, method in catalogue().items()
        if method.exactness in ("exact", "greedy only") and seeing.unsupported_reason(method) is None
    ]
    found = {key: certify.greedy(seeing, key, [scenes.DESCRIBE[0]], 40)["status"] for key in runs}
    assert len(found) > 40 and set(found.values()) == {"identical"}, found
