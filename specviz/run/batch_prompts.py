"""Further prompts that are answered in one batch with a run's own prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..loops.batched import SharedBatch, unbatchable_reason

NAMED = 48  # characters of a prompt that name it


def session_unbatchable_reason(session: Any) -> str | None:
    """Return why a session's method cannot be batched, as the end of a sentence; None if it can."""
    kit = session.loaded.kit()
    try:
        return unbatchable_reason(session.method.build(kit, **session.knobs))
    finally:
        kit.close()


class BatchPrompts:
    """Runs the session's ``batch_prompts`` together with a run's own prompt."""

    def __init__(self, session: Any):
        self.session, self.kits = session, []

    def shared_loop(self, own: str, length: int) -> SharedBatch:
        """Return the decoding loop that answers the prompt ``own`` and these prompts in one batch, up to
        ``length`` tokens each. Prompt i uses seed + i."""
        session, others = self.session, []
        for i, prompt in enumerate(session.batch_prompts, 1):
            self.kits.append(kit := session.loaded.kit())
            ids = session.encode(prompt)
            state = session.state(
                ids,
                replace(session.sampling, seed=session.sampling.seed + i),
                min(length, session.loaded.context - len(ids)),
            )
            state.draft_ready = kit.draft_ready
            others.append((session.method.build(kit, **session.knobs), kit.target, state))
        return SharedBatch(others, [text[:NAMED] for text in (own, *session.batch_prompts)])

    @property
    def busy(self) -> float:
        """Seconds spent in forward passes of the other prompts so far."""
        return sum(model.busy for kit in self.kits for model in kit.opened)

    def close(self) -> None:
        """Free the models' KV caches of the other prompts."""
        for kit in self.kits:
            kit.close()
