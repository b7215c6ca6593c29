"""The settings at which answers are certified: draft length, temperature and filters, and the logits
processors of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..core import BadWords, Context, DraftTree, LogitBias, Penalties, Processors, Sampling
from ..core.logits_processors import TokenMask
from ..run.processors import ProcessorFactory
from ..run.request import GenerationRequest

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

PLAIN = "none"
PENALTIES = "penalties"
BANS = "biases and bans"
GRAMMAR = "grammar"
SMALL = "small vocabulary"
COMMON = 48  # most probable tokens after the prompts, which biases and bans are about
FEWEST = 12  # tokens of the small vocabulary
REGEX = r"([a-z]{1,9} ){2,40}[a-z]{1,9}\."  # words in small letters
MakeProcessors = Callable[[], Processors | None]


class Setting(NamedTuple):
    """A setting. depth: draft depth, None for the method's default; request: its logits processors."""

    depth: int | None
    sampling: Sampling
    request: str = PLAIN


# short drafts, so that a whole draft is often accepted; low temperatures, where few tokens are probable, and
# high ones, where no token dominates; filters, outside which a token has probability 0; long drafts, whose
# last tokens are seldom reached; requests, whose processors depend on the draft tokens before a position
SETTINGS = (
    Setting(1, Sampling(0.7)),
    Setting(1, Sampling(1.5, top_p=0.9)),
    Setting(2, Sampling(1.0)),
    Setting(None, Sampling(0.9, top_p=0.9)),
    Setting(2, Sampling(1.5)),
    Setting(1, Sampling(1.2, top_k=8)),
    Setting(6, Sampling(0.8)),
    Setting(5, Sampling(1.0)),
    Setting(1, Sampling(1.0), PENALTIES),
    Setting(1, Sampling(1.2), BANS),
    Setting(1, Sampling(1.0), GRAMMAR),
    Setting(2, Sampling(1.0), SMALL),
)


class Alternating(TokenMask):
    """A grammar over token ids for a target without text: a token with an even id is followed by one that
    is not its successor, one with an odd id by an even one or its own half."""

    def __init__(self, vocab: int):
        self.vocab = vocab

    def banned(self, context: Context, path: tuple[int, ...]) -> list[int]:
        """Return the tokens that must not follow the last one."""
        text = (*context.output, *path)
        if not text or text[-1] < 0:
            return []
        last = text[-1]
        if last % 2 == 0:
            return [(last + 1) % self.vocab]
        return [token for token in range(1, self.vocab, 2) if token != last // 2]


class Only(TokenMask):
    """A logits processor that allows a few tokens only."""

    def __init__(self, tokens: Sequence[int]):
        self.tokens = sorted(tokens)

    def __call__(self, logits: Tensor, context: Context) -> Tensor:
        """Set all other logits [rows, vocab] to -inf."""
        masked = torch.full_like(logits, -torch.inf)
        masked[:, self.tokens] = logits[:, self.tokens]
        return masked


def request_processors(loaded: Loaded, prompts: Sequence[list[int]], kind: str) -> MakeProcessors:
    """Return a function that makes the logits processors of a kind of request for one answer; it returns
    None for PLAIN. prompts: token ids."""
    if kind == PLAIN:
        return lambda: None
    if kind == PENALTIES:
        return lambda: Processors([Penalties(repetition=1.3, frequency=0.4, presence=0.6)])
    target = loaded.open_target()
    if kind == GRAMMAR:
        written = _written_grammar(loaded)
        return written or (lambda: Processors([Alternating(target.vocab)]))
    common = common_tokens(target, prompts)
    if kind == SMALL:
        few = common[: max(2, min(FEWEST, target.vocab // 2))]
        return lambda: Processors([Only(few)])
    assert kind == BANS
    banned = common[1::5][: max(1, len(common) // 5)]
    pairs = [[one, other] for one, other in zip(common[::2], common[2::2])]
    bias = [(token, 1.5 if i % 2 else -2.0) for i, token in enumerate(common)]
    return lambda: Processors([BadWords([[token] for token in banned] + pairs), LogitBias(bias)])


def common_tokens(target, prompts: Sequence[list[int]]) -> list[int]:
    """Return the most probable tokens after the prompts, the most probable first; with a share of a small
    vocabulary."""
    target.capture(frozenset())
    total = torch.zeros(target.vocab, dtype=torch.float64)
    with torch.inference_mode():
        for ids in prompts:
            target.sync(ids)
            total += target.score(DraftTree()).logits[0].double().cpu().softmax(-1)
    return total.topk(min(COMMON, max(2, target.vocab // 2))).indices.tolist()


def _written_grammar(loaded: Loaded) -> MakeProcessors | None:
    """Return the maker of a grammar mask over the target's text; None if it writes none."""
    text = "output:text" in getattr(loaded.codec, "capabilities", ())
    if not text or not loaded.end_tokens or find_spec("llguidance") is None:
        return None
    request = GenerationRequest(response_format={"type": "regex", "regex": REGEX})
    return ProcessorFactory(request, loaded).make
