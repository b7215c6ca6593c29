"""Targets with states: outputs of a tree equal the plain forward on each path, and the state after a commit
the sequential one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree, Verdict
from specviz.models.linear_attention import LinearAttentionMixer
from specviz.models.tree_rows import tensors_of
from specviz.targets.recurrent import SNAPSHOTS, RecurrentModel, RecurrentTarget

VOCAB, PROMPT = 61, [3, 17, 5, 29, 41, 8, 8, 55, 12]
TREE = DraftTree((5, 7, 9, 11, 13, 5), (-1, -1, 0, 0, 1, 2), (-1,) * 6)


def mamba2():
    from transformers import Mamba2Config, Mamba2ForCausalLM

    return Mamba2ForCausalLM(
        Mamba2Config(
            num_heads=6,
            head_dim=16,
            vocab_size=VOCAB,
            hidden_size=48,
            state_size=8,
            num_hidden_layers=3,
            n_groups=2,
            pad_token_id=0,
            tie_word_embeddings=False,
        )
    )


def bamba():
    """A hybrid: its second layer is attention."""
    from transformers import BambaConfig, BambaForCausalLM

    return BambaForCausalLM(
        BambaConfig(
            vocab_size=VOCAB,
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            attn_layer_indices=[1],
            mamba_n_heads=6,
            mamba_d_state=8,
            mamba_n_groups=2,
            pad_token_id=0,
        )
    )


def falcon_h1(norm="none"):
    """Attention and Mamba-2 side by side in each layer, and a multiplier wherever the architecture has
    one."""
    from transformers import FalconH1Config, FalconH1ForCausalLM

    net = FalconH1ForCausalLM(
        FalconH1Config(
            vocab_size=VOCAB,
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            mamba_d_ssm=96,
            mamba_n_heads=6,
            mamba_d_state=8,
            mamba_n_groups=2,
            pad_token_id=0,
            key_multiplier=0.6,
            attention_in_multiplier=0.8,
            attention_out_multiplier=0.9,
            ssm_in_multiplier=1.2,
            ssm_out_multiplier=0.9,
            ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7],
            mlp_multipliers=[0.9, 0.8],
            embedding_multiplier=1.3,
            lm_head_multiplier=0.5,
            mamba_rms_norm=norm != "none",
            mamba_norm_before_gate=norm == "before",
            projectors_bias=True,
            mamba_proj_bias=True,
        )
    )
    for name, bias in net.named_parameters():
        if name.endswith("bias"):
            bias.data.normal_(std=0.3)
    return net


def linear():
    """Groups of 4 positions: the prompt ends in one, and trees cross its border."""
    from specviz.models.trainable import LinearLlamaConfig, LinearLlamaForCausalLM

    net = LinearLlamaForCausalLM(
        LinearLlamaConfig(
            vocab_size=VOCAB,
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            group=4,
            conv=5,
            pad_token_id=0,
        )
    )
    for layer in net.model.layers:
        layer.self_attn.value_conv.data.normal_(std=0.3)
        layer.self_attn.global_factor.data.fill_(0.3)
    return net


@pytest.fixture(scope="module", params=[mamba2, bamba, falcon_h1, linear], ids=lambda made: made.__name__)
def folder(request, tmp_path_factory):
    from transformers import Mamba2ForCausalLM

    torch.manual_seed(0)
    net, path = request.param().eval(), tmp_path_factory.mktemp(request.param.__name__) / "tiny"
    for weight in net.parameters():
        if weight.ndim > 1:
            weight.data.mul_(2 if isinstance(net, Mamba2ForCausalLM) else 6)
    net.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def reference(folder):
    from specviz.models.pretrained import open_network

    net = open_network(folder, torch.float32).eval()

    def logits(ids):
        with torch.no_grad():
            return net(torch.tensor([ids]), use_cache=False).logits[0, -1]

    return logits


@pytest.fixture(scope="module")
def model(folder):
    return RecurrentModel(folder)


def paths(tree):
    return [[], *([tree.tokens[j] for j in tree.path(i)] for i in range(len(tree)))]


def parts(target):
    """The tensors of a target's states."""
    return [part for state in target._states for part in tensors_of(state)]


def gap(got, want):
    return float((got - torch.stack(want)).abs().max())


def test_nodes_of_a_tree_equal_the_plain_forward_on_their_paths(model, reference):
    target = model.open()
    prefill = target.sync(PROMPT)
    assert prefill.num_computed == len(PROMPT) - 1 and gap(prefill.logits, [reference(PROMPT[:-1])]) < 1e-5
    assert gap(target.score(TREE).logits, [reference(PROMPT + path) for path in paths(TREE)]) < 1e-5


def test_verification_does_not_write_the_state(model):
    target = model.open()
    target.sync(PROMPT)
    before = [part.clone() for part in parts(target)]
    target.score(TREE)
    assert all(map(torch.equal, parts(target), before))


@pytest.mark.parametrize("start", range(1, 6))
def test_a_tree_scored_in_two_pieces_equals_one_piece(model, start):
    whole, pieces = model.open(), model.open()
    for target in (whole, pieces):
        target.sync(PROMPT)
    pieces.score(DraftTree(TREE.tokens[:start], TREE.parents[:start], TREE.draw[:start]))
    assert float((pieces.score(TREE, start).logits - whole.score(TREE).logits).abs().max()) < 1e-5


@pytest.mark.parametrize("path", [(), (0,), (1,), (0, 2), (0, 3), (1, 4), (0, 2, 5)])
def test_the_state_after_a_commit_is_the_sequential_one(model, reference, path):
    target, fresh = model.open(), model.open()
    target.sync(PROMPT)
    target.score(TREE)
    target.commit(Verdict(path, 33, "bonus"))
    text = [*PROMPT, *(TREE.tokens[i] for i in path), 33]
    fresh.sync(text)
    for a, b in zip(parts(target), parts(fresh), strict=True):
        assert a.shape == b.shape and (not a.numel() or float((a - b).abs().max()) < 1e-5)
    assert (
        target.cached_tokens == text[:-1] and gap(target.score(DraftTree()).logits, [reference(text)]) < 1e-5
    )


SPOILED = {
    "mamba2": ("conv", "ssm"),
    "bamba": ("conv", "ssm"),
    "falcon_h1": ("conv", "ssm", "k"),
    "linear_llama": ("sums", "window"),
}


def with_part(state, before, name):
    """A state with one of its tensors as it was before; as long as the others, if it grows with the text."""
    if hasattr(state, "parts"):
        return replace(
            state, parts=tuple(map(with_part, state.parts, before.parts, [name] * len(state.parts)))
        )
    if not hasattr(state, name):
        return state
    new, old = getattr(state, name), getattr(before, name)
    return replace(state, **{name: torch.cat([old, torch.zeros_like(new[len(old) :])])})


def test_a_state_that_forgets_a_part_or_the_replay_is_caught(model, reference):
    """Spoiled variants: a part of the states left as it was before the commit, and a replay of the wrong
    path."""
    for spoil in ("path", *SPOILED[model.config["model_type"]]):
        target = model.open()
        target.sync(PROMPT)
        target.score(TREE)
        old = target._states
        target.commit(Verdict((0, 3) if spoil == "path" else (0, 2, 5), 33, "bonus"))
        target._states = [with_part(state, before, spoil) for state, before in zip(target._states, old)]
        text = [*PROMPT, 5, 9, 33] if spoil == "path" else [*PROMPT, 5, 9, 5, 33]
        assert gap(target.score(DraftTree()).logits, [reference(text)]) > 1e-3, spoil


def nearest_rows(self, rows):
    """An unmasked convolution: it reads the rows before a row, whatever branch they are on."""
    window = self.model.longest_kernel - 1
    return torch.arange(window + 1) + torch.arange(rows.lo, len(rows.tree) + 1)[:, None]


def test_a_convolution_that_reads_other_branches_is_caught(model, reference, monkeypatch):
    monkeypatch.setattr(RecurrentTarget, "_convolution_taps", nearest_rows)
    target = model.open()
    target.sync(PROMPT)
    assert gap(target.score(TREE).logits, [reference(PROMPT + path) for path in paths(TREE)]) > 1e-2


def border_blind(sides):
    """What the published code does: rows beyond the border see nothing of the group that the draft
    completes."""

    def spoiled(self, running, place):
        local, earlier = sides(self, running, place)
        return local, earlier & False

    return spoiled


def test_a_tree_that_loses_the_group_it_completes_is_caught(model, reference, monkeypatch):
    if model.config["model_type"] != "linear_llama":
        return
    target = model.open()
    target.sync(PROMPT[:7])  # its last token is at position 6, and groups have 4
    monkeypatch.setattr(LinearAttentionMixer, "_sides", border_blind(LinearAttentionMixer._sides))
    want = [reference(PROMPT[:7] + path) for path in paths(TREE)]
    got = target.score(TREE).logits
    within = [i for i, depth in enumerate((0, *TREE.depths)) if 6 + depth < 8]
    assert gap(got[within], [want[i] for i in within]) < 1e-5  # before the border nothing is wrong
    assert gap(got, want) > 1e-3


def test_a_rewind_restores_a_snapshot_and_runs_the_rest(model, reference):
    target, text = model.open(), list(PROMPT)
    target.sync(text)
    for token in range(SNAPSHOTS + 4):
        target.score(DraftTree((token,), (-1,), (-1,)))
        target.commit(Verdict((0,), token + 1, "bonus"))
        text += [token, token + 1]
    assert len(target._snapshots) <= SNAPSHOTS + 2
    for keep in (len(text) - 1, len(text) - 7, len(PROMPT) + 1, 4, 1):
        other = [*text[:keep], 2]
        target.sync(other)
        assert gap(target.score(TREE).logits, [reference(other + path) for path in paths(TREE)]) < 1e-5


def test_hidden_states_and_entries(model):
    target = model.open()
    target.capture(frozenset({"final", "layer:0", "layer:2"}))
    target.sync(PROMPT)
    scores = target.score(TREE)
    assert {name: tuple(states.shape) for name, states in scores.hidden_states.items()} == dict.fromkeys(
        ("final", "layer:0", "layer:2"), (7, 48)
    )
    assert torch.equal(target.head(scores.hidden_states["final"]), scores.logits)
    assert torch.equal(scores.hidden_states["layer:0"][1:], target.embed(list(TREE.tokens)))


def test_configs_that_do_not_fit_are_refused(folder, tmp_path):
    import json

    config = json.loads((folder / "config.json").read_text())
    own = {
        "mamba2": ({"num_heads": 5}, {"state_size": "8"}, {"time_step_limit": [2, 1]}),
        "bamba": ({"mamba_n_heads": 5}, {"time_step_limit": [2, 1]}, {"mlp_bias": True}),
        "falcon_h1": (
            {"mamba_n_heads": 5},
            {"ssm_multipliers": [1.0]},
            {"key_multiplier": "2"},
            {"lm_head_multiplier": True},
        ),
        "linear_llama": ({"group": "4"}, {"head_dim": 11}, {"rope_parameters": {"rope_type": "yarn"}}),
    }[config["model_type"]]
    for change in (
        {"hidden_act": "gelu"},
        {"model_type": "mamba"},
        {"quantization_config": {"quant_method": "gptq"}},
        *own,
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ModelError):
            RecurrentModel(tmp_path)


@pytest.mark.parametrize("norm", ["before", "after"])
def test_the_gate_and_the_norm_of_a_state_stand_in_the_order_of_the_config(tmp_path, norm):
    torch.manual_seed(0)
    net = falcon_h1(norm).eval()
    net.save_pretrained(tmp_path)
    target = RecurrentModel(tmp_path).open()
    with torch.no_grad():
        want = net(torch.tensor([PROMPT]), use_cache=False).logits[0]
    target.sync(PROMPT[:1])
    assert gap(target.score(DraftTree.chain(PROMPT[1:])).logits, list(want)) < 1e-5


def test_every_run_has_states_of_its_own(model):
    one, other = model.open(), model.open()
    assert isinstance(one, RecurrentTarget)
    one.sync(PROMPT)
    other.sync([1, 2])
    want = one.score(DraftTree()).logits
    other.score(DraftTree())
    assert torch.equal(one.score(DraftTree()).logits, want)


def test_what_a_target_shows_of_its_states(model):
    target = model.open()
    target.sync(PROMPT)
    target.score(TREE)
    if "state:groups" in target.capabilities:
        assert target.groups() == [2, *((8 + depth) // 4 for depth in TREE.depths)]
        return
    share = target.survival()
    assert len(share) == len(TREE) + 1 and all(0 < one <= 1 for one in share)
    assert all(share[i + 1] < share[parent + 1] for i, parent in enumerate(TREE.parents))
    assert target.state_bytes == sum(part.nbytes for part in parts(target))
