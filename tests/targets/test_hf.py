"""Any transformers model behind the contract: same numbers as its own plain forward, for every tree and
kind of round."""

from __future__ import annotations

import copy
import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree, HiddenInput, Verdict
from specviz.targets.hf import HFModel
from specviz.targets.hf_targets import MOST_REPLAYED, CheckpointedTarget, UncachedTarget

from ..message_codes import refuses
from .rounds import Reference, apart, play_rounds
from .tiny import CONFIGS, CONTEXT, VOCAB, WINDOW, checkpoint, network


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@torch.inference_mode()
def poison(target):
    """Large finite values in every slot that nothing may read."""
    for layer in target._cache.layers:
        layer.keys[:, :, len(target.cached_tokens) :] = 1e4
        layer.values[:, :, len(target.cached_tokens) :] = 1e4


def held(target):
    rows = len(target.cached_tokens)
    return [(layer.keys[0, :, :rows], layer.values[0, :, :rows]) for layer in target._cache.layers]


@pytest.mark.parametrize("attention", ["sdpa", pytest.param("eager", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.thorough] if i % 6 else []) for i, kind in enumerate(CONFIGS)],
)
def test_200_random_rounds_equal_the_uncached_forward(folder, kind, attention):
    model = HFModel(checkpoint(folder, kind), device="cpu", attn_implementation=attention)
    assert model.note is None and model.config._attn_implementation == attention
    seen = set()
    longest = 0
    target = model.open()
    for error, cache, happened in play_rounds(
        target, Reference(model.net), held, poison, 200 if attention == "sdpa" else 80, seed=len(kind)
    ):
        assert error < 1e-5 and cache < 1e-5, (error, cache, happened)
        seen.add(happened)
        longest = max(longest, len(target.cached_tokens))
    assert len(seen) == 7 and longest > 3 * WINDOW


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2", "opt", "gpt_neox", "phi3"])
def test_taps_and_entries_by_hooks_that_live_only_inside_score(folder, kind):
    model = HFModel(checkpoint(folder, kind), device="cpu")
    target, tokens = model.open(), [i * 5 % VOCAB for i in range(3, 23)]
    assert {
        "tree",
        "rewind",
        "tap:final",
        "tap:layer",
        "entry",
        "embed",
        "head",
        "learning",
    } == target.capabilities - {"draft_path"}
    with torch.inference_mode():
        hidden = model.net(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    target.capture(frozenset({"final", "layer:0", "layer:2"}))
    num_computed = target.sync(tokens[:12])
    assert num_computed.num_computed == 11 and len(num_computed.logits) == 1
    target.score(DraftTree.chain(tokens[12:15]))
    scores = target.score(DraftTree.chain(tokens[12:]), start=3)
    for name, layer in (("layer:0", 0), ("layer:2", 2), ("final", 3)):
        assert (
            apart(num_computed.hidden_states[name], hidden[layer][0, :11]) < 1e-5
            and apart(scores.hidden_states[name], hidden[layer][0, 11:]) < 1e-5
        )
    assert apart(target.head(scores.hidden_states["final"]), scores.logits) < 1e-5
    seen = []
    tree = DraftTree(
        (5, -1),
        (-1, 0),
        (-1, -1),
        probes=frozenset({1}),
        inputs=(HiddenInput(1, (1,), lambda x: seen.append(x) or x[[1]]),),
    )
    replaced = target.score(tree)
    twin = target.score(DraftTree((5, 5), (-1, -1), (-1, -1)))
    assert (
        apart(replaced.logits[:2], twin.logits[:2]) < 1e-5
        and len(seen) == 1
        and seen[0].shape == (3, model.hidden)
    )
    with torch.inference_mode():  # no hook is left behind
        assert torch.equal(
            model.net(torch.tensor([tokens]), output_hidden_states=True).hidden_states[2], hidden[2]
        )
    assert not any(block._forward_pre_hooks for block in model.blocks)


def test_embedding_table_is_lent(folder):
    model = HFModel(checkpoint(folder, "llama"), device="cpu")
    assert torch.equal(model.open().embed([3, 4]), model.net.model.embed_tokens.weight[[3, 4]])


def test_runs_side_by_side_do_not_see_each_others_hooks(folder):
    model = HFModel(checkpoint(folder, "llama"), device="cpu")
    nosy, plain = model.open(), model.open()
    probe = DraftTree(
        (5, -1),
        (-1, 0),
        (-1, -1),
        probes=frozenset({1}),
        inputs=(HiddenInput(1, (1,), lambda x: x[[0]] * 3),),
    )
    nosy.capture(frozenset({"layer:1", "final"}))
    nosy.sync([1, 2, 3, 4])
    plain.sync([9, 8, 7])
    alone = nosy.score(probe), plain.score(probe_free := DraftTree((5, 6), (-1, -1), (-1, -1)))
    with ThreadPoolExecutor(2) as pool:
        for _ in range(40):
            one, two = pool.submit(nosy.score, probe), pool.submit(plain.score, probe_free)
            assert (
                apart(one.result().logits, alone[0].logits) < 1e-6
                and apart(two.result().logits, alone[1].logits) < 1e-6
            )
            assert apart(one.result().hidden_states["layer:1"], alone[0].hidden_states["layer:1"]) < 1e-6


def recurrent(folder, kind, config):
    path = folder / kind
    if not path.exists():
        network(config).save_pretrained(path)
    return HFModel(path, device="cpu")


RECURRENT_SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=CONTEXT,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
RECURRENT = {
    "mamba": lambda: tf.MambaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=3,
        state_size=4,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    ),
    "qwen3_next": lambda: tf.Qwen3NextConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=0,
        mlp_only_layers=[0, 1],
        layer_types=["linear_attention", "full_attention"],
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        max_position_embeddings=CONTEXT,
    ),
    "lfm2": lambda: tf.Lfm2Config(
        **RECURRENT_SIZES, intermediate_size=48, layer_types=["conv", "full_attention"]
    ),
    "bamba": lambda: tf.BambaConfig(
        **RECURRENT_SIZES,
        intermediate_size=48,
        mamba_n_heads=4,
        mamba_d_head=16,
        mamba_d_state=8,
        mamba_n_groups=1,
        attn_layer_indices=[1],
    ),
    "falcon_h1": lambda: tf.FalconH1Config(
        **RECURRENT_SIZES,
        intermediate_size=48,
        head_dim=8,
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_n_groups=1,
    ),
    "bloom": lambda: tf.BloomConfig(
        vocab_size=VOCAB, hidden_size=32, n_layer=3, n_head=4, bos_token_id=None, eos_token_id=None
    ),
}


NO_CONTINUATION = {
    "mamba"
}  # several tokens at once start from an empty state there, which the check at loading notices


@pytest.mark.parametrize("kept", [CheckpointedTarget, UncachedTarget])
@pytest.mark.parametrize("kind", RECURRENT)
def test_a_model_that_cannot_be_rewound_runs_chains(folder, kind, kept):
    model = recurrent(folder, kind, RECURRENT[kind]())
    assert type(model.open()) is (UncachedTarget if kind in NO_CONTINUATION else CheckpointedTarget)
    if kind in NO_CONTINUATION and kept is CheckpointedTarget:
        pytest.skip("its forward pass cannot continue from a state by several tokens")
    target, tokens = kept(model), [i * 7 % VOCAB for i in range(3, 33)]
    assert (
        model.note.startswith(kind) and "tree" not in target.capabilities and "rewind" in target.capabilities
    )
    with torch.inference_mode():
        want = model.net(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    target.sync(tokens[:10])
    assert apart(target.score(DraftTree.chain(tokens[10:14])).logits, want[9:14]) < 1e-5
    target.commit(Verdict((0, 1), tokens[12], "correction"))
    target.score(DraftTree())
    target.score(DraftTree.chain(tokens[13:15]))
    assert apart(target.score(DraftTree.chain(tokens[13:20]), start=2).logits, want[12:20]) < 1e-5
    target.sync(tokens[:25])
    assert apart(target.score(DraftTree.chain(tokens[25:])).logits, want[24:]) < 1e-5
    target.sync(tokens[:5])
    target.capture(frozenset({"final"}))
    scores = target.score(DraftTree.chain(tokens[5:8]))
    assert apart(scores.logits, want[4:8]) < 1e-5 and scores.hidden_states["final"].shape == (4, 32)
    with refuses(ValueError, "target.chains_only"):
        target.score(DraftTree((1, 2), (-1, -1), (-1, -1)))


@pytest.mark.parametrize("kind", sorted(set(RECURRENT) - NO_CONTINUATION))
def test_partial_acceptances_are_replayed_from_the_checkpoint(folder, kind):
    """Forty rounds of random acceptance: every row equals the plain forward pass, and the replay stays
    short."""
    model, source = recurrent(folder, kind, RECURRENT[kind]()), random.Random(1)
    target, tokens = model.open(), [source.randrange(VOCAB) for _ in range(90)]
    with torch.inference_mode():
        want = model.net(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    at, longest = 4, 0
    target.sync(tokens[: at + 1])
    while at < 80:
        drafted = source.randrange(5)
        scores = target.score(DraftTree.chain(tuple(tokens[at + 1 : at + 1 + drafted])))
        assert apart(scores.logits, want[at : at + 1 + drafted]) < 1e-4
        accepted = source.randrange(drafted + 1)
        at += accepted + 1
        target.commit(Verdict(tuple(range(accepted)), tokens[at], "correction"))
        longest = max(longest, len(target.cached_tokens) - target._at)
    assert 0 < longest <= MOST_REPLAYED + 5
    target._checkpoint = copy.deepcopy(target._checkpoint)
    target._at -= 1  # a checkpoint that is one token off is noticed
    assert apart(target.score(DraftTree()).logits, want[at : at + 1]) > 1e-3


def test_what_cannot_be_loaded_is_said_in_a_sentence(folder, tmp_path):
    good = checkpoint(folder, "llama")

    def spoiled(change):
        path = tmp_path / "spoiled"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(good, path)
        tensors = load_file(path / "model.safetensors")
        change(path, tensors)
        return path

    def nan(path, tensors):
        tensors["model.norm.weight"][3] = torch.nan
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})

    def missing(path, tensors):
        del tensors["model.layers.1.mlp.up_proj.weight"]
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})

    def narrow(path, tensors):
        tensors["model.norm.weight"] = tensors["model.norm.weight"][:5].clone()
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})

    def cut(path, tensors):
        whole = (path / "model.safetensors").read_bytes()
        (path / "model.safetensors").write_bytes(whole[: len(whole) // 2])

    def pickled(path, tensors):
        (path / "model.safetensors").unlink()
        torch.save(tensors, path / "pytorch_model.bin")

    for change, sentence in (
        (nan, "checkpoint.not_numbers"),
        (missing, "checkpoint.lacks_weight model.layers.1.mlp.up_proj.weight"),
        (narrow, "checkpoint.shape model.norm.weight"),
        (cut, "checkpoint.cut_short"),
        (pickled, "checkpoint.missing"),
        (lambda path, _: (path / "config.json").unlink(), "config.missing"),
    ):
        with refuses(ModelError, *sentence.split()) as caught:
            HFModel(spoiled(change), device="cpu")
        assert "\n" not in str(caught.value) and "spoiled" in str(caught.value)
    with refuses(ModelError, "checkpoint.not_causal"):
        path = tmp_path / "t5"
        tf.T5ForConditionalGeneration(
            tf.T5Config(vocab_size=VOCAB, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
        ).save_pretrained(path)
        HFModel(path, device="cpu")


def test_layers_that_lie_elsewhere_are_fetched_when_they_run(folder, tmp_path):
    """Two devices as far as a processor has them: its memory and its disk. What lies on the disk is brought
    in layer by layer."""
    path = checkpoint(folder, "llama")
    place = {
        "model.embed_tokens": "cpu",
        "model.layers.0": "cpu",
        "model.layers.1": "disk",
        "model.layers.2": "disk",
        "model.norm": "cpu",
        "model.rotary_emb": "cpu",
        "lm_head": "cpu",
    }
    spread = HFModel(path, device="cpu", device_map=place, offload_folder=tmp_path / "away")
    assert {p.device.type for p in spread.net.parameters()} == {"cpu", "meta"} and spread.note is None
    whole = HFModel(path, device="cpu")
    for *errors, _ in play_rounds(spread.open(), Reference(whole.net), held, poison, 12, seed=4):
        assert max(errors) < 1e-5
