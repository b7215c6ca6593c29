"""The whole pipeline at a tiny size, through the command line that a reader would use."""

import copy
import json
import shutil

import pytest
import torch
import yaml
from transformers import AutoTokenizer, LlamaConfig

from specviz.methods import catalogue, head_kinds
from specviz.models.pretrained import open_network
from specviz.training import answers, data, draft, report, target, text_answers
from specviz.training.__main__ import available, main
from specviz.training.files import write_tensors
from specviz.training.job import SHIPPED, TARGET, Job, TrainingError, fingerprint

from ..exactness.toys import needs_own_target
from ..message_codes import command_codes, refuses
from .conftest import SOME

DRAFT = Job().model_name("draft")


@pytest.mark.thorough
def test_everything_is_made_and_loads(whole):
    words = AutoTokenizer.from_pretrained(whole / "models" / TARGET)
    for name in (TARGET, DRAFT):
        model = open_network(whole / "models" / name, torch.float32)
        assert model.config.vocab_size == len(words)
    lines = [json.loads(line) for line in (whole / "log.jsonl").read_text().splitlines()]
    assert [
        line["recipe"] for line in lines if line["recipe"] in available()
    ] == available()  # a target's draft is logged besides
    assert all((whole / "models" / Job().model_name(kind) / "config.json").is_file() for kind in head_kinds())
    skipped = json.loads((whole / "report.json").read_text())["drafters"]["skipped"]
    assert all(needs_own_target(catalogue()[key]) for key in skipped), (
        skipped
    )  # no text target of this kind can serve those


@pytest.mark.thorough
def test_the_report_reaches_the_cards(work, tiny):
    assert tiny(work, "report") == 0
    found = json.loads((work / "report.json").read_text())
    assert set(found["target"]["held_out_loss"]) == set(data.TASKS)
    examples = yaml.safe_load(answers.EXAMPLES.read_text(encoding="utf-8"))["examples"]
    assert len(found["target"]["answers"]) == 30 + len(examples) and 0 <= found["target"]["looping"] <= 1
    assert 1 <= found["draft"]["greedy"]["mean"]["block_efficiency"] <= 5
    methods = found["drafters"]["methods"]
    assert {"speculative", "medusa", "eagle", "eagle2"} <= methods.keys()
    for row in (
        method[mode][task]
        for method in methods.values()
        for mode in ("greedy", "sampled")
        for task in data.TASKS
    ):
        assert (
            1 <= row["block_efficiency"] <= 17
            and row["speedup"] > 0
            and all(0 <= share <= 1 for share in row["by_position"])
        )
    for kind in ("medusa", "eagle"):
        card = (work / "models" / f"Llama-specviz-{kind}" / "README.md").read_text()
        assert "Built with Llama" in card and "unreliable" in card and "report: end" in card
    assert "Drafters, means" in (work / "models" / TARGET / "README.md").read_text()
    card = (work / "models" / DRAFT / "README.md").read_text()
    assert card.count("report: begin") == 1 and "Temperature 1" in card


def test_a_second_run_finds_everything_up_to_date(work, tiny):
    place = work / "models"
    before = {path: path.read_bytes() for path in place.rglob("*.safetensors")}
    lines = (work / "log.jsonl").read_text()
    for recipe in SOME:
        assert tiny(work, recipe) == 0
    assert {path: path.read_bytes() for path in place.rglob("*.safetensors")} == before
    assert (work / "log.jsonl").read_text() == lines


@pytest.mark.thorough
def test_shipping_keeps_better_weights_and_a_draft_follows_the_shipped_target(work, tmp_path):
    job = Job(
        work=work, shipped=tmp_path, ship=True, size="tiny", steps=25, quiet=True, device="cpu", speed=False
    )
    target.run(job)  # nothing was shipped yet
    shipped = fingerprint(tmp_path / TARGET)
    assert shipped == fingerprint(work / "models" / TARGET)
    with refuses(TrainingError, "training.not_better", "story"):
        target.run(job)  # equal weights do not win
    draft.run(job)
    report.run(job)
    assert "report: begin" in (tmp_path / DRAFT / "README.md").read_text()
    shutil.copyfile(
        next((SHIPPED / TARGET).glob("model-00001*.safetensors")), tmp_path / TARGET / "extra.safetensors"
    )
    with refuses(TrainingError, "training.not_shipped"):
        draft.run(job)


def test_other_shapes_of_draft_go_into_folders_of_their_own(work):
    before = (work / "models" / DRAFT / "model.safetensors").read_bytes()
    place = draft.run(Job(work=work, size="small", steps=1, quiet=True, device="cpu"))
    assert place.name == "Llama-specviz-draft-small" and (place / "config.json").is_file()
    card = (place / "README.md").read_text(encoding="utf-8")
    assert (
        "Built with Llama" in card
        and "unreliable" in card
        and "hidden 64, 1 layer," in card
        and "greedy" in card
    )
    assert (work / "models" / DRAFT / "model.safetensors").read_bytes() == before


def test_the_wide_draft_and_the_deep_one_are_equally_large():
    whole = LlamaConfig.from_pretrained(SHIPPED / TARGET)
    size = {}
    for shape in ("default", "wide", "deep", "small"):
        with torch.device("meta"):
            size[shape] = sum(
                weight.numel() for weight in draft.build(whole, Job(size=shape).hparams("draft")).parameters()
            )
    assert abs(size["wide"] / size["deep"] - 1) < 0.01
    assert size["small"] < 0.5 * size["default"]


def test_a_lost_shard_is_made_again_the_same(work, tiny):
    root = work / "generations" / fingerprint(work / "models" / TARGET)
    shard = sorted((root / "train").glob("*.safetensors"))[0]
    before = shard.read_bytes()
    shard.unlink()
    assert tiny(work, "generate") == 0 and shard.read_bytes() == before


@pytest.fixture(scope="module")
def pair(work):
    path = work / "models" / TARGET
    return open_network(path, torch.float32), AutoTokenizer.from_pretrained(path)


@pytest.mark.parametrize("together, grouped", ((32, False), (2, False), (32, True)))
def test_batched_greedy_answers_are_the_models_own(pair, monkeypatch, together, grouped):
    """However many prompts are read in one pass, each padded to the longest of its own, and whoever
    attends."""
    monkeypatch.setattr(text_answers, "PREFILL", together)
    model, words = pair
    writer = model
    if grouped:
        assert model.config.num_attention_heads > model.config.num_key_value_heads
        writer = copy.deepcopy(model)
        text_answers.attend_by_groups(writer)
    hparams = Job(size="tiny").hparams("generate")
    texts = [
        "Hello",
        "What is 3 + 4?",
        "Copy this text:\nThe key was lighter than it looked.",
        "Bye",
        "x" * 40,
    ]
    batch = [(data.chat_prompt(words, text), "chat", 0.0) for text in texts]
    for made, (prompt, _, _) in zip(
        text_answers.AnswerGenerator(writer, words, hparams, Job()).decode(batch), batch
    ):
        ids = list(prompt)
        for j, token in enumerate(made.ids[made.start :].tolist()):
            with torch.inference_mode():
                logp = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            assert int(logp.argmax()) == token
            assert torch.allclose(made.top_logp[j].float(), logp[made.top_ids[j].long()], atol=2e-2)
            ids.append(token)
        assert token == words.eos_token_id or len(made.top_ids) == hparams["new_tokens"]


def test_reading_gives_the_distribution_along_the_given_answer(pair):
    model, words = pair
    hparams = Job(size="tiny").hparams("generate")
    rows = [data.Row("chat", "s", "Hello", "Hi there"), data.Row("math", "s", "1 + 1", "2")]
    made = text_answers.AnswerGenerator(model, words, hparams, Job()).answers([(row, None) for row in rows])
    for a in made:
        with torch.inference_mode():
            logp = model(a.ids[None]).logits[0, a.start - 1 : -1].log_softmax(-1)
        assert torch.allclose(a.top_logp.float(), logp.gather(1, a.top_ids.long()), atol=2e-2)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
@pytest.mark.parametrize("top", [1, 2, 6])
def test_sampling_follows_the_distribution(temperature, top):
    """Over the leaders first, beyond them exactly: the frequencies are those of the whole vocabulary."""
    torch.manual_seed(0)
    logits = torch.tensor([0.5, 0.2, 0.0, 0.3, 0.1, 0.05]).log()
    want = (logits / temperature).softmax(-1)
    tokens, leaders, logp = text_answers.sample(
        logits.expand(40000, 6), torch.full((40000,), temperature), top
    )
    drawn = tokens.bincount(minlength=6) / 40000
    assert torch.allclose(drawn, want, atol=0.012) and drawn[2] == 0
    assert torch.allclose(logp[0], logits.log_softmax(-1)[leaders[0]]), "labels are of temperature 1"


def test_temperatures_of_one_batch_do_not_mix():
    torch.manual_seed(0)
    logits = torch.randn(5, 300)
    tokens, _, _ = text_answers.sample(logits, torch.tensor([0.0, 0.7, 0.0, 1.0, 0.0]), 32)
    assert tokens[[0, 2, 4]].tolist() == logits.argmax(-1)[[0, 2, 4]].tolist()


def test_a_large_vocabulary_survives_a_shard(tmp_path):
    """Ids above 32,767 and each answer's temperature are read back as written; shards of earlier versions
    are read, too."""
    answers = [
        text_answers.Answer(
            torch.tensor([1, 40_000, 128_255]),
            1,
            "chat",
            temperature,
            torch.tensor([[49_151, 2], [3, 4]]).int(),
            torch.zeros(2, 2).half(),
        )
        for temperature in (0.0, 0.7, 1.0)
    ]
    flat = text_answers.pack(answers)
    write_tensors(tmp_path / "shard-00000.safetensors", flat)
    found = text_answers.read(tmp_path)
    assert [a.temperature for a in found] == [0.0, 0.7, 1.0] and found[1].ids.tolist() == [1, 40_000, 128_255]
    assert found[2].top_ids[0].tolist() == [49_151, 2] and [a.greedy for a in found] == [True, False, False]
    del flat["temperature"]
    write_tensors(
        tmp_path / "shard-00000.safetensors", flat | {"greedy": torch.tensor([1, 0, 0], dtype=torch.uint8)}
    )
    assert [a.temperature for a in text_answers.read(tmp_path)] == [0.0, 1.0, 1.0]


def test_batches_depend_on_seed_and_step_alone(pair):
    _, words = pair
    job = Job(size="tiny")
    hparams = job.hparams("target")
    pools = target.rows_by_task(job, hparams)
    one, two = (target.Batches(pools, words, hparams, 0, "cpu") for _ in range(2))
    two.make(4)
    for a, b in zip(one.make(9), two.make(9)):
        assert torch.equal(a, b)
    ids, where, labels = one.make(3)
    assert torch.equal(ids.flatten()[where + 1], labels)


def test_only_answers_carry_loss(pair):
    _, words = pair
    job = Job(size="tiny")
    hparams = job.hparams("target") | {"copy_share": 0.0, "length": 64}
    batches = target.Batches(target.rows_by_task(job, hparams), words, hparams, 0, "cpu")
    ids, where, _ = batches.make(0)
    user = words.convert_tokens_to_ids("<|user|>")
    counted = set((where + 1).tolist())
    assert counted and not any(
        i in counted for i, token in enumerate(ids.flatten().tolist()) if token == user
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate", "--data", "nowhere"], "There is no data folder"),
        (["report", "--size", "huge"], "has no size 'huge'"),
    ],
)
def test_bad_input_is_one_sentence(work, capsys, arguments, sentence):
    assert main([*arguments, "--work", str(work), "--quiet"]) == 1
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_a_draft_without_generations_and_with_a_damaged_shard(tmp_path, capsys):
    assert main(["draft", "--work", str(tmp_path), "--quiet"]) == 1
    assert "generate.missing" in command_codes(capsys.readouterr().err)
    place = tmp_path / "generations" / fingerprint(SHIPPED / TARGET) / "train"
    place.mkdir(parents=True)
    (place / "shard-00000.safetensors").write_bytes(b"\x10\0\0\0")
    assert main(["draft", "--work", str(tmp_path), "--quiet"]) == 1
    assert "generate.damaged" in command_codes(capsys.readouterr().err)


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf", "abc"])
def test_a_budget_that_is_none(minutes):
    with pytest.raises(SystemExit):
        main(["draft", "--minutes", minutes])
