"""What every recipe of a drafter owes, asked the same way: it learns, a killed run resumes to the same losses, the text matters to what
it made, and the engine accepts what the replay of the text says."""
from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from specviz.core import State, Sampling, open_run, play
from specviz.training.draft import Batches
from specviz.training.job import TARGET

from .test_features import START, STEPS, history, job


def learns_and_resumes(run, kind, material, trained, place, monkeypatch):
    """``run(job)``: the recipe; ``trained``: a work folder in which it has run."""
    whole = history(trained, kind)
    assert len(whole) == STEPS and sum(whole[-3:]) < sum(whole[:3])
    inner, left = Batches.__getitem__, [9]

    def killed(self, step):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return inner(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Batches, "__getitem__", killed)
        with pytest.raises(KeyboardInterrupt):
            run(job(material, place))
    run(job(material, place))
    assert history(place, kind) == whole
    assert "{" not in (place / "models" / f"Llama-specviz-{kind}" / "README.md").read_text()


def whole_numbers(features, trained):
    """The features of a recipe with the target in single precision, as the engine runs it."""
    features.target = AutoModelForCausalLM.from_pretrained(trained / "models" / TARGET, dtype=torch.float32)
    features.head, features.embedding = features.target.lm_head.weight, features.target.get_input_embeddings().weight
    return features


def tokens_a_round(model, parts, answers):
    """(tokens a round, tokens accepted) of the engine at temperature 0 on prompts of the answers, which it has to write again."""
    rounds = committed = accepted = 0
    for answer in answers:
        target, made = model.open(), parts()
        state = State(answer.ids[:START].tolist(), Sampling(0.0), limit=len(answer.ids) - START)
        open_run(made, target, state)
        while not state.done:
            outcome = play(made, target, state)
            rounds, committed = rounds + 1, committed + len(outcome.committed)
            accepted += len(outcome.verdict.path)
        assert state.tokens == answer.ids.tolist()
    return round(committed / rounds, 4), accepted
