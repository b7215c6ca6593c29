"""A picture in a request: read and written anew, kept with the trace, refused by code where it is none or
the target reads none."""

from __future__ import annotations

import numpy as np
import pytest

from specviz.run.prefix_cache import PrefixCache
from specviz.run.request import GenerationRequest, SessionError
from specviz.run.session import Session
from specviz.targets.tiny import TinyNet, TinyTarget
from specviz.zoo.codec import encode_png
from specviz.zoo.picture_input import data_url, decode_picture
from specviz.zoo.registry import ZooError

from .fakes import FakeLoaded

IMAGE = data_url(decode_picture(encode_png(np.full((4, 4, 3), 90, np.uint8))))


class Seeing(FakeLoaded):
    """Models that take pictures, or refuse them as a target of text does."""

    def __init__(self, refuses=False):
        super().__init__()
        self.refuses, self.seen = refuses, []

    def with_picture(self, image):
        if self.refuses and image is not None:
            raise ZooError("It reads no pictures.", "picture.target")
        self.seen.append(image)
        return self


@pytest.mark.parametrize(("hide", "seen"), [(False, IMAGE), (True, None)])
def test_a_session_gives_the_target_the_picture_unless_it_is_hidden(hide, seen):
    loaded = Seeing()
    session = Session(loaded, "autoregressive", request=GenerationRequest(image=IMAGE, hide_image=hide))
    assert loaded.seen[-1] == seen and session.request.record()["image"] == IMAGE


def test_a_session_without_a_picture_asks_for_none():
    loaded = Seeing()
    Session(loaded, "autoregressive")
    assert (
        loaded.seen == []
        and "image" not in GenerationRequest().record()
        and "hide_image" not in GenerationRequest().record()
    )


@pytest.mark.parametrize("hide", [False, True])
def test_a_target_of_text_refuses_a_picture_by_code(hide):
    with pytest.raises(SessionError) as error:
        Session(
            Seeing(refuses=True), "autoregressive", request=GenerationRequest(image=IMAGE, hide_image=hide)
        )
    assert error.value.code == "picture.target"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"image": "a.png"}, "picture.form"),
        ({"image": 3}, "picture.form"),
        ({"hide_image": "yes"}, "request.flag"),
        ({"picture": IMAGE}, "request.field"),
    ],
)
def test_fields_that_are_none_are_refused_by_code(fields, code):
    with pytest.raises(SessionError) as error:
        GenerationRequest.from_dict(fields)
    assert error.value.code == code


def test_a_kept_cache_is_used_only_behind_the_same_rows():
    class Kit:
        def __init__(self, name):
            self.target = TinyTarget(TinyNet(5, 0), 32)
            self.target.prefix_id = name
            self.opened = [self.target]

    for before, now, same in (
        ("", "", True),
        ("a", "a", True),
        ("a", "b", False),
        ("a", "", False),
        ("", "a", False),
    ):
        cache = PrefixCache()
        first = Kit(before)
        second = Kit(now)
        kept = first.target
        cache.keep(first, "model", "exact")
        cache.take(second, "model", "exact")
        assert (second.target is kept) == same
