"""A visitor's run, from the press of Run until its answer is a turn of the conversation."""
from __future__ import annotations

from dataclasses import dataclass

from .chat import Chat, Turn
from .limits import Ask
from .stream import Live


@dataclass
class Underway:
    """A visitor's run from the press of Run until its answer is kept. watched: its frames are being told; over: all were."""

    live: Live
    ask: Ask
    earlier: list  # the turns before it
    watched: bool = False
    over: bool = False

    def keep(self, chat: Chat) -> Turn | None:
        """Its answer becomes a turn; the frames of the next run are numbered on, since a page takes a lower number for a late one."""
        chat.frame = max(chat.frame, self.live.frames.first)
        return chat.put(self.earlier, self.ask.prompt, self.live.frames.records)
