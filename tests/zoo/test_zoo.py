"""Models by name, folder and commit; weights shared; every way a model can be unusable said in one
sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz import ROOT as HERE
from specviz import load, zoo
from specviz.core import DraftTree, threads
from specviz.core.needs import missing_reason
from specviz.methods import catalogue, head_kinds, trained_parts
from specviz.run.result import collect
from specviz.run.session import Session
from specviz.training.job import Job
from specviz.training.recipes import sections
from specviz.zoo import ZooError, registry, survey, weight_cache
from specviz.zoo.device import physical_cores, read_device, use_cores
from specviz.zoo.found_weights import mark
from specviz.zoo.registry import register
from specviz.zoo.requirements import unsupported_reason
from specviz.zoo.tokenizer import end_tokens

from ..message_codes import refuses
from ..run.fakes import byte_level
from .checkpoints import write


def refused(match, *args, **options):
    """match: the identifier, or some of them, and after a colon what the sentence must hold."""
    codes, _, part = match.partition(": ")
    with pytest.raises(ZooError) as error:
        load(*args, **options)
    message = str(error.value)
    assert error.value.code in codes.split("|") and part in message, f"{error.value.code}: {message}"
    assert "\n" not in message and message.endswith(".") and "Traceback" not in message


def test_the_default_pair_runs_every_method_it_says_it_can(at_home):
    loaded = load()
    assert (loaded.name, loaded.draft_name, loaded.vocab, loaded.context) == ("tiny", "tiny-draft", 300, 256)
    can = [m for m in catalogue().values() if not loaded.unsupported_reason(m)]
    assert {"autoregressive", "speculative", "draft_tree", "prompt_lookup"} <= {m.key for m in can}
    plain = collect(Session(loaded, "autoregressive").run("the cat", 12))
    for key in ("speculative", "draft_tree"):
        assert collect(Session(loaded, key).run("the cat", 12)).token_ids == plain.token_ids
    assert loaded.facts["target"] | {"parameters": 0} == {
        "name": "tiny",
        "layers": 2,
        "hidden": 32,
        "vocab": 300,
        "parameters": 0,
        "nature": "",
        "backend": "fast",
        "forward": "eager",
    }
    assert loaded.facts["target"]["parameters"] > loaded.facts["draft"]["parameters"] > 0
    assert {"machine", "device", "dtype", "threads", "torch", "transformers"} <= loaded.facts["env"].keys()


def test_weights_are_shared_and_caches_are_not(at_home):
    first, second = load(), load("tiny", "tiny-draft", "cpu")
    assert first.model is second.model and first.draft is second.draft
    kit = first.kit()
    draft = kit.open("draft")
    assert kit.opened == [kit.target, draft] and kit.target is not first.open_target()


def test_end_tokens_come_from_the_generation_config_and_the_tokenizer(at_home, tmp_path):
    assert load().end_tokens == {2, 299}
    folder = write(tmp_path / "m")
    (folder / "generation_config.json").unlink()
    assert end_tokens(folder, load().tokenizer) == {2}


def test_a_folder_will_do_and_has_no_draft_unless_named(at_home):
    loaded = load(str(at_home / "target"))
    assert loaded.draft is None and missing_reason("draft", "target") in loaded.unsupported_reason(
        catalogue()["speculative"]
    )
    assert (
        load(str(at_home / "target"), str(at_home / "draft")).unsupported_reason(catalogue()["speculative"])
        is None
    )
    assert load(draft="none").draft is None


def test_names_that_are_no_models(at_home):
    for name in ("nope", "", "x" * 5000, "a/b/c", "https://example.org/m"):
        refused("model.unknown: tiny, tiny-draft, missing", name)
    for path in ("../../x", "/etc/passwd"):
        refused("model.no_file|model.missing|model.unknown", path)
    refused("model.unknown: 'nope'", None, "nope")
    refused("model.unpinned: org/x", "org/x")
    refused("model.unpinned: org/x", "org/x@main")
    refused(
        "model.unknown", str(at_home / "target"), named_only=True
    )  # a visitor of the page gets names only
    refused("model.unknown", "org/x@" + "0" * 40, named_only=True)
    refused("model.missing: config.json", "missing")
    refused("model.missing: config.json", str(at_home))


def test_weights_that_an_installed_package_lacks_are_named_with_the_way_to_get_them(at_home, monkeypatch):
    methods = [method for method in catalogue().values() if method.key in ("medusa", "distillspec")]
    needs = [load().unsupported_reason(method) for method in methods]
    assert not [reason for reason in needs if "SPECVIZ_MODELS" in reason]
    monkeypatch.setattr(registry, "INSTALLED", at_home)
    zoo.forget()
    refused("model.not_packaged: SPECVIZ_MODELS", "missing")
    assert len(needs) == 2 and all(
        "SPECVIZ_MODELS" in load().unsupported_reason(method) for method in methods
    )
    zoo.forget()


def test_a_hub_model_that_cannot_be_fetched(at_home):
    refused("hub.unreachable", "org/x@" + "0" * 40)


def test_devices():
    assert read_device("cpu").type == "cpu"
    for device in ("tpu9", "", "cuda:x"):
        with refuses(ZooError, "device.unknown"):
            read_device(device)
    if not torch.cuda.is_available():
        with refuses(ZooError, "device.no_accelerator"):
            read_device("cuda")


def test_a_draft_with_another_vocabulary(at_home, tmp_path):
    refused("draft.vocabulary: 290 and 300", None, str(write(tmp_path / "other", vocab=290)))
    bare = write(tmp_path / "bare", vocab=299, tokenizer=False)
    refused("draft.vocabulary", None, str(bare))
    assert load(draft=str(write(tmp_path / "same", tokenizer=False))).draft_name == "same"


def test_a_padded_draft_speaks_in_the_targets_width(at_home, tmp_path):
    padded = write(tmp_path / "padded", layers=1, vocab=300, seed=3)
    tensors = load_file(padded / "model.safetensors")
    embedding = tensors["model.embed_tokens.weight"]
    tensors["model.embed_tokens.weight"] = torch.cat([embedding, embedding[:20]])
    save_file(tensors, padded / "model.safetensors")
    config = json.loads((padded / "config.json").read_text())
    (padded / "config.json").write_text(json.dumps(config | {"vocab_size": 320}))
    loaded = load(draft=str(padded))
    draft = loaded.kit().open("draft")
    assert (
        draft.vocab == 300
        and "draft_chain" not in draft.capabilities
        and draft.capabilities < loaded.capabilities
    )
    draft.sync([5, 6, 7])
    assert draft.score(DraftTree()).logits.shape == (1, 300)
    same = load().kit().open("draft")
    same.sync([5, 6, 7])
    assert torch.allclose(same.score(DraftTree()).logits, draft.score(DraftTree()).logits, atol=1e-5)
    plain = collect(Session(loaded, "autoregressive").run("the cat", 10))
    assert collect(Session(loaded, "speculative").run("the cat", 10)).token_ids == plain.token_ids


def broken(folder, how):
    tensors = load_file(folder / "model.safetensors")
    how(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def test_checkpoints_that_cannot_be_used(at_home, tmp_path):
    refused(
        "checkpoint.lacks_weight: model.norm",
        broken(write(tmp_path / "a"), lambda t: t.pop("model.norm.weight")),
    )
    refused(
        "checkpoint.not_numbers",
        broken(write(tmp_path / "b"), lambda t: t["model.norm.weight"].fill_(float("nan"))),
    )
    cut = write(tmp_path / "c") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:1000])
    refused("checkpoint.cut_short", str(cut.parent))
    pickled = write(tmp_path / "d")
    shutil.move(pickled / "model.safetensors", pickled / "pytorch_model.bin")
    refused("checkpoint.missing: model.safetensors", str(pickled))
    (write(tmp_path / "e") / "config.json").write_text("{not json")
    refused("tokenizer.read: config.json of e", str(tmp_path / "e"))
    refused("forward.none", str(write(tmp_path / "f", model_type="t5", is_encoder_decoder=True)))
    refused("checkpoint.shape", str(write(tmp_path / "g", hidden_size=16)))
    no_words = write(tmp_path / "h", tokenizer=False)
    loaded = load(str(no_words))
    with refuses(ZooError, "tokenizer.missing", "h "):
        print(loaded.tokenizer)


def test_a_pair_whose_usual_draft_is_broken_still_runs_alone(at_home, monkeypatch, tmp_path):
    home = tmp_path / "zoo"
    shutil.copytree(at_home, home)
    shutil.rmtree(home / "draft")
    monkeypatch.setenv("SPECVIZ_MODELS", str(home / "models.yaml"))
    loaded = load()
    assert loaded.draft is None and "tiny-draft" in loaded.unsupported_reason(catalogue()["speculative"])
    assert loaded.unsupported_reason(catalogue()["autoregressive"]) is None
    assert survey()(catalogue()["speculative"]) == loaded.unsupported_reason(catalogue()["speculative"])
    refused("model.missing: tiny-draft", None, "tiny-draft")


def test_the_survey_says_what_loading_would(at_home):
    loaded, outlook = load(), survey()
    for method in catalogue().values():
        assert outlook(method) == loaded.unsupported_reason(method)


@pytest.mark.parametrize(
    "text, says",
    [
        ("default: x\nmodels: [", "line 2: "),
        (
            "default: tiny\nbackends: {fast: [llama]}\nmodels:\n  tiny: {path: a}\n  tiny: {path: b}",
            "line 5: tiny is there twice",
        ),
        (
            "default: tiny\nbackends: {}\nmodels:\n  tiny: {path: a, hub: b/c}",
            "line 4: tiny needs either a path or a hub id",
        ),
        (
            "default: tiny\nbackends: {}\nmodels:\n  tiny:\n    hub: b/c\n    revision: main",
            "line 5: tiny needs a hub id",
        ),
        (
            "default: tiny\nbackends: {}\nmodels:\n  tiny: {path: a, colour: red}",
            "line 4: 'colour' is not one of",
        ),
        ("default: tiny\nbackends: {}\nmodels:\n  tiny: 3", "line 4: tiny must be a list of names"),
        ("default: big\nbackends: {}\nmodels:\n  tiny: {path: a}", "line 1: there is no model 'big'"),
        ("default: tiny\nbackends: {}\nmodels:\n  tiny: {path: a, role: judge}", "line 4: the role of tiny"),
        (
            "default: tiny\nbackends: {}\nmodels:\n  tiny: {path: a, middle: big}",
            "line 1: there is no model 'big'",
        ),
        (
            "default: tiny\nbackends: {}\nmodels:\n  tiny: {path: a, role: draft, middle: tiny}",
            "line 4: tiny is no target",
        ),
        ("default: tiny\nbackends: {fast: llama}\nmodels:\n  tiny: {path: a}", "line 2: a row of backends"),
        ("default: tiny\nmodels:\n  tiny: {path: a}", "line 1: backends must be"),
        ("- a\n- b", "line 1: the file must be"),
        ("", "line 1: the file must be"),
        ("\x00", "line 1: "),
    ],
)
def test_a_malformed_models_yaml_names_the_line(tmp_path, text, says):
    (tmp_path / "models.yaml").write_text(text)
    with pytest.raises(ZooError) as error:
        register(tmp_path / "models.yaml")
    assert (
        says in str(error.value)
        and str(error.value).startswith("models.yaml, line ")
        and str(error.value).endswith(".")
    )


def test_what_was_trained_for_a_target_is_found_by_its_config(tmp_path):
    """In the target's folder of heads and beside it, without a row; of an unknown kind, unmarked or broken
    is not found."""
    (tmp_path / "models.yaml").write_text("""
default: fox
models:
  fox: {path: weights/fox}
  fox-tvdpp: {path: weights/old, role: draft, for: fox, kind: tvdpp}
backends: {hf: ["*"]}
""")
    for place, kind, target in (
        ("fox/heads/medusa", "medusa", "fox"),
        ("fox-glide", "glide", "fox"),
        ("elk-glide", "glide", "elk"),
        ("old", "tvdpp", "fox"),
        ("fox-other-draft", "other_draft", "fox"),
        ("fox-odd", "horoscope", "fox"),
        ("fox-s2d", "s2d", "fox"),
    ):
        folder = tmp_path / "weights" / place
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(mark(kind, target)))
    for name, text in (("none", "{}"), ("list", "[]"), ("broken", "{"), ("odd", '{"specviz": 3}')):
        (tmp_path / "weights" / name).mkdir()
        (tmp_path / "weights" / name / "config.json").write_text(text)
    book = register(tmp_path / "models.yaml")
    found = {
        entry.name: (entry.role, entry.kind, entry.path.relative_to(tmp_path).as_posix())
        for entry in book.made_for("fox", tmp_path / "weights" / "fox")
    }
    assert found == {
        "fox-medusa": ("head", "medusa", "weights/fox/heads/medusa"),
        "fox-glide": ("head", "glide", "weights/fox-glide"),
        "fox-s2d": ("draft", "s2d", "weights/fox-s2d"),
        "fox-other-draft": ("other_draft", "", "weights/fox-other-draft"),
        "fox-tvdpp": ("draft", "tvdpp", "weights/old"),
    }
    elsewhere = register(tmp_path / "models.yaml").made_for("elk", tmp_path / "weights" / "elk")
    assert [(entry.name, entry.kind) for entry in elsewhere] == [("elk-glide", "glide")], (
        "a target that the file does not name"
    )
    (tmp_path / "weights/fox-glide/config.json").write_text(
        json.dumps(mark("glide", "elk") | {"changed": True})
    )
    assert "fox-glide" not in register(tmp_path / "models.yaml").entries


def test_a_store_of_states_is_offered_to_the_target_whose_states_it_holds(tmp_path):
    (tmp_path / "models.yaml").write_text("""
default: fox
models: {fox: {path: fox}, owl: {path: owl}, hen: {path: hen}}
stores: {text: words, dense: {fox: of-fox, owl: of-owl}}
backends: {hf: ["*"]}
""")
    book = register(tmp_path / "models.yaml")
    offered = {
        name: {store: place.name for store, place in book.stores_of(name).items()}
        for name in ("fox", "owl", "hen")
    }
    assert offered == {
        "fox": {"text": "words", "dense": "of-fox"},
        "owl": {"text": "words", "dense": "of-owl"},
        "hen": {"text": "words"},
    }
    (tmp_path / "models.yaml").write_text(
        "default: fox\nmodels: {fox: {path: fox}}\nstores: {dense: {elk: there}}\nbackends: {hf: ['*']}"
    )
    with refuses(ZooError, "models_yaml.entry", "'elk'"):
        register(tmp_path / "models.yaml")


def test_no_models_yaml(tmp_path):
    with refuses(ZooError, "models_yaml.read", "models.yaml"):
        register(tmp_path / "models.yaml")


def test_a_forward_that_is_not_there(tmp_path, monkeypatch):
    write(tmp_path / "target")
    (tmp_path / "models.yaml").write_text(
        "default: t\nbackends: {warp: [llama]}\nmodels:\n  t: {path: target}"
    )
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models.yaml"))
    refused("models_yaml.entry: 'warp'")


def test_the_projects_own_register():
    book = register(HERE / "models.yaml")
    assert book.entries[book.default].draft in book.entries
    made = {e.name for e in book.entries.values() if e.target and e.path}
    for entry in book.entries.values():
        assert entry.about and entry.licence and (entry.size or entry.name in made), entry.name
        assert entry.path or len(entry.revision) == 40
    assert {e.role for e in book.entries.values()} == {"target", "draft", "head", "other_draft"}
    for name in (
        "Llama-specviz-16M",
        "SmolLM2-135M-Instruct",
    ):  # where a recipe puts what it makes, there it is looked for
        job = Job(target=name, ship=True)
        for entry in book.made_for(name, book.entries[name].path):
            if entry.kind and entry.target == name:
                assert (
                    job.shipped_folder(job.model_name(entry.kind)) == entry.path
                    and job.model_name(entry.kind) == entry.name
                )
    waiting = {"pard2"}  # recipes whose weights do not pay, or that nobody has trained yet
    own = {kind for kind in trained_parts() if "chat" in sections(kind)} - waiting
    assert own == {e.kind for e in book.made_for(book.default, book.entries[book.default].path)} - {""}


def test_other_architectures_go_through_transformers(tmp_path, at_home):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=128, bos_token_id=1, eos_token_id=2
    )
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt")
    shutil.copy(at_home / "target" / "tokenizer.json", tmp_path / "gpt")
    shutil.copy(at_home / "target" / "tokenizer_config.json", tmp_path / "gpt")
    loaded = load(str(tmp_path / "gpt"), "tiny-draft")
    assert loaded.facts["target"]["backend"] == "hf" and "tree" in loaded.capabilities
    plain = collect(Session(loaded, "autoregressive").run("the cat", 8))
    assert collect(Session(loaded, "draft_tree").run("the cat", 8)).token_ids == plain.token_ids


def test_a_model_type_that_is_the_name_of_a_kind_of_head_is_a_model(tmp_path, at_home):
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    same = sorted(head_kinds().keys() & set(CONFIG_MAPPING.keys()))
    assert "falcon" in same
    for kind in same:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}
        config = CONFIG_MAPPING[kind](**sizes, bos_token_id=1, eos_token_id=2)
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / kind)
        byte_level().save_pretrained(tmp_path / kind)
        loaded = load(str(tmp_path / kind), "none")
        plain = collect(Session(loaded, "autoregressive").run("the cat", 8))
        assert len(plain.token_ids) == 8 and loaded.facts["target"]["backend"] == "hf"
        assert collect(Session(loaded, "prompt_lookup").run("the cat", 8)).token_ids == plain.token_ids


def test_cores(monkeypatch, caplog):
    assert 1 <= physical_cores() <= 4096
    used = []
    monkeypatch.setattr(threads, "_chosen", threads._chosen)  # what is set here ends with this test
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    use_cores()  # the tests' OMP_NUM_THREADS has its way
    assert used == []
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr("specviz.zoo.device.physical_cores", lambda: 6)
    for load_average in (0.5, 9.0):
        monkeypatch.setattr("os.getloadavg", lambda: (load_average, 0, 0))  # noqa: B023
        use_cores()
        use_cores(ignore_load=True)
    assert used == [6, 6, 1, 6]
    assert [record.args for record in caplog.records] == [(6,)], "one thread is not taken without a word"


def test_whatever_is_missing_there_is_a_sentence():
    from dataclasses import replace

    plain = catalogue()["autoregressive"]
    for need in ("draft", "tree", "rewind", "early", "skip", "kv", "tap:final", "store:text"):
        message = unsupported_reason(
            replace(plain, needs=frozenset({need})), "gpt2", frozenset(), has_draft=False
        )
        assert message.startswith("Plain decoding") and message.endswith(".") and "{" not in message
    assert unsupported_reason(plain, "gpt2", frozenset(), has_draft=False) is None


@pytest.mark.thorough
def test_from_outside_a_model_runs_where_what_libraries_will_remove_is_an_error(at_home):
    code = (
        "from specviz import Session, collect, load\n"
        "print(len(collect(Session(load(), 'speculative').run('the cat', 5)).token_ids))"
    )
    argv = [sys.executable, "-W", "error::DeprecationWarning", "-W", "error::FutureWarning", "-c", code]
    env = {**os.environ, "SPECVIZ_MODELS": str(at_home / "models.yaml")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "5", done.stderr


def test_a_warning_that_is_an_error_does_not_blame_the_model(at_home, monkeypatch, tmp_path):
    def read(folder, device):
        raise DeprecationWarning("old is deprecated")

    with pytest.raises(DeprecationWarning):
        weight_cache.load_once(tmp_path, torch.device("cpu"), "test", read)
