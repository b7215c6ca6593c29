"""The recipes on a target of a few thousand weights: resumption, what the replay promises and the engine
keeps, files, refusals."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.drafters.heads.features import FeatureDrafter
from specviz.drafters.model.chain import DraftChain
from specviz.methods.trained_heads.eagle import eagle_recipe as eagle
from specviz.methods.trained_heads.kangaroo import kangaroo_network as kangaroo_models
from specviz.methods.trained_heads.kangaroo import kangaroo_recipe as kangaroo
from specviz.methods.trained_heads.kangaroo.kangaroo_drafter import ExitAdapter
from specviz.models import eagle as eagle_models
from specviz.models.pretrained import open_network
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import attention, chains
from specviz.training import text_answers as generate
from specviz.training.draft import collate
from specviz.training.features import Features
from specviz.training.files import write_tensors
from specviz.training.job import TARGET, Job, TrainingError, fingerprint
from specviz.training.text_answers import Answer, AnswerGenerator
from specviz.verifiers import TokenRejection

from ..message_codes import refuses
from ..models.tiny import body
from ..targets.tiny import network

RECIPES = {"eagle": (eagle, eagle_models), "kangaroo": (kangaroo, kangaroo_models)}
STEPS, START = 30, 9


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def answers(net, count, seed):
    """The net's own text: half greedy and with nothing but the greedy choice's word for it, half drawn."""
    torch.manual_seed(seed)
    texts = []
    for i in range(count):
        ids = torch.randint(0, 48, (START,)).tolist()
        while len(ids) < START + 20:
            logits = net(torch.tensor([ids])).logits[0, -1]
            ids.append(int(logits.argmax() if i % 2 == 0 else torch.multinomial(logits.softmax(-1), 1)))
        texts.append(ids)
    read = AnswerGenerator(net, None, Job(size="tiny").hparams("generate") | {"new_tokens": 20}, Job()).read(
        [(ids, START, "chat", None) for ids in texts]
    )
    return [Answer(a.ids, a.start, a.task, float(i % 2), a.top_ids, a.top_logp) for i, a in enumerate(read)]


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    return written(tmp_path_factory.mktemp("work"))


def written(work):
    """A work folder with a tiny target and its generations."""
    net = network(
        LlamaConfig(
            vocab_size=48,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=96,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        ),
        seed=2,
    )
    net.get_input_embeddings().weight.data.mul_(0.3)
    net.save_pretrained(work / "models" / TARGET)
    with torch.inference_mode():
        for split, count in (("train", 12), ("heldout", 4)):
            place = work / "generations" / fingerprint(work / "models" / TARGET) / split
            write_tensors(place / "shard-00000.safetensors", generate.pack(answers(net, count, len(split))))
    return work


def job(material, place, **more):
    """A job of its own place that reads the common material."""
    place.mkdir(exist_ok=True)
    for name in ("generations", "models"):
        if not (place / name).exists():
            (place / name).mkdir()
            for path in (material / name).iterdir():
                (place / name / path.name).symlink_to(path)
    return Job(work=place, device="cpu", size="tiny", quiet=True, **{"steps": STEPS, **more})


@pytest.fixture(scope="module")
def trained(material, tmp_path_factory):
    place = tmp_path_factory.mktemp("trained")
    for recipe, _ in RECIPES.values():
        recipe.run(job(material, place))
    return place


def history(place, kind):
    from safetensors import safe_open

    path = next((place / kind).glob("*/checkpoint.safetensors"))
    with safe_open(path, "pt") as file:
        return [line[3] for line in json.loads(file.metadata()["progress"])["history"]]


@pytest.mark.parametrize("kind", RECIPES)
def test_it_learns_and_a_killed_run_resumes_to_the_same_loss(material, trained, tmp_path, monkeypatch, kind):
    recipe, _ = RECIPES[kind]
    whole = history(trained, kind)
    assert len(whole) == STEPS and sum(whole[-3:]) < sum(whole[:3])
    inner = Features.batch

    def killed(self, step, done):
        if step >= 11:
            raise KeyboardInterrupt
        return inner(self, step, done)

    with monkeypatch.context() as patch:
        patch.setattr(Features, "batch", killed)
        with pytest.raises(KeyboardInterrupt):
            recipe.run(job(material, tmp_path / "again"))
    assert len(history(tmp_path / "again", kind)) == 11
    made = recipe.run(job(material, tmp_path / "again"))
    assert history(tmp_path / "again", kind) == whole
    a, b = (
        load_file(place / "models" / f"Llama-specviz-{kind}" / "model.safetensors")
        for place in (trained, made.parent.parent)
    )
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("kind", RECIPES)
def test_what_is_written_loads_and_says_what_it_is(trained, kind):
    recipe, reader = RECIPES[kind]
    place = trained / "models" / f"Llama-specviz-{kind}"
    model = FastModel(trained / "models" / TARGET)
    head = reader.load(place, body(model.open()))
    assert all(bool(torch.isfinite(w).all()) for w in head.parameters())
    card = (place / "README.md").read_text()
    assert (
        "Built with Llama" in card
        and "facts are unreliable" in card
        and f"training {kind}" in card
        and "{" not in card
    )
    assert (place / "loss.svg").is_file() and load_file(place / "model.safetensors").popitem()[
        1
    ].dtype == torch.bfloat16


@pytest.mark.parametrize("kind", RECIPES)
def test_the_replay_says_what_the_engine_does(material, trained, tmp_path, kind):
    """Tokens a round of greedy chains, counted on the text and on the engine."""
    recipe, reader = RECIPES[kind]
    gamma, work = 3, job(material, tmp_path / "replay")
    model = FastModel(trained / "models" / TARGET)
    head = reader.load(trained / "models" / f"Llama-specviz-{kind}", body(model.open()))
    features = Features(work, work.hparams(kind), layer=getattr(head, "exit", None))
    features.target = open_network(trained / "models" / TARGET, torch.float32)
    features.head, features.embedding = (
        features.target.lm_head.weight,
        features.target.get_input_embeddings().weight,
    )
    chosen = [a for a in features.own.answers if a.greedy]  # what it has seen, so that something is accepted
    guesses = recipe.chain_states_function(head, features)
    expected_length = chains.replay_rounds(
        [chains.accepted_by_step(guesses, features, a, gamma, 0) for a in chosen], gamma
    )
    rounds = committed = accepted = 0
    for answer in chosen:
        target = model.open()
        drafter = FeatureDrafter(head, DraftChain) if kind == "eagle" else ExitAdapter(head)
        parts = Parts(drafter, Fixed(gamma), TokenRejection())
        state = State(answer.ids[:START].tolist(), Sampling(0.0), limit=len(answer.ids) - START)
        open_run(parts, target, state)
        while not state.done:
            outcome = play(parts, target, state)
            rounds, committed = rounds + 1, committed + len(outcome.committed)
            accepted += len(outcome.verdict.path)
        assert state.tokens == answer.ids.tolist()
    assert accepted > 0 and expected_length["block_efficiency"] == round(committed / rounds, 4)


def test_figures_walk_rounds():
    yes, no = [True] * 6, [False] * 6
    assert chains.replay_rounds([[yes, yes]], 2) == {
        "block_efficiency": 3.0,
        "acceptance_rate": 1.0,
        "by_position": [1.0, 1.0],
    }
    assert chains.replay_rounds([[no, yes]], 2) == {
        "block_efficiency": 1.0,
        "acceptance_rate": 0.0,
        "by_position": [0.0, 0.0],
    }
    assert (
        chains.replay_rounds([[yes, no]], 2)["by_position"] == [1.0, 0.0]
        and chains.replay_rounds([[yes, no]], 2)["block_efficiency"] == 2.0
    )


def test_refusals(material, tmp_path, monkeypatch):
    one = job(material, tmp_path / "one")
    hparams = Job.hparams
    for told, sentence in ((3, "training.exit_layer 1 2"), (0, "training.exit_layer 1 2")):
        monkeypatch.setattr(
            Job, "hparams", lambda self, recipe, told=told: hparams(self, recipe) | {"exit_layer": told}
        )
        with refuses(TrainingError, *sentence.split()):
            kangaroo.run(one)
    monkeypatch.setattr(
        Job, "hparams", lambda self, recipe: hparams(self, recipe) | {"intermediate": 120_000, "rollout": 1}
    )
    with refuses(TrainingError, "training.size_limit", 9.5):
        eagle.run(job(material, tmp_path / "large", steps=1))


HOT = {
    "eagle": 0.5,
    "kangaroo": 2.0,
}  # rates at which the scores run away within a few dozen steps, as they do in an hour at a common one


@pytest.mark.parametrize("kind", RECIPES)
def test_attention_stays_awake_and_the_drafts_depend_on_the_context(material, tmp_path, monkeypatch, kind):
    """Without the limit every row looks at one place alone in the end: what stands elsewhere in the text
    counts for nothing."""
    recipe, reader = RECIPES[kind]
    hparams = Job.hparams
    awake = {}
    moved = {}
    for limit in (12, 1e9):
        monkeypatch.setattr(
            Job,
            "hparams",
            lambda self, name, limit=limit: (
                hparams(self, name) | {"muon_lr": HOT[kind], "score_limit": limit, "measure_rows": 2}
            ),
        )
        one = job(material, tmp_path / f"{limit}", steps=25)
        place = recipe.run(one)
        features = Features(one, one.hparams(kind), layer=1)
        head = reader.load(place, features.target_info).float()
        batch = features.states(collate(list(features.own.answers[:1]), 64, features.device))
        order = torch.arange(batch.ids.shape[1])
        order[:-6] = torch.randperm(len(order) - 6, generator=torch.Generator().manual_seed(0))
        part = attention.rows_of(head, partial(recipe.chain_states_function(head, features), batch, 1))[0]
        whole, other = (
            part[0](part[1][:, rows].float(), part[2], None, None)[0][0, -1]
            for rows in (torch.arange(len(order)), order)
        )
        moved[limit] = float((whole - other).norm() / whole.norm())
        awake[limit] = attention.entropy(
            head, partial(recipe.chain_states_function(head, features), batch, 1)
        )
        told = chains.measure(recipe.chain_states_function(head, features), features, one.hparams(kind), head)
        assert (told["attention_entropy"] > 0.2) == (limit == 12)
    assert awake[12] > 0.3 > 0.15 > awake[1e9] and moved[12] > 0.02


def test_an_accelerator_computes_states_again_instead_of_storing_them(tmp_path):
    features = Features.__new__(Features)
    features.root = tmp_path
    features.answers = []
    features.head = torch.zeros(5, 4)
    for kind, stored in (("cpu", True), ("meta", False)):
        features.device = torch.device(kind)
        assert (features.cache("states", 3) is not None) == stored
