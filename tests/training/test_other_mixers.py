"""Targets with other mixers: what of the Llama stays, quick scans equal slow ones, and a stored target is
the network that was trained."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoTokenizer, BambaForCausalLM, LlamaConfig

from specviz.core import DraftTree
from specviz.models import trainable
from specviz.models.pretrained import open_network
from specviz.models.trainable import with_scanned_mixers
from specviz.targets.recurrent import RecurrentModel
from specviz.training import text_answers as generate
from specviz.training.files import export
from specviz.training.job import SHIPPED, TARGET, Job
from specviz.training.other_mixers import MIXERS, Teacher

from ..targets.tiny import STATE_SPACE, VOCAB, network

HPARAMS = {"group": 4, "conv": 5, "state": 8, "state_heads": 4, "state_groups": 2}
IDS = torch.tensor([[3, 9, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]])


@pytest.fixture(scope="module")
def llama():
    return network(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=160,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=96,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )


@torch.no_grad()
def logits(net, ids=IDS):
    return net(ids, use_cache=False).logits


@pytest.mark.parametrize("mixer", MIXERS)
def test_embedding_norms_and_feed_forward_parts_stay(llama, mixer):
    net = MIXERS[mixer](llama, HPARAMS).eval()
    for layer in net.model.layers:  # without what the mixers add, both are one network
        (layer.mamba.out_proj if mixer == "mamba" else layer.self_attn.o_proj).weight.data.zero_()
    silent = network(llama.config)
    silent.load_state_dict(llama.state_dict())
    for layer in silent.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()
    torch.testing.assert_close(logits(net), logits(silent), atol=1e-4, rtol=1e-4)


def test_the_quick_scan_equals_the_slow_one():
    net = network(STATE_SPACE["bamba"]())
    assert isinstance(net, BambaForCausalLM)
    ids = torch.randint(0, VOCAB, (2, 70), generator=torch.Generator().manual_seed(0))  # longer than a chunk
    torch.testing.assert_close(
        logits(with_scanned_mixers(network(net.config)), ids), logits(net, ids), atol=1e-3, rtol=1e-3
    )


def changed(net, at: int) -> list[int]:
    """The positions whose outputs change with the token at a position."""
    other = IDS.clone()
    other[0, at] = 7
    return ((logits(net) - logits(net, other)).abs().amax(-1)[0] > 1e-6).nonzero()[:, 0].tolist()


def test_a_position_changes_nothing_before_it_and_an_unmasked_convolution_is_caught(monkeypatch):
    """The published convolution has taps on both sides, and zeroes those of the future; one that forgets to
    is not causal."""
    net = network(STATE_SPACE["linear_llama"]())
    assert min(changed(net, 6)) == 6
    right = trainable.shifted_sum
    monkeypatch.setattr(
        trainable, "shifted_sum", lambda x, taps: F.pad(right(F.pad(x, (0, 0, 0, 2)), taps), (0, 0, -2, 0))
    )
    assert min(changed(net, 6)) < 6


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_stored_target_runs_as_the_network_it_was(llama, mixer, tmp_path):
    job = Job(work=tmp_path)
    place = export(
        job, "Llama-tiny", MIXERS[mixer](llama, HPARAMS), AutoTokenizer.from_pretrained(SHIPPED / TARGET)
    )
    net, target = open_network(place, torch.float32).eval(), RecurrentModel(place).open()
    target.sync(IDS[0, :-1].tolist())
    got = target.score(DraftTree((int(IDS[0, -1]),), (-1,), (-1,))).logits
    torch.testing.assert_close(got, logits(net)[0, -2:], atol=1e-3, rtol=1e-3)
    assert any(
        name.endswith(".scale")
        for name in target.model.folder.joinpath("model.safetensors")
        .read_bytes()[:6000]
        .decode("latin-1")
        .split('"')
    )


def test_a_teachers_leaders_are_its_distribution(tmp_path):
    teacher = Teacher(Job(work=tmp_path), TARGET, 4, torch.device("cpu"))
    ids, logp = teacher.leaders(IDS, torch.tensor([2, 5]))
    want = logits(teacher.network)[0, [2, 5]].float().log_softmax(-1).topk(4)
    assert torch.equal(ids, want.indices) and float((logp - want.values).abs().max()) < 1e-4


def test_answers_of_a_target_with_states_are_its_own(llama, tmp_path):
    job = Job(work=tmp_path, target="Llama-tiny")
    words = AutoTokenizer.from_pretrained(SHIPPED / TARGET)
    place = export(job, "Llama-tiny", MIXERS["linear_attention"](llama, HPARAMS), words)
    net = open_network(place, torch.float32).eval()
    (answer,) = generate.AnswerGenerator(net, words, {"new_tokens": 6, "top": 3}, job).decode(
        [(IDS[0].tolist(), "story", 0.0)]
    )
    ids = answer.ids[None]
    assert torch.equal(
        logits(net, ids)[0, len(IDS[0]) - 1 : -1].argmax(-1), ids[0, len(IDS[0]) :]
    ) and answer.top_ids.shape == (6, 3)
