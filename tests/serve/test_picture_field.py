"""A picture on its way through the page's and the endpoint's limits."""

from __future__ import annotations

import numpy as np
import pytest

from specviz.engine import choices, limits
from specviz.engine.cards import cards
from specviz.engine.messages import Refused
from specviz.serve.openai_fields import ApiLimits
from specviz.serve.openai_formats import ChatShape, CompletionShape
from specviz.zoo.codec import encode_png, sample_picture
from specviz.zoo.picture_input import KEPT_SIDE, data_url, decode_picture
from specviz.zoo.registry import ZooError, register

IMAGE = data_url(decode_picture(encode_png(np.full((4, 4, 3), 90, np.uint8))))
PART = {"type": "image_url", "image_url": {"url": IMAGE}}
TEXT = {"type": "text", "text": "What does it show?"}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def test_the_endpoint_takes_one_picture_out_of_the_messages():
    body = {"messages": [user(PART, TEXT), {"role": "assistant", "content": "A heart."}, user(TEXT)]}
    assert ChatShape.picture(body) == {"image": IMAGE}
    assert [message["content"] for message in ChatShape.prompts(body, ApiLimits())[0]] == [
        TEXT["text"],
        "A heart.",
        TEXT["text"],
    ]
    assert ChatShape.picture({"messages": [user(TEXT)]}) == {} == CompletionShape.picture({"prompt": "a"})


@pytest.mark.parametrize(
    "messages",
    [
        [user(PART, TEXT, PART)],
        [user(PART), user(PART, TEXT)],
        [user({"type": "image_url", "image_url": {"url": 7}}, TEXT)],
        [user({"type": "image_url"}, TEXT)],
    ],
)
def test_more_pictures_than_one_or_none_at_all_are_refused_by_code(messages):
    with pytest.raises(Refused) as why:
        ChatShape.picture({"messages": messages})
    assert why.value.code == "openai.value"


@pytest.mark.parametrize(
    "message", [{"role": "assistant", "content": [PART]}, user({"type": "input_audio"}, TEXT)]
)
def test_other_parts_and_other_roles_hold_no_picture(message):
    with pytest.raises(Refused) as why:
        ChatShape.prompts({"messages": [message, user(TEXT)]}, ApiLimits())
    assert why.value.code == "openai.messages"


def test_a_run_takes_a_picture_of_the_kept_size_and_none_that_is_longer():
    noise = np.random.default_rng(0).integers(0, 256, (KEPT_SIDE, KEPT_SIDE, 3), np.uint8)
    largest, known = data_url(decode_picture(encode_png(noise))), cards()
    asked = limits.read_request(known, prompt="see", generation={"image": largest, "hide_image": True})
    assert asked.fields()["image"] == largest and asked.fields()["hide_image"] is True
    limits.check_size("body", {"data": [largest]})
    with pytest.raises(Refused) as why:
        limits.read_request(
            known, prompt="see", generation={"image": largest + "A" * limits.CONVERSATION_CHARACTERS}
        )
    assert why.value.code == "size.text"
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 600_000}}
    limits.check_size("openai body", {"messages": [user(picture)]})
    with pytest.raises(Refused):
        limits.check_size("openai body", {"messages": "data:image/" + "A" * limits.PICTURE_CHARACTERS})


def test_a_target_that_reads_pictures_is_offered_with_its_samples():
    entries = register().entries
    seeing = choices.target_choice(entries["specviz-vision"], "")
    assert len(seeing["pictures"]) > 3 and all(set(one) == {"shows", "image"} for one in seeing["pictures"])
    assert "pictures" not in choices.target_choice(entries["Llama-specviz-16M"], "")
    assert sample_picture(entries["specviz-vision"].path, "sample:0") == seeing["pictures"][0]["image"]
    for place, name in (
        (entries["specviz-vision"].path, "sample:99"),
        (entries["specviz-vision"].path, "sample:-1"),
        (entries["Llama-specviz-16M"].path, "sample:0"),
        (None, "sample:0"),
    ):
        with pytest.raises(ZooError) as error:
            sample_picture(place, name)
        assert error.value.code == "picture.sample"
