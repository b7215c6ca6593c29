"""Questions whose answer is a text: the library's recordings, and the stand-alone page that the browser
fills."""

from __future__ import annotations

import asyncio
import json

from specviz import lab
from specviz.engine.limits import RunQueue
from specviz.ui.lab_questions import LabQuestions


class Light:
    questions = light = frozenset(lab.LIGHT)

    def answer(self, name, payload, stop, seconds):
        yield from lab.answer(name, payload)


def asked(question: str, **payload) -> list[dict]:
    async def ask():
        return [json.loads(line) async for line in LabQuestions(Light(), RunQueue()).ask(question, payload)]

    return asyncio.run(ask())


def test_a_recording_and_the_page_arrive_as_text() -> None:
    names = [x["name"] for x in asked("library")[-1]["answer"]]
    *before, last = asked("library_trace", name=names[0])
    assert (
        before == []
        and last["state"] == "done"
        and json.loads(last["answer"].splitlines()[0])["type"] == "header"
    )
    page = asked("html")[-1]["answer"]
    assert page.startswith("<!doctype html>") and page.count('id="trace"') == 1
