"""What every recipe of a drafter owes, asked the same way: it learns, a killed run resumes to the same
losses, and the engine accepts what the replay of the text promises."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from specviz.core import Parts, Sampling, State, open_run, play
from specviz.models.pretrained import open_network
from specviz.policies import Fixed
from specviz.targets.fast import FastModel
from specviz.training import ranks
from specviz.training.job import TARGET
from specviz.training.recipes import run_of
from specviz.training.runner import Runner
from specviz.verifiers import TokenRejection

from ..models.tiny import body
from .test_features import START, STEPS, history, job


def killed(monkeypatch, run: Callable[[], object], steps: int) -> object:
    """What ``run`` makes when it is killed after so many steps, and begun again."""
    update, left = Runner.update, [steps]

    def stops(self, loss_at):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return update(self, loss_at)

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "update", stops)
        with pytest.raises(KeyboardInterrupt):
            run()
    return run()


def killed_and_resumed(name, material, place, monkeypatch) -> list[float]:
    """The losses of a run that was killed after nine steps and taken up again."""
    killed(monkeypatch, lambda: run_of(name)(job(material, place)), 9)
    return history(place, name)


def learns_and_resumes(run, kind, material, trained, place, monkeypatch):
    """``run(job)``: the recipe; ``trained``: a work folder in which it has run."""
    whole = history(trained, kind)
    assert len(whole) == STEPS and sum(whole[-3:]) < sum(whole[:3])
    killed(monkeypatch, lambda: run(job(material, place)), 9)
    assert history(place, kind) == whole
    assert "{" not in (place / "models" / f"Llama-specviz-{kind}" / "README.md").read_text()


def whole_numbers(features, trained):
    """The features of a recipe with the target in single precision, as the engine runs it."""
    features.target = open_network(trained / "models" / TARGET, torch.float32)
    features.head, features.embedding = (
        features.target.lm_head.weight,
        features.target.get_input_embeddings().weight,
    )
    return features


def tokens_a_round(model, parts, answers):
    """(tokens a round, tokens accepted) of the engine at temperature 0 on prompts of the answers, which it
    has to write again."""
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


def promised_and_kept(reader, drafter_of, guess_of, features, place, name, shape) -> tuple[float, float, int]:
    """Tokens a round of a tree of this shape, greedy, by replay on the target's own text and by the engine;
    tokens accepted.

    drafter_of(model), guess_of(model): the drafter and the replay's guesses of a loaded head.
    """
    engine = FastModel(place / "models" / TARGET)
    model = reader.load(place / "models" / f"Llama-specviz-{name}", body(engine.open()))
    chosen = [a for a in features.own.answers if a.greedy]  # what it has seen, so that something is accepted
    expected_length = ranks.replay_tree_rounds(
        ranks.token_ranks(model, guess_of(model), features, chosen), shape
    )["block_efficiency"]
    return expected_length, *tokens_a_round(
        engine, lambda: Parts(drafter_of(model), Fixed(max(shape.depths), 16), TokenRejection()), chosen
    )
