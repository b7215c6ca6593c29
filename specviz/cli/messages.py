"""All messages of the command line about its own arguments, by identifier. Tests refer to identifiers, so a
wording can be changed here alone. Messages of engine errors are where they are raised."""

from __future__ import annotations

from typing import Any

TEXTS = {
    "usage": "{why}; try {program} --help.",
    "stopped": "stopped.",
    "bench.table_and_into": "--table shows what --into has measured: give one of them.",
    "bench.response_format": "--response-format takes JSON, or `default`.",
    "run.request": "--request takes a JSON object of a request's fields, or @FILE.",
    "run.request_file": "--request: {why}",
    "bench.knob": "--knob is METHOD.NAME=VALUE, as speculative.gamma=2.",
    "bench.into_knobs": "--knob and --traces belong to one session: leave --into out.",
    "bench.minutes": "--minutes ends a sitting: name its file with --into.",
    "bench.write": "--write writes the table and figures of a ledger: name it with --table.",
    "load.write": "--write puts a table into a page: name the stored result with --table.",
    "list.empty": "{option} names nothing; leave it out for the default.",
    "methods.empty": "No method is named; give keys of the list, or all.",
    "run.method_or_server": "run takes a --method of the list, or a --server.",
    "replay.html": "{path}: {size:.2f} MB, a stand-alone page",
    "replay.chrome": "{path}: {size:.2f} MB of Chrome trace events; ui.perfetto.dev opens them",
    "run.figures": "{tokens_per_second} tokens/s | {block_efficiency} tokens per target pass",
    "file.not_text": "it is not UTF-8 text",
    "knob.form": "--knob takes NAME=VALUE, not {given!r}.",
    "knob.one_method": "--knob is of one method: name it with --method.",
    "file.write": "{path} cannot be written: {why}.",
    "file.read": "{path} cannot be read: {why}.",
    "file.twice": "{path} is to be written twice: name two files.",
    "option.empty": "{option} is empty: give it a value, or leave it out.",
    "serve.keys": "SPECVIZ_API_KEYS names no key: list some, or unset it.",
    "file.same": "{path} is the file that is read: name another one to write.",
    "chat.n": "A conversation goes on from one answer: leave n out.",
    "run.from_model": "From the generation_config.json of {target}: {fields}.",
    "run.advised": "The generation_config.json of {target} recommends {fields}; --generation-config uses that.",
    "run.no_advice": "{target} has no generation_config.json with sampling settings.",
    "run.server_options": "A server takes a prompt with temperature, top-p, top-k, seed and length; {options} would be ignored.",
    "run.busy": "The machine was busy: throughput is of the busy machine.",
    "run.busy.replaced": "The machine was busy: {replaced} of {of} passes and drafts were interrupted and count as usual ones; "
    "tokens per second are of the busy machine.",
    "run.head_unused": "None of {tried} tries of the trained head or draft was accepted: is it for this model ({target})?",
    "vllm.missing": "vLLM is not installed here: pip install vllm, on a machine with a GPU.",
    "site.written": "{path}/index.html: {files} files, {size:.1f} MB",
    "labs.name": "labs {action} takes a name.",
    "labs.step": "{mark} {name}: {sentence}",
    "labs.wrong": "First wrong decision: {sentence} Open {path}.",
    "labs.nothing": "There is no single decision to look at, so no page was written.",
    "labs.passed": "{name}: passed.",
    "labs.failed": "{name}: not passed yet.",
    "doctor.seconds": "--seconds takes a number from 0 to 600, not {given!r}.",
    "completion.missing": "Completion needs the package shtab: pip install shtab.",
    "doctor.cached": "compiled, kept in {folder}",
    "doctor.not_cached": "not compiled yet, or not kept: the next start takes half a minute longer (folder: {folder})",
    "doctor.repository": "Models of the repository ({how}):",
    "models.here": "fetch: specviz models --fetch NAME\nrepository: {how}",
    "serve.port": "{host}:{port} cannot be used: {why}.",
}
LONGEST = 600  # characters of an error


class UsageError(ValueError):
    """Invalid command-line arguments. ``code``: the identifier of the message in TEXTS, or the message
    itself if it comes from another module."""

    def __init__(self, code: str, /, **values: Any):
        super().__init__(TEXTS.get(code, "{sentence}").format(sentence=code, **values))
        self.code, self.values = code, values


def busy_line(result: Any) -> str:
    """Return the sentence on a run during which other processes took the CPU."""
    found = result.totals.steady
    name = "run.busy.replaced" if found.replaced else "run.busy"
    return TEXTS[name].format(replaced=found.replaced, of=found.of)
