"""The state-space target: outputs of a tree equal transformers' Mamba-2 on each path, and the state after a commit the sequential one."""
from __future__ import annotations

import pytest
import torch

from specviz.core import DraftTree, Verdict
from specviz.models.weights import ModelError
from specviz.targets.recurrent import SNAPSHOTS, RecurrentModel, RecurrentTarget

VOCAB, PROMPT = 61, [3, 17, 5, 29, 41, 8, 8, 55, 12]
TREE = DraftTree((5, 7, 9, 11, 13, 5), (-1, -1, 0, 0, 1, 2), (-1,) * 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from transformers import Mamba2Config, Mamba2ForCausalLM

    torch.manual_seed(0)
    config = Mamba2Config(num_heads=6, head_dim=16, vocab_size=VOCAB, hidden_size=48, state_size=8, num_hidden_layers=3, n_groups=2,
                          pad_token_id=0, tie_word_embeddings=False)
    net, path = Mamba2ForCausalLM(config).eval(), tmp_path_factory.mktemp("mamba2") / "tiny"
    for weight in net.parameters():
        if weight.ndim > 1:
            weight.data.mul_(2)
    net.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def reference(folder):
    from transformers import Mamba2ForCausalLM

    net = Mamba2ForCausalLM.from_pretrained(folder).eval()

    def logits(ids):
        with torch.no_grad():
            return net(torch.tensor([ids])).logits[0, -1]
    return logits


@pytest.fixture(scope="module")
def model(folder):
    return RecurrentModel(folder)


def paths(tree):
    return [[], *([tree.tokens[j] for j in tree.path(i)] for i in range(len(tree)))]


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
    before = [(state.conv.clone(), state.ssm.clone()) for state in target._states]
    target.score(TREE)
    assert all(torch.equal(state.conv, conv) and torch.equal(state.ssm, ssm) for state, (conv, ssm) in zip(target._states, before))


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
    for a, b in zip(target._states, fresh._states):
        assert float((a.ssm - b.ssm).abs().max()) < 1e-5 and float((a.conv - b.conv).abs().max()) < 1e-5
    assert target.cached_tokens == text[:-1] and gap(target.score(DraftTree()).logits, [reference(text)]) < 1e-5


def test_a_state_that_forgets_the_convolution_or_the_replay_is_caught(model, reference):
    """Spoiled variants: the committed window left as it was, and a replay of the wrong path."""
    for spoil in ("window", "path"):
        target = model.open()
        target.sync(PROMPT)
        target.score(TREE)
        window = [state.conv for state in target._states]
        target.commit(Verdict((0, 2) if spoil == "window" else (0, 3), 33, "bonus"))
        if spoil == "window":
            target._states = [type(state)(conv, state.ssm) for state, conv in zip(target._states, window)]
        assert gap(target.score(DraftTree()).logits, [reference([*PROMPT, 5, 9, 33])]) > 1e-2


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
        ("final", "layer:0", "layer:2"), (7, 48))
    assert torch.equal(target.head(scores.hidden_states["final"]), scores.logits)
    assert torch.equal(scores.hidden_states["layer:0"][1:], target.embed(list(TREE.tokens)))


def test_configs_that_do_not_fit_are_refused(folder, tmp_path):
    import json

    for change in ({"hidden_act": "gelu"}, {"num_heads": 5}, {"state_size": "8"}, {"time_step_limit": [2, 1]}, {"model_type": "mamba"}):
        config = json.loads((folder / "config.json").read_text()) | change
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelError):
            RecurrentModel(tmp_path)


def test_every_run_has_states_of_its_own(model):
    one, other = model.open(), model.open()
    assert isinstance(one, RecurrentTarget)
    one.sync(PROMPT)
    other.sync([1, 2])
    want = one.score(DraftTree()).logits
    other.score(DraftTree())
    assert torch.equal(one.score(DraftTree()).logits, want)
