"""Draft models with a reduced output vocabulary and the target's embedding through a learned projection.

With 49,152 tokens, embedding and output matrix would be most of a small draft's weights and time. A few
thousand tokens make up most text (FR-Spec, arXiv 2502.14856; EAGLE-3, 2503.01840), and the target's
embedding covers all of them. models/reduced_vocabulary.py reads what ``export`` writes; ``open_draft``
opens it for training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from ..checkpoints import mx
from ..checkpoints.weights import Weights, read_json
from ..models.pretrained import open_config, open_network
from ..models.reduced_vocabulary import ProjectedTable, expand_to_vocab, projected_table
from ..zoo.found_weights import mark
from .files import write_json, write_shards
from .job import Job, TrainingError
from .text_answers import Answer

ABSENT = -30.0  # log-probability of an entry of the top tokens that no token of the draft vocabulary fills


class ReducedHead(nn.Linear):
    """An nn.Linear: states [..., hidden] -> logits [..., vocab]. It has weights only for ``tokens``
    [count]; all other tokens get minus infinity."""

    tokens: Tensor
    places: Tensor

    def __init__(self, weight: Tensor, tokens: Tensor, vocab: int):
        super().__init__(weight.shape[1], len(tokens), bias=False)
        self.weight, self.vocab = nn.Parameter(weight), vocab
        places = torch.full((vocab,), -1)
        places[tokens] = torch.arange(len(tokens))
        self.register_buffer("tokens", tokens)
        self.register_buffer("places", places, persistent=False)  # of each token its row, -1: none

    def forward(self, x: Tensor) -> Tensor:
        """Return logits over the whole vocabulary."""
        part = F.linear(x, self.weight)
        return expand_to_vocab(part.flatten(0, -2), self.tokens, self.vocab).view(
            *part.shape[:-1], self.vocab
        )

    def to_reduced_vocabulary(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Convert a batch of ``draft.collate``: replace token ids by indices into ``tokens``, and drop
        positions whose label is not in ``tokens``.

        Top tokens outside ``tokens`` are dropped and the target's distribution is renormalised. To keep the
        shape, each is replaced by a rare token outside the top tokens, with probability exp(ABSENT)."""
        ids, where, top_ids, top_logp, labels = batch
        kept = (self.places[labels] >= 0).nonzero()[:, 0]
        if (
            top_ids.shape[1] == 1 and not top_logp.any()
        ):  # without the target's distributions (draft.label_every_token)
            return (
                ids,
                where[kept],
                torch.zeros_like(top_ids[kept]),
                top_logp[kept],
                self.places[labels[kept]],
            )
        rows, logp = self.places[top_ids[kept]], top_logp[kept]
        absent = rows < 0
        missing = (logp.exp() * absent).sum(-1, keepdim=True).clamp(max=1 - 1e-6)
        spare = torch.arange(len(self.tokens) - 1, -1, -1, device=rows.device)[: 2 * rows.shape[1]]
        taken = (spare[None, :, None] == rows[:, None, :]).any(-1)
        fillers = spare[taken.long().sort(dim=-1, stable=True).indices[:, : rows.shape[1]]]
        order = absent.long().cumsum(-1).sub(1).clamp(min=0)  # each absent leader takes a filler of its own
        rows = torch.where(absent, fillers.gather(1, order), rows)
        return (
            ids,
            where[kept],
            rows,
            torch.where(absent, ABSENT, logp - (1 - missing).log()),
            self.places[labels[kept]],
        )


def token_counts(answers: list[Answer], vocab: int) -> Tensor:
    """Return how often each token occurs in the answers, [vocab]."""
    return torch.bincount(torch.cat([a.ids[a.start :] for a in answers]).long(), minlength=vocab)


def frequent_tokens(answers: list[Answer], vocab: int, count: int, ends: list[int]) -> Tensor:
    """Return the ``count`` most frequent token ids of the answers in descending order, of equally frequent
    ones the smaller id first. The end tokens are always included."""
    counts = token_counts(answers, vocab)
    counts[ends] = counts.max() + 1
    return counts.argsort(descending=True, stable=True)[:count]


def reduce_vocabulary(model: LlamaForCausalLM, table: Tensor, tokens: Tensor) -> LlamaForCausalLM:
    """Replace a draft's embedding by a ProjectedTable over ``table``, the target's embedding, and its
    output matrix by a ReducedHead over ``tokens``. The projection is initialised with principal components
    of the tokens' embeddings."""
    hidden, table = model.config.hidden_size, table.detach().float()
    if hidden > min(table.shape[1], len(tokens)):
        raise TrainingError(
            f"A projection of {table.shape[1]} numbers cannot have {hidden}: make the draft narrower.",
            "training.projection",
        )
    directions = torch.linalg.svd(table[tokens], full_matrices=False).Vh[:hidden]
    seen = table @ directions.T
    project(model, table, (directions * 0.5 / seen.std()).contiguous())
    head = seen[tokens]
    model.lm_head = ReducedHead((head * 0.02 / head.std()).contiguous(), tokens, len(table))
    return model


@torch.no_grad()
def grow_vocabulary(model: Any, tokens: Tensor, counts: Tensor) -> None:
    """Let a draft with a ReducedHead write up to ``len(tokens)`` tokens: those that it writes already, which keep
    their rows, and the first of ``tokens`` [count]. New rows follow from the tokens' embeddings and how often they
    occur, counts [vocab], by the linear map that fits the old rows best."""
    head, table = model.lm_head, model.model.embed_tokens.table.float()
    new = tokens[head.places[tokens] < 0][: max(0, len(tokens) - len(head.tokens))]
    known = torch.cat([table, counts[:, None].float().log1p(), torch.ones(len(table), 1)], 1)
    fitted = torch.linalg.lstsq(known[head.tokens], head.weight).solution  # [wide + 2, hidden]
    rows = torch.cat([head.weight, known[new] @ fitted])
    model.lm_head = ReducedHead(rows, torch.cat([head.tokens, new]), head.vocab)


def project(model: Any, table: Tensor, weight: Tensor) -> None:
    """Replace a draft's embedding by the target's table [vocab, wide] and a projection ``weight`` [hidden,
    wide]."""
    projection = nn.Linear(table.shape[1], len(weight), bias=False)
    projection.weight = nn.Parameter(weight)
    model.model.embed_projection, model.model.embed_tokens = projection, ProjectedTable(table, projection)


def open_draft(folder: Path, dtype: torch.dtype, target: Path | None = None) -> Any:
    """Return the transformers network of a draft model, for training: one with the target's vocabulary, or
    one that ``export`` wrote. target: the folder of the target whose embedding it projects, if it is not
    next to the draft."""
    config = read_json(folder, "config.json")
    if "draft_vocab_size" not in config:
        return open_network(folder, dtype)
    weights = Weights(folder, torch.device("cpu"), dtype)
    own = {name: weights.get(name, *head["shape"]) for name, head in weights.headers().items()}
    network: Any = LlamaForCausalLM(open_config(folder))
    model = network.to(dtype)
    project(
        model,
        projected_table(config, folder, torch.device("cpu"), dtype, target),
        own["model.embed_projection.weight"],
    )
    model.lm_head = ReducedHead(
        own.pop("lm_head.weight"), own.pop("draft_tokens").long(), config["vocab_size"]
    )
    model.model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in own.items()})
    return model


def export(job: Job, name: str, model: LlamaForCausalLM, tokenizer: Any, kind: str = "") -> Path:
    """Write the draft in the layout that models/reduced_vocabulary.py reads, to the folders of
    ``files.export``; return the folder. tokenizer: not written, since the draft reads and writes its
    target's tokens."""
    head = cast(ReducedHead, model.lm_head)
    config = {
        key: value
        for key, value in model.config.to_diff_dict().items()
        if key not in ("transformers_version", "dtype")
    }
    config |= {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "vocab_size": head.vocab,
        "draft_vocab_size": len(head.tokens),
        "embedding_from": job.target,
        "quantization_config": mx.QUANTISED,
    }
    tensors = {
        key: tensor.bfloat16() for key, tensor in model.state_dict().items() if key != "lm_head.tokens"
    }
    tensors["draft_tokens"] = head.tokens.int()
    for place in job.output_folders(name):
        place.mkdir(parents=True, exist_ok=True)
        write_shards(place, mx.to_file_tensors(tensors))
        write_json(place / "config.json", config | (mark(kind, job.target) if kind else {}))
    return job.output_folders(name)[0]
