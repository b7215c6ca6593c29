"""`python -m specviz.training RECIPE`: reproduce an embedded model with one command."""

import argparse
import ctypes
import signal
import sys
from pathlib import Path

from .recipes import exists, run_of

FIRST = ("tokenizer", "target", "generate", "draft")  # recipes before the trained parts
LAST = (
    "other_draft",
    "datastore",
    "blockffn",
    "pictures",
    "vision",
    "scales",
    "general",
    "report",
)  # recipes after them


def main(arguments: list[str] | None = None) -> int:
    """Run one recipe, or all of them, with the given command-line arguments (None: those of the process);
    return the exit status."""
    options = parser().parse_args(arguments)
    configure_threads(options.threads)
    from transformers.utils import logging

    from .data import DataError  # torch is slow to import: --help is not
    from .job import TARGET, Job, TrainingError, default_work

    logging.disable_progress_bar()
    fields = ("data", "device", "minutes", "steps", "seed", "size", "ship", "quiet")
    job = Job(
        target=options.target or TARGET,
        work=options.work or default_work(),
        speed=not options.no_speed,
        report_kinds=tuple(kind for kind in (options.only or "").split(",") if kind),
        **{name: getattr(options, name) for name in fields},
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.recipe == "scaling":
            from .scaling import answer

            print(answer(job, plain=not options.json))
            return 0
        for name in available() if options.recipe == "all" else (options.recipe,):
            if (
                name == "tokenizer"
                and options.recipe == "all"
                and job.hparams("target")["start"] == "shipped"
            ):
                continue  # a target that goes on keeps its tokenizer
            print(f"{name}: {run_of(name)(job)}", flush=True)
    except (DataError, TrainingError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped. The same command goes on from here.", file=sys.stderr)
        return 130
    return 0


def available() -> list[str]:
    """Return the names of all recipes in the order in which `all` runs them: a recipe runs after those it
    depends on."""
    from ..methods import trained_parts

    order, waiting = [*FIRST], dict(trained_parts())
    while waiting:
        ready = [kind for kind, part in waiting.items() if part.after in ("", *order)]
        if not ready:
            raise ValueError(f"the recipes {', '.join(waiting)} wait for one another")
        order += ready
        waiting = {kind: part for kind, part in waiting.items() if kind not in ready}
    return [name for name in (*order, *LAST) if exists(name)]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = argparse.ArgumentParser(prog="python -m specviz.training", description=__doc__)
    p.add_argument(
        "recipe",
        choices=("all", *available(), "compare", "scaling"),
        help="what to train; compare: the trained drafters side by side; scaling: how acceptance grew with what drafts of"
        " the target learned from, and with their sizes",
    )
    p.add_argument(
        "--target", help="the target whose drafters are trained; else the first of the embedded ones"
    )
    p.add_argument(
        "--data",
        type=Path,
        help="folder with train.jsonl.gz and heldout.jsonl.gz; without it the project's own generators",
    )
    p.add_argument(
        "--work",
        type=Path,
        help="where checkpoints, generations and the log live (~/.cache/specviz/training)",
    )
    p.add_argument("--device", type=device, default="auto", help="auto, cpu, cuda")
    p.add_argument(
        "--minutes", type=positive, help="budget of each recipe over all its resumptions; else its YAML's"
    )
    p.add_argument(
        "--steps", type=count, help="budget in steps instead of minutes: the same run on every machine"
    )
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--size",
        default="default",
        help="section of the recipe's YAML file, such as default, chat, chat_gpu or tiny",
    )
    p.add_argument("--threads", type=count, help="CPU threads")
    p.add_argument("--ship", action="store_true", help="also write the result to assets/models")
    p.add_argument("--no-speed", action="store_true", help="leave the timing of drafters out of the report")
    p.add_argument(
        "--only",
        metavar="KINDS",
        help="of report: the cards of drafters of these kinds alone, as eagle,medusa",
    )
    p.add_argument("--quiet", action="store_true", help="no progress bars")
    p.add_argument("--json", action="store_true", help="of scaling: the points and fits as JSON")
    return p


def positive(text: str) -> float:
    """Parse a number above zero, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"minutes must be above zero, not {text[:40]}")
    return value


def count(text: str) -> int:
    """Parse a whole number from 1 on, for argparse."""
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 10**9):
        raise argparse.ArgumentTypeError(f"a whole number from 1 on is needed, not {text[:40]}")
    return int(text)


def device(text: str) -> str:
    """Check the name of a torch device ("auto", "cpu", "cuda"), for argparse; return it unchanged."""
    if text != "auto":
        from ..zoo.device import read_device  # torch is slow to import: --help is not
        from ..zoo.registry import ZooError

        try:
            read_device(text)
        except ZooError as error:
            raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None
    return text


def configure_threads(threads: int | None) -> None:
    """Set the number of CPU threads (None: unchanged), and make the C library keep freed memory: returning
    large tensors to the kernel made a softmax nine times slower."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 2**28)):  # no mmap, no trim, wide steps
            if mallopt is not None:
                mallopt(option, value)
    if threads:
        import torch

        torch.set_num_threads(threads)


if __name__ == "__main__":
    sys.exit(main())
