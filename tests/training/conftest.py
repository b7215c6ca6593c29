"""One tiny run of the whole pipeline, on the project's own generators, shared by the tests here."""

import pytest
import torch
from transformers import LlamaConfig

from specviz.training.__main__ import main

from ..targets.tiny import network
from . import test_features


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny():
    def run(work, recipe, *more):
        return main(
            [
                recipe,
                "--size",
                "tiny",
                "--steps",
                "25",
                "--work",
                str(work),
                "--device",
                "cpu",
                "--quiet",
                *more,
            ]
        )

    return run


SOME = ("tokenizer", "target", "generate", "draft", "medusa", "eagle", "datastore")


@pytest.fixture(scope="session")
def work(tmp_path_factory, one_thread, tiny):
    """What a few recipes made of one another; the recipes of every head are tried one by one, and together
    in ``whole``."""
    folder = tmp_path_factory.mktemp("training")
    for recipe in SOME:
        assert tiny(folder, recipe) == 0
    return folder


@pytest.fixture(scope="session")
def whole(tmp_path_factory, one_thread, tiny):
    folder = tmp_path_factory.mktemp("whole")
    assert tiny(folder, "all") == 0
    return folder


@pytest.fixture(scope="session")
def pair(tmp_path_factory, one_thread):
    """A work folder with the tiny target, its generations, and a narrower draft model that is right now and
    then."""
    work = test_features.written(tmp_path_factory.mktemp("pair"))
    net = network(
        LlamaConfig(
            vocab_size=48,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=96,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
            tie_word_embeddings=True,
        ),
        seed=5,
    )
    net.get_input_embeddings().weight.data.mul_(0.5)
    net.save_pretrained(work / "models" / "Llama-specviz-draft")
    return work
