"""Model folders: no code of theirs runs, nothing is allocated on their word alone, and each bad one is one
sentence."""

from __future__ import annotations

import ast
import io
import json
import os
import random
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import specviz
from specviz import ZooError, load
from specviz.checkpoints import sizes
from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree
from specviz.models.llama import FIRST_ROTATIONS, Llama
from specviz.models.pretrained import load_causal
from specviz.run import Session, SessionError, collect
from specviz.zoo.backends import FORWARDS
from specviz.zoo.tokenizer import open_tokenizer

from ..message_codes import refuses
from ..zoo.checkpoints import write
from .folders import change, spied


class Asked(io.TextIOBase):
    """Standard input that says yes to everything, and that nobody may read."""

    reads = 0

    def readline(self, *_):
        self.reads += 1
        return "y\n"

    def fileno(self):
        raise OSError("no file")


@pytest.fixture
def asked(monkeypatch):
    stdin = Asked()
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr("builtins.input", lambda *_: stdin.readline().strip())
    yield stdin
    assert stdin.reads == 0


@pytest.mark.parametrize(
    "kind, words",
    [
        pytest.param(
            kind, words, marks=[] if kind == "spying" or words == "Words" else [pytest.mark.thorough]
        )
        for kind in ("llama", "gpt2", "spying")
        for words in (None, "", "Words", "LlamaTokenizer")
    ],
)
def test_no_code_of_a_folder_runs_and_nobody_is_asked(tmp_path, asked, monkeypatch, kind, words):
    mark = tmp_path / "MARK"
    folder = spied(tmp_path / "m", mark, kind, words)
    loaders = {
        "load": lambda: load(str(folder)),
        "tokenizer": lambda: open_tokenizer(folder),
        "draft": lambda: load(str(write(tmp_path / "t")), str(folder)),
        "transformers": lambda: load_causal("m", str(folder), None),
    }
    for name in FORWARDS:
        loaders[name] = lambda name=name: FORWARDS[name].load(folder, torch.device("cpu"))
    for work in loaders.values():
        with suppress(ZooError, ModelError):
            work()
    assert not mark.exists() and not (folder / "RAN").exists()


def test_everything_that_is_loaded_with_transformers_says_that_no_code_may_run():
    calls = [
        (path.name, node)
        for path in Path(specviz.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("from_pretrained", "from_config")
    ]
    assert len(calls) > 10
    for name, call in calls:
        message = {word.arg: word.value for word in call.keywords}
        assert (
            isinstance(message.get("trust_remote_code"), ast.Constant)
            and message["trust_remote_code"].value is False
        ), (name, call.lineno)


def refused(folder: Path, match: str = "") -> str:
    with pytest.raises(ZooError) as caught:
        load(str(folder))
    message = str(caught.value)
    assert (
        re.search(match, message) and message.endswith(".") and "\n" not in message and len(message) < 600
    ), message
    return message


ODD = ["x", -1, 0, 1.5, [], {}, [1, "a"], True, 10**18, float("inf"), {"a": {"b": 1}}]


@pytest.mark.parametrize(
    "field, values, says",
    [
        ("rope_scaling", ["x", [1], 5], "rotary"),
        ("rope_scaling", [{"rope_type": "linear"}, {"rope_type": "linear", "factor": "x"}], "factor"),
        ("rope_scaling", [{"rope_type": "linear", "factor": 0}, {"type": "llama3", "factor": 2.0}], "factor"),
        ("rope_scaling", [{"rope_type": ["a"]}], ""),
        (
            "rope_scaling",
            [
                {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 4.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64,
                }
            ],
            "low_freq_factor",
        ),
        ("rope_theta", ["x", 0, -1, [1], {}, float("nan"), 10**30], "rope_theta"),
        ("sliding_window", ["x", [4], {}, 1.5], "sliding_window"),
        ("hidden_size", ODD, "hidden_size"),
        ("num_hidden_layers", ODD, ""),
        ("num_attention_heads", ODD, ""),
        ("num_key_value_heads", ["x", -1, {}], ""),
        ("vocab_size", ODD, ""),
        ("head_dim", ["x", -2], "head_dim"),
        ("max_position_embeddings", ["x", -1, 10**12], "max_position_embeddings"),
        ("layer_types", [5, {"a": 1}, [1]], "layer_types"),
        ("rms_norm_eps", ["x", [], -1], "rms_norm_eps"),
        ("text_config", [5, "x", [1]], "text_config"),
        ("model_type", [5, [], {}, "nope"], ""),
        ("num_hidden_layers", [5000, 10**8], "layers"),
        ("vocab_size", [10**8], "vocab_size"),
        ("intermediate_size", [10**9], "intermediate_size"),
    ],
)
def test_an_odd_config_is_one_sentence(tmp_path, field, values, says):
    for value in values:
        folder = write(tmp_path / "odd")
        config = json.loads((folder / "config.json").read_text()) | {field: value}
        (folder / "config.json").write_text(json.dumps(config))
        refused(folder, says or "")


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "generation_config.json", "tokenizer.json"]
)
@pytest.mark.parametrize(
    "content",
    [
        '{"a":' * 100_000,
        "[" * 100_000,
        "",
        "null",
        *(pytest.param(odd, marks=pytest.mark.thorough) for odd in ("5", "[]")),
        "\x00",
        '{"a": 1' + "0" * 9999 + "}",
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path, name, content):
    folder = write(tmp_path / "m")
    (folder / name).write_text(content)
    try:
        loaded = load(str(folder))
        Session(loaded, "autoregressive").open("hi", 1)
        assert loaded.end_tokens is not None
    except (ZooError, SessionError) as error:
        assert "\n" not in str(error) and len(str(error)) < 600
    else:
        raise AssertionError(f"{name} with {content[:10]!r} was taken")


def test_a_missing_tokenizer_is_not_blamed_on_the_chat_template(tmp_path):
    loaded = load(str(write(tmp_path / "bare", tokenizer=False)))
    with refuses(SessionError, "method.missing", "bare") as caught:
        Session(loaded, "autoregressive").run("hi")
    assert "template" not in str(caught.value)


def test_a_head_is_no_target(at_home, tmp_path, monkeypatch):
    text = (at_home / "models.yaml").read_text() + "  cap: {path: cap, role: head, for: tiny, kind: medusa}\n"
    book = at_home / "with_head.yaml"
    book.write_text(text)
    write(at_home / "cap")
    monkeypatch.setenv("SPECVIZ_MODELS", str(book))
    for name in ("cap", str(at_home / "cap")):
        with refuses(ZooError, "model.is_head", "cap", "medusa", "tiny"):
            load(name)
        with refuses(ZooError, "model.is_head", "medusa"):
            load("tiny", name)
    refused(write(tmp_path / "theirs", model_type="medusa"), "medusa head")


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "circle", "nowhere"])
def test_a_link_to_no_ordinary_file_is_one_sentence_and_nothing_waits(tmp_path, kind):
    """Of each file of a model folder; /dev/zero has no end, and a pipe waits for its writer."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    leads = {"device": "/dev/zero", "nowhere": tmp_path / "none"}
    names = [file.name for file in write(tmp_path / "whole").iterdir()]
    assert len(names) >= 6
    for name in names:
        folder = write(tmp_path / "models" / name)
        (folder / name).unlink()
        (folder / name).symlink_to(leads.get(kind, tmp_path / kind))
        refused(folder, r"config\.json|no ordinary file")


def test_a_folder_of_links_loads_like_its_files(tmp_path):
    """The hub's cache is made of links."""
    whole, linked = write(tmp_path / "whole"), tmp_path / "linked"
    linked.mkdir()
    for file in whole.iterdir():
        (linked / file.name).symlink_to(file)
    assert load(str(linked)).vocab == load(str(whole)).vocab


# --- numbers in few bits ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("quantised", ["scale_inv", "SCB", "int8", "fp8"])
@pytest.mark.parametrize("forward", ["fast", "hf"])
def test_quantised_weights_never_run_as_if_they_were_whole(tmp_path, quantised, forward):
    folder = write(tmp_path / "q")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    if quantised == "scale_inv":
        tensors[name + "_scale_inv"] = torch.ones(1, 1)
    elif quantised == "SCB":
        tensors[name.removesuffix("weight") + "SCB"] = torch.ones(48)
    else:
        tensors[name] = (tensors[name] * 20).to(torch.int8 if quantised == "int8" else torch.float8_e4m3fn)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with refuses(ModelError, "checkpoint.quantised"):
        FORWARDS[forward].load(folder, torch.device("cpu"))


def test_a_quantisation_that_is_declared_goes_to_transformers_own_or_is_refused(tmp_path):
    folder = write(tmp_path / "declared", quantization_config={"quant_method": "no such method"})
    assert "quantised" in FORWARDS["fast"].refuses(json.loads((folder / "config.json").read_text()))
    refused(folder, "declared")


# --- sizes -------------------------------------------------------------------------------------------------------------------
def test_tables_grow_with_use_and_not_with_a_promise(tmp_path):
    short, long = (Llama(write(tmp_path / str(n), max_position_embeddings=n)) for n in (3000, 10**8))
    assert len(long.rotations(1)) == FIRST_ROTATIONS and len(short.rotations(10**9)) == 3000
    assert (
        torch.equal(long.rotations(2900)[:2900], short.rotations(2900)[:2900])
        and len(long.rotations(1)) < 10_000
    )
    loaded = load(str(tmp_path / str(10**8)))
    first = collect(
        Session(loaded, "speculative" if loaded.draft else "prompt_lookup").run("the cat", 8)
    ).token_ids
    assert (
        first == collect(Session(load(str(tmp_path / "3000")), "autoregressive").run("the cat", 8)).token_ids
    )


def test_rows_far_beyond_the_first_table_are_rotated_as_ever(tmp_path):
    from specviz.targets.fast import FastModel

    model = FastModel(write(tmp_path / "m", max_position_embeddings=4096))
    whole, again = model.open(), model.open()
    tokens = [i % 290 for i in range(FIRST_ROTATIONS + 40)]
    whole.sync(tokens)
    first = whole.score(DraftTree.chain([5, 6])).logits
    again.sync(tokens[:-30])
    again.sync(tokens)
    assert torch.allclose(first, again.score(DraftTree.chain([5, 6])).logits, atol=1e-4)


@pytest.mark.parametrize("forward", ["fast", "hf"])
def test_what_does_not_fit_is_refused_before_it_is_allocated(tmp_path, monkeypatch, forward):
    folder = write(tmp_path / "large")
    monkeypatch.setattr(sizes, "free_bytes", lambda device: 10_000)
    monkeypatch.setattr("torch.empty", lambda *_, **__: pytest.fail("something was allocated"))
    with refuses(ModelError, "checkpoint.memory", "large"):
        FORWARDS[forward].load(folder, torch.device("cpu"))


def test_a_network_larger_than_its_files_is_not_made_up(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    GPT2LMHeadModel(
        GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=300, n_positions=32)
    ).save_pretrained(tmp_path / "m")
    change(tmp_path / "m", "config.json", n_positions=2 * 10**9)
    with refuses(ModelError, "checkpoint.memory"):
        load_causal("m", str(tmp_path / "m"), None)


def test_free_memory_is_known_here():
    assert sizes.free_bytes(torch.device("cpu")) > 2**20


# --- any damage whatever -------------------------------------------------------------------------------------------------
def damaged(folder: Path, rng: random.Random) -> str:
    """Spoil one thing of the folder; what was done."""
    path = folder / rng.choice(
        [
            "config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "generation_config.json",
            "model.safetensors",
        ]
    )
    data = bytearray(path.read_bytes())
    how = rng.choice(
        ["cut", "flip", "gone", "value", "key"] if path.suffix == ".json" else ["cut", "flip", "gone", "head"]
    )
    if how == "gone":
        path.unlink()
    elif how in ("value", "key"):
        message = json.loads(data)
        key = rng.choice(sorted(message))
        value = message.pop(key)
        message |= {key: rng.choice(ODD)} if how == "value" else {key + "_": value}
        path.write_text(json.dumps(message))
    elif how == "cut":
        path.write_bytes(data[: rng.randrange(len(data))])
    else:
        for _ in range(rng.randrange(1, 9)):
            data[rng.randrange(64 if how == "head" else len(data))] = rng.randrange(256)
        path.write_bytes(data)
    return f"{path.name} {how}"


def survive(folder: Path, seed: int) -> None:
    what = damaged(write(folder), random.Random(seed))
    try:
        loaded = load(
            str(folder), deterministic=seed % 4 > 0
        )  # most of a load's time goes into measuring layouts
        *_, end = Session(loaded, "prompt_lookup").run("the cat sat", 3)
        assert end.records() and loaded.facts and loaded.end_tokens is not None
    except (ZooError, SessionError) as error:
        assert "\n" not in str(error) and len(str(error)) < 700, (seed, what)
    except BaseException as error:
        raise AssertionError(f"seed {seed}, {what}: {type(error).__name__}: {error}") from error
    finally:
        specviz.zoo.forget()
        open_tokenizer.cache_clear()


def test_a_damaged_folder_is_a_sentence_or_a_run(tmp_path):
    for seed in range(12):
        survive(tmp_path / str(seed), seed)


@pytest.mark.soak
def test_four_hundred_damaged_folders(tmp_path):
    for seed in range(1000, 1400):
        survive(tmp_path / str(seed), seed)


@pytest.mark.parametrize("how", ["removed", "cut short", "renamed"])
def test_weights_that_go_while_a_run_reads_them_change_nothing(tmp_path, how):
    """Weights are copied when they are loaded: a file that is gone or cut short in mid-run ends no process."""
    import shutil

    from specviz import Session, collect, load
    from specviz.zoo import forget
    from specviz.zoo.registry import register

    place = tmp_path / "model"
    shutil.copytree(register().find("Llama-specviz-16M").folder(), place)
    loaded = load(str(place), device="cpu")
    whole = collect(Session(loaded, "autoregressive").run("Tell me a story", 24)).token_ids
    run = Session(loaded, "autoregressive").run("Tell me a story", 24)
    events = [next(run) for _ in range(12)]
    for file in place.glob("*.safetensors"):
        if how == "removed":
            file.unlink()
        elif how == "renamed":
            file.rename(file.with_suffix(".old"))
        else:
            os.truncate(file, 1000)
    assert collect([*events, *run]).token_ids == whole
    forget()
