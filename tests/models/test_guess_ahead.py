"""Heads that guess ahead from the last state: the published layout of ReDrafter drafts what a plain
re-statement of its forward drafts, Clover and the blockwise heads say what their formulas say, and what
does not fit is refused."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from specviz.checkpoints.weights import ModelError
from specviz.core import Budget, Sampling, Scores, State
from specviz.methods.trained_heads.blockwise import blockwise_network as blockwise
from specviz.methods.trained_heads.chimera import chimera_network as chimera
from specviz.methods.trained_heads.chimera.chimera_drafter import ChimeraTree
from specviz.methods.trained_heads.clover import clover_network as clover
from specviz.methods.trained_heads.redrafter import redrafter_network as redrafter
from specviz.methods.trained_heads.redrafter.redrafter_drafter import FEW, BeamTree
from specviz.models.eagle_layers import Layer, Sizes, angles_of
from specviz.models.heads import TargetInfo
from specviz.trees import full_tree

from ..message_codes import refuses
from . import tiny

D, VOCAB = 8, 70
BODY = TargetInfo("toy", D, VOCAB, 2, torch.device("cpu"), torch.float64)
SILU = lambda x: x / (1 + (-x).exp())  # noqa: E731


def draws(**shapes):
    source = torch.Generator().manual_seed(4)
    return {
        name.replace("__", "."): torch.randn(*shape, generator=source, dtype=torch.float64) / shape[-1] ** 0.5
        for name, shape in shapes.items()
    }


EMBEDDING, HEAD = draws(e=(VOCAB, D), h=(VOCAB, D)).values()
STATE = draws(x=(D,))["x"] * 2


class ReducedTarget:
    """A target as far as heads borrow from it."""

    def embed(self, ids):
        return EMBEDDING[torch.as_tensor(ids)]

    def head(self, states):
        return states @ HEAD.T


def published(folder, exit=2 * D, own=True, config=None, drop=(), **more):
    found = draws(
        rnn_w__weight=(D, D),
        rnn_u__weight=(D, D),
        rnn_u__bias=(D,),
        lm_head__0__linear__weight=(exit, exit),
        lm_head__0__linear__bias=(exit,),
        lm_head__1__linear__weight=(exit, exit),
        lm_head__1__linear__bias=(exit,),
    )
    if own:
        found["lm_head.2.weight"] = draws(out=(VOCAB, exit))["out"] * 6
    if exit != 2 * D:
        found |= draws(input_proj__weight=(exit, 2 * D), input_proj__bias=(exit,))
    found = {name: tensor for name, tensor in {**found, **more}.items() if name not in drop}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(found, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "recurrent_drafting_drafter",
                "hidden_size": D,
                "vocab_size": VOCAB,
                "exit_dim": exit,
                "num_draft_layers": 2,
                "rnn": True,
            }
            | (config or {})
        )
    )
    return found


def restated(w, tokens):
    """Log-probabilities of the token behind ``tokens``, by the published forward; only the likeliest few
    are left."""
    s = torch.zeros(D, dtype=torch.float64)
    for token in tokens:
        s = SILU(w["rnn_w.weight"] @ EMBEDDING[token] + w["rnn_u.weight"] @ s + w["rnn_u.bias"])
    x = torch.cat([STATE, s])
    if "input_proj.weight" in w:
        x = w["input_proj.weight"] @ x + w["input_proj.bias"]
    for i in range(2):
        x = x + SILU(w[f"lm_head.{i}.linear.weight"] @ x + w[f"lm_head.{i}.linear.bias"])
    z = w.get("lm_head.2.weight", HEAD) @ x
    limit = z.sort(descending=True).values[FEW - 1]
    return z.masked_fill(z < limit, -math.inf).log_softmax(-1)


@pytest.mark.parametrize("exit, own", [(2 * D, True), (12, True), (D, False)])
def test_redrafters_published_layout_drafts_the_published_beams(tmp_path, exit, own):
    w = published(tmp_path, exit, own)
    head = redrafter.load(tmp_path, BODY)
    beams = [(0.0, ())]
    for _ in range(3):
        beams = sorted(
            (
                (value + float(said), (*path, token))
                for value, path in beams
                for token, said in enumerate(restated(w, (5, *path)))
            ),
            reverse=True,
        )[:4]
    drafter, state = BeamTree(head, 4), State([2, 5], Sampling(1.0), limit=9)
    drafter.start(state, ReducedTarget(), Scores(torch.zeros(1, VOCAB), {"final": STATE[None]}))
    tree = drafter.propose(state, Budget(3, 4))
    leaves = [i for i in range(len(tree)) if not tree.children(i)]
    assert {tuple(tree.tokens[j] for j in tree.path(i)) for i in leaves} == {path for _, path in beams}
    assert len({tuple(tree.tokens[j] for j in tree.path(i)) for i in range(len(tree))}) == len(tree) < 12, (
        "shared beginnings are one"
    )
    kind, told = state.notes[-1]
    assert (
        kind == "beam"
        and [b["tokens"] for b in told["beams"]] == [list(path) for _, path in beams]
        and told["apart"] == 12
    )
    assert [b["chance"] for b in told["beams"]] == pytest.approx([math.exp(value) for value, _ in beams])
    assert len(drafter.propose(state, Budget(3, 1))) == 3, "a target without trees gets a chain"


@pytest.mark.parametrize(
    "how, says",
    [
        ({"drop": ["lm_head.2.weight"]}, "head.lacks_weight lm_head.2.weight"),
        ({"drop": ["rnn_w.weight"]}, "checkpoint.lacks_weight rnn_w.weight"),
        ({"drop": ["lm_head.0.linear.weight"]}, "head.other_kind"),
        ({"exit": 12, "drop": ["input_proj.weight"]}, "head.states 6 8"),
        ({"config": {"rnn": False}}, "redrafter.rnn"),
        ({"lm_head.2.weight": torch.ones(9, 16)}, "head.vocabulary 9 70"),
        ({"gate.weight": torch.ones(2)}, "head.unknown_weights gate.weight"),
    ],
)
def test_a_redrafter_that_does_not_fit_is_refused(tmp_path, how, says):
    published(tmp_path, **how)
    with refuses(ModelError, *says.split()):
        redrafter.load(tmp_path, BODY)


def test_clovers_state_is_turned_by_the_cosine_of_query_and_key():
    """By hand, a gate at a time; tokens are rows of the output matrix, brought to one length, also where it
    has a bias."""
    heads, head = tiny.head("clover", BODY), lambda states: states @ HEAD.T + 0.5
    assert torch.allclose(heads.rows(head, STATE), HEAD / HEAD.norm(dim=1, keepdim=True))
    part, token = heads.regression, heads.rows(head, STATE)[3]
    normed = STATE / (STATE.pow(2).mean() + part.norm.eps).sqrt() * part.norm.weight
    q = part.q_proj.weight @ normed
    k = part.k_proj.weight @ token
    v = part.v_proj.weight @ token
    want, gates = STATE.clone(), []
    for i in range(2):
        at = slice(4 * i, 4 * i + 4)
        gates.append(float(q[at] @ k[at] / q[at].norm() / k[at].norm()))
        want[at] += gates[-1] * v[at]
    states, found = part(STATE[None], token[None])
    assert torch.allclose(states[0], want, atol=1e-12) and found[0].tolist() == pytest.approx(gates)
    mlp = heads.mlp[1].linear
    assert torch.allclose(
        heads.logits(1, states, head)[0], head(want + SILU(mlp.weight @ want + mlp.bias)), atol=1e-9
    )


def test_each_blockwise_head_reads_its_own_part_of_the_layer():
    heads = tiny.head("blockwise", BODY)
    logits = heads(STATE, 2, ReducedTarget().head)
    assert logits.shape == (2, VOCAB)
    for i in range(2):
        part = (
            heads.layer.weight[12 * i : 12 * i + 12] @ STATE + heads.layer.bias[12 * i : 12 * i + 12]
        ).clamp(min=0)
        want = STATE + heads.out[i].weight @ part + heads.out[i].bias
        assert torch.allclose(logits[i], HEAD @ want) and torch.allclose(heads.states(STATE, i), want)


def test_chimeras_published_layout_drafts_what_the_authors_forward_says(tmp_path):
    """Their unrolled forward, one path and one row at a time: the row of a step sees the true states and
    what the steps before became."""
    llama = {
        "hidden_size": D,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "intermediate_size": 12,
        "rms_norm_eps": 1e-6,
        "rope_theta": 100.0,
        "max_position_embeddings": 64,
    }
    layer = Layer(Sizes.of(llama, "x"), True, True).double()
    w = draws(
        trimlp__0__linear__weight=(24, 24),
        trimlp__0__linear__bias=(24,),
        trimlp__1__weight=(D, 24),
        **{f"chimera_head__{i}__0__weight": (VOCAB, 2 * D) for i in range(3)},
    )
    w |= {f"chimera_head.{i}.0.weight": w[f"chimera_head.{i}.0.weight"] * 5 for i in range(3)}
    source = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for tensor in layer.parameters():
            tensor.copy_(
                torch.randn(tensor.shape, generator=source, dtype=torch.float64) / tensor.shape[-1] ** 0.5
            )
    save_file(
        w | {f"fast_layer1.0.{name}": tensor for name, tensor in layer.state_dict().items()},
        tmp_path / "model.safetensors",
    )
    (tmp_path / "config.json").write_text(json.dumps({"chimera_num_heads": 3, "chimera_num_layers": 1}))
    heads = chimera.load(tmp_path, TargetInfo("toy", D, VOCAB, 2, torch.device("cpu"), torch.float64, llama))
    text, states = [4, 9, 2, 7, 5], draws(s=(4, D))["s"] * 2

    @torch.no_grad()
    def said(path):
        rows = states[None]
        for step in range(len(path) + 1):
            known = text + list(path[:step])
            x = EMBEDDING[known[-3:]].flatten()
            x = w["trimlp.1.weight"] @ (x + SILU(w["trimlp.0.linear.weight"] @ x + w["trimlp.0.linear.bias"]))
            rows = torch.cat([rows, x[None, None]], 1)
            rows = torch.cat([rows[:, :-1], layer(rows, angles_of(llama, 4, rows.shape[1]))[0][:, -1:]], 1)
        return w[f"chimera_head.{len(path)}.0.weight"] @ torch.cat([states[-1], rows[0, -1]])

    drafter, state = ChimeraTree(heads, full_tree((3, 2, 2))), State(list(text), Sampling(1.0), limit=9)
    drafter.start(state, ReducedTarget(), Scores(torch.zeros(1, VOCAB), {"final": states}))
    for _ in range(2):  # a draft leaves nothing behind
        tree = drafter.propose(state, Budget(3, 10))
        for node in range(-1, len(tree)):
            path = [tree.tokens[i] for i in tree.path(node)]
            if len(path) < 3:
                want = said(path).topk(len(tree.children(node))).indices.tolist()
                assert [tree.tokens[i] for i in tree.children(node)] == want
    kind, told = state.notes[-1]
    assert kind == "trigram" and [row["tokens"] for row in told["rows"]][:2] == [
        text[-3:],
        [*text[-2:], tree.tokens[0]],
    ]


@pytest.mark.parametrize(
    "reader, kind, says",
    [
        (clover, "clover", "head.other_kind"),
        (chimera, "chimera", "head.other_kind"),
        (blockwise, "blockwise", "head.other_kind"),
    ],
)
def test_ours_come_back_and_others_are_refused(tmp_path, reader, kind, says):
    made = tiny.head(kind, BODY)
    save_file(made.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(made.config))
    again = reader.load(tmp_path, BODY).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in made.state_dict().items())
    with refuses(ModelError, "head.states", 8, 16, "other"):
        reader.load(tmp_path, TargetInfo("other", 16, VOCAB, 2))
    save_file({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    with refuses(ModelError, *says.split()):
        reader.load(tmp_path, BODY)
    save_file({"clover_norm.weight": torch.ones(8)}, tmp_path / "model.safetensors")
    if reader is clover:
        with refuses(ModelError, "head.other_kind", "Clover-2"):
            reader.load(tmp_path, BODY)
