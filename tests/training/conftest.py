"""One tiny run of the whole pipeline, on the project's own generators, shared by the tests here."""

import pytest
import torch

from specviz.training.__main__ import main


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny():
    def run(work, recipe, *more):
        return main([recipe, "--size", "tiny", "--steps", "25", "--work", str(work), "--device", "cpu", "--quiet", *more])

    return run


@pytest.fixture(scope="session")
def work(tmp_path_factory, one_thread, tiny):
    folder = tmp_path_factory.mktemp("training")
    assert tiny(folder, "all") == 0
    return folder
