"""What tests of recipes share: a run that is killed and goes on."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from specviz.training.runner import Runner


def killed(monkeypatch, run: Callable[[], object], steps: int) -> object:
    """What ``run`` makes when it is killed after so many steps, and begun again."""
    update, left = Runner.update, [steps]

    def stops(self, loss_at):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return update(self, loss_at)

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "update", stops)
        with pytest.raises(KeyboardInterrupt):
            run()
    return run()
