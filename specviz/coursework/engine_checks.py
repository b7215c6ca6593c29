"""A submission as the verifier of the engine: greedy text, and the certificate of sampled answers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..core import DraftTree, Knob, Method, Parts, Scores, State, Verdict, Verifier
from ..core.draft_labels import CHOSEN, IID, WITHOUT_REPLACEMENT
from ..core.errors import CodedError
from ..evidence.certificate import greedy
from ..evidence.whole_answers import CHANCE, certify_answers
from .exercise import Check, Code, failed, passed
from .outcomes import Outcome
from .submission import SubmissionError
from .toy_models import PROMPTS, TinyLoaded

TOKENS = 600  # tokens of the certificate
TEXT = 40  # tokens of each greedy text
SEEDS = 2**31
SMALL = "Llama-specviz-16M"
QUESTIONS = ("Tell me a short story.", "What is a cat?")


def read_chain(answer: Any, nodes: int, vocab: int, name: str) -> Outcome:
    """Read (number of accepted tokens, next token) from a submission's answer. Raises SubmissionError."""
    try:
        count, token = answer
        count, token = whole(count), whole(token)
    except (TypeError, ValueError):
        raise SubmissionError("answer.chain", name=name, answer=short(answer)) from None
    if not (0 <= count <= nodes and 0 <= token < vocab):
        raise SubmissionError("answer.range", name=name, answer=short(answer), nodes=nodes, last=vocab - 1)
    return tuple(range(count)), token


def read_tree(answer: Any, parents: list[int], vocab: int, name: str) -> Outcome:
    """Read (accepted nodes from the root down, next token) from a submission's answer. Raises SubmissionError."""
    try:
        path, token = answer
        path, token = tuple(whole(node) for node in path), whole(token)
    except (TypeError, ValueError):
        raise SubmissionError("answer.tree", name=name, answer=short(answer)) from None
    above = -1
    for node in path:
        if not 0 <= node < len(parents) or parents[node] != above:
            raise SubmissionError("answer.path", name=name, answer=short(answer))
        above = node
    if not 0 <= token < vocab:
        raise SubmissionError(
            "answer.range", name=name, answer=short(answer), nodes=len(parents), last=vocab - 1
        )
    return path, token


def whole(value: Any) -> int:
    """Return a whole number, also one in a tensor. Raises TypeError or ValueError."""
    value = value.item() if isinstance(value, Tensor) else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise TypeError
    return int(value)


def short(value: Any) -> str:
    """Return the beginning of a value's text."""
    return repr(value)[:80]


def call_chain(code: Code, p: Tensor, q: Tensor, draft: list[int], seed: int) -> Outcome:
    """Call verify(p, q, draft, rng) of a submission."""
    return read_chain(code.call("verify", p, q, draft, {"$rng": seed}), len(draft), p.shape[-1], code.name)


def call_tree(code: Code, p: Tensor, q: Tensor, tokens: list[int], parents: list[int], seed: int) -> Outcome:
    """Call verify(p, q, tokens, parents, rng) of a submission."""
    return read_tree(
        code.call("verify", p, q, tokens, parents, {"$rng": seed}), parents, p.shape[-1], code.name
    )


class SubmittedVerifier(Verifier):
    """The verifier of a submission. tree: whether it takes trees."""

    labels = frozenset({CHOSEN, IID, WITHOUT_REPLACEMENT})

    def __init__(self, code: Code, tree: bool):
        self.code = code
        self.tree = tree

    def verify(self, tree: DraftTree, scores: Scores, state: State) -> Verdict:
        """Verify a draft with the submission; a round without a draft samples from the target."""
        p = state.sampling.probs(scores.logits).double()
        if not len(tree):
            return Verdict((), state.rng.pick("verify", p[0]), "plain", (), p[0])
        rows = [tree.draft_probs(i) for i in range(len(tree))]
        q = torch.stack([row for row in rows if row is not None]).double()
        seed = state.rng.stream("verify").randrange(SEEDS)
        if self.tree:
            path, token = call_tree(self.code, p, q, list(tree.tokens), list(tree.parents), seed)
        else:
            path, token = call_chain(self.code, p, q, list(tree.tokens), seed)
        last = path[-1] if path else -1
        return Verdict(path, token, "correction" if tree.children(last) else "bonus")


def method_with(code: Code, tree: bool) -> Method:
    """Return speculative decoding that is verified by a submission."""

    def build(kit: Any, gamma: int) -> Parts:
        from ..drafters.model.chain import DraftChain
        from ..policies import Fixed
        from ..trees import Shape

        draft = kit.open("draft")
        if not tree:
            return Parts(DraftChain(draft), Fixed(gamma), SubmittedVerifier(code, False))
        # one shape at every temperature: at temperature 0 the same token would be drawn again and again
        shape = Shape.of_paths([(0,), (1,), (0, 0), (0, 1), (1, 0)])
        return Parts(drawn_tree(draft, shape), Fixed(2, 2, len(shape)), SubmittedVerifier(code, True))

    return Method(
        key="submission",
        title="A submission",
        paper="",
        family="Coursework",
        summary="",
        build=build,
        knobs=(Knob("gamma", 3, 1, 6, "drafted tokens"),),
        needs=frozenset({"draft"}),
    )


def drawn_tree(draft: Any, shape: Any) -> Any:
    """Return a drafter of a tree with sampled siblings; at temperature 0 siblings have one-hot distributions, as
    samples have."""
    from ..drafters.model.chain import DraftShape
    from ..trees import drawn_children, grow_shape

    class Drawn(DraftShape):
        def propose(self, state: State, budget: Any) -> DraftTree:
            cut = self.shape.within(budget.gamma, budget.width)
            if not len(cut):
                return DraftTree()
            self.model.sync(state.tokens)
            return grow_shape(self.model, cut, state, drawn_children)

    return Drawn(draft, shape)


def greedy_check(code: Code, tree: bool) -> Check:
    """Compare greedy text with plain decoding on the tiny target."""
    found = greedy(TinyLoaded(), method_with(code, tree), list(PROMPTS), TEXT)  # type: ignore[arg-type]
    figures = {"tokens": found["tokens"], "position": found["position"]}
    if found["status"] in ("identical", "near_tie"):
        return passed("greedy text", "greedy.equal", figures, tokens=found["tokens"])
    return failed("greedy text", "greedy.differs", figures, at=found["position"])


@cache
def small_target() -> Any:
    """Return the small target with its draft model. Raises ZooError if its weights are not here."""
    from ..zoo import load

    return load(SMALL, None, "cpu", deterministic=True)


def small_target_checks(method: Method) -> list[Check]:
    """Compare greedy text with plain decoding on the small target, which has real words and a vocabulary of 8,192;
    no check if its weights are not here."""
    try:
        found = greedy(small_target(), method, list(QUESTIONS), TEXT)
    except CodedError:
        return []
    figures = {"tokens": found["tokens"], "position": found["position"]}
    if found["status"] in ("identical", "near_tie"):
        return [passed("small target", "small.equal", figures, tokens=found["tokens"])]
    return [failed("small target", "small.differs", figures, at=found["position"])]


def certificate_check(code: Code, tree: bool, seed: int, tokens: int = TOKENS) -> Check:
    """Test the distribution of whole sampled answers on the tiny target."""
    found = certify_answers(
        TinyLoaded(),  # type: ignore[arg-type]
        method_with(code, tree),
        list(PROMPTS),
        tokens,
        seed=seed,
    )
    powers = {kind: round(one["power"], 3) for kind, one in found["apart"].items()}
    figures = {"p": found["p"], "tokens": found["samples"], "power": powers, "level": CHANCE}
    if found["status"] == "pass":
        return passed("sampled text", "certificate.pass", figures, tokens=found["samples"], p=found["p"])
    return failed("sampled text", "certificate.fail", figures, tokens=found["samples"], p=found["p"])


def tree_of(tokens: list[int], parents: list[int], q: Tensor, label: str) -> DraftTree:
    """Return a draft tree in which node i was sampled from q[i]; siblings of one parent share a draw, with the
    distribution of the first of them, if they were drawn without replacement."""
    if label == IID:
        return DraftTree(tuple(tokens), tuple(parents), tuple(range(len(tokens))), q, (IID,) * len(tokens))
    first: dict[int, int] = {}
    for node, parent in enumerate(parents):
        first.setdefault(parent, node)
    order = {parent: k for k, parent in enumerate(first)}
    return replace(
        DraftTree(tuple(tokens), tuple(parents)),
        draw=tuple(order[parent] for parent in parents),
        probs=q[list(first.values())],
        drawn=(WITHOUT_REPLACEMENT,) * len(first),
    )
