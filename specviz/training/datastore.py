"""A datastore for retrieval drafters: texts as tokens with a suffix array over them (REST, He et al. 2311.08252).

The texts are the project's own generated rows, or a data folder's; answers only, since drafts are answers. Building sorts n
numbers five times for matches and continuations of 32 tokens together: some ten seconds a million tokens, their encoding included.

    python -m specviz.training.datastore [--data FOLDER] [--work FOLDER] [--name NAME] [--tokens MOST] [--ship]
"""
from __future__ import annotations

import argparse
import io
import json
import sys
import time
from pathlib import Path
from typing import Iterable

import numpy as np

from ..drafters.store import FORMAT, Store, vocabulary_mark
from ..drafters.suffix_array import PART, SuffixArray
from . import data
from .files import write_bytes, write_json
from .job import TARGET, Job, TrainingError

DEPTH = 32  # tokens of a match and its continuation together
MOST = 1_000_000  # tokens


def make_store(name: str, documents: Iterable[list[int]], *, mark: str = "", source: str = "", most: int = MOST) -> Store:
    """A store in memory of the first ``most`` tokens; documents are parted so that nothing is copied across their border."""
    began = time.monotonic()
    tokens: list[int] = []
    count = 0
    for document in documents:
        if len(tokens) >= most:
            break
        tokens += [*document, int(PART)]
        count += 1
    array = SuffixArray.build(np.array(tokens[:most], dtype=np.uint32), DEPTH)
    facts = {
        "format": FORMAT, "name": name, "mark": mark, "source": source, "depth": DEPTH, "tokens": len(array), "documents": count,
        "bytes": array.tokens.nbytes + array.order.nbytes, "build_seconds": round(time.monotonic() - began, 3),
    }
    return Store(name, array, facts)


def save(store: Store, folder: Path) -> None:
    """Write the arrays, then what describes them. Raises TrainingError when the disk refuses."""
    for part, values in (("tokens", store.array.tokens), ("order", store.array.order)):
        content = io.BytesIO()
        np.save(content, values, allow_pickle=False)
        write_bytes(folder / f"{part}.npy", content.getvalue())
    write_json(folder / "store.json", store.facts)


def run(job: Job, name: str = "text", most: int = MOST) -> str:
    """Build, save, and say how large it became and how long it took."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.model(TARGET))
    source = "the project's own generated rows" if job.data is None else f"answers of {job.data.name}"
    own_rows, mark = job.numbers("generate")["own_rows"], vocabulary_mark(tokenizer)
    places = [job.work / "stores" / name] + ([job.shipped.parent / "stores" / name] if job.ship else [])
    made_of = {"mark": mark, "source": source, "most": most, "rows": own_rows}
    if all(made_of.items() <= _facts(place).items() for place in places):
        return f"{places[-1]} is up to date"
    rows = data.load(job.data, "train", own_rows)
    end = [tokenizer.eos_token_id]
    documents = (tokenizer.encode(row.response, add_special_tokens=False, split_special_tokens=True) + end for row in rows)
    store = make_store(name, documents, mark=mark, source=source, most=most)
    store.facts.update(made_of)
    if not len(store.array):
        raise TrainingError("There is no text to build a datastore from.")
    for place in places:
        save(store, place)
    facts = store.facts
    job.log("datastore", **facts)
    return (f"{places[-1]}: {facts['tokens']:,} tokens of {facts['documents']:,} documents, {facts['bytes'] / 1e6:.1f} MB, "
            f"built in {facts['build_seconds']:.1f} s")


def _facts(place: Path) -> dict:
    """What the store that is there was made of; empty where there is none."""
    path = place / "store.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m specviz.training.datastore", description=__doc__.splitlines()[0])
    p.add_argument("--data", type=Path, help="folder with train.jsonl.gz; without it the project's own generators")
    p.add_argument("--work", type=Path, help="where the store is written (~/.cache/specviz/training/stores)")
    p.add_argument("--name", default="text")
    p.add_argument("--tokens", type=int, default=MOST, help="most tokens to keep")
    p.add_argument("--ship", action="store_true", help="also write it to assets/stores")
    options = p.parse_args(arguments)
    job = Job(data=options.data, ship=options.ship, **({"work": options.work} if options.work else {}))
    try:
        print(run(job, options.name, options.tokens))
    except (data.DataError, TrainingError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
