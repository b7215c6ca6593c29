"""The recipe of the target that sees a picture: a tiny run ships a pair that loads and answers about a
picture."""

from __future__ import annotations

import json
import random

import pytest
import torch

from specviz.pictures import scenes
from specviz.run.request import GenerationRequest
from specviz.run.result import collect
from specviz.run.session import Session, SessionError
from specviz.training import vision
from specviz.training.job import Job
from specviz.zoo import load


def test_every_question_and_answer_is_made_of_known_words():
    tokenizer, rng = vision.make_tokenizer(), random.Random(0)
    for _ in range(200):
        scene = scenes.draw_scene(rng)
        turns = scenes.conversation(scene, 3, rng)
        ids = tokenizer.encode(
            f"<caption> {scenes.caption(scene)}" + vision.text_of(turns, rng), add_special_tokens=False
        )
        assert tokenizer.unk_token_id not in ids
        for question, answer in turns:
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            assert tokenizer.apply_chat_template(messages, tokenize=False) == vision.text_of(
                [(question, answer)]
            )
            assert scenes.join_words(scenes.split_words(answer)) == answer


def test_answers_alone_carry_the_loss():
    batch = vision.Batch([[2, 9, 3, 7, 8, 4, 2, 3, 5, 4], [2, 3, 4]], answer=3, end=4, pad=0, device="cpu")
    assert batch.next.tolist() == [7, 8, 4, 5, 4, 4] and batch.ids.shape == (2, 10)
    assert batch.ids.flatten()[batch.where].tolist() == [3, 7, 8, 3, 5, 3] and batch.row.tolist() == [
        1
    ] * 5 + [2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    job = Job(work=tmp_path_factory.mktemp("work"), size="tiny", steps=2, quiet=True, device="cpu")
    return vision.run(job), job


def test_a_tiny_run_ships_a_pair_that_answers_about_a_picture(trained):
    place, job = trained
    loaded = load(str(place), str(place.parent / "specviz-vision-draft"), "cpu")
    assert "input:picture" in loaded.capabilities and loaded.codec.picture_size == (scenes.SIDE, scenes.SIDE)
    samples = loaded.codec.picture_samples
    assert len(samples) == len(scenes.SAMPLES) and all(sample["shows"] for sample in samples)
    texts = []
    for number, hidden in ((0, False), (1, False), (0, True), (1, True)):
        request = GenerationRequest(image=samples[number]["image"], hide_image=hidden)
        result = collect(
            Session(loaded, "multimodal", {"gamma": 2}, request=request).run("What do you see?", 6)
        )
        assert result.token_ids
        texts.append(loaded.with_picture(request.seen_image).open_target().prefix_id)
    assert len(set(texts)) == 3 and texts[2] == texts[3] == ""
    card = (place.parent / "specviz-vision-draft" / "README.md").read_text()
    assert "| grammar | 1.000 |" in card and job.last_log("vision-draft")["steps"] == 2
    assert json.loads((place / "config.json").read_text())["vision_config"]["columns"] == scenes.CELLS


def test_questions_without_a_known_word_and_system_messages_are_refused(trained):
    loaded = load(str(trained[0]), "none", "cpu")
    for prompt, code in (
        ("Guten Morgen", "prompt.words"),
        ([{"role": "system", "content": "see"}, {"role": "user", "content": "see"}], "prompt.template"),
    ):
        with pytest.raises(SessionError) as error:
            Session(loaded, "autoregressive").encode(prompt)
        assert error.value.code == code


def test_a_conversation_continues_on_the_same_tokens(trained):
    loaded = load(str(trained[0]), "none", "cpu")
    first = [{"role": "user", "content": "What is in the middle?"}]
    answer = "There is a red heart in the middle."
    ids = loaded.codec.encode(first, False)
    then = {"role": "user", "content": "Where is the heart?"}
    longer = loaded.codec.encode([*first, {"role": "assistant", "content": answer}, then], False)
    table, written = loaded.token_bytes, longer[len(ids) :]
    end = written.index(min(loaded.end_tokens))
    assert longer[: len(ids)] == ids
    assert b"".join(table.output_bytes(i, n == 0) for n, i in enumerate(written[:end])).decode() == answer


def test_logits_of_a_loaded_target_are_the_trained_networks(trained):
    from specviz.core import DraftTree
    from specviz.zoo.picture_input import picture_pixels

    loaded = load(str(trained[0]), "none", "cpu")
    config = vision.LlamaConfig(**json.loads((trained[0] / "config.json").read_text()))
    net = vision.VisionLlama(config)
    from safetensors.torch import load_file

    from specviz.checkpoints import mx

    net.load_state_dict(mx.from_file_tensors(load_file(trained[0] / "model.safetensors")), strict=False)
    image = loaded.codec.picture_samples[0]["image"]
    ids = loaded.codec.encode([{"role": "user", "content": "What do you see?"}], False)
    with torch.no_grad():
        rows = net.float().vision(
            torch.from_numpy(picture_pixels(image, *loaded.codec.picture_size).copy())[None]
        )
        want = net.lm_head(vision.hidden_after(net, torch.tensor([ids]), rows))[-1]
    target = loaded.with_picture(image).open_target()
    target.sync(ids)
    assert float((target.score(DraftTree()).logits[0] - want).abs().max()) < 1e-3
