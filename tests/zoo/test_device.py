"""What the page and every trace say of the machine."""

from __future__ import annotations

import pytest
import torch

from specviz.zoo import device as machine


@pytest.mark.parametrize("cores, wanted", [(1, "1 core"), (2, "2 cores")])
def test_the_processor_is_named_with_the_cores_that_are_ours(monkeypatch, cores, wanted):
    monkeypatch.setattr(machine, "physical_cores", lambda: cores)
    name, _, count = machine.processor().rpartition(", ")
    assert name.endswith(f"({torch.backends.cpu.get_cpu_capability()})") and count == wanted
