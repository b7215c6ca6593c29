"""The heads' arithmetic: against transformers' Llama, the drafting forward against the training one, trees
against their paths."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
import transformers as tf

from specviz.checkpoints.weights import ModelError
from specviz.methods.trained_heads.kangaroo import kangaroo_network as kangaroo
from specviz.models import eagle
from specviz.models.eagle_layers import rollout_attention
from specviz.models.heads import TargetInfo, unsupported_reason

from ..drafters.heads.features import BODY, CONFIG, head, published_eagle, published_kangaroo, rows, write
from ..message_codes import refuses

FORMS = [{}, {"layers": 2}, {"bias": False, "heads": 2, "kv_heads": 2}, {"kv_heads": 1}]


def close(got, want):
    """Up to the rotary angles, which are in single precision everywhere."""
    torch.testing.assert_close(got, want, atol=2e-6, rtol=2e-6)


def llama(weights, layers=1):
    """transformers' own decoder with the weights of a file; what the file lacks does nothing."""
    bias = any(name.endswith("q_proj.bias") for name in weights)
    config = tf.LlamaConfig(
        **{
            **CONFIG,
            "num_hidden_layers": layers,
            "attention_bias": bias,
            "rope_parameters": {"rope_type": "default", "rope_theta": CONFIG["rope_theta"]},
        },
        attn_implementation="eager",
    )
    net = tf.LlamaModel(config).double().eval()
    told = net.load_state_dict(
        {n: w.double() for n, w in weights.items() if n.startswith(("layers.", "norm."))}, strict=False
    )
    for i, one in enumerate(net.layers):
        if f"layers.{i}.input_layernorm.weight" in told.missing_keys:
            one.input_layernorm = torch.nn.Identity()
        if f"layers.{i}.mlp.down_proj.weight" in told.missing_keys:
            one.mlp.down_proj.weight.data.zero_()
        if bias:
            one.self_attn.o_proj.bias.data.zero_()
    if "norm.weight" in told.missing_keys:
        net.norm = torch.nn.Identity()
    return net


@pytest.mark.parametrize("form", [{}, {"bias": False}, {"qkv_bias": True, "embedding": False}], ids=str)
@torch.inference_mode()
def test_a_published_eagle_head_is_read_and_computes_what_transformers_computes(tmp_path, form):
    folder, weights = published_eagle(tmp_path / "eagle", **form)
    ours = eagle.load(folder, BODY)
    embeds, features = rows(9, 1), rows(9, 2)
    x = (
        torch.cat([embeds, features], -1) @ weights["fc.weight"].double().T
        + weights.get("fc.bias", torch.zeros(16)).double()
    )
    want = llama(weights)(inputs_embeds=x[None]).last_hidden_state[0]
    close(ours(embeds[None], features[None])[0][0], want)
    close(ours.open().read(embeds, features), want)


@torch.inference_mode()
def test_a_published_kangaroo_adapter_is_read_and_computes_what_transformers_computes(tmp_path):
    folder, weights = published_kangaroo(tmp_path / "kangaroo", exit_layer=2)
    ours, states = kangaroo.load(folder, BODY), rows(9)
    assert ours.exit == 2 and len(ours.layers) == 1
    want = llama(weights)(inputs_embeds=states[None]).last_hidden_state[0]
    close(ours(states[None])[0], want)
    close(ours.last_norm(ours.open().read(states)), want)
    assert kangaroo.load(published_kangaroo(tmp_path / "third", exit_layer=3)[0], BODY).exit == 3


@pytest.mark.parametrize(
    "spoil, sentence",
    [
        (dict(hidden_size=32), "head.states 32"),
        (dict(vocab_size=99), "head.vocabulary 99"),
        (dict(intermediate_size=21), "checkpoint.shape mlp.gate_proj.weight"),
        (dict(num_attention_heads=3), "head.sizes"),
        (dict(num_hidden_layers=2), "checkpoint.lacks_weight layers.1"),
        (dict(rope_scaling={"type": "yarn"}), "head.rotary yarn"),
    ],
)
def test_an_eagle_head_that_does_not_fit_is_refused_with_a_sentence(tmp_path, spoil, sentence):
    folder, _ = published_eagle(tmp_path / "eagle", **spoil)
    with refuses(ModelError, *sentence.split()) as told:
        eagle.load(folder, BODY)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "names, config",
    [
        ({"midlayer.hidden_norm.weight": [16], "fc.weight": [16, 48], "d2t": [40]}, {}),
        ({"layers.0.hidden_norm.weight": [16], "fc.weight": [16, 48]}, {"speculators_model_type": "eagle3"}),
        ({"fc.weight": [16, 48]}, {"draft_vocab_size": 32}),
    ],
)
def test_an_eagle_3_head_is_called_what_it_is(tmp_path, names, config):
    """In its authors' layout, in speculators', and by its config alone; before it is chosen, too."""
    folder, _ = write(
        tmp_path / "third", {name: torch.zeros(shape) for name, shape in names.items()}, CONFIG | config
    )
    with refuses(ModelError, "head.eagle3", "third"):
        eagle.load(folder, BODY)
    assert "EAGLE-3" in unsupported_reason(folder, BODY.name, BODY.hidden, BODY.vocab, "eagle")
    assert unsupported_reason(folder, BODY.name, BODY.hidden, BODY.vocab, "eagle3") is None


@pytest.mark.parametrize("module, published", [(eagle, published_eagle), (kangaroo, published_kangaroo)])
def test_weights_that_no_reader_knows_are_refused_and_old_tables_are_not(tmp_path, module, published):
    folder, weights = published(tmp_path / "one", exit_layer=2)
    write(
        folder,
        weights | {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)},
        CONFIG | {"exit_layer": 2} | ({"bias": True} if module is eagle else {}),
    )
    module.load(folder, BODY)
    write(folder, weights | {"layers.0.self_attn.q_norm.weight": torch.ones(6)}, CONFIG | {"exit_layer": 2})
    with refuses(ModelError, "head.unknown_weights", "layers.0.self_attn.q_norm.weight"):
        module.load(folder, BODY)


def test_an_adapter_that_does_not_say_where_the_exit_is(tmp_path):
    with refuses(ModelError, "kangaroo.exit_layer", "exit_layer") as told:
        kangaroo.load(published_kangaroo(tmp_path / "k")[0], BODY)
    assert "\n" not in str(told.value)


def test_other_files_that_cannot_be_used(tmp_path):
    folder, weights = published_eagle(tmp_path / "eagle")
    write(
        folder,
        {**weights, "embed_tokens.weight": torch.zeros(41, 16)},
        {k: v for k, v in CONFIG.items() if k != "vocab_size"},
    )
    with refuses(ModelError, "head.vocabulary", 41, 40, "toy"):
        eagle.load(folder, BODY)
    write(folder, {name: w for name, w in weights.items() if name != "fc.weight"}, CONFIG)
    with refuses(ModelError, "checkpoint.lacks_weight", "fc.weight"):
        eagle.load(folder, BODY)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9])
    with refuses(ModelError, "checkpoint.cut_short", "model.safetensors"):
        eagle.load(folder, BODY)
    for exit_layer in (0, 4, "2"):
        with refuses(ModelError, "head.exit_layer", "toy", 4):
            kangaroo.load(published_kangaroo(tmp_path / "kangaroo", exit_layer=exit_layer)[0], BODY)


@pytest.mark.parametrize("form", FORMS, ids=str)
@torch.inference_mode()
def test_rows_that_draft_are_the_rows_that_were_trained(form):
    """Read in pieces, across the cache's step and beyond what was cropped again."""
    net, cut = head(eagle, **form), [0, 1, 4, 9, 300]
    embeds, features = rows(300, 1), rows(300, 2)
    want = net(embeds[None], features[None])[0][0]
    cache = net.open()
    for a, b in zip(cut, cut[1:]):
        close(cache.read(embeds[a:b], features[a:b]), want[a:b])
    held = cache.kv().clone()
    cache.crop(7)
    close(cache.read(embeds[7:], features[7:]), want[7:])
    close(cache.kv(), held)
    adapter = head(kangaroo, **form)
    want, cache = adapter(embeds[None])[0], adapter.open()
    got = torch.cat([cache.read(embeds[a:b]) for a, b in zip(cut, cut[1:])])
    close(adapter.last_norm(got), want)


@pytest.mark.parametrize("form", FORMS, ids=str)
@torch.inference_mode()
def test_a_row_of_a_tree_sees_its_path_and_nothing_else(form):
    net = head(eagle, **form)
    parents = [-1, -1, -1, 0, 0, 2, 4, 5, 5]
    calls = [(0, 3), (3, 6), (6, 9)]
    embeds = rows(5, 1)
    features = rows(5, 2)
    e = rows(9, 3)
    f = rows(9, 4)
    depths = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    cache = net.open()
    for _ in range(2):  # the scratch of an earlier round leaves no trace
        cache.restart(0)
        cache.read(embeds, features)
        got = torch.cat([cache.branch(e[a:b], f[a:b], parents[a:b], depths[a:b]) for a, b in calls])
    for node in range(9):
        path = [node]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        want = net(torch.cat([embeds, e[path]])[None], torch.cat([features, f[path]])[None])[0][0, -1]
        close(got[node], want)
    assert cache.kv().shape[3] == 5


@pytest.mark.parametrize("layers", [1, 2])
@torch.inference_mode()
def test_the_rollout_in_training_is_what_drafting_meets(layers):
    """Guess j of row t: true features up to t - j, then the head's own guesses."""
    net = head(eagle, layers=layers)
    steps = 4
    n = 9
    embeds, features = rows(n, 1), rows(n, 2)
    trained = net(embeds[None], features[None], steps)
    for root in range(n):  # the last row that stands on true features
        cache = net.open()
        guess = cache.read(embeds[: root + 1], features[: root + 1])[-1:]
        for step in range(min(steps, n - root)):
            close(guess[0], trained[step][0, root + step])
            if root + step + 1 < n:
                guess = cache.branch(embeds[root + step + 1 : root + step + 2], guess, [step - 1], [step + 1])


@torch.inference_mode()
def test_the_scale_of_embeddings_in_training_is_folded_into_the_weights(tmp_path):
    """What is drafted with the folded weights is what was trained with the scale."""
    net = head(eagle)
    embeds = rows(5, 1)
    features = rows(5, 2)
    plain = net(embeds[None], features[None])[0]
    net.embed_scale = 14.5
    trained = net(embeds[None], features[None])[0]
    assert (trained - plain).abs().max() > 1e-3
    net.fold_scale()
    close(net(embeds[None], features[None])[0], trained)
    close(net.open().read(embeds, features), trained[0])


@torch.inference_mode()
def test_half_precision_as_on_an_accelerator(tmp_path):
    """A head takes the type of its target."""
    body = replace(BODY, dtype=torch.bfloat16)
    embeds = rows(6, 1)
    features = rows(6, 2)
    whole, half = (eagle.load(published_eagle(tmp_path / "eagle")[0], one) for one in (BODY, body))
    want, cache = whole(embeds[None], features[None])[0][0], half.open()
    got = cache.read(embeds[:5], features[:5])
    got = torch.cat([got, cache.branch(embeds[5:], features[5:], [-1], [1])])
    assert got.dtype == torch.bfloat16 and float((got - want).abs().mean()) < 0.03 * float(want.std())


@torch.inference_mode()
def test_text_longer_than_the_heads_context_is_still_read():
    """With the angles of its positions: a target may be longer than its head was made for."""
    for make in (
        lambda **more: head(eagle, body=replace(BODY, config={"max_position_embeddings": 8, **more})),
    ):
        short, long = make(), make(max_position_embeddings=64)
        close(short.open().read(rows(20, 1), rows(20, 2)), long.open().read(rows(20, 1), rows(20, 2)))
        a, b = (net.open() for net in (short, long))
        for cache in (a, b):
            cache.read(rows(6, 1), rows(6, 2))
        close(*(cache.branch(rows(3, 3), rows(3, 4), [-1, -1, 0], [1, 1, 5]) for cache in (a, b)))


def test_a_head_is_shaped_like_its_target():
    config = {
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "intermediate_size": 56,
        "rms_norm_eps": 1e-4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 123.0},
        "max_position_embeddings": 77,
    }
    made = eagle.build(TargetInfo("toy", 16, 40, 4, config=config), {"intermediate": 9})
    assert (
        made.sizes == eagle.Sizes(16, 8, 2, 4, 9, 1, 77, 1e-4)
        and made.config["rope_parameters"]["rope_theta"] == 123.0
    )


def test_a_rollout_attends_to_true_states_and_to_its_own_path():
    """As with a mask over the keys of all steps, also for texts shorter than the rollout."""
    for n, step in itertools.product((1, 3, 11), range(5)):
        place = torch.arange(n)[:, None]
        mask = torch.cat(
            [place.T <= place - step, *(place.T == place - i for i in range(step - 1, -1, -1))], 1
        )
        q = torch.randn(2, 6, n, 8, requires_grad=True)
        k, v = (torch.randn(2, 3, (step + 1) * n, 8, requires_grad=True) for _ in range(2))
        every = (part.repeat_interleave(2, 1) for part in (k, v))
        want = torch.nn.functional.scaled_dot_product_attention(q, *every, mask)
        got = rollout_attention(q, k, v, step)
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
        for one, other in zip(*(torch.autograd.grad(y.square().sum(), (q, k, v)) for y in (got, want))):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
