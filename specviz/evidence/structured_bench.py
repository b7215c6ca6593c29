"""Structured output with every method: validity, equality with plain constrained decoding, and speed
compared with unconstrained decoding.

Three runs for every method and prompt: greedy with the response format, compared token by token with plain
decoding; sampled with it, checked for validity only; and greedy without it, with at most as many tokens,
for its speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..methods import catalogue
from ..run.processors import stop_tokens
from ..run.request import GenerationRequest, SessionError
from ..run.result import Result, RunFailed, collect
from ..run.session import Session
from ..run.structured import Grammar
from ..trace.metrics import Totals

if TYPE_CHECKING:
    from ..zoo.pair import Loaded

COLUMNS = [
    "method",
    "answers",
    "valid",
    "equal",
    "valid_sampled",
    "tokens_per_pass",
    "unconstrained_tokens_per_pass",
    "tokens_per_second",
    "unconstrained_tokens_per_second",
]
TITLE = "## Structured output by method"  # of the section in docs/requests.md
HEADER = "| method | valid, greedy | equal to plain | valid, sampled | tokens per pass | unconstrained | tokens/s | unconstrained |"
PROMPTS = (
    "Invent a person who lives in a small town.",
    "Describe yourself as JSON.",
    "Who wrote Faust? Answer with a person.",
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "hobbies": {"type": "array", "items": {"enum": ["reading", "music", "chess"]}, "maxItems": 2},
    },
    "required": ["name", "age", "hobbies"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
TOKENS = 120  # longer than any answer that the schema allows
HOT = 1.0  # temperature of the sampled runs
ALONE = 1.05  # tokens per pass below which a method gained nothing


@dataclass
class Row:
    """The results of one method. constrained, unconstrained: totals of the greedy runs with and without the
    response format."""

    method: str
    answers: int = 0
    valid: int = 0
    equal: int = 0
    valid_sampled: int = 0
    constrained: Totals = field(default_factory=Totals)
    unconstrained: Totals = field(default_factory=Totals)

    def record(self) -> dict[str, Any]:
        """Return the results as plain data."""
        constrained, unconstrained = self.constrained.metrics(), self.unconstrained.metrics()
        return {
            "method": self.method,
            "answers": self.answers,
            "valid": self.valid,
            "equal": self.equal,
            "valid_sampled": self.valid_sampled,
            "tokens_per_pass": constrained["block_efficiency"],
            "unconstrained_tokens_per_pass": unconstrained["block_efficiency"],
            "tokens_per_second": constrained["tokens_per_second"],
            "unconstrained_tokens_per_second": unconstrained["tokens_per_second"],
        }


def structured_bench(
    loaded: Loaded,
    methods: Sequence[str] | None = None,
    response_format: dict[str, Any] | None = None,
    prompts: Sequence[str] = PROMPTS,
    report: Callable[[str], None] = lambda words: None,
) -> Iterator[Row]:
    """Yield the results of each method, plain decoding first. methods None: all exact ones, because others
    need not equal plain decoding. Methods that cannot run on these models are reported (``report``) and
    left out."""
    constrained = GenerationRequest(response_format=response_format or FORMAT, max_tokens=TOKENS)
    stops = sorted(stop_tokens(constrained, loaded.end_tokens))
    grammar = Grammar(constrained.response_format or FORMAT, loaded.tokenizer, loaded.vocab, stops)
    plain: dict[str, Result] = {}
    exact = [
        method.key
        for method in catalogue().values()
        if method.exactness in ("exact", "greedy only") and not method.bound
    ]
    chosen = [key for key in (methods or exact) if key != "autoregressive"]
    for key in ("autoregressive", *chosen):
        try:
            yield _row(loaded, key, grammar, constrained, prompts, plain)
        except (SessionError, RunFailed) as why:
            report(f"{key}: {why}")


def _row(
    loaded: Loaded,
    key: str,
    grammar: Grammar,
    constrained: GenerationRequest,
    prompts: Sequence[str],
    plain: dict[str, Result],
) -> Row:
    row = Row(key)
    for i, prompt in enumerate(prompts):
        result = collect(Session(loaded, key, request=constrained).run(prompt))
        plain.setdefault(prompt, result)
        unconstrained = collect(
            Session(loaded, key, request=GenerationRequest(max_tokens=len(result.token_ids))).run(prompt)
        )
        row.answers += 1
        row.valid += grammar.matches(result.token_ids)
        row.equal += result.token_ids == plain[prompt].token_ids
        row.constrained += result.totals
        row.unconstrained += unconstrained.totals
        if catalogue()[key].exactness == "exact":
            hot = collect(
                Session(loaded, key, request=replace(constrained, temperature=HOT, seed=i)).run(prompt)
            )
            row.valid_sampled += grammar.matches(hot.token_ids)
    return row


def with_table(page: str, rows: Sequence[dict[str, Any]], facts: dict[str, Any]) -> str:
    """Return docs/requests.md (``page``) with these rows in its section on methods. facts: Loaded.facts of
    the models."""
    before, rest = page.split(f"{TITLE}\n", 1)
    after = rest.partition("\n## ")[2]
    return f"{before}{TITLE}\n\n{_words(rows, facts)}\n\n{_table(rows)}\n" + (
        f"\n## {after}" if after else ""
    )


def _words(rows: Sequence[dict[str, Any]], facts: dict[str, Any]) -> str:
    """Return what was measured, where, and the totals of all methods."""
    answers, sampled = (
        sum(row["answers"] for row in rows),
        sum(row["answers"] for row in rows if _is_sampled(row)),
    )
    valid, equal, hot = (sum(row[name] for row in rows) for name in ("valid", "equal", "valid_sampled"))
    alone = sum(round(row["tokens_per_pass"], 2) < ALONE for row in rows[1:])  # as the table shows them
    count = max(row["answers"] for row in rows)
    draft = (facts["draft"] or {}).get("name", "no draft model")
    return f"""One JSON schema (a name, an age, at most two hobbies) on {facts["target"]["name"]} with {draft}, {len(rows)} exact methods,
prompts: {count}. For each method and prompt: a greedy answer compared with plain constrained decoding, an answer sampled at
temperature {HOT:g} whose validity is checked, and a greedy answer of the same length without the schema.

    specviz bench --response-format default --prompts {count} --target {facts["target"]["name"]} --write

| answers | count |
|---|---|
| greedy, valid | {valid} of {answers} |
| greedy, equal to plain constrained decoding | {equal} of {answers} |
| sampled, valid | {hot} of {sampled} |

Tokens per pass do not depend on the machine; tokens per second were measured on {facts["env"]["machine"]}, {facts["env"]["device"]}. With
the schema {alone} of {len(rows) - 1} methods write fewer than {ALONE:g} tokens per pass: what they copy or guess without the mask
is forbidden, and the target refuses it."""


def _is_sampled(row: dict[str, Any]) -> bool:
    return catalogue()[row["method"]].exactness == "exact"


def _table(rows: Sequence[dict[str, Any]]) -> str:
    table = [HEADER, "|---" * (HEADER.count("|") - 1) + "|"]
    for row in rows:
        counts = [f"{row[name]} of {row['answers']}" for name in ("valid", "equal")]
        counts.append(f"{row['valid_sampled']} of {row['answers']}" if _is_sampled(row) else "greedy only")
        speeds = [f"{row[name]:.2f}" for name in ("tokens_per_pass", "unconstrained_tokens_per_pass")]
        speeds += [f"{row[name]:.1f}" for name in ("tokens_per_second", "unconstrained_tokens_per_second")]
        table.append(f"| `{row['method']}` | {' | '.join([*counts, *speeds])} |")
    return "\n".join(table)
