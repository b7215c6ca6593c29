"""A visitor's run, from the press of Run until its answer is a turn of the conversation."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.limits import RunRequest
from ..engine.stream import LiveRun
from .chat import Chat, Turn


@dataclass
class VisitorRun:
    """A visitor's run, from the press of Run until its answer is a turn of the conversation. earlier: the
    turns before it; watched: its frames are being sent; over: all were sent; dropped: the visitor left the
    conversation, so nothing of the run is shown or kept."""

    live: LiveRun
    asked: RunRequest
    earlier: list  # the turns before it
    watched: bool = False
    over: bool = False
    dropped: bool = False

    def keep(self, chat: Chat) -> Turn | None:
        """Append this run's answer to ``chat`` and return the turn; None if no lane generated text.
        ``chat.frame`` is advanced past this run's frames, because the page ignores lower numbers."""
        chat.frame = max(chat.frame, self.live.frames.first)
        return chat.put(self.earlier, self.asked.prompt, self.live.frames.records)
