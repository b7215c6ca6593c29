"""``specviz recommend``: recommend three methods for a server, with an engine's flags."""

from __future__ import annotations

import argparse
import json

QUESTIONS = (
    "engine",
    "model",
    "task",
    "load",
    "temperature",
)  # of assets/recommend.yaml; read there only when the command runs


def add(command) -> None:
    """Add the command to the parser."""
    sub = command(
        "recommend",
        recommend,
        "Recommend three methods for a server, with the engine's flags, from published and measured speed-ups.",
    )
    abouts = (
        "vllm, sglang, tensorrt_llm, llama_cpp or transformers",
        "what exists for the model: a draft head, MTP layers, a small model of its family, or none (head, mtp, family, none)",
        "chat, code, copy or reason",
        "concurrent requests: one, few or many",
        "temperature: greedy or sampled",
    )
    for question, about in zip(QUESTIONS, abouts):
        sub.add_argument(f"--{question}", metavar="ANSWER", help=about + "; default: the first")


def recommend(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from ..lab import recommend as lab

    given = {
        question: getattr(args, question) for question in QUESTIONS if getattr(args, question) is not None
    }
    found = lab.recommend(**given)
    if args.json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return 0
    words = lab.questions()
    print("; ".join(words[question]["answers"][answer] for question, answer in found["asked"].items()))
    for number, one in enumerate(found["answers"], 1):
        print(f"\n{number}. {one['title']}{_figure(one)}\n   {one['note']}")
        print("".join(f"     {line}\n" for line in one["flags"].splitlines()), end="")
    if found["few"]:
        print(f"\nOnly {len(found['answers'])} here: {found['few']}.")
    print(f"\nFlags as in {found['documents']}")
    return 0


def _figure(one: dict) -> str:
    if one["figure"] is None:
        return ": no figure"
    other = f"; another {', '.join(one['differs'])}" if one["differs"] else ""
    source = f"; {one['figure']['source']}" if one["figure"]["source"] else ""
    return (
        f": {one['figure']['speedup']:.2f} times plain decoding ({one['figure']['setting']}{source}{other})"
    )
