"""A target with sparse experts: the pass over the union of its rows' experts, the pass over all, and wrong
variants of the union."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from specviz.checkpoints import mx
from specviz.checkpoints.weights import ModelError
from specviz.core import DraftTree
from specviz.models.blockffn import Experts, unsupported_reason
from specviz.targets.experts import ExpertsModel, ExpertsRead
from specviz.training.blockffn import ExpertsLlama

VOCAB, PROMPT = 61, [3, 17, 5, 29, 41, 8]
TREE = DraftTree((5, 7, 9, 11, 13), (-1, -1, 0, 0, 1), (-1,) * 5)
SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=128,
    tie_word_embeddings=True,
    rms_norm_eps=1e-6,
)


def net(seed=0):
    torch.manual_seed(seed)
    made = ExpertsLlama(LlamaConfig(**SIZES), 12, 8)
    with torch.no_grad():
        for layer in made.model.layers:
            layer.mlp.w_out.weight.normal_(std=0.2)
            layer.mlp.router.weight.normal_(std=0.3).sub_(0.02)
            layer.mlp.scale.normal_()  # about half of them are negative
    return made.eval()


def folder(path, made, **config):
    """Write a checkpoint as the recipe does."""
    path.mkdir(exist_ok=True)
    weights = {
        name: t for name, t in made.state_dict().items() if name not in ("lm_head.weight", "chunk_factor")
    }
    save_file(
        {name: t.contiguous() for name, t in mx.to_file_tensors(weights).items()}, path / "model.safetensors"
    )
    (path / "config.json").write_text(
        json.dumps({"model_type": "blockffn", **SIZES, "num_experts": 12, "expert_size": 8} | config)
    )
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ExpertsModel(folder(tmp_path_factory.mktemp("experts") / "toy", net()))


def scored(model, whole):
    model.read_all_experts(whole)
    target = model.open()
    prefill = target.sync(PROMPT)
    logits = target.score(TREE).logits
    model.read_all_experts(False)
    return torch.cat([prefill.logits, logits]), target


def test_the_union_is_bit_identical_to_all_experts_and_reads_fewer(model):
    some, target = scored(model, False)
    every, _ = scored(model, True)
    assert torch.equal(some, every)
    read = target.experts_read()
    assert read.used.shape == (3, len(TREE) + 1, 12) and 0 < read.union(1) < read.used.shape[0] * 12
    assert read.unions()[-1] == read.union() <= read.separately() and read.unions() == [
        read.union(n) for n in range(1, len(TREE) + 2)
    ]


def test_each_row_equals_the_training_network_on_its_path(tmp_path):
    made = net(1)
    target = ExpertsModel(folder(tmp_path / "toy", made), dtype=torch.float64).open()
    target.sync(PROMPT)
    rows = target.score(TREE).logits
    made = made.double()
    with torch.no_grad():
        for weight in (w for w in made.parameters() if w.dim() > 1 and w.numel() >= mx.WORTH):
            weight.copy_(mx.dequantise_mxint8(*mx.quantise_mxint8(weight)))
        for row, path in ((0, []), (3, [5, 9]), (5, [7, 13])):
            assert torch.allclose(rows[row], made(torch.tensor([PROMPT + path])).logits[0, -1], atol=1e-5)


class Positive(Experts):
    """The authors' kernel: an expert counts where its routing weight is above 0, so one with a negative
    scale is dropped."""

    def forward(self, x, residual):
        scale, self.scale = self.scale, self.scale.clamp(min=0)
        found = super().forward(x, residual)
        self.scale = scale
        return found


class Reversed(Experts):
    """Adds the experts of the union from the last to the first; all of them in order."""

    def forward(self, x, residual):
        if self.read_all:
            return super().forward(x, residual)
        turned = Experts.__new__(Experts)
        torch.nn.Module.__init__(turned)
        turned.router = self.router.flip(0)
        turned.scale = self.scale.flip(0)
        turned.eps = self.eps
        turned.read_all = False
        turned.w_in, turned.w_out = self.w_in.flip(0), self.w_out.flip(0)
        return turned(x, residual)


def layer_of(kind, whole=False):
    source = torch.Generator().manual_seed(3)
    router, w_in, w_out = (torch.randn(*shape, generator=source) for shape in ((12, 32), (96, 32), (32, 96)))
    return kind(router, torch.randn(12, generator=source), w_in, w_out, 1e-6, whole)


@pytest.mark.parametrize("kind, same", [(Experts, True), (Positive, False), (Reversed, False)])
def test_wrong_unions_are_caught(kind, same):
    x, residual = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        assert (
            torch.equal(
                layer_of(kind)(x, residual)[0],
                layer_of(kind if same or kind is Reversed else Experts, True)(x, residual)[0],
            )
            == same
        )


def test_the_bytes_are_those_of_the_files_weights(model):
    experts = 3 * 12 * 2 * 32 * 8 * 4
    assert model.expert_bytes * 3 * 12 == experts and model.other_bytes == model.parameters * 4 - experts
    used = torch.zeros(1, 3, 4, dtype=torch.bool)
    used[0, 0, :2] = used[0, 1, 1:3] = used[0, 2, 0] = True
    read = ExpertsRead(used, 10, 7)
    assert (read.unions(), read.separately(), read.union()) == ([2, 3, 3], 5, 3)


@pytest.mark.parametrize(
    "config", [{"num_experts": 0}, {"expert_size": None}, {"num_experts": True}, {"model_type": "llama"}]
)
def test_a_config_without_experts_is_refused(config):
    assert unsupported_reason(
        {"model_type": "blockffn", **SIZES, "num_experts": 12, "expert_size": 8} | config
    )


def test_sizes_that_contradict_each_other_are_refused(tmp_path):
    with pytest.raises(ModelError) as found:
        ExpertsModel(folder(tmp_path / "toy", net(), num_experts=6))
    assert found.value.code in ("config.sizes", "checkpoint.shape")
