"""Draft the tokens that a grammar forces: keys, quotes and brackets of a JSON schema need no draft model
(structured output).

llguidance calls them fast-forward tokens, SGLang jump-forward decoding. Here they are verified like any
other draft: the target may choose another spelling that the grammar allows, so the output is that of plain
constrained decoding.
"""

from __future__ import annotations

from ...core import Budget, Drafter, DraftTree, Origin, Outcome, Scores, State, Target, TreeBuilder


class GrammarForced(Drafter):
    """Drafter of the chain of tokens that the request's grammar forces. If the next token is not forced, or
    there is no grammar, the drafter ``inner`` drafts.

    max_tokens: maximum number of forced tokens per round.
    """

    def __init__(self, inner: Drafter, max_tokens: int = 32):
        self.inner, self.max_tokens = inner, max_tokens
        self.hidden_states = inner.hidden_states
        self.needs = inner.needs
        self.restartable = inner.restartable

    def start(self, state: State, target: Target, prefill: Scores) -> None:
        self.inner.start(state, target, prefill)

    def propose(self, state: State, budget: Budget) -> DraftTree:
        forced = (
            state.processors.forced(state.tokens, state.start)[: self.max_tokens]
            if state.processors and budget.gamma > 0
            else []
        )
        if not forced:
            return self.inner.propose(state, budget)
        state.note("forced", tokens=forced)
        builder = TreeBuilder()
        builder.chain(forced, [Origin("grammar", at, at + 1) for at in range(len(forced))])
        return builder.tree()

    def observe(self, state: State, outcome: Outcome) -> None:
        self.inner.observe(state, outcome)
