"""A draft model that predicts only a part of the target's vocabulary and uses a projection of the target's
embedding.

In a small draft model the output matrix over 49,152 tokens costs more than its layers, and a few thousand
tokens cover most of the text (FR-Spec, 2502.14856; EAGLE-3, 2503.01840). An embedding table of its own
would be most of its weights; instead the target's table [vocab, wide] is projected to [vocab, hidden].
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from ..checkpoints.split import HEADS, fetched_copy, has_weights
from ..checkpoints.weights import ModelError, Weights, read_json

_tables: WeakValueDictionary[Any, Tensor] = WeakValueDictionary()  # embedding tables of the models in memory
OUTSIDE = -1e4  # logit of a token that is never drafted: its probability is exactly 0 in float32, and 0 * log p stays finite


class ProjectedTable(nn.Module):
    """An nn.Module: ids [...] -> embeddings [..., hidden]. The target's embedding table [vocab, wide],
    frozen, is followed by a trained projection, an nn.Linear. The projection belongs to the module above,
    where the file has its name."""

    table: Tensor

    def __init__(self, table: Tensor, projection: nn.Linear):
        super().__init__()
        self.register_buffer("table", table, persistent=False)
        self._projection = (projection,)  # not among the weights of this module

    @property
    def weight(self) -> Tensor:
        """The embeddings of all tokens, [vocab, hidden]."""
        return self._projection[0](self.table)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the embeddings of token ids."""
        projection = self._projection[0]
        return projection(nn.functional.embedding(ids, self.table).to(projection.weight.dtype))


class ReducedOutput:
    """An output layer over part of the vocabulary: x [rows, hidden] -> logits [rows, vocab]. layer:
    computes the logits [rows, len(tokens)]; tokens: their ids. All other tokens get the logit OUTSIDE."""

    def __init__(self, layer: Any, tokens: Tensor, vocab: int):
        self.layer = layer
        self.tokens = tokens
        self.vocab = vocab

    def __call__(self, x: Tensor) -> Tensor:
        return expand_to_vocab(self.layer(x), self.tokens, self.vocab)


def expand_to_vocab(part: Tensor, tokens: Tensor, vocab: int) -> Tensor:
    """Return logits [rows, vocab], OUTSIDE except for those of ``tokens``, which are ``part`` [rows,
    len(tokens)]."""
    return part.new_full([part.shape[0], vocab], OUTSIDE).scatter(1, tokens.expand_as(part), part)


def read_tokens(weights: Weights, count: int, vocab: int, name: str) -> Tensor:
    """Return the token ids [count] of a reduced output vocabulary. Raises ModelError unless they are
    distinct ids of the vocabulary."""
    tokens = weights.get("draft_tokens", count).long()
    if (
        not 0 < count <= vocab
        or len(tokens.unique()) != count
        or int(tokens.min()) < 0
        or int(tokens.max()) >= vocab
    ):
        raise ModelError(
            f"the draft_tokens of {name} are not distinct token ids below {vocab}", "reduced.tokens"
        )
    return tokens


def share_table(folder: Path, table: Tensor) -> None:
    """Let draft models use the embedding table [vocab, wide] of a loaded model for as long as that model
    holds it."""
    _tables[_table_key(folder, table.device, table.dtype)] = table


def _table_key(folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
    """Return what tells a table from others: folder, device, data type, and sizes and times of the files,
    which may be replaced."""
    files = [
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.iterdir())
        if path.is_file()
    ]
    return folder.resolve(), device, dtype, tuple(files)


def projected_embedding(
    weights: Weights, config: dict[str, Any], folder: Path, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Return the embedding table [vocab, hidden]: the table of the model ``embedding_from`` multiplied by
    ``model.embed_projection.weight`` [hidden, wide]. Raises ModelError."""
    table = projected_table(config, folder, device, dtype)
    return table @ weights.get("model.embed_projection.weight", config["hidden_size"], table.shape[1]).t()


def projected_table(
    config: dict[str, Any], folder: Path, device: torch.device, dtype: torch.dtype, target: Path | None = None
) -> Tensor:
    """Return the embedding table [vocab, wide] of the model ``embedding_from``: of the folder ``target`` if
    that is known, else of a folder next to ``folder`` or the one whose ``heads`` contain it. A table in
    memory (``share_table``) is not read again. Raises ModelError."""
    source = config["embedding_from"]
    if not isinstance(source, str) or not source or Path(source).name != source or source.startswith("."):
        raise ModelError(
            f"embedding_from in config.json of {folder.name} is not the name of a folder next to it",
            "reduced.embedding_from",
        )
    around = folder.parent.parent
    whole = target or (
        around if folder.parent.name == HEADS and around.name == source else folder.parent / source
    )
    wide = read_json(whole, "config.json").get("hidden_size")
    if type(wide) is not int or wide < 1:
        raise ModelError(f"config.json of {source} gives no hidden_size", "reduced.hidden_size")
    copy = (
        None if has_weights(whole) else fetched_copy(whole)
    )  # the weights of an installed package's model lie in the cache
    whole = copy if copy is not None and copy.is_dir() else whole
    shared = _tables.get(_table_key(whole, device, dtype)) if whole.is_dir() else None
    # a model loads in inference mode, and training cannot keep such a tensor for its gradients
    if (
        shared is not None
        and shared.shape == (config["vocab_size"], wide)
        and shared.is_inference() == torch.is_inference_mode_enabled()
    ):
        return shared
    weights = Weights(whole, device, dtype)
    return weights.get("model.embed_tokens.weight", config["vocab_size"], wide)
