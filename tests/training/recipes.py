"""What every recipe of a head must show, written once: a killed run ends at the same losses, and the engine keeps what the replay
promises."""
from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import ranks
from specviz.training.features import Features
from specviz.training.job import TARGET
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .test_features import START, history, job


def killed_and_resumed(recipe, name, material, place, monkeypatch, batches=Features, after: int = 9) -> list[float]:
    """The losses of a run that was stopped at its batch number ``after`` and taken up again."""
    inner, left = batches.batch, [after]

    def killed(self, step, done):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return inner(self, step, done)

    with monkeypatch.context() as patch:
        patch.setattr(batches, "batch", killed)
        with pytest.raises(KeyboardInterrupt):
            recipe.run(job(material, place))
    assert len(history(place, name)) == after
    recipe.run(job(material, place))
    return history(place, name)


def precise(features, place):
    """The features in the numbers that the engine computes with."""
    features.target = AutoModelForCausalLM.from_pretrained(place / "models" / TARGET, dtype=torch.float32)
    features.head, features.embedding = features.target.lm_head.weight, features.target.get_input_embeddings().weight
    return features


def promised_and_kept(reader, drafter_of, guess_of, features, place, name, shape) -> tuple[float, float, int]:
    """Tokens a round of a tree of this shape, greedy, by replay on the target's own text and by the engine; tokens accepted.

    drafter_of(model), guess_of(model): the drafter and the replay's guesses of a loaded head.
    """
    engine = FastModel(place / "models" / TARGET)
    model = reader.load(place / "models" / f"Llama-specviz-{name}", body(engine.open()))
    chosen = [a for a in features.own.answers if a.greedy]  # what it has seen, so that something is accepted
    promised = ranks.figures(ranks.ranks(model, guess_of(model), features, chosen), shape)["block_efficiency"]
    rounds = committed = accepted = 0
    for answer in chosen:
        target, parts = engine.open(), Parts(drafter_of(model), Fixed(max(shape.depths), 16), TokenRejection())
        state = State(answer.ids[:START].tolist(), Sampling(0.0), limit=len(answer.ids) - START)
        open_run(parts, target, state)
        while not state.done:
            outcome = play(parts, target, state)
            rounds, committed = rounds + 1, committed + len(outcome.committed)
            accepted += len(outcome.verdict.path)
        assert state.tokens == answer.ids.tolist()
    return promised, round(committed / rounds, 4), accepted
