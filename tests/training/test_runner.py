import json

import pytest
import torch
from torch import nn

from specviz.training import optimise
from specviz.training.curve import draw
from specviz.training.job import Job, TrainingError
from specviz.training.runner import Runner, untied_tensors

from ..message_codes import refuses

NUMBERS = {
    "muon_lr": 0.02,
    "adamw_lr": 0.01,
    "weight_decay": 0.01,
    "clip": 1.0,
    "warmup_steps": 3,
    "decay": 0.4,
    "minutes": 1,
    "measure_minutes": 9,
    "history_steps": 1,
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(16, 8)
        self.inner = nn.Linear(8, 8)
        self.lm_head = nn.Linear(8, 16, bias=False)
        self.lm_head.weight = self.embed.weight  # tied, as in the models we train

    def forward(self, ids):
        return self.lm_head(torch.tanh(self.inner(self.embed(ids))))


def trial(work, steps, fail_at=None, spoil_at=None):
    job = Job(work=work, steps=steps, quiet=True, device="cpu")
    net = Net()
    runner = Runner(job, "toy", net, NUMBERS, job.folder("toy"))

    def loss_at(step):
        if step == fail_at:
            raise KeyboardInterrupt
        rng = torch.Generator().manual_seed(step)
        ids = torch.randint(0, 16, (32,), generator=rng)
        loss = nn.functional.cross_entropy(net(ids), (ids * 5 + 1) % 16)
        return (loss * float("nan") if step == spoil_at else loss), len(ids)

    return runner, net, loss_at


def test_a_killed_run_ends_at_the_same_loss_and_weights(tmp_path):
    runner, whole, loss_at = trial(tmp_path / "a", 30)
    expected = runner.train(loss_at)
    runner, _, loss_at = trial(tmp_path / "b", 30, fail_at=13)
    with pytest.raises(KeyboardInterrupt):
        runner.train(loss_at)
    runner, resumed, loss_at = trial(tmp_path / "b", 30)
    assert runner.progress.step == 13
    assert runner.train(loss_at)["loss"] == expected["loss"]
    for name, weight in untied_tensors(whole).items():
        assert torch.equal(weight, untied_tensors(resumed)[name]), name


def test_it_learns_logs_and_draws(tmp_path):
    runner, _, loss_at = trial(tmp_path, 60)
    figures = runner.train(loss_at, lambda: {"answer": 42})
    assert figures["loss"] < 0.6 * runner.progress.history[0][3]
    line = json.loads((tmp_path / "log.jsonl").read_text())
    assert line["recipe"] == "toy" and line["steps"] == 60 and line["answer"] == 42
    assert (tmp_path / "toy" / "loss.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    "fail_at", [None, 13]
)  # on the way past a mark, and once more in a run that was killed
def test_figures_are_kept_at_the_shares_of_the_budget_that_a_recipe_names(tmp_path, monkeypatch, fail_at):
    monkeypatch.setitem(NUMBERS, "measure_at", [0.1, 0.25, 0.5])
    asked = []
    if fail_at is not None:
        runner, _, loss_at = trial(tmp_path, 40, fail_at=fail_at)
        with pytest.raises(KeyboardInterrupt):
            runner.train(loss_at, lambda: {"answer": asked.append(runner.progress.step) or 7})
    runner, net, loss_at = trial(tmp_path, 40)
    runner.train(
        loss_at,
        lambda: {"answer": asked.append(runner.progress.step) or (net.training and "in training") or 7},
    )
    assert asked == [4, 10, 20, 40] and net.training
    assert [(step, figures, tokens) for step, _, figures, tokens in runner.progress.measures] == [
        (s, {"answer": 7}, 32 * s) for s in asked
    ]
    lines = [json.loads(line) for line in (tmp_path / "toy" / "measures.jsonl").read_text().splitlines()]
    assert [(line["step"], line["tokens"]) for line in lines] == [(s, 32 * s) for s in asked]


def test_a_measurement_that_fails_stops_no_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(NUMBERS, "measure_at", [0.5])
    quiet, _, loss_at = trial(tmp_path / "quiet", 20)
    expected, asked = quiet.train(loss_at)["loss"], []
    runner, net, loss_at = trial(tmp_path / "failing", 20)

    def measure():
        asked.append(net.training)
        raise ValueError("no answers")

    found = runner.train(loss_at, measure)
    assert (
        asked == [False, False]
        and net.training
        and found == runner.figures()
        and found["loss"] == expected
        and "answer" not in found
    )
    assert (
        capsys.readouterr().err.count(
            "toy was not measured at step 10 (ValueError: no answers); the training goes on."
        )
        == 1
    )
    assert (
        '"failed": "ValueError: no answers"' in (tmp_path / "failing" / "toy" / "measures.jsonl").read_text()
    )
    assert trial(tmp_path / "failing", 20)[0].progress.measures == runner.progress.measures


def test_a_finished_run_costs_nothing(tmp_path):
    runner, _, loss_at = trial(tmp_path, 5)
    expected = runner.train(loss_at)
    runner, _, _ = trial(tmp_path, 5)
    assert runner.train(lambda step: pytest.fail("a finished run took a step")) == expected
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1


def test_nan_stops_with_a_sentence_and_the_checkpoint_survives(tmp_path):
    runner, _, loss_at = trial(tmp_path, 8, fail_at=4)
    with pytest.raises(KeyboardInterrupt):
        runner.train(loss_at)
    runner, _, loss_at = trial(tmp_path, 8, spoil_at=6)
    with refuses(TrainingError, "training.loss", "nan", 6):
        runner.train(loss_at)
    runner, _, _ = trial(tmp_path, 8)
    assert runner.progress.step == 4


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:200], lambda b: b[:-50], lambda b: b"", lambda b: b"\xff" * 64]
)
def test_a_damaged_checkpoint_is_named(tmp_path, spoil):
    runner, _, loss_at = trial(tmp_path, 2)
    runner.train(loss_at)
    runner.checkpoint.write_bytes(spoil(runner.checkpoint.read_bytes()))
    with refuses(TrainingError, "training.checkpoint", "checkpoint.safetensors"):
        trial(tmp_path, 4)


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    runner, _, loss_at = trial(tmp_path, 2)
    runner.train(loss_at)
    job = Job(work=tmp_path, steps=4, quiet=True, device="cpu")
    with refuses(TrainingError, "training.checkpoint"):
        Runner(job, "toy", nn.Linear(3, 3), NUMBERS, job.folder("toy"))


def test_the_rate_rises_holds_and_falls():
    rates = [optimise.learning_rate_share(step / 100, step, NUMBERS) for step in range(101)]
    assert rates[0] == pytest.approx(1 / 3) and rates[2] == rates[59] == 1.0
    assert rates[80] == pytest.approx(0.5) and rates[100] == 0.0


def test_a_curve_of_nothing_and_of_one_point_are_pictures():
    for history in ([], [[1, 0.1, 10, 2.5]]):
        assert draw("a <b>", history).count("<svg") == 1 and "&lt;b&gt;" in draw("a <b>", history)
