"""A run's three listeners, in the orders that a browser can bring about."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import gradio as gr
import pytest

from specviz.engine.messages import TEXTS
from specviz.ui.chat import Chat
from specviz.ui.handlers import Handlers
from specviz.ui.page import BEGIN_OUTPUTS, FINISH_OUTPUTS

from ..message_codes import codes
from .fake import FakeBackend

ME = SimpleNamespace(session_hash="me")


@pytest.fixture
def hands():
    made = Handlers(FakeBackend())
    made.ui |= {name: name for name in {*BEGIN_OUTPUTS, *FINISH_OUTPUTS, "board"}}
    return made


def begin(hands, chat, prompt="tell of the fox", predicted=""):
    return asyncio.run(
        hands.begin(prompt, '["chain"]', {}, 0, 1, 9, 0, 1, 1, "", "", "", predicted, None, None, chat, ME)
    )


def watch(hands, frames=None):
    async def told():
        out = []
        listener = hands.watch(ME)
        async for update in listener:
            out.append(update)
            if frames and len(out) == frames:
                break
        await listener.aclose()
        return out

    return asyncio.run(told())


def notice(update):
    return json.loads(update["notice"])["text"]


def test_a_predicted_text_goes_with_the_run_or_is_refused(hands):
    assert "size.text" in codes(notice(begin(hands, Chat(), predicted="x" * 4001)), TEXTS) and not hands.live
    begin(hands, Chat(), predicted="the fox ran")
    assert hands.live["me"].asked.predicted == "the fox ran"


def test_a_run_is_begun_watched_and_settled(hands):
    chat = Chat()
    told = begin(hands, chat)
    assert set(told) <= set(BEGIN_OUTPUTS) and not told["run"].interactive and told["stop"].interactive
    frames = watch(hands)
    assert frames and all(set(update) == {"board", "stop"} for update in frames)
    told = hands.finish(chat, "", ME)
    assert [turn.question for turn in chat.turns] == ["tell of the fox"] and chat.frame > 1
    assert (
        set(told) <= set(FINISH_OUTPUTS)
        and told["run"].interactive
        and not told["stop"].interactive
        and not hands.live
    )


def test_two_presses_are_one_run(hands):
    chat = Chat()
    begin(hands, chat)
    hands.live["me"].watched = True
    assert set(begin(hands, chat)) == {"notice"} and notice(begin(hands, chat)) == TEXTS["run.active"]
    assert all("board" not in told for told in watch(hands))  # the second press has nothing to watch
    assert hands.finish(chat, "", ME) == {"run": gr.skip()} and hands.live and not chat.turns


def test_a_press_before_the_last_run_was_settled_follows_it(hands):
    """Its answer is part of the conversation, and no frame of the new run has a number that the page has
    seen: it would wait for a board that never changes."""
    chat = Chat()
    begin(hands, chat)
    seen = json.loads(watch(hands)[-1]["board"].splitlines()[-1])["s"]
    begin(hands, chat, "and the owl")
    assert hands.finish(chat, "", ME) == {"run": gr.skip()}, "the first one's settling, late"
    assert json.loads(watch(hands)[0]["board"].splitlines()[-1])["s"] > seen
    assert hands.finish(chat, "", ME) and [turn.question for turn in chat.turns] == [
        "tell of the fox",
        "and the owl",
    ]
    begin(hands, chat)
    watch(hands)
    assert "size.text" in codes(notice(begin(hands, chat, "x" * 5000)), TEXTS)
    hands.finish(chat, "", ME)
    assert [turn.question for turn in chat.turns] == ["tell of the fox", "and the owl", "tell of the fox"], (
        "a refused press keeps it once"
    )


def test_a_run_that_nobody_came_to_watch_is_in_nobodys_way(hands):
    chat = Chat()
    begin(hands, chat)
    first = hands.live["me"]
    assert "conversation" in begin(hands, chat, "and the owl") and hands.live["me"] is not first
    assert (
        watch(hands)
        and hands.finish(chat, "", ME)
        and [turn.question for turn in chat.turns] == ["and the owl"]
    )


def test_a_reader_who_leaves_ends_the_run_and_may_begin_another(hands):
    chat = Chat()
    hands.backend.hold(2)
    begin(hands, chat)
    live = hands.live["me"].live
    assert len(watch(hands, frames=1)) == 1
    assert live.stop.is_set() and not hands.live
    told = hands.finish(chat, "", ME)
    assert told["run"].interactive and not chat.turns
    hands.backend.hold(None)
    begin(hands, chat)
    assert watch(hands) and hands.finish(chat, "", ME) and len(chat.turns) == 1


def test_what_cannot_be_asked_begins_nothing(hands):
    chat = Chat()
    assert set(begin(hands, chat, "")) <= {"notice", "prompt"} and not hands.live
    assert all("board" not in told for told in watch(hands)) and hands.finish(chat, "", ME)["run"].interactive
