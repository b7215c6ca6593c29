"""Penalties, biases, bans and masks: every exact method writes what plain decoding with the same processors
writes."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch

from specviz.core import (
    BadWords,
    Context,
    LogitBias,
    MinTokens,
    Parts,
    Penalties,
    Processors,
    Sampling,
    State,
    TokenMask,
    open_run,
)
from specviz.drafters.model.chain import DraftChain
from specviz.loops import speculate
from specviz.policies import Fixed
from specviz.verifiers import TokenRejection
from specviz.verifiers.judge import JudgeDecoding

from .enumeration import distance, probs_of_engine
from .toys import (
    PROMPT,
    begin,
    later,
    methods,
    needs_own_target,
    player,
    provided,
    sample,
    small_knobs,
    toy,
    toy_of,
)

SAMPLE = sample()
COUNT = 3


class Strict:
    """Changes nothing, and is as strict as llguidance's matcher: it refuses a token that the vocabulary does
    not have."""

    def __init__(self, vocab: int):
        self.vocab = vocab

    def __call__(self, logits: torch.Tensor, context: Context) -> torch.Tensor:
        for path in context.paths:
            check_tokens((*context.prompt, *context.output, *path), self.vocab)
        return logits


def check_tokens(text: tuple[int, ...], vocab: int) -> None:
    if not all(0 <= token < vocab for token in text):
        raise OverflowError(f"a token outside the vocabulary of {vocab}: {text}")


class Bigrams(TokenMask):
    """A grammar on tokens: t may not be followed by t, nor by t + 2."""

    def __init__(self, vocab: int):
        self.vocab = vocab

    def banned(self, context: Context, path: tuple[int, ...]) -> list[int]:
        text = (*context.prompt, *context.output, *path)
        check_tokens(text, self.vocab)
        return [text[-1], (text[-1] + 2) % self.vocab]


@dataclass(frozen=True)
class Spec:
    """Settings of a run, its processors, and the same written down for one token at a time."""

    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    bias: tuple = ()
    bad: tuple = ()
    least: int = 0
    grammar: bool = False
    min_p: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def processors(self, vocab: int, stop) -> Processors:
        return Processors(
            [Strict(vocab)]
            + [Bigrams(vocab)] * self.grammar
            + [BadWords(self.bad)] * bool(self.bad)
            + [MinTokens(self.least, stop)] * bool(self.least)
            + [LogitBias(self.bias)] * bool(self.bias)
            + [Penalties(self.repetition, self.frequency, self.presence)]
        )

    def row(self, logits: torch.Tensor, prompt: list[int], output: list[int], stop) -> torch.Tensor:
        z = logits.double().tolist()
        text = [*prompt, *output]
        bans = [
            {text[-1], (text[-1] + 2) % len(z)} if self.grammar else set(),
            {
                word[-1]
                for word in self.bad
                if tuple(output[len(output) - len(word) + 1 :]) == tuple(word[:-1])
            },
            set(stop) if len(output) < self.least else set(),
        ]
        for banned in bans:
            masked = [-math.inf if token in banned else x for token, x in enumerate(z)]
            z = masked if max(masked) > -math.inf else z
        for token, value in self.bias:
            z[token] += value
        for token in range(len(z)):
            if token in text and self.repetition != 1:
                z[token] = z[token] / self.repetition if z[token] > 0 else z[token] * self.repetition
            z[token] -= self.frequency * output.count(token) + self.presence * (token in output)
        return torch.tensor(z, dtype=torch.float64)

    def sampling(self, temperature: float) -> Sampling:
        return Sampling(temperature, self.top_k, self.top_p, min_p=self.min_p)


SPECS = {
    "penalties": Spec(1.4, 0.6, 0.9),
    "bias": Spec(bias=((0, 1.5), (2, -0.8))),
    "bad_words": Spec(bad=((1, 2), (0, 0), (2, 1, 0))),
    "min_tokens": Spec(least=5),
    "grammar": Spec(grammar=True),
    "filters": Spec(min_p=0.1, top_k=2, top_p=0.85),
    "all": Spec(1.2, 0.3, 0.5, ((1, 0.7),), ((2, 0),), 4, True, 0.05),
}
STOP = frozenset({1})


def plain(net, spec: Spec, prompt: list[int], count: int, stop) -> list[int]:
    """Plain greedy decoding with the settings."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < count and (len(tokens) == len(prompt) or tokens[-1] not in stop):
        tokens.append(int(spec.row(net.logits(tokens)[-1], prompt, tokens[len(prompt) :], stop).argmax()))
    return tokens


def joint(net, spec: Spec, tokens: list[int], start: int, count: int, sampling: Sampling, stop) -> dict:
    """The distribution of plain decoding's next ``count`` tokens."""
    out: dict = {}

    def go(tail: tuple, prob: float) -> None:
        if len(tail) == count or (tail and tail[-1] in stop):
            out[tail] = out.get(tail, 0.0) + prob
            return
        text = [*tokens, *tail]
        row = spec.row(net.logits(text)[-1], tokens[:start], text[start:], stop)
        for token, p in enumerate(sampling.probs(row).tolist()):
            if p > 0:
                go((*tail, token), prob * p)

    go((), 1.0)
    return out


def quick(method, name: str) -> bool:
    """One method of each family with all processors together, and with one of them alone, another one in
    each family."""
    alone = [spec for spec in SPECS if spec != "all"]
    return method.key in SAMPLE and name in ("all", alone[sorted(SAMPLE).index(method.key) % len(alone)])


GREEDY = [
    later(pytest.param(method, name, id=f"{method.key}-{name}"), quick(method, name))
    for method in methods("exact", "greedy only")
    for name in SPECS
]
SAMPLED = [
    later(pytest.param(method, name, id=f"{method.key}-{name}"), quick(method, name))
    for method in methods("exact")
    for name in SPECS
]


@pytest.mark.parametrize("method, name", GREEDY)
def test_greedy_tokens_equal_plain_decoding_with_the_same_processors(method, name):
    spec, taken = SPECS[name], 0
    for i, knobs in enumerate([method.read_knobs({}), *small_knobs(method)[:2]]):
        kit = toy_of(method, 12, seed=i, share=(0.9, 1.0, 0.6)[i], sharp=3.0)
        provided(method, kit)
        stop = STOP if name in ("min_tokens", "all") else frozenset()
        state = State(
            list(PROMPT), spec.sampling(0.0), limit=24, stop=stop, processors=spec.processors(kit.vocab, stop)
        )
        parts = method.build(kit, **knobs)
        open_run(parts, kit.target, state)
        while not state.done:
            outcome = player(parts)(parts, kit.target, state)
            taken += len(outcome.verdict.path) + (outcome.verdict.kind == "accepted")
        assert state.tokens == plain(kit.net, spec, PROMPT, 24, stop)
    # heads on random weights agree with no processed argmax by chance; drafts of a real model must
    assert taken or name in ("grammar", "all", "min_tokens") or not method.needs & {"draft"}, (
        "a run in which nothing is accepted proves little"
    )


def off(
    parts: Parts,
    kit,
    spec: Spec,
    processors: Processors,
    temperature: float,
    warm: int,
    count: int,
    stop=frozenset(),
) -> float:
    """Distance of the engine's distribution of ``count`` tokens from plain decoding's."""
    prompt = [token % kit.vocab for token in PROMPT]
    sampling = spec.sampling(temperature)
    state = begin(parts, kit, sampling, count, warm, prompt=prompt, stop=stop, processors=processors)
    if state.ended:  # the rounds before wrote an end token
        return 0.0
    want = joint(kit.net, spec, state.tokens, state.start, count, sampling, stop)
    probs, _ = probs_of_engine(parts, kit.target, state, count, shared=(kit.net, kit.small))
    assert sum(probs.values()) == pytest.approx(1, abs=1e-12)
    return distance(probs, want)


@pytest.mark.parametrize("method, name", SAMPLED)
def test_the_joint_distribution_is_that_of_plain_decoding(method, name):
    spec = SPECS[name]
    stop = STOP if name in ("min_tokens", "all") else frozenset()
    knobs = small_knobs(method)[0]
    for warm in (0, 1):
        kit = toy_of(method, 3, share=0.5, sharp=0.8)
        provided(method, kit)
        assert (
            off(
                method.build(kit, **knobs), kit, spec, spec.processors(3, stop), 1.0, warm, COUNT - warm, stop
            )
            < 1e-12
        )


class WithoutPath(Penalties):
    """Wrong: counts the output only, not the drafted tokens on a row's path."""

    def __call__(self, logits, context):
        return super().__call__(logits, replace(context, paths=[()] * len(context.paths)))


class LastRowOnly(LogitBias):
    """Wrong: biases the bonus token only."""

    def __call__(self, logits, context):
        return torch.cat([logits[:-1], super().__call__(logits[-1:].clone(), context)])


class Raw(TokenRejection):
    """Wrong: verifies against the model's own logits; the mask stays on the draft's side."""

    def verify(self, tree, scores, state):
        return super().verify(tree, replace(scores, logits=scores.model_logits), state)


def chain(kit, verifier=None) -> Parts:
    return Parts(DraftChain(kit.open("draft")), Fixed(2), verifier or TokenRejection())


@pytest.mark.parametrize(
    "name, spec, wrong, verifier",
    [
        ("penalty", Spec(1.0, 1.2, 0.9), [WithoutPath(1.0, 1.2, 0.9)], None),
        ("bias", SPECS["bias"], [LastRowOnly(SPECS["bias"].bias)], None),
        ("mask", SPECS["grammar"], [Bigrams(3)], Raw()),
    ],
)
def test_a_wrong_variant_is_caught(name, spec, wrong, verifier):
    kit = toy(3, share=0.5, sharp=0.8)
    right = off(chain(kit), kit, spec, spec.processors(3, frozenset()), 1.0, 0, COUNT)
    kit = toy(3, share=0.5, sharp=0.8)
    assert right < 1e-12 < 0.02 < off(chain(kit, verifier), kit, spec, Processors(wrong), 1.0, 0, COUNT)


def test_siblings_with_different_ancestors_get_different_penalties():
    from specviz.core import DraftTree, Scores

    tree = DraftTree((0, 1, 2, 2), (-1, -1, 0, 1), (-1,) * 4)
    scores = Processors([Penalties(presence=1.0)]).scores(tree, Scores(torch.zeros(5, 4)), [3, 3, 1], 2)
    assert scores.logits.tolist() == [
        [0, -1, 0, 0],
        [-1, -1, 0, 0],
        [0, -1, 0, 0],
        [-1, -1, -1, 0],
        [0, -1, -1, 0],
    ]
    assert scores.model_logits.eq(0).all()


def test_a_ban_of_every_token_is_ignored_for_its_row():
    every = BadWords([(token,) for token in range(3)])
    logits = torch.tensor([[0.5, 1.0, 2.0]])
    assert Processors([every]).rows(logits, [()], [0], 1).equal(logits)


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_min_p_keeps_tokens_by_their_share_of_the_top_one(order):
    p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)[list(order)]
    kept = Sampling(1.0, min_p=0.4).probs(p.log())
    assert kept.tolist() == pytest.approx([x / 0.9 if x > 0.2 else 0.0 for x in p.tolist()])


class Banned(Bigrams):
    """A grammar that also counts what was written against it."""

    def broken(self, tokens: list[int], start: int) -> int:
        return sum(
            after in self.banned(Context(tokens[: i + 1], (), ()), ())
            for i, after in enumerate(tokens[1:])
            if i + 1 >= start
        )


LOSSY = [
    later(
        pytest.param(method, id=method.key),
        method.key in ("judge", "fly", "superposed", "fastcot", "reward_guided"),
    )
    for method in methods("approximate")
    if method.key != "parallel_branches"  # its outline needs a tokenizer
    and not needs_own_target(method)
]  # scales: tests/loops/test_next_scale.py


@pytest.mark.parametrize("method", LOSSY)
def test_only_methods_that_declare_it_write_tokens_that_a_mask_forbids(method):
    """A response_format is refused for a method that declares ``unchecked``; every other one keeps to the
    mask, however lossy it is."""
    broken = 0
    for seed, temperature in itertools.product(range(4), (0.0, 1.0)):
        for knobs in (method.read_knobs({}), *small_knobs(method)[:2]):
            kit = toy_of(method, 12, seed=seed, share=0.6, sharp=1.0)
            provided(method, kit)
            mask = Banned(kit.vocab)
            state = State(
                list(PROMPT), Sampling(temperature, seed=seed), limit=24, processors=Processors([mask])
            )
            parts = method.build(kit, **knobs)
            with torch.inference_mode():
                for _ in (parts.loop or speculate)(parts, kit.target, state):
                    pass
            broken += mask.broken(state.tokens, state.start)
    assert bool(broken) == bool(method.unchecked)


# methods whose drafts, or some of them, are copied from texts, or come from a pass over other guesses or
# over another vocabulary
UNMASKED = {
    "adapld",
    "aded",
    "anpd",
    "cllm",
    "copyspec",
    "cs_drafting",
    "dresd",
    "dresd_store",
    "gauss_seidel_jacobi",
    "grammar_forced",
    "iad",
    "jacobi",
    "lexical_units",
    "logitspec",
    "lookahead",
    "ngram_map",
    "ngram_mod",
    "omnidraft",
    "predicted_output",
    "prompt_lookup",
    "rasd",
    "refined_ngram",
    "rest",
    "sam_decoding",
    "sam_store",
    "slem",
    "slrs",
    "speculative_jacobi",
    "suffix_decoding",
    "tr_jacobi",
    "trie_lookahead",
}
MASKED = [
    later(
        pytest.param(method, id=method.key),
        method.key in ("rsd_s", "opt_tree", "spectr", "falcon", "redrafter", "ddtree", "medusa"),
    )
    for method in methods("exact", "greedy only")
    if method.key not in UNMASKED
]


@pytest.mark.parametrize("method", MASKED)
def test_a_drafter_with_a_distribution_of_its_own_sees_the_mask_while_its_tree_grows(method):
    drafted = 0
    for temperature in (0.0, 1.0)[: 2 - (method.exactness == "greedy only")]:
        kit = toy_of(method, 12, seed=1, share=0.6, sharp=1.0)
        provided(method, kit)
        mask, parts = Bigrams(kit.vocab), method.build(kit, **method.read_knobs({}))
        state = State(list(PROMPT), Sampling(temperature, seed=1), limit=16, processors=Processors([mask]))
        open_run(parts, kit.target, state)
        while not state.done:
            last, tree = state.tokens[-1], player(parts)(parts, kit.target, state).tree
            for node in set(range(len(tree))) - set(tree.probes):
                above = tree.tokens[tree.parents[node]] if tree.parents[node] >= 0 else last
                assert tree.tokens[node] not in mask.banned(Context([above], (), ()), ())
                drafted += 1
    assert drafted or method.key == "autoregressive"


def test_a_judge_keeps_no_token_that_a_mask_forbids():
    kit = toy(12, share=0.0, sharp=1.0)
    mask = Banned(kit.vocab)
    state = State(list(PROMPT), Sampling(0.0), limit=24, processors=Processors([mask]))
    parts = Parts(
        without_processors(DraftChain(kit.open("draft"))),
        Fixed(3),
        JudgeDecoding(lambda states: torch.ones(len(states)), 0.5),
    )
    open_run(parts, kit.target, state)
    while not state.done:
        player(parts)(parts, kit.target, state)
    assert mask.broken(state.tokens, state.start) == 0


def without_processors(drafter):
    """The drafter without the run's processors, so that it proposes what they forbid."""
    propose = drafter.propose

    def unprocessed(state, budget):
        bare = state.fork()
        bare.processors = None
        return propose(bare, budget)

    drafter.propose = unprocessed
    return drafter
