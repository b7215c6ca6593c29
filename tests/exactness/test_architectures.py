"""Greedy equality on real networks: tiny random checkpoints of every supported architecture, through every
kind of target."""

from __future__ import annotations

import copy

import pytest
import torch

from specviz.core import DraftTree, Sampling, State, open_run
from specviz.core.errors import InvalidUse
from specviz.targets.fast import FastModel
from specviz.targets.hf import HFModel
from specviz.targets.int8 import Int8Model
from specviz.targets.recurrent import RecurrentModel

from ..message_codes import refuses
from ..targets.tiny import CONFIGS, FAST, STATE_SPACE, VOCAB, network
from .pair import Pair
from .toys import CAPABILITIES, greedy, methods, player, sample

PROMPT = [7, 3, 21, 7, 3, 40, 7]
LENGTH = 16


KINDS = [
    *((kind, HFModel) for kind in CONFIGS),
    *((kind, FastModel) for kind in FAST),
    *((kind, Int8Model) for kind in ("llama", "qwen3")),
    *((kind, RecurrentModel) for kind in STATE_SPACE),
]
METHODS = methods("exact", "greedy only")
SAMPLE = sample()
NEED_LEARNING = ("online",)  # the draft is trained while it drafts
EVERY = ("llama", FastModel)  # where ``make test``, too, tries every method


def takes(at: int, method: int) -> bool:
    """Llama takes every method; each other architecture takes a third of them, so that every method meets a
    third of them."""
    kind, forward = KINDS[at]
    return kind == "llama" and forward is not Int8Model or (method + at) % 3 == 0


@pytest.fixture(
    scope="module", params=range(len(KINDS)), ids=lambda i: f"{KINDS[i][0]}-{KINDS[i][1].__name__}"
)
def pair(request, tmp_path_factory):
    """Target and draft of one architecture; the draft is the target with noise on its weights, so it is
    right now and then."""
    kind, kind_of_model = KINDS[request.param]
    config, folder = (CONFIGS | STATE_SPACE)[kind](), tmp_path_factory.mktemp(kind)
    config.tie_word_embeddings = False  # random tied weights repeat one token for ever
    net = network(config, seed=2)
    noisy, source = copy.deepcopy(net), torch.Generator().manual_seed(1)
    with torch.no_grad():
        net.get_input_embeddings().weight.mul_(0.2)  # so that the layers have a say, and the text varies
        noisy.get_input_embeddings().weight.mul_(0.2)
        for weight in noisy.parameters():
            weight.add_(torch.randn(weight.shape, generator=source) * float(weight.std(correction=0)) * 0.15)
    net.save_pretrained(folder / "target")
    noisy.save_pretrained(folder / "draft")

    @torch.inference_mode()
    def logits(tokens):
        return net(input_ids=torch.tensor([tokens])).logits[0]

    models = [kind_of_model(folder / name, device="cpu") for name in ("target", "draft")]
    if (
        kind_of_model is Int8Model
    ):  # in eight bits it is a network of its own, which is asked without a cache, too
        whole = models[0]

        @torch.inference_mode()
        def logits(tokens):
            target = whole.open()
            target.sync(tokens[:1])
            return target.score(DraftTree.chain(tokens[1:])).logits

    texts = [PROMPT, [3, 21, 9, 7, 3, 40], greedy(logits, PROMPT, 6)]
    return request.param, lambda: Pair(*models, VOCAB, texts), logits


@pytest.mark.parametrize(
    "all_of_them", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["sample", "all"]
)
def test_methods_write_what_plain_decoding_writes(pair, all_of_them):
    """Each architecture's share of the methods, and the plain draft model on all; a sample of it beside the
    fast Llama."""
    at, make, logits = pair
    want = greedy(logits, PROMPT, LENGTH)
    assert len(set(want[len(PROMPT) :])) > 3
    taken, left_out = 0, []
    for i, method in enumerate(METHODS):
        kit = make()
        if not method.needs <= kit.target.capabilities | CAPABILITIES:
            left_out.append(method)
        elif method.key in NEED_LEARNING and "learning" not in kit.target.capabilities:
            with refuses(InvalidUse, "draft.capability"):
                write(method, kit, logits)
        elif (
            method.key == "speculative"
            or takes(at, i)
            and (all_of_them or KINDS[at] == EVERY or method.key in SAMPLE)
        ):
            tokens, accepted = write(method, kit, logits)
            assert tokens == want, method.key
            taken += accepted
    assert taken > 0, "the draft must be right now and then"
    assert not any(method.needs <= {"draft", "tree"} for method in left_out), (
        "chains and trees run on every architecture"
    )


def write(method, kit, logits):
    """The tokens of a run, and how many draft tokens it accepted; ``logits`` asks the network itself,
    without a cache."""
    parts = method.build(kit, **method.read_knobs({}))
    state, accepted = State(list(PROMPT), Sampling(0.0), limit=LENGTH), 0
    open_run(parts, kit.target, state)
    while not state.done:
        accepted += len(player(parts)(parts, kit.target, state).verdict.path)
    if "tree" in kit.target.capabilities:
        check_cache(kit.target, logits, state.tokens)
    return state.tokens, accepted


def check_cache(target, logits, tokens):
    """What lies in the cache after a run scores the next rows as the network does without one."""
    got = target.score(DraftTree((5, 9, 6), (-1, -1, 0), (-1,) * 3)).logits
    for row, path in zip(got, ([], [5], [9], [5, 6])):
        torch.testing.assert_close(row, logits([*tokens, *path])[-1], atol=1e-3, rtol=1e-3)
