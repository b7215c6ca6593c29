"""models.yaml as it is shipped, entries that are wrong, and what does not fit."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from specviz import ROOT, load, zoo
from specviz.checkpoints import sizes
from specviz.checkpoints.quantised import quantised
from specviz.checkpoints.weights import ModelError
from specviz.cli.commands import main
from specviz.core import Sampling
from specviz.evidence.doctor import missing_targets
from specviz.indexes.store import vocabulary_mark
from specviz.methods import catalogue
from specviz.run import Session
from specviz.trace.events import Finished
from specviz.training.datastore import build_store, save
from specviz.zoo import ZooError, forget, survey
from specviz.zoo import free_memory as memory
from specviz.zoo.entry_checks import PROBLEMS, check, estimated_parameters
from specviz.zoo.registry import Entry, Register, register
from specviz.zoo.tokenizer import open_tokenizer

from ..message_codes import codes, refuses
from .checkpoints import register as make_register
from .checkpoints import write

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GOOD = f"hub: org/name, revision: {COMMIT}, licence: MIT, about: A model., memory: 2"


def test_what_is_shipped_holds():
    book = register(ROOT / "models.yaml")
    ours = [entry for entry in book.entries.values() if entry.role == "target" and entry.path]
    assert len(ours) > 1 and all(entry.nature and entry.languages == "English" for entry in ours)
    rows = check(book)
    assert len(rows) > 25 and [row for row in rows if row["problems"]] == []


@pytest.fixture
def book(tmp_path):
    """A function: entries of models.yaml -> their problems by name."""
    write(tmp_path / "target", tokenizer=False)

    def problems(**entries):
        lines = ["default: first", "backends: {fast: [llama], hf: ['*']}", "models:"]
        lines += [f"  {name}: {{{text}}}" for name, text in {"first": GOOD, **entries}.items()]
        (tmp_path / "models.yaml").write_text("\n".join(lines) + "\n")
        return {row["name"]: "; ".join(row["problems"]) for row in check(register(tmp_path / "models.yaml"))}

    return problems


@pytest.mark.parametrize(
    "entry, says",
    [
        (GOOD, ""),
        (GOOD.replace(", licence: MIT", ""), "licence"),
        (GOOD.replace(", memory: 2", ""), "memory"),
        (GOOD + ", draft: first", "draft_size"),
        ("path: nowhere, licence: MIT, about: A model.", "config.json"),
        ("path: target, licence: MIT, about: A model., memory: 5", "size"),
        ("path: target, licence: MIT, about: A model.", ""),
    ],
)
def test_an_entry_is_held_against_what_it_says(book, entry, says):
    found = book(second=entry)
    assert found["first"] == "" and (
        says in codes(found["second"], PROBLEMS) or says in found["second"] if says else found["second"] == ""
    )


def test_a_draft_of_another_vocabulary_is_found_without_network(book, tmp_path):
    write(tmp_path / "other", vocab=310, tokenizer=False)
    plain = "licence: MIT, about: A model."
    found = book(second=f"path: target, draft: third, {plain}", third=f"path: other, role: draft, {plain}")
    assert PROBLEMS["draft_vocabulary"].format(draft="third", width=310, vocab=300) in found["second"]


def test_the_command_tells_problems_and_its_status(tmp_path, monkeypatch, capsys):
    (tmp_path / "models.yaml").write_text(
        f"default: a\nbackends: {{hf: ['*']}}\nmodels:\n  a: {{hub: o/n, revision: {COMMIT}}}\n"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    assert main(["models", "--check"]) == 1
    assert f"a: {PROBLEMS['licence']}" in capsys.readouterr().out
    assert main(["models", "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "a"


def test_where_a_models_weights_are(tmp_path, monkeypatch, capsys):
    write(tmp_path / "target", tokenizer=False)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.json").write_text("{}")
    lines = ["default: here", "backends: {fast: [llama], hf: ['*']}", "models:"]
    plain = "licence: MIT, about: A model."
    for name, where in (
        ("here", "path: target"),
        ("package", "path: small, package: some==1.0"),
        ("absent", "path: nowhere"),
        ("hub", f"hub: org/name, revision: {COMMIT}, memory: 2"),
    ):
        lines.append(f"  {name}: {{{where}, {plain}}}")
    (tmp_path / "models.yaml").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    places = {name: entry.availability() for name, entry in register().entries.items()}
    assert places == {"here": "here", "package": "fetch", "absent": "repository", "hub": "fetch"}
    assert missing_targets() == {"to_fetch": ["package", "hub"], "in_repository": ["absent"]}
    assert main(["models", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= 150 and shown[0].split()[:3] == ["name", "role", "here"]
    assert [line.split()[2] for line in shown[2:6]] == ["yes", "fetch", "repository", "fetch"]
    # What a package leaves out is no mistake of its models.yaml.
    monkeypatch.setattr("specviz.zoo.entry_checks.INSTALLED", tmp_path)
    problems = {row["name"]: row["problems"] for row in check(register())}
    assert problems["absent"] == problems["here"] == [] and main(["models", "--check"]) == 1  # package: {}
    (tmp_path / "small" / "config.json").unlink()
    (tmp_path / "small").rmdir()
    assert main(["models", "--check"]) == 0


def test_a_hub_that_does_not_answer_is_asked_once(book, monkeypatch):
    asked = []

    class Session:
        def head(self, url, timeout):
            asked.append((url, timeout))
            raise OSError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.utils.get_session", Session)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: pytest.fail("it was asked again"))
    more = Register(
        {
            name: Entry(name, hub=f"o/{name}", revision=COMMIT, licence="MIT", about="A.", memory="1")
            for name in "abc"
        }
    )
    rows = check(more, network=True)
    assert [len(row["problems"]) for row in rows] == [1, 0, 0] and len(asked) == 1 and asked[0][1] <= 10
    with refuses(ZooError, "hub.unreachable"):
        Entry("a", hub="o/a", revision=COMMIT).folder()


def test_what_does_not_fit_is_refused_before_a_byte_is_fetched(tmp_path, monkeypatch, capsys):
    (tmp_path / "models.yaml").write_text(
        f"default: a\nbackends: {{hf: ['*']}}\nmodels:\n  a: {{{GOOD.replace('memory: 2', 'memory: 9000')}}}\n"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    monkeypatch.setattr("specviz.zoo.registry._fetched", lambda entry: pytest.fail("it was fetched"))
    with refuses(ZooError, "checkpoint.memory", 19800.0):
        zoo.load(device="cpu")
    assert main(["models", "--fetch", "a", "--device", "cpu"]) == 1
    assert "19800.0" in capsys.readouterr().err.replace(",", "")


def test_memory_follows_the_numbers_of_the_device(monkeypatch):
    entry = Entry("a", memory="10")
    assert (
        memory.needed_bytes(entry, torch.device("cpu"))
        == 2 * memory.needed_bytes(entry, torch.device("cuda"))
        == pytest.approx(22e9)
    )
    assert memory.needed_bytes(
        Entry("a", memory="10", quantise="bnb-4bit"), torch.device("cuda")
    ) == pytest.approx(2.75e9)
    monkeypatch.setattr(memory, "free_bytes", lambda device, every=False: 22e9 if every else 11e9)
    assert memory.too_large_reason(entry, torch.device("cpu"))
    assert memory.too_large_reason(Entry("a", memory="10", device_map="auto"), torch.device("cpu")) is None
    assert memory.too_large_reason(Entry("a"), torch.device("cpu")) is None


def test_fewer_bits_without_the_package_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("specviz.checkpoints.quantised.find_spec", lambda name: None)
    for kind, package in (("bnb-4bit", "bitsandbytes"), ("ao-int8", "torchao")):
        with refuses(ModelError, "checkpoint.quantised", f"pip install {package}"):
            quantised("a", kind)
    assert quantised("a", "") == {}
    write(tmp_path / "target")
    (tmp_path / "models.yaml").write_text(
        "default: a\nbackends: {fast: [llama], hf: ['*']}\nmodels:\n  a: {path: target, quantise: bnb-8bit}\n"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    with refuses(ZooError, "checkpoint.quantised", "bitsandbytes"):
        zoo.load(device="cpu")


def test_an_entry_that_is_spread_runs_through_transformers_and_writes_the_same(tmp_path, monkeypatch):
    write(tmp_path / "target")
    (tmp_path / "models.yaml").write_text(
        "default: a\nbackends: {fast: [llama], hf: ['*']}\nmodels:\n  a: {path: target, device_map: auto}\n"
        "  b: {path: target}\n"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    try:
        spread, whole = zoo.load("a", device="cpu"), zoo.load("b", device="cpu")
        assert spread.facts["target"]["backend"] == "hf, auto" and whole.facts["target"]["backend"] == "fast"
        logits = []
        for loaded in (spread, whole):
            target = loaded.open_target()
            logits.append(target.sync([5, 6, 7, 8]).logits)
        assert (logits[0] - logits[1]).abs().max() < 1e-4
    finally:
        zoo.forget()


def test_a_configuration_adds_up():
    llama = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
    }
    assert estimated_parameters(llama) == pytest.approx(8.03e9, rel=0.001)
    assert estimated_parameters({"n_embd": 768}) is None


@pytest.mark.hub
def test_the_hub_agrees_with_what_is_shipped():
    rows = check(register(ROOT / "models.yaml"), network=True)
    wrong = [
        row for row in rows if row["problems"] and not any("gated" in problem for problem in row["problems"])
    ]
    assert wrong == []


def test_a_spread_model_may_take_every_card_and_the_processor(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [str(d) for d in sizes.weight_devices(True)] == ["cpu", "cuda:0", "cuda:1"]
    assert [str(d) for d in sizes.weight_devices(False)] == ["cpu"]
    monkeypatch.setattr(sizes, "free_bytes", lambda device: 100 if device.type == "cpu" else 40)
    sizes.check_memory("a", 180, *sizes.weight_devices(True))
    with refuses(ModelError, "checkpoint.memory"):
        sizes.check_memory("a", 181, *sizes.weight_devices(True))
    assert (
        memory.free_bytes(torch.device("cuda"), all_gpus=True) == 80
        and memory.free_bytes(torch.device("cpu")) == 100
    )


def test_a_datastore_of_another_tokenizer_is_not_offered(tmp_path, monkeypatch):
    write(tmp_path / "target")
    tokenizer = open_tokenizer(tmp_path / "target")
    (tmp_path / "models.yaml").write_text(
        "default: t\nbackends: {fast: [llama]}\nmodels:\n  t: {path: target}\nstores: {text: store}\n"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    for mark, fits in (("0" * 16, False), (vocabulary_mark(tokenizer), True)):
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        save(
            build_store("text", [tokenizer.encode("the cat sat on the mat")] * 3, mark=mark),
            tmp_path / "store",
        )
        for key in ("rest", "sam_store"):
            method = catalogue()[key]
            assert (load().unsupported_reason(method) is None) == (survey()(method) is None) == fits, key
    forget()


def test_reserved_tokens_may_differ_between_target_and_draft_and_others_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_MODELS", str(make_register(tmp_path)))
    for token, allowed in (("<|user|>", True), ("a", False)):
        folder = write(tmp_path / token.strip("<|>"), layers=1, seed=3)
        text = json.loads((folder / "tokenizer.json").read_text())
        for added in text["added_tokens"]:
            added["content"] = "<|other|>" if added["content"] == token else added["content"]
        vocab = text["model"]["vocab"]
        vocab["<|other|>" if allowed else "\u0100\u0100\u0100"] = vocab.pop(token)
        text["model"]["merges"] = [] if not allowed else text["model"]["merges"]
        (folder / "tokenizer.json").write_text(json.dumps(text))
        if allowed:
            assert load("tiny", str(folder)).draft is not None
        else:
            with refuses(ZooError, "draft.vocabulary", "'a'"):
                load("tiny", str(folder))
    forget()


def _torn(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:200])


def _other_words(folder):
    text = json.loads((folder / "tokenizer.json").read_text())
    vocab = text["model"]["vocab"]
    vocab["\u0100\u0100\u0100"], text["model"]["merges"] = vocab.pop("a"), []
    (folder / "tokenizer.json").write_text(json.dumps(text))


SPOILED = {
    "fine": None,
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "torn weights": _torn,
    "another tokenizer": _other_words,
    "no model": lambda folder: (folder / "config.json").write_text('{"model_type": "nonsense"}'),
    "a broken tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{}"),
}
ROLES = {
    "draft": "speculative",
    "wide": "specinfer",
    "deep": "easyspec",
    "kind": "distillspec",
    "small": "staged_models",
    "other": "tli",
}


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=pytest.mark.thorough if i % 3 else []) for i, how in enumerate(SPOILED)]
)
@pytest.mark.parametrize("role", ROLES)
def test_what_is_offered_runs_and_nothing_is_offered_that_would_fail(tmp_path, monkeypatch, role, how):
    """A model of every role, right and spoiled in ways that its use would meet: the picker's survey and the
    loaded models agree, and the method runs, or is not offered (a knob that needs further models is
    limited)."""
    for name, layers, seed in (("target", 2, 0), ("draft", 1, 3), ("more", 1, 5)):
        write(
            tmp_path / name, layers=layers, seed=seed, vocab=310 if (name, role) == ("more", "other") else 300
        )
    spoil, at = SPOILED[how], tmp_path / ("draft" if role == "draft" else "more")
    if spoil:
        spoil(at)
    entry = {
        "draft": "",
        "wide": "  d-wide: {path: more, role: draft}\n",
        "deep": "  d-deep: {path: more, role: draft}\n",
        "kind": "  k: {path: more, role: draft, for: t, kind: distillspec}\n",
        "small": "  m: {path: more, role: draft}\n",
        "other": "  o: {path: more, role: other_draft, for: t}\n",
    }[role]
    small = ", draft: m" if role == "small" else ""
    (tmp_path / "models.yaml").write_text(
        "default: t\nbackends: {fast: [llama], hf: ['*']}\nmodels:\n  t: {path: target, draft: d}\n"
        f"  d: {{path: draft, role: draft{small}}}\n{entry}"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    method = catalogue()[ROLES[role]]
    try:
        before, loaded = survey(), load()
        offered = loaded.unsupported_reason(method) is None
        assert offered == (before(method) is None)
        assert before.knob_limits(method) == loaded.knob_limits(method)
        if how == "another tokenizer":
            assert offered == (role in ("wide", "deep", "other"))
        elif role in ("draft", "kind", "small", "other"):
            assert offered == (spoil is None)
        if offered:
            most = {
                knob.name: knob.value_at(loaded.knob_limits(method).get(knob.name, knob.top))
                for knob in method.knobs
                if knob.needs
            }
            events = list(Session(loaded, method, most, Sampling(0.0)).run("tell me", 6))
            assert isinstance(events[-1], Finished) and not events[-1].totals.get("draft_stopped")
    finally:
        forget()


def test_a_target_whose_tokenizer_cannot_be_read_offers_nothing(tmp_path, monkeypatch):
    write(tmp_path / "target")
    (tmp_path / "target" / "tokenizer.json").write_text("{}")
    (tmp_path / "models.yaml").write_text(
        "default: t\nbackends: {fast: [llama]}\nmodels:\n  t: {path: target}\n"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    try:
        for method in (catalogue()["autoregressive"], catalogue()["prompt_lookup"]):
            assert load().unsupported_reason(method) and survey()(method)
    finally:
        forget()
