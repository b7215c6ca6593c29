"""``specviz recommend``: whether speculation pays for a server, and three methods with an engine's flags."""

from __future__ import annotations

import argparse
import json

QUESTIONS = {  # of assets/recommend.yaml, which is read only when the command runs
    "name": "the model's name, as Qwen/Qwen3-8B; a listed one answers --model and --experts",
    "engine": "vllm, sglang, tensorrt_llm, llama_cpp or transformers",
    "model": "what exists for the model: a draft head, MTP layers, a small model of its family, or none (head, mtp, family, none)",
    "task": "chat, code, copy or reason",
    "card": "the machine: h100, b200, a100, rtx, apple or cpu",
    "users": "concurrent requests, a number",
    "temperature": "temperature: greedy or sampled",
    "experts": "whether the model is a mixture of experts: dense or moe",
    "structured": "whether answers are JSON or follow a grammar: free or json",
    "tools": "whether tools are called: none or calls",
    "rates": "acceptance rates by place of the draft that a server reports, as 0.81,0.62, or its log line",
}


def add(command) -> None:
    """Add the command to the parser."""
    sub = command(
        "recommend",
        recommend,
        "Recommend three methods for a server, with the engine's flags, from published and measured speed-ups.",
    )
    for question, about in QUESTIONS.items():
        default = "" if question in ("name", "rates") else "; default: the first"
        sub.add_argument(
            f"--{question}",
            metavar="ANSWER",
            type=_number if question == "users" else str,
            help=about + default,
        )

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
    print("; ".join(_said(words[question], answer) for question, answer in found["asked"].items() if answer))
    print(f"\n{PAYS[found['verdict']['pays']]}")
    if found["measured"]:
        print(_measured(found["measured"]))
    for number, one in enumerate(found["answers"], 1):
        print(f"\n{number}. {one['title']}{_figure(one)}\n   {one['note']}")
        if one["range"]:
            print(f"   {_range(one['range'])}")
        print("".join(f"     {line}\n" for line in one["flags"].splitlines()), end="")
    if found["few"]:
        print(f"\nOnly {len(found['answers'])} here: {found['few']}.")
    for sentence in found["warnings"].values():
        print(f"\nNote: {sentence}")
    if "pays" in found:
        print(f"\n{_verdict(found['pays'])}")
    print(f"\nFlags as in {found['documents']}")
    return 0


DIFFERS = {"card": "machine", "users": "requests at once", "experts": "mixture of experts"}
PAYS = {
    True: "Speculation pays.",
    False: "Use plain decoding: speculation will not pay.",
    None: "It depends: measure first.",
}


def _number(text: str) -> int | str:
    """Return a whole number; other text as it is, which the questions refuse."""
    return int(text) if text.isdecimal() else text


def _said(question: dict, answer) -> str:
    """Return an answer in the question's words."""
    words = question.get("answers", {}).get(answer, str(answer))
    return words if words not in ("Yes", "No") and "answers" in question else f"{question['title']} {words}"


def _measured(found: dict) -> str:
    lengths = ", ".join(f"{length}: {speed:.2f}" for length, speed in enumerate(found["speedups"], 1))
    best = f"draft {found['best']} tokens a pass" if found["best"] else "no draft length pays"
    return f"By your rates, {best}. Estimated speed-up by draft length: {lengths}."


def _range(found: dict) -> str:
    users = "for about as many users" if found["users"] else "for other numbers of users"
    return f"{found['count']} figures {users}: {found['low']:.2f} to {found['high']:.2f}."


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
    apart = "; ".join(
        f"{DIFFERS.get(each['what'], each['what'])} {each['theirs'] or 'not stated'}"
        for each in one["differs"]
    )
    other = f"; not your case: {apart}" if apart else ""
    source = f"; {one['figure']['source']}" if one["figure"]["source"] else ""
    return (
        f": {one['figure']['speedup']:.2f} times plain decoding ({one['figure']['setting']}{source}{other})"
    )
