"""A tiny target in double precision and the walks over it: greedy text, every run under scripted random
numbers, the exact distribution."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import torch

from specviz.core import Clock, DraftTree, RandomStreams, Sampling, State, open_run, play
from specviz.loops import speculate
from specviz.targets.tiny import TinyNet, TinyTarget

from ...exactness.toys import ToyCodec

PROMPTS = ([1], [2, 2, 2, 2, 2, 2], [1, 2, 0, 3, 1, 2, 0], [0, 1, 2, 3, 3, 2, 1, 0, 1, 2])
FREE = Sampling(temperature=1.0)


class Script:
    """Random streams that replay a plan and note how likely it was."""

    def __init__(self, plan):
        self.plan = plan
        self.used = 0
        self.prob = 1.0
        self.sizes = []

    def _next(self, options):
        if len(options) == 1:
            return options[0][0]
        if self.used == len(self.plan):
            self.plan.append(0)
        value, prob = options[self.plan[self.used]]
        self.sizes.append(len(options))
        self.used += 1
        self.prob *= prob
        return value

    def pick(self, stream, probs):
        return self._next([(i, x) for i, x in enumerate(probs.tolist()) if x > 1e-13])

    def flip(self, stream, accept):
        if accept >= 1 - 1e-13:
            return True, None
        if accept <= 1e-13:
            return False, None
        return self._next([(True, accept), (False, 1 - accept)]), None


def probs_of(run):
    """The distribution of run(random numbers), every way the random numbers can fall walked once."""
    plan, out = [], {}
    while True:
        rng = Script(plan)
        result = run(rng)
        out[result] = out.get(result, 0.0) + rng.prob
        plan = rng.plan[: rng.used]
        while plan and plan[-1] + 1 >= rng.sizes[len(plan) - 1]:
            plan.pop()
        if not plan:
            return out
        plan[-1] += 1


def distance(a, b):
    """Total variation of two distributions given as dicts."""
    return 0.5 * sum(abs(a.get(k, 0) - b.get(k, 0)) for k in {*a, *b})


def kit(vocab=4, seed=0, share=0.85, sharp=3.0, **more):
    """A target, and a draft of it that is right now and then."""
    net = TinyNet(vocab, seed, sharp=sharp)
    small = TinyNet(vocab, seed + 7).interpolate(net, share)
    return SimpleNamespace(
        vocab=vocab,
        net=net,
        fresh=lambda: TinyTarget(net, 128),
        target=TinyTarget(net, 128),
        open=lambda role: TinyTarget(net if role == "target" else small, 128),
        encode=lambda text: [ord(c) % vocab for c in text],
        ends_line=lambda token: token == 0,
        codec=ToyCodec(vocab),
        **more,
    )


def layered(folder, vocab=12, layers=6, seed=0, sharp=1.5):
    """A kit whose target is our own forward on a tiny random Llama in double precision: it lends early
    exits and views."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from specviz.targets.fast import FastModel

    path = folder / f"{vocab}-{layers}-{seed}-{sharp}"
    if not path.exists():
        torch.manual_seed(seed)
        net = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocab,
                hidden_size=16,
                intermediate_size=24,
                num_hidden_layers=layers,
                num_attention_heads=2,
                num_key_value_heads=1,
                max_position_embeddings=96,
                bos_token_id=None,
                eos_token_id=None,
                pad_token_id=None,
            )
        )
        with torch.no_grad():
            for name, weight in net.named_parameters():
                if weight.dim() > 1:
                    inner = 1.0 if "embed" in name or "head" in name else 0.6
                    weight.copy_(
                        torch.randn_like(weight)
                        / weight.shape[-1] ** 0.5
                        * inner
                        * (sharp if "head" in name else 1.0)
                    )
        net.save_pretrained(path)
    model = FastModel(path, dtype=torch.float64)

    def logits(tokens):
        target = model.open()
        target.sync(tokens[:1])
        return target.score(DraftTree.chain(tokens[1:])).logits

    return SimpleNamespace(
        vocab=vocab, net=SimpleNamespace(vocab=vocab, logits=logits), fresh=model.open, target=model.open()
    )


def play_all(
    method, kit, prompt, count, sampling=Sampling(), rng=None, stop=frozenset(), parts=None, **knobs
):
    """(tokens written, outcomes, state); the cache must hold the committed tokens after each round."""
    kit.target = kit.fresh()  # a cache that knows of no earlier run
    parts = parts or method.build(kit, **method.read_knobs(knobs))
    ticks = itertools.count()  # a clock that counts its readings: what learns from time repeats itself
    state = State(
        list(prompt),
        sampling,
        rng or RandomStreams(1),
        count,
        stop=stop,
        clock=Clock(lambda: float(next(ticks))),
    )
    target, outcomes = kit.target, []
    open_run(parts, target, state)
    while not state.done:
        outcomes.append(play(parts, target, state))
        assert target.cached_tokens == state.tokens[:-1]
    return state.tokens[len(prompt) :], outcomes, state


def play_loop(method, kit, prompt, count, sampling=Sampling(), rng=None, stop=frozenset(), **knobs):
    """(tokens written, events) of a method through its own loop."""
    kit.target = kit.fresh()
    parts = method.build(kit, **method.read_knobs(knobs))
    state = State(list(prompt), sampling, rng or RandomStreams(1), count, stop=stop)
    with torch.inference_mode():
        events = list((parts.loop or speculate)(parts, kit.target, state))
    return state.tokens[len(prompt) :], events


def greedy(net, prompt, count, stop=frozenset()):
    """Plain decoding, without a cache."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count and not (len(tokens) > len(prompt) and tokens[-1] in stop):
        tokens.append(int(net.logits(tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def joint(net, prompt, count, sampling=FREE):
    """The target's distribution of the next ``count`` tokens."""
    out = {}
    for tail in itertools.product(range(net.vocab), repeat=count):
        rows = sampling.probs(net.logits([*prompt, *tail]))[len(prompt) - 1 :]
        out[tail] = float(torch.stack([rows[i, x] for i, x in enumerate(tail)]).prod())
    return out


def check_greedy(method, kits, prompts=PROMPTS, count=40, **knobs):
    """Greedy equality over targets and prompts; returns tokens a round over all runs."""
    tokens = rounds = 0
    for one in kits:
        for prompt in prompts:
            plain = greedy(one.net, prompt, count)
            written, outcomes, _ = play_all(method, one, prompt, count, **knobs)
            assert written == plain, (method.key, prompt, knobs)
            tokens, rounds = tokens + count, rounds + len(outcomes)
            end = frozenset({plain[5]})
            assert play_all(method, one, prompt, count, stop=end, **knobs)[0] == greedy(
                one.net, prompt, count, end
            )
    return tokens / rounds


def check_distribution(method, one, prompt=(1, 2, 0, 1, 2), count=3, make=None, **knobs):
    """The distribution of the next ``count`` tokens is the target's, every run of the engine walked."""

    def once(rng):
        parts = make() if make else None
        return tuple(play_all(method, one, prompt, count, FREE, rng, parts=parts, **knobs)[0])

    found = probs_of(once)
    assert distance(found, joint(one.net, prompt, count)) < 1e-12
    return found
