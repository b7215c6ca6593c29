"""The picture recipe: drawings are a function of the seed, the codebook keeps plain ground, a tiny run
ships a target that loads and paints."""

from __future__ import annotations

import dataclasses
import json
import random

import numpy as np
import pytest

from specviz.core import Sampling
from specviz.pictures import drawings
from specviz.run.result import collect
from specviz.run.session import Session
from specviz.training import generate, pictures, text_answers
from specviz.training.job import Job
from specviz.zoo import load
from tools import recognise


def test_every_thing_can_be_drawn_and_asked_for_in_known_words():
    words, rng = pictures.make_tokenizer(2), random.Random(0)
    for thing in (*drawings.SHAPES, *drawings.LETTERS, *drawings.LETTERS.upper(), *drawings.DIGITS):
        wish = drawings.Wish(thing, "red", night=thing in "az7")
        picture = drawings.paint(wish, random.Random(1))
        assert picture.shape == (32, 32, 3) and (picture == drawings.paint(wish, random.Random(1))).all()
        assert (np.abs(picture.astype(int) - picture[0, 0]).sum(-1) > 60).mean() > 0.01, (
            f"{thing} is not to be seen"
        )
        for _ in range(4):
            ids = words.encode(drawings.words_of(wish, rng))
            assert words.unk_token_id not in ids and words.convert_tokens_to_ids("patch 0") > max(ids)


def test_patches_are_cut_in_raster_order():
    picture = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(1, 4, 4, 3)
    cut = pictures.cut_patches(picture, 2)
    assert (cut[0, 1].reshape(2, 2, 3) == picture[0, :2, 2:]).all() and (
        cut[0, 2].reshape(2, 2, 3) == picture[0, 2:, :2]
    ).all()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    job = Job(work=tmp_path_factory.mktemp("work"), size="tiny", steps=2, quiet=True, device="cpu")
    return pictures.run(job), job


def test_a_tiny_run_ships_a_target_that_paints(trained):
    place, job = trained
    loaded = load(str(place), "none", "cpu")
    assert loaded.codec.output == {"kind": "patches", "rows": 2, "columns": 2, "patch": 16}
    ground = np.array([drawings.DAY, drawings.NIGHT], np.uint8)
    assert all((loaded.codec.codes == colour).all((1, 2, 3)).any() for colour in ground)
    result = collect(Session(loaded, "speculative_jacobi", sampling=Sampling(1.0)).run("a red heart", 100))
    assert result.finish_reason == "stop" and len(result.token_ids) <= 4
    assert loaded.codec.pixels(result.data).shape == (32, 32, 3)
    assert (
        job.last_log("pictures")["steps"] == 2
        and json.loads((place / "config.json").read_text())["model_type"] == "llama"
    )


def test_drafters_learn_from_pictures_that_the_target_painted_and_from_drawings(trained):
    _, job = trained
    root = generate.run(dataclasses.replace(job, target="specviz-pictures"))
    words = load(str(trained[0]), "none", "cpu").codec
    for split, count in (("heldout", 24), ("train", 48), ("read", 24)):
        answers = text_answers.read(root / split)
        assert len(answers) == count and {a.temperature for a in answers} <= {0.0, 0.7, 1.0}
        for answer in answers:
            painted, end = answer.ids[answer.start :].split([len(answer.ids) - answer.start - 1, 1])
            assert (
                answer.ids[answer.start - 1] == 3 and len(answer.top_ids) == len(painted) + 1
            )  # <picture> ends the prompt
            assert split != "read" or (
                len(painted) == 4 and all(int(t) in words.tokens for t in painted) and int(end) == 4
            )


def test_a_share_of_prompts_loses_its_words():
    hparams = Job(size="tiny").hparams("pictures") | {"drop": 1.0}
    codes = np.zeros((4, 16, 16, 3), np.uint8)
    words = pictures.make_tokenizer(4)
    batches = pictures.Batches(codes, words, hparams, 0, "cpu")
    wish = drawings.Wish("heart", "red")
    assert set(batches.prompt(wish, random.Random(0), True)) <= set(range(len(pictures.SPECIAL)))
    assert words.convert_tokens_to_ids("heart") in batches.prompt(wish, random.Random(0), False)


def test_the_classifier_knows_fresh_drawings_and_not_noise():
    classify, rng = recognise.Classifier(), random.Random(9)
    right = [
        classify(drawings.paint(drawings.Wish(thing, "green"), rng)) == thing
        for thing in recognise.THINGS
        for _ in range(2)
    ]
    assert np.mean(right) > 0.9
    noise = np.random.default_rng(0).integers(0, 256, (92, 32, 32, 3), np.uint8)
    assert np.mean([classify(picture) == thing for picture, thing in zip(noise, recognise.THINGS * 2)]) < 0.1
