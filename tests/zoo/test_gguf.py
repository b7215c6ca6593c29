"""GGUF files: the same network as transformers' own, in every family; everything broken or unknown is one
sentence."""

from __future__ import annotations

import hashlib
import json
import random
import re
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from specviz import ZooError, load
from specviz.checkpoints.gguf_names import GGUFTensors
from specviz.checkpoints.gguf_reader import GGUFFile, gguf_in
from specviz.checkpoints.split import LARGEST, write_parts
from specviz.checkpoints.weights import ModelError, Weights
from specviz.core import DraftTree, Sampling
from specviz.evidence.transformers_baseline import references
from specviz.models.pretrained import open_network
from specviz.run import Session, SessionError, collect
from specviz.training.job import fingerprint
from specviz.zoo import forget
from specviz.zoo.backends import FORWARDS
from specviz.zoo.found_weights import mark
from specviz.zoo.gguf_export import export
from specviz.zoo.gguf_tokenizer import ENDS, NOTES, end_names, save_tokenizer, tokenizer_notes
from specviz.zoo.registry import register
from specviz.zoo.tokenizer import open_tokenizer

from ..message_codes import refuses
from ..models import tiny
from ..run.fakes import byte_level
from . import checkpoints, gguf_files

SMOL = "SmolLM2-135M-Instruct"
IDS = [7, 30, 41, 200, 9, 55, 120, 33, 8, 90, 14, 61, 77, 250]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own, where folders of GGUF files are made."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    yield tmp_path / "home" / ".cache" / "specviz" / "models"
    forget()


def logits(model, ids: list[int]) -> torch.Tensor:
    target = model.open()
    target.sync(ids[:1])
    return target.score(DraftTree.chain(ids[1:])).logits.float()


@pytest.mark.parametrize("kind", gguf_files.ARCHITECTURES)
def test_a_file_runs_as_transformers_runs_the_network_it_was_made_from(tmp_path, kind):
    net = gguf_files.write(tmp_path / "m.gguf", kind)
    loaded = load(str(tmp_path / "m.gguf"))
    with torch.no_grad():
        want = net(torch.tensor([IDS])).logits[0]
    backend = {"llama": "fast", "qwen2": "fast", "qwen3": "fast", "lfm2": "tree_scan"}.get(kind, "hf")
    assert loaded.name == "m" and loaded.backend.name == backend
    assert torch.allclose(logits(loaded.model, IDS), want, atol=2e-3, rtol=1e-3)
    hf = FORWARDS["hf"].load(loaded.folder, CPU)
    assert torch.allclose(logits(hf, IDS), want, atol=2e-3, rtol=1e-3)


def test_recipes_open_a_file_that_lies_in_parts_and_know_new_weights(tmp_path):
    """As the embedded chat model's: its drafters are trained with the commands that their cards name."""
    net, marks = gguf_files.write(tmp_path / "m.gguf"), []
    folder = tmp_path / "chat"
    for seed in (0, 1):
        folder.mkdir(exist_ok=True)
        write_parts(tmp_path / "m.gguf", folder, 10_000)
        (folder / "config.json").write_text(net.config.to_json_string())
        marks.append(fingerprint(folder))
        if seed == 0:
            with torch.inference_mode():
                want, got = (
                    each(torch.tensor([IDS])).logits[0]
                    for each in (net, open_network(folder, torch.float32).eval())
                )
            assert torch.allclose(got, want, atol=2e-3, rtol=1e-3)
            gguf_files.write(tmp_path / "m.gguf", net=gguf_files.network("llama", 1))
    assert marks[0] != marks[1] and fingerprint(folder) == marks[1]


@pytest.mark.parametrize("blocks", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_blocks_are_decoded_to_what_the_package_decodes(tmp_path, blocks):
    net = gguf_files.write(tmp_path / "m.gguf", blocks=blocks)
    file = GGUFFile(tmp_path / "m.gguf")
    kind = getattr(gguf.GGMLQuantizationType, blocks)
    weight = net.state_dict()["model.layers.1.mlp.up_proj.weight"].numpy()
    want = gguf.quants.dequantize(gguf.quants.quantize(weight, kind), kind)
    assert file.tensors["blk.1.ffn_up.weight"].kind == kind
    assert np.array_equal(file.tensor("blk.1.ffn_up.weight").numpy(), want)


def test_transformers_decodes_a_file_beside_it_for_the_benchmark(tmp_path):
    gguf_files.write(tmp_path / "m.gguf")
    loaded = load(str(tmp_path / "m.gguf"))
    plain = Session(loaded, "autoregressive")
    ours = collect(plain.run("the cat sat", 8))
    theirs = references(loaded, plain)
    assert set(theirs) == {"transformers_generate", "transformers_prompt_lookup"}, "it has no draft model"
    assert all(run("the cat sat", Sampling(), 8).token_ids == ours.token_ids for run in theirs.values())


def test_tokenizer_template_and_end_tokens_are_those_of_the_file(tmp_path):
    gguf_files.write(tmp_path / "m.gguf", keys={"tokenizer.ggml.eot_token_id": 5})
    loaded = load(str(tmp_path / "m.gguf"))
    ours, theirs = loaded.tokenizer, byte_level(300)
    for text in ("the cat sat", " on 12 hats\n\n!", "na\u00efve \U0001f600"):
        assert ours.encode(text) == theirs.encode(text)
    assert ours.chat_template == theirs.chat_template and {2, 5} <= loaded.end_tokens
    assert collect(Session(loaded, "prompt_lookup").run("the cat sat", 8)).token_ids


@pytest.mark.parametrize("pre, noted", [("gpt-2", False), ("smollm", False), ("default", True), (None, True)])
def test_a_file_that_does_not_say_how_text_is_split_is_noted(tmp_path, pre, noted):
    gguf_files.write(tmp_path / "m.gguf", keys={"tokenizer.ggml.pre": pre})
    notes = load(str(tmp_path / "m.gguf")).notes
    assert [note for note in notes if note == NOTES["split"]] == [NOTES["split"]] * noted


@pytest.mark.parametrize("kind", [1, 3, 4])
def test_tokens_that_end_an_answer_in_llama_cpp_do_here_by_their_names(tmp_path, kind):
    stored = gguf_files.vocabulary("gpt-2")
    tokens, kinds = (list(stored[f"tokenizer.ggml.{key}"]) for key in ("tokens", "token_type"))
    names = sorted(ENDS - {"<|end|>"})
    at = range(len(tokens) - len(names), len(tokens))
    tokens[at.start :], kinds[at.start :] = names, [kind] * len(names)
    merges = [m for m in stored["tokenizer.ggml.merges"] if {*m.split(), m.replace(" ", "")} <= set(tokens)]
    keys = {"tokens": tokens, "token_type": kinds, "merges": merges}
    gguf_files.write(
        tmp_path / "m.gguf", keys={f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    )
    file = GGUFFile(tmp_path / "m.gguf")
    (tmp_path / "made").mkdir()
    assert save_tokenizer(file, tmp_path / "made") == {2, *at}  # 2: named by eos_token_id
    added = open_tokenizer(tmp_path / "made").added_tokens_decoder
    assert all(added[i].special for i in at) and bool(tokenizer_notes(file)) == (kind != 3)


def test_the_end_of_a_message_among_several_ends_no_answer():
    assert end_names(["a", "<|end|>"]) == {"<|end|>"}
    assert end_names(["<|end|>", "<|return|>", "<|call|>"]) == {"<|return|>", "<|call|>"}


def test_single_digits_and_an_opening_token_are_read_from_the_file(tmp_path):
    gguf_files.write(tmp_path / "m.gguf", pre="smollm", keys={"tokenizer.ggml.add_bos_token": True})
    split = load(str(tmp_path / "m.gguf")).tokenizer
    assert [s for s, _ in split.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a123")] == [
        "a",
        "1",
        "2",
        "3",
    ]
    assert split.encode("cat")[0] == 1


def test_a_sentencepiece_vocabulary_is_read(tmp_path):
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "\u2581",
        "\u2581c",
        "a",
        "t",
        "\u2581ca",
        "\u2581cat",
        "c",
        "s",
    ]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    scores = [0.0] * 259 + [float(-i) for i in range(len(tokens) - 259)]
    keys = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": None,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    gguf_files.write(tmp_path / "m.gguf", keys=keys)
    loaded = load(str(tmp_path / "m.gguf"))
    ids = loaded.tokenizer.encode("cats \u00e9", add_special_tokens=False)
    assert (
        b"".join(map(loaded.token_bytes, ids)).strip() == "cats \u00e9".encode()
        and tokens.index("\u2581cat") in ids
    )
    assert collect(Session(loaded, "prompt_lookup").run("cat", 4)).token_ids


def test_the_folder_of_a_file_is_made_once_and_again_when_the_file_changes(tmp_path, cache):
    gguf_files.write(tmp_path / "m.gguf")
    first = load(str(tmp_path / "m.gguf")).folder
    assert first.parent == cache and load(str(tmp_path / "m.gguf")).folder == first
    gguf_files.write(tmp_path / "m.gguf", net=gguf_files.network("llama", 1), blocks="F16")
    assert load(str(tmp_path / "m.gguf")).folder != first


def test_a_llama_3_table_of_angles_becomes_its_scaling(tmp_path):
    from specviz.models.llama import inverse_frequencies

    rope = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_theta": 5000.0,
    }
    net = gguf_files.network("llama", rope_parameters=rope)
    size = gguf_files.HIDDEN // gguf_files.HEADS
    factors = (
        inverse_frequencies({"rope_type": "default", "rope_theta": 5000.0}, size)
        / inverse_frequencies(rope, size)
    ).numpy()
    gguf_files.write(tmp_path / "m.gguf", net=net, tensors={"rope_freqs.weight": factors})
    loaded = load(str(tmp_path / "m.gguf"))
    assert loaded.model.config["rope_parameters"]["factor"] == 8.0
    with torch.no_grad():
        assert torch.allclose(
            logits(loaded.model, IDS), net(torch.tensor([IDS])).logits[0], atol=2e-3, rtol=1e-3
        )
    gguf_files.write(tmp_path / "odd.gguf", tensors={"rope_freqs.weight": factors * 1.5 + 0.1})
    refused(tmp_path / "odd.gguf", "rope_freqs.weight")


def test_an_entry_names_the_file_of_a_hub_model(tmp_path, monkeypatch):
    gguf_files.write(tmp_path / "m.gguf")
    fetched = []

    def download(repo, name, revision, local_files_only=False):
        fetched.append((repo, name, revision, local_files_only))
        if local_files_only and len(fetched) < 3:
            raise LocalEntryNotFoundError("not here")
        return str(tmp_path / name)

    from huggingface_hub.errors import LocalEntryNotFoundError

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    lines = "default: a\nbackends: {fast: [llama]}\nmodels:\n  a: {hub: o/n, revision: %s, gguf: %s}\n"
    (tmp_path / "models.yaml").write_text(lines % ("a" * 40, "m.gguf"))
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    with refuses(ZooError, "gguf.not_fetched"):
        register().entries["a"].config_folder()
    assert load("a").name == "a" and fetched == [
        ("o/n", "m.gguf", "a" * 40, local) for local in (True, True, False)
    ]
    for odd in ("../m.gguf", "m.bin", "a/b.gguf"):
        (tmp_path / "models.yaml").write_text(lines % ("a" * 40, odd))
        with refuses(ZooError, "models_yaml.entry", "gguf"):
            register()


# --- refusals --------------------------------------------------------------------------------------------------------------
def refused(path: Path, match: str) -> str:
    with pytest.raises(ZooError) as caught:
        load(str(path))
    text = str(caught.value)
    assert re.search(match, text) and text.endswith(".") and "\n" not in text and len(text) < 400, text
    return text


@pytest.mark.parametrize(
    "keys, match",
    [
        ({"general.architecture": "mamba"}, "architecture"),
        ({"llama.expert_count": 8}, "llama.expert_count"),
        ({"llama.rope.scaling.type": "yarn"}, "rope.scaling.type"),
        ({"llama.rope.dimension_count": 8}, "rope.dimension_count"),
        ({"llama.attention.value_length": 8}, "value_length"),
        ({"llama.block_count": None}, "block_count"),
        ({"llama.block_count": 2}, "blk.2"),
        ({"llama.block_count": 4}, "layers.3"),
        ({"llama.embedding_length": 2**30}, ""),
        ({"llama.attention.head_count": 0}, "head_count"),
        ({"llama.attention.head_count_kv": 3}, ""),
        ({"llama.rope.freq_base": -1.0}, "freq_base"),
        ({"llama.attention.layer_norm_rms_epsilon": "x"}, "epsilon"),
        ({"llama.attention.sliding_window": 64}, "sliding_window"),
        ({"llama.strange": 1}, "llama.strange"),
        ({"llama.attention.causal": False}, "attention.causal"),
        ({"llama.rope.scaling.attn_factor": 0.5}, "attn_factor"),
        ({"split.count": 3}, "pieces"),
        ({"split.count": "x"}, "pieces"),
        ({"qwen2.block_count": 3}, "qwen2.block_count"),
        ({"tokenizer.ggml.model": "bert"}, "bert"),
        ({"tokenizer.ggml.pre": "odd"}, "odd"),
        ({"tokenizer.ggml.merges": ["no such"]}, "merges"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "vocabulary"),
        ({"tokenizer.ggml.tokens": [str(i) for i in range(301)]}, "vocabulary"),
        ({"tokenizer.ggml.eos_token_id": 300}, "eos_token_id"),
        ({"tokenizer.ggml.token_type": [1, 2]}, "kind"),
        ({"general.alignment": 48}, "alignment"),
    ],
)
def test_metadata_that_cannot_be_run_is_refused_by_its_key(tmp_path, cache, keys, match):
    path = tmp_path / "m.gguf"
    if "general.architecture" in keys or "general.alignment" in keys:
        gguf_files.write(path)
        key = next(iter(keys))
        patch(path, key, keys[key])
    else:
        gguf_files.write(path, keys=keys)
    refused(path, match)
    assert not cache.exists() or not list(cache.iterdir()) or match == "layers.3" or match == ""


def patch(path: Path, key: str, value: str | int) -> None:
    """Change a value of the file in place, or put a key with it in front of the others."""
    data = path.read_bytes()
    if isinstance(value, str):
        at = data.index(key.encode()) + len(key) + 4
        size = struct.unpack("<Q", data[at : at + 8])[0]
        data = data[: at + 8] + value[:size].encode().ljust(size) + data[at + 8 + size :]
    else:
        count = struct.unpack("<Q", data[16:24])[0] + 1
        data = (
            data[:16]
            + struct.pack("<QQ", count, len(key))
            + key.encode()
            + struct.pack("<II", 4, value)
            + data[24:]
        )
    path.write_bytes(data)


@pytest.mark.parametrize(
    "more, drop, match",
    [
        ({"blk.0.attn_q.lora_a": np.zeros((2, 2))}, (), "lora_a"),
        ({"blk.0.attn_sinks.weight": np.zeros(4)}, (), "sinks"),
        ({"rope_factors_long.weight": np.ones(8)}, (), "rope_factors_long"),
        ({}, ("blk.1.attn_q.weight",), "q_proj"),
        ({}, ("token_embd.weight",), "token_embd"),
        ({}, ("output_norm.weight",), "norm"),
        ({"blk.0.ffn_up.weight": np.zeros((5, 64))}, (), "up_proj"),
        ({"blk.0.ffn_up.weight": np.full((96, 64), np.nan)}, (), "up_proj"),
        ({"blk.0.attn_q.bias": np.zeros(64)}, (), "attn_q.bias"),
    ],
)
def test_unknown_missing_and_odd_tensors_are_refused_by_their_name(tmp_path, more, drop, match):
    gguf_files.write(tmp_path / "m.gguf", tensors=more, drop=drop)
    refused(tmp_path / "m.gguf", match)


def header(*numbers: tuple[str, int], version: int = 3) -> bytes:
    return (
        b"GGUF"
        + struct.pack("<I", version)
        + b"".join(struct.pack(f"<{letter}", number) for letter, number in numbers)
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GGUF",
        b"GGUF\x03",
        b"PK\x03\x04" + b"\0" * 99,
        header(version=1),
        b"GGUF" + struct.pack(">I", 3) + b"\0" * 64,
        header(("Q", 2**63), ("Q", 1)),
        header(("Q", 1), ("Q", 2**63)),
        header(("Q", 0), ("Q", 1), ("Q", 2**62)),
        header(("Q", 0), ("Q", 1), ("Q", 1))
        + b"k"
        + struct.pack("<IQ", 8, 2**61),  # a text longer than the file
        header(("Q", 0), ("Q", 1), ("Q", 1))
        + b"k"
        + struct.pack("<IIQ", 9, 8, 2**61),  # an array of more texts than the file holds
        header(("Q", 0), ("Q", 1), ("Q", 1)) + b"k" + struct.pack("<IIQ", 9, 4, 2**61),
        header(("Q", 0), ("Q", 1), ("Q", 1)) + b"k" + struct.pack("<IIQ", 9, 9, 4) * 50,  # arrays of arrays
        header(("Q", 0), ("Q", 1), ("Q", 1)) + b"k" + struct.pack("<I", 99),
        header(("Q", 0), ("Q", 1), ("Q", 1)) + b"\xff" + struct.pack("<II", 4, 1),
        header(("Q", 1), ("Q", 0), ("Q", 1))
        + b"t"
        + struct.pack("<IQIQ", 1, 2**60, 0, 0),  # a tensor of 2^62 bytes
        header(("Q", 1), ("Q", 0), ("Q", 1))
        + b"t"
        + struct.pack("<IQQQQIQ", 4, 2**39, 2**39, 2**39, 2**39, 0, 0),
        header(("Q", 1), ("Q", 0), ("Q", 1))
        + b"t"
        + struct.pack("<IQIQ", 1, 8, 77, 0),  # blocks of an unknown type
        header(("Q", 1), ("Q", 0), ("Q", 1)) + b"t" + struct.pack("<IQIQ", 1, 8, 0, 2**63),
        header(("Q", 1), ("Q", 0), ("Q", 1)) + b"t" + struct.pack("<I", 9),
    ],
)
def test_a_header_that_lies_is_one_sentence(tmp_path, data):
    (tmp_path / "m.gguf").write_bytes(data)
    refused(tmp_path / "m.gguf", "m.gguf")


def test_a_file_cut_at_any_place_or_with_flipped_bytes_is_a_sentence_or_a_run(tmp_path):
    gguf_files.write(tmp_path / "m.gguf", blocks="Q8_0")
    whole, rng = (tmp_path / "m.gguf").read_bytes(), random.Random(5)
    for case in range(40):
        data = bytearray(whole)
        if case % 2:
            data = data[: rng.randrange(len(data))]
        else:
            for _ in range(rng.randrange(1, 6)):
                data[rng.randrange(16_000)] = rng.randrange(256)
        path = tmp_path / f"{case}.gguf"
        path.write_bytes(data)
        try:
            collect(Session(load(str(path), deterministic=True), "autoregressive").run("the cat", 2))
        except (ZooError, SessionError) as error:
            assert "\n" not in str(error) and len(str(error)) < 400, case
        finally:
            forget()


def test_two_files_in_a_folder_are_refused(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with refuses(ModelError, "gguf.several", 2):
        gguf_in(tmp_path)


# --- several files ----------------------------------------------------------------------------------------------------------
def split(path: Path, sizes: tuple[int, ...], said: dict[int, dict[str, int]] | None = None) -> list[Path]:
    """Write a model's tensors into files of so many tensors each, as llama-gguf-split does: the first has the
    metadata. said: what a piece says of itself instead."""
    whole, found, at = gguf.GGUFReader(path), [], 0
    for number, size in enumerate(sizes):
        name = path.with_name(f"{path.stem}-{number + 1:05d}-of-{len(sizes):05d}.gguf")
        writer = gguf.GGUFWriter(str(name), "")
        writer.kv_data[0].clear()
        if number == 0:
            for key, one in whole.fields.items():
                if not key.startswith("GGUF."):
                    gguf_files.add(writer, key, one.contents())
        told = {"split.no": number, "split.count": len(sizes), "split.tensors.count": len(whole.tensors)}
        for key, value in (told | (said or {}).get(number, {})).items():
            gguf_files.add(writer, key, value)
        for one in whole.tensors[at : at + size]:
            writer.add_tensor(one.name, one.data, raw_dtype=one.tensor_type)
        at += size
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        found.append(name)
    assert at == len(whole.tensors)
    path.unlink()
    return found


@pytest.mark.parametrize("opened", [0, 2])
def test_a_model_in_several_files_is_the_model_in_one(tmp_path, opened):
    """Whichever of its files is named."""
    gguf_files.write(tmp_path / "m.gguf", "qwen2", blocks="Q8_0")
    whole = GGUFTensors(GGUFFile(tmp_path / "m.gguf"))
    want = {name: whole.get(name) for name in whole.names}
    before = logits(load(str(tmp_path / "m.gguf")).model, IDS)
    pieces = split(tmp_path / "m.gguf", (5, 20, len(want) - 25))
    parts = GGUFTensors(GGUFFile(pieces[opened]))
    assert parts.names == whole.names and all(torch.equal(parts.get(name), want[name]) for name in want)
    loaded = load(str(pieces[opened]))
    assert loaded.name == "m" and gguf_in(tmp_path) == pieces[0]
    assert torch.equal(logits(loaded.model, IDS), before)
    first_folder = loaded.folder
    pieces[1].touch()
    assert load(str(pieces[0])).folder != first_folder, "a later file changed"


@pytest.mark.parametrize(
    "spoil, code",
    [
        (lambda pieces: pieces[1].unlink(), "gguf.read"),
        (lambda pieces: pieces[1].write_bytes(pieces[2].read_bytes()), "gguf.piece_number"),
        (lambda pieces: pieces[1].write_bytes(pieces[1].read_bytes()[:-40]), "gguf.cut_short"),
        (lambda pieces: pieces[1].write_bytes(b"GGUF"), "gguf.header"),
    ],
)
def test_a_missing_or_foreign_piece_is_found(tmp_path, spoil, code):
    gguf_files.write(tmp_path / "m.gguf")
    pieces = split(tmp_path / "m.gguf", (5, 20, 5))
    spoil(pieces)
    with refuses(ZooError, code):
        load(str(pieces[0]))


def test_a_tensor_in_two_pieces_is_found(tmp_path):
    gguf_files.write(tmp_path / "m.gguf")
    pieces = split(tmp_path / "m.gguf", (5, 20, 5))
    (tmp_path / "other").mkdir()
    gguf_files.write(tmp_path / "other" / "m.gguf")
    pieces[1].write_bytes(split(tmp_path / "other" / "m.gguf", (2, 23, 5))[1].read_bytes())
    with refuses(ModelError, "gguf.tensor_entry"):
        GGUFFile(pieces[0])


def test_every_file_of_a_hub_model_is_fetched(tmp_path, monkeypatch):
    gguf_files.write(tmp_path / "m.gguf")
    pieces = split(tmp_path / "m.gguf", (5, 20, 5))
    fetched = []

    def download(repo, name, revision, local_files_only=False):
        fetched.append(name)
        return str(tmp_path / name)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    lines = "default: a\nbackends: {fast: [llama]}\nmodels:\n  a: {hub: o/n, revision: %s, gguf: %s}\n"
    (tmp_path / "models.yaml").write_text(lines % ("a" * 40, pieces[0].name))
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    assert load("a").model.open() is not None and fetched == [piece.name for piece in pieces]


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("place", ["heads/{kind}", "my-{kind}"])
def test_heads_beside_a_file_are_found_and_draft_for_it(tmp_path, place, pieces):
    """One's own EAGLE and Medusa heads, in a folder next to a GGUF file: the text stays the model's."""
    path = tmp_path / "own" / "m.gguf"
    path.parent.mkdir()
    gguf_files.write(path)
    if pieces:
        path = split(path, (5, 20, 5))[0]
    on = tiny.body(load(str(path)).open_target())
    for kind in ("medusa", "eagle"):
        made, folder = tiny.head(kind, on), path.parent / place.format(kind=kind)
        folder.mkdir(parents=True)
        save_file(
            {key: tensor.clone() for key, tensor in made.state_dict().items()}, folder / "model.safetensors"
        )
        (folder / "config.json").write_text(json.dumps(made.config | mark(kind, "m")))
    forget()
    loaded = load(str(path))
    assert loaded.heads.capabilities == {"head:medusa", "head:eagle"}
    plain = collect(Session(loaded, "autoregressive").run("the cat", 12))
    for method in ("medusa", "eagle", "eagle2"):
        found = collect(Session(loaded, method).run("the cat", 12))
        assert found.token_ids == plain.token_ids and found.metrics()["drafted"] > 0


# --- parts, and the embedded file --------------------------------------------------------------------------------------------
def test_parts_are_the_same_file_and_a_changed_part_is_found(tmp_path):
    gguf_files.write(tmp_path / "m.gguf", blocks="Q8_0")
    folder = tmp_path / "parts"
    folder.mkdir()
    write_parts(tmp_path / "m.gguf", folder, 10_000)
    whole, parts = (GGUFTensors(GGUFFile(place / "m.gguf")) for place in (tmp_path, folder))
    assert whole.names == parts.names and all(
        torch.equal(whole.get(name), parts.get(name)) for name in whole.names
    )
    (folder / "m.gguf.sha256").write_text(
        f"{hashlib.sha256((tmp_path / 'm.gguf').read_bytes()).hexdigest()}  m.gguf\n"
    )
    GGUFFile(folder / "m.gguf")
    part = sorted(folder.glob("*.part-*"))[3]
    part.write_bytes(part.read_bytes()[:-1] + b"\0")
    with refuses(ModelError, "gguf.digest", "sha256"):
        GGUFFile(folder / "m.gguf")
    part.unlink()
    with refuses(ModelError, "checkpoint.lacks_part", "m.gguf"):
        gguf_in(folder)


def test_the_embedded_model_is_the_published_file_in_small_parts():
    folder = register().entries[SMOL].path
    parts = sorted(folder.glob("*.gguf.part-*"))
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    assert digest == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert max(part.stat().st_size for part in parts) < LARGEST
    weights = Weights(folder, CPU, torch.float32)
    assert (
        weights.get("model.embed_tokens.weight", 49152, 576).abs().max() > 0
        and "lm_head.weight" not in weights
    )


def test_the_embedded_model_restates_its_file(tmp_path):
    """config.json, the tokenizer and the template next to the weights are what the file itself gives."""
    import json

    from specviz.zoo.gguf_config import config_of
    from specviz.zoo.gguf_tokenizer import save_tokenizer
    from specviz.zoo.tokenizer import end_tokens, open_tokenizer

    folder = register().entries[SMOL].path
    file = GGUFFile(gguf_in(folder))
    shipped = json.loads((folder / "config.json").read_text())
    made = {key: value for key, value in config_of(file).items() if shipped.get(key) != value}
    assert made == {}
    ends = save_tokenizer(file, tmp_path)
    ours, theirs = open_tokenizer(folder), open_tokenizer(tmp_path)
    assert ours.get_vocab() == theirs.get_vocab() and ours.chat_template == theirs.chat_template
    for text in (
        "It's 2024, na\u00efve \u00bd!\n\n  x",
        "def f(a):\n    return a + 10",
        "<|im_end|> \U0001f600",
    ):
        assert ours.encode(text) == theirs.encode(text) and ours.decode(ours.encode(text)) == text
    assert end_tokens(folder, ours) == ends == {0, 2}


def test_an_export_reads_what_config_json_leaves_out_as_transformers_does(tmp_path, monkeypatch):
    folder = checkpoints.write(tmp_path / "plain", rope_theta=10000.0, max_position_embeddings=2048)
    config = json.loads((folder / "config.json").read_text())
    for name in ("rope_theta", "max_position_embeddings", "hidden_act", "num_key_value_heads"):
        del config[name]
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("specviz.zoo.gguf_export.SPLITS", {("ByteLevel",): "gpt-2"})
    entry = register().find(str(folder))
    export(entry, tmp_path / "plain.gguf", "full")
    want, got = load(str(folder)), load(str(tmp_path / "plain.gguf"))
    assert got.context == want.context == 2048
    assert torch.allclose(logits(got.model, IDS), logits(want.model, IDS), atol=1e-3)


@pytest.mark.parametrize(
    "lost", ["hidden_size", "num_attention_heads", "vocab_size", "model", "pre_tokenizer"]
)
def test_an_export_of_a_folder_that_lacks_a_part_is_refused(tmp_path, lost):
    folder = checkpoints.write(tmp_path / "plain")
    name = "config.json" if lost not in ("model", "pre_tokenizer") else "tokenizer.json"
    stored = json.loads((folder / name).read_text())
    stored[lost] = {} if name == "tokenizer.json" else None
    (folder / name).write_text(json.dumps(stored))
    code = "gguf_export.tokenizer" if name == "tokenizer.json" else "gguf_export.unfit"
    with refuses(ZooError, code):
        export(register().find(str(folder)), tmp_path / "plain.gguf")
