"""The exercise about a draft head of one's own: train Medusa heads (Cai et al. 2401.10774) on the small target's
hidden states, and reach the given acceptance on texts that were not seen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..core import DraftTree
from ..core.errors import CodedError
from .engine_checks import short, small_target
from .exercise import Check, Code, Exercise, Mistake, Report, failed, passed, source_of_numbers
from .submission import SubmissionError

HEADS = 3
LENGTH = 32  # tokens of a document
PIECE = 512  # tokens that the target reads at once; a piece holds several documents
DOCUMENTS = (320, 96)  # for training, and for the check
SECONDS = 120.0  # of training
AIMS = (0.22, 0.15, 0.13)  # accuracy of each head that is to be reached on new texts
GAP = 2.0  # accuracy on training texts over that on new ones: learnt by heart
SAME = 0.97  # share of equal guesses


@dataclass(frozen=True)
class Texts:
    """Documents of equal length. states [documents, length, hidden]: after the final norm; tokens [documents,
    length]."""

    states: Tensor
    tokens: Tensor


@cache
def texts(seed: int, train: int = DOCUMENTS[0], new: int = DOCUMENTS[1]) -> tuple[Texts, Texts, Tensor]:
    """Return training texts, new texts, and the target's output matrix [vocab, hidden]. The texts are the datastore's
    of the small target. Raises ZooError."""
    loaded = small_target()
    store = loaded.kit().open_store("text")
    whole = torch.as_tensor(store.array.tokens.astype("int64"))
    count = train + new
    source = torch.Generator().manual_seed(seed)
    outside = (whole < 0) | (whole >= loaded.vocab)  # separators of documents
    starts = torch.cat([torch.zeros(1, dtype=torch.long), outside.nonzero().flatten() + 1])
    lengths = torch.cat([starts[1:] - 1, torch.tensor([len(whole)])]) - starts
    starts = starts[lengths >= LENGTH]
    starts = starts[torch.randperm(len(starts), generator=source)[:count]]
    chosen = whole[starts[:, None] + torch.arange(LENGTH)].view(-1, PIECE)
    target: Any = loaded.open_target()  # it has an output matrix
    rows = []
    target.capture(frozenset({"final"}))
    with torch.inference_mode():
        for piece in chosen.tolist():
            target.close()
            scores = target.sync(piece)
            last = target.score(DraftTree())
            rows.append(torch.cat([scores.hidden_states["final"], last.hidden_states["final"]]).float())
        eye = torch.eye(target.hidden)
        matrix = target.head(eye).float().T.contiguous()
    states, tokens = torch.stack(rows).view(-1, LENGTH, matrix.shape[1]).clone(), chosen.reshape(-1, LENGTH)
    return (
        Texts(states[:train], tokens[:train]),
        Texts(states[train:count], tokens[train:count]),
        matrix.clone(),
    )


def guesses(code: Code, states: Tensor) -> Tensor:
    """Call predict(states) of a submission: the most probable token of each head, [n, HEADS]. Raises
    SubmissionError."""
    found = code.call("predict", states, seconds=60.0)
    if not isinstance(found, Tensor) or found.shape != (len(states), HEADS) or found.dtype != torch.int64:
        raise SubmissionError(
            "answer.heads", name=code.name, answer=short(getattr(found, "shape", found)), heads=HEADS
        )
    return found


def accuracies(given: Tensor, some: Texts, offset: int = 0) -> list[float]:
    """Return the share of right guesses of each head; offset: of the position that counts as right."""
    grid = given.view(len(some.tokens), LENGTH, HEADS)
    out = []
    for head in range(HEADS):
        ahead = head + 2 + offset
        right = some.tokens[:, ahead:] if ahead else some.tokens
        out.append(float((grid[:, : LENGTH - ahead, head] == right).float().mean()))
    return out


MISTAKES = (
    Mistake(
        "one_early",
        "heads that guess one token too early: head i is trained on the token i + 1 positions on, and the target itself gives that",
        "",
    ),
    Mistake("one_late", "heads that guess one token too late", ""),
    Mistake(
        "untrained",
        "heads that were not trained: all of them guess what the target's own output matrix gives",
        "",
    ),
    Mistake("all_alike", "one head three times: all of them guess the same token", ""),
    Mistake("one_token", "heads that always guess the same few tokens, whatever they read", ""),
    Mistake(
        "by_heart",
        "heads that have learnt the texts by heart: right on the training texts, and much less so on new ones",
        "",
    ),
    Mistake("repeats", "heads that guess the token that was just read", ""),
    Mistake("first_only", "one trained head: the others are hardly better than guessing", ""),
)


def behaves_like(given: Tensor, seen: Tensor, new: Texts, train: Texts, matrix: Tensor) -> str | None:
    """Return the key of the mistake that the guesses show, None if there is none."""
    right = accuracies(given, new)
    own = (new.states.flatten(0, 1) @ matrix.T).argmax(-1)
    read = new.tokens.flatten()

    def same(head: int, other: Tensor) -> bool:
        return float((given[:, head] == other).float().mean()) >= SAME

    commonest = given.flatten().bincount().sort(descending=True).values[:3].sum() / given.numel()
    tests = {
        "one_token": float(commonest) > 0.9,
        "repeats": all(same(head, read) for head in range(HEADS)),
        "untrained": all(same(head, own) for head in range(HEADS)),
        "all_alike": all(same(head, given[:, 0]) for head in range(1, HEADS)),
        "one_early": sum(accuracies(given, new, -1)) > 1.3 * sum(right),
        "one_late": sum(accuracies(given, new, 1)) > 1.3 * sum(right),
        "by_heart": sum(accuracies(seen, train)) > GAP * sum(right) and sum(accuracies(seen, train)) > 0.6,
        "first_only": right[0] >= AIMS[0] and max(right[1:]) < 0.4 * AIMS[1],
    }
    return next((key for key, hit in tests.items() if hit), None)


def check_on(
    code: Code,
    report: Report,
    data: tuple[Texts, Texts, Tensor],
    seconds: float,
    aims: tuple[float, ...] = AIMS,
) -> Check:
    """Train the submission's heads on the texts, and compare their accuracy on new texts with the aims."""
    train, new, matrix = data
    code.call("train", train.states, train.tokens, matrix, seconds, seconds=seconds + 60.0)
    given = guesses(code, new.states.flatten(0, 1))
    seen = guesses(code, train.states[: len(new.states)].flatten(0, 1))
    right = accuracies(given, new)
    figures: dict[str, Any] = {"accuracy": [round(one, 4) for one in right], "aims": list(aims)}
    values = {
        "right": ", ".join(f"{one:.1%}" for one in right),
        "aims": ", ".join(f"{one:.0%}" for one in aims),
    }
    if all(one >= aim for one, aim in zip(right, aims)):
        return passed("accuracy", "heads.right", figures, **values)
    part = Texts(train.states[: len(new.states)], train.tokens[: len(new.states)])
    report.behaves_like = behaves_like(given, seen, new, part, matrix)
    if report.behaves_like:
        sentence = next(one.sentence for one in MISTAKES if one.key == report.behaves_like)
        return failed("accuracy", "heads.known", figures, sentence=sentence, **values)
    return failed("accuracy", "heads.low", figures, **values)


def check(code: Code, student: str, report: Report) -> None:
    """Check a submission."""
    try:
        data = texts(source_of_numbers(student, "own_head").randrange(1000))
    except CodedError as error:
        report.checks.append(failed("small target", "target.missing", {}, why=str(error)))
        return
    report.checks.append(check_on(code, report, data, SECONDS))


OWN_HEAD = Exercise(
    "own_head",
    "A draft head of your own",
    ("train", "predict"),
    lambda student: {"SECONDS": SECONDS, "AIMS": list(AIMS)},
    check,
    MISTAKES,
    seconds=600.0,
    threads=2,
    trains=True,
)
