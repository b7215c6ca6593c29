"""A target with sparse experts writes what its dense forward pass writes: greedy, in distribution, and not
with a wrong union."""

from __future__ import annotations

import pytest
import torch

from specviz.core import FixedCosts, Sampling
from specviz.methods import catalogue
from specviz.targets.experts import ExpertsModel
from specviz.training.blockffn import ExpertsLlama

from ..targets import test_experts as toy_target
from .enumeration import distance, joint, probs_of_engine
from .pair import Pair
from .test_fast_distribution import logits as all_rows
from .toys import PROMPT, TinyExperts, begin, greedy, player, small_knobs, toy_of

METHOD = catalogue()["blockffn"]
VOCAB, COUNT = 3, 3


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A target and a draft of three tokens, in double precision, with routing scales of both signs."""
    folder, made = tmp_path_factory.mktemp("experts"), toy_target.net()
    sizes = {**toy_target.SIZES, "vocab_size": VOCAB}
    torch.manual_seed(5)
    net = ExpertsLlama(toy_target.LlamaConfig(**sizes), 12, 8)
    net.load_state_dict(
        {name: t for name, t in made.state_dict().items() if ".layers." in name}, strict=False
    )
    found = []
    for name in ("target", "draft"):
        found.append(
            ExpertsModel(toy_target.folder(folder / name, net, vocab_size=VOCAB), dtype=torch.float64)
        )
        with torch.no_grad():
            for weight in net.parameters():
                weight.add_(torch.randn(weight.shape) * float(weight.std(unbiased=False)) * 0.3)
    return found


@torch.inference_mode()
@pytest.mark.parametrize("width", [1, 2])
def test_the_joint_distribution_is_that_of_the_pass_over_all_experts(models, width):
    target, _ = models
    kit = Pair(*models, VOCAB, [[1, 2, 0]])
    sampling = Sampling(1.0)
    prompt = [1, 2, 0, 2]
    target.read_all_experts()
    want = joint(lambda tokens: all_rows(target.open(), tokens), prompt, COUNT, sampling, VOCAB)
    target.read_all_experts(False)
    parts = METHOD.build(kit, **METHOD.read_knobs({"width": width, "depth": 2, "nodes": 3}))
    state = begin(parts, kit, sampling, COUNT, prompt=prompt)
    probs, endings = probs_of_engine(parts, kit.target, state, COUNT, shared=models)
    assert distance(probs, want) < 1e-12 and endings > 4


@pytest.mark.parametrize("right, uses", [(True, TinyExperts.uses), (False, lambda self, r: r > 0)])
def test_a_union_without_negative_weights_changes_the_distribution(right, uses, monkeypatch):
    monkeypatch.setattr(TinyExperts, "uses", uses)
    kit, prompt = toy_of(METHOD, VOCAB, share=0.5, sharp=0.8), [token % VOCAB for token in PROMPT]
    parts = METHOD.build(kit, **small_knobs(METHOD)[0])
    state = begin(parts, kit, Sampling(1.0), COUNT, prompt=prompt)
    want = joint(kit.net.logits, prompt, COUNT, Sampling(1.0), VOCAB)
    off = distance(probs_of_engine(parts, kit.target, state, COUNT, shared=(kit.net, kit.small))[0], want)
    assert off < 1e-12 if right else off > 1e-3


@pytest.mark.parametrize(
    "key", ["blockffn", "speculative", "draft_tree", "swift", "knapspec", "prompt_lookup"]
)
@pytest.mark.parametrize(
    "sizes", [{}, {"num_key_value_heads": 1, "num_hidden_layers": 4}], ids=["two groups", "one group"]
)
def test_methods_write_what_plain_decoding_writes(key, sizes, tmp_path, monkeypatch):
    monkeypatch.setattr(toy_target, "SIZES", toy_target.SIZES | sizes)
    net = toy_target.net(2)
    folders = [toy_target.folder(tmp_path / "target", net)]
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn(weight.shape) * float(weight.std(unbiased=False)) * 0.2)
    folders.append(toy_target.folder(tmp_path / "draft", net))
    models, prompt = [ExpertsModel(folder) for folder in folders], toy_target.PROMPT
    kit, method = Pair(*models, toy_target.VOCAB, [prompt]), catalogue()[key]
    want = greedy(lambda tokens: all_rows(kit.model.open(), tokens), prompt, 40)
    parts = method.build(kit, **method.read_knobs({}))
    state = begin(
        parts, kit, Sampling(0.0), 40, prompt=prompt, costs=FixedCosts()
    )  # what is gated by cost depends on no clock
    while not state.done:
        player(parts)(parts, kit.target, state)
    assert state.tokens == want and state.round < 40
