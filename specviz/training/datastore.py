"""Build a datastore for retrieval drafters: tokens of texts, with a suffix array over them (REST, He et al.
2311.08252).

The texts are answers, from the project's own rows or from a data folder. Building takes about ten seconds
per million tokens: five sorts of the whole array, for matches and continuations of up to 32 tokens
together.

    python -m specviz.training.datastore [--data FOLDER] [--work FOLDER] [--name NAME] [--tokens MOST]
    [--dense] [--target TARGET] [--ship]

With --dense the target also processes the texts, and the hidden state that predicted each token is stored
with it (DReSD). That takes one forward pass over all texts, and such a datastore works with this target
only.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..indexes.nearest import import_faiss, is_made_for
from ..indexes.store import FORMAT, Store, vocabulary_mark
from ..indexes.suffix_array import PART, SuffixArray
from ..targets.fast import FastModel
from . import data
from .dense_store import with_states
from .files import write_bytes, write_json
from .job import TARGET, Job, TrainingError

DEPTH = 32  # tokens of a match and its continuation together
MOST = 1_000_000  # tokens
DENSE_MOST = 100_000  # tokens of a store with states


def build_store(
    name: str, documents: Iterable[list[int]], *, mark: str = "", source: str = "", most: int = MOST
) -> Store:
    """Return a datastore in memory: the first ``most`` tokens of the documents (token ids), with a suffix
    array. A separator follows each document, so that no draft continues past its end. mark: fingerprint of
    the vocabulary; source: where the texts come from."""
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
        "format": FORMAT,
        "name": name,
        "mark": mark,
        "source": source,
        "depth": DEPTH,
        "tokens": len(array),
        "documents": count,
        "bytes": array.tokens.nbytes + array.order.nbytes,
        "build_seconds": round(time.monotonic() - began, 3),
    }
    return Store(name, array, facts)


def save(store: Store, folder: Path) -> None:
    """Write a datastore into a folder: the arrays first, then the metadata. Raises TrainingError if writing
    fails."""
    for part, values in (("tokens", store.array.tokens), ("order", store.array.order)):
        content = io.BytesIO()
        np.save(content, values, allow_pickle=False)
        write_bytes(folder / f"{part}.npy", content.getvalue())
    if store.dense is not None:
        frame, content = store.dense.frame, io.BytesIO()
        np.savez(content, centre=frame.centre.numpy(), spread=frame.spread.numpy(), axes=frame.axes.numpy())
        write_bytes(folder / "frame.npz", content.getvalue())
        content = io.BytesIO()
        np.save(content, store.dense.keys, allow_pickle=False)
        write_bytes(folder / "keys.npy", content.getvalue())
    if store.dense is not None and store.dense.graph is not None:
        write_bytes(folder / "keys.faiss", import_faiss().serialize_index(store.dense.graph).tobytes())
    write_json(folder / "store.json", store.facts)


def run(job: Job, name: str = "text", most: int = MOST, dense: bool = False) -> str:
    """Build a datastore of at most ``most`` tokens and save it; return a sentence with its size and the
    build time. dense: also store the target's hidden state for each token."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job.model(job.target), trust_remote_code=False)
    source = "the project's own generated rows" if job.data is None else f"answers of {job.data.name}"
    own_rows, mark = job.hparams("generate")["own_rows"], vocabulary_mark(tokenizer)
    places = [job.work / "stores" / name] + ([job.shipped.parent / "stores" / name] if job.ship else [])
    target = FastModel(job.model(job.target)).open() if dense else None
    made_of = {"mark": mark, "source": source, "most": most, "rows": own_rows}
    known = [_facts(place) for place in places]
    if all(
        made_of.items() <= facts.items() and (target is None or is_made_for(facts.get("states"), target))
        for facts in known
    ):
        return f"{_card_text(places[-1], _facts(places[-1]))}; it is up to date"
    rows = data.load(job.data, "train", own_rows)
    end = [tokenizer.eos_token_id]
    documents = (
        tokenizer.encode(row.response, add_special_tokens=False, split_special_tokens=True) + end
        for row in rows
    )
    store = build_store(name, documents, mark=mark, source=source, most=most)
    store.facts.update(made_of)
    if not len(store.array):
        raise TrainingError("There is no text to build a datastore from.", "datastore.no_text")
    if dense:
        store = with_states(store, target)
    for place in places:
        save(store, place)
    facts = store.facts
    job.log("datastore", **facts)
    return _card_text(places[-1], facts)


def _card_text(place: Path, facts: dict) -> str:
    search = f", {facts['search']} search over states" if "search" in facts else ""
    return (
        f"{place}: {facts['tokens']:,} tokens of {facts['documents']:,} documents, {facts['bytes'] / 1e6:.1f} MB, "
        f"built in {facts['build_seconds']:.1f} s{search}"
    )


def _facts(place: Path) -> dict:
    """Return the metadata of an existing datastore; empty without one."""
    path = place / "store.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def main(arguments: list[str] | None = None) -> int:
    """Build a datastore as the command line asks; return the exit status."""
    p = argparse.ArgumentParser(
        prog="python -m specviz.training.datastore", description=(__doc__ or "").splitlines()[0]
    )
    p.add_argument(
        "--data", type=Path, help="folder with train.jsonl.gz; without it the project's own generators"
    )
    p.add_argument("--work", type=Path, help="where the store is written (~/.cache/specviz/training/stores)")
    p.add_argument("--name", help="text, or dense with --dense, after the name of any target but the first")
    p.add_argument("--target", help="a name of models.yaml; else the first of the embedded ones")
    p.add_argument(
        "--tokens", type=int, help=f"most tokens to keep ({MOST:,}, or {DENSE_MOST:,} with --dense)"
    )
    p.add_argument("--dense", action="store_true", help="with the target's states, for DReSD")
    p.add_argument("--ship", action="store_true", help="also write it to assets/stores")
    options = p.parse_args(arguments)
    given = {name: value for name in ("work", "target") if (value := getattr(options, name))}
    job = Job(data=options.data, ship=options.ship, **given)
    try:
        most = options.tokens or (DENSE_MOST if options.dense else MOST)
        usual = "text" if not options.dense else "dense" if job.target == TARGET else f"{job.target}-dense"
        print(run(job, options.name or usual, most, options.dense))
    except (data.DataError, TrainingError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
