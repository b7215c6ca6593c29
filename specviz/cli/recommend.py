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
    "experts",
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
        "whether the model is a mixture of experts: dense or moe",
    )
    for question, about in zip(QUESTIONS, abouts):
        sub.add_argument(f"--{question}", metavar="ANSWER", help=about + "; default: the first")

    pays = sub.add_argument_group(
        "will a draft model pay at all",
        "an estimate from sizes, for one request; all of the first three are needed",
    )
    pays.add_argument("--active", type=float, metavar="B", help="active parameters of the model, in billions")
    pays.add_argument("--drafter", type=float, metavar="B", help="parameters of the draft model, in billions")
    pays.add_argument(
        "--acceptance", type=float, metavar="A", help="acceptance rate of a draft token, 0 to 1"
    )
    pays.add_argument(
        "--routed",
        default="0/0",
        metavar="K/E",
        help="experts that a token uses, of how many in a layer (0/0: dense)",
    )


def recommend(args: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    from ..lab import recommend as lab

    given = {
        question: getattr(args, question) for question in QUESTIONS if getattr(args, question) is not None
    }
    found = lab.recommend(**given)
    sizes = (args.active, args.drafter, args.acceptance)
    if any(size is not None for size in sizes):
        found["pays"] = _pays(lab, sizes, args.routed)
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
    for sentence in found["warnings"].values():
        print(f"\nNote: {sentence}")
    if "pays" in found:
        print(f"\n{_verdict(found['pays'])}")
    print(f"\nFlags as in {found['documents']}")
    return 0


def _pays(lab, sizes: tuple[float | None, ...], routed: str) -> dict:
    """Return the estimate for the sizes given. Raises LabError."""
    used, slash, experts = routed.partition("/")
    if None in sizes or not slash or not (used.isdecimal() and experts.isdecimal()):
        raise lab.LabError(
            "--active, --drafter and --acceptance are given together, and --routed as 8/128.",
            "recommend.pays",
        )
    return lab.will_it_pay(*sizes, experts=int(experts), used=int(used))


def _verdict(pays: dict) -> str:
    speeds = ", ".join(f"{length}: {speed:.2f}" for length, speed in enumerate(pays["speedups"], 1))
    best = f"draft {pays['best']} tokens a pass" if pays["pays"] else "no draft length pays"
    return f"By the sizes alone, {best}. Estimated speed-up by draft length: {speeds}."


def _figure(one: dict) -> str:
    if one["figure"] is None:
        return ": no figure"
    other = f"; another {', '.join(one['differs'])}" if one["differs"] else ""
    source = f"; {one['figure']['source']}" if one["figure"]["source"] else ""
    return (
        f": {one['figure']['speedup']:.2f} times plain decoding ({one['figure']['setting']}{source}{other})"
    )
