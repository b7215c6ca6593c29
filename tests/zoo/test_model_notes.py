"""A context that is cut and the settings that a model's authors recommend stand wherever the model's name
stands."""

from __future__ import annotations

import json

import pytest

from specviz import load
from specviz.cli import doctor
from specviz.engine.engine import _description
from specviz.evidence.doctor import report
from specviz.zoo import survey
from specviz.zoo.model_notes import model_notes

from .checkpoints import write

ROPE = {
    "rope_type": "longrope",
    "original_max_position_embeddings": 4096,
    "short_factor": [1.0],
    "long_factor": [2.0],
}


@pytest.mark.parametrize(
    "config, cut",
    [
        ({"rope_scaling": ROPE}, "4,096"),
        ({"rope_parameters": ROPE}, "4,096"),
        ({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 512}, "512"),
        ({"text_config": {"rope_scaling": ROPE, "max_position_embeddings": 131072}}, "4,096"),
        ({}, ""),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, ""),
        ({"rope_scaling": {"rope_type": "llama3"}}, ""),
        ({"rope_scaling": ROPE | {"original_max_position_embeddings": 131072}}, ""),
    ],
)
def test_a_context_that_is_cut_is_a_note(tmp_path, config, cut):
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 131072} | config))
    notes = model_notes(tmp_path)
    assert len(notes) == bool(cut) and (not cut or cut in notes[0] and "131,072" in notes[0])


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    "config, noted",
    [
        ({"rope_scaling": YARN, "max_position_embeddings": 32768}, True),
        ({"rope_parameters": YARN, "max_position_embeddings": 32768}, True),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}, "max_position_embeddings": 32768}, True),
        ({"rope_scaling": YARN, "max_position_embeddings": 131072}, False),
        ({"rope_scaling": YARN | {"factor": 1.0}, "max_position_embeddings": 32768}, False),
        ({"rope_scaling": YARN | {"factor": "4"}, "max_position_embeddings": 32768}, False),
        ({"max_position_embeddings": 32768}, False),
    ],
)
def test_yarn_whose_length_is_not_used_is_a_note(tmp_path, config, noted):
    (tmp_path / "config.json").write_text(json.dumps(config))
    notes = model_notes(tmp_path)
    assert len(notes) == noted and all("32,768" in note and "131,072" in note for note in notes)


@pytest.mark.parametrize(
    "settings, named",
    [
        ({}, ""),
        ({"eos_token_id": 2, "do_sample": False, "max_length": 20}, ""),
        ({"temperature": 1.0, "top_p": 1.0, "top_k": 0}, ""),
        ({"temperature": 0.7, "top_p": 0.8, "top_k": 20}, "temperature 0.7, top_k 20, top_p 0.8"),
        ({"repetition_penalty": 1.1}, "repetition_penalty 1.1"),
        ({"do_sample": False, "temperature": 0.6}, "temperature 0"),
        ({"suppress_tokens": list(range(90))}, "suppress_tokens [0, 1, 2, 3, 4, 5"),
        ({"stop_strings": ["</s>"]}, "stop_strings"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "penalty_alpha 0.6"),
        ({"max_new_tokens": 64}, "max_new_tokens 64"),
        ({"watermarking_config": {"bias": 2.0}}, "watermarking_config"),
        ({"penalty_alpha": None, "num_beam_groups": 1, "diversity_penalty": 0.0}, ""),
        ({"num_beams": 4, "no_repeat_ngram_size": 3}, "no_repeat_ngram_size 3, num_beams 4"),
        ({"temperature": "\u202e" * 90}, "temperature"),
    ],
)
def test_recommended_settings_are_a_note(tmp_path, settings, named):
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    notes = model_notes(tmp_path)
    assert len(notes) == bool(named) and (
        not named or named in notes[0] and notes[0].isprintable() and len(notes[0]) < 300
    )


def test_notes_stand_where_the_model_stands(tmp_path, capsys):
    folder = write(tmp_path / "m")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "temperature": 0.25}))
    loaded = load(str(folder), device="cpu")
    said = [
        loaded.facts["target"]["nature"],
        _description(loaded),
        " ".join(survey(str(folder)).notes),
        doctor.text(report(str(folder), None, "cpu", 0)),
    ]
    assert all("temperature 0.25" in words for words in said)
