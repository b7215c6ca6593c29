"""Train the target with sparse experts (BlockFFN, Song et al. 2507.08771) on short texts.

Two losses are added to the cross-entropy, so that neighbouring tokens share experts. Activation locality:
the signs of the router's outputs at one token predict those at the next. Chunk sparsity: few experts are
active for any of ``chunk`` tokens in a row. Both are options of the recipe; ``plain`` trains without them,
for comparison. The embedding starts from that of a shipped draft model.
"""

import json
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ..checkpoints import mx
from ..models.blockffn import KIND, ExpertLayer, routed
from ..models.pretrained import open_network
from . import data, losses
from .draft import hidden_states_at
from .files import FRONT, write_json, write_shards, write_text, write_tokenizer
from .job import Job
from .runner import Runner
from .target import Batches, loss_by_task, rows_by_task

STEEPNESS = 100.0  # of the sigmoid in the locality loss (the authors' value)
WINDOWS = (1, 2, 4, 8, 16, 32, 64)  # tokens in a row whose union of experts is measured
MOST_FACTOR = 4.0  # highest factor of the chunk loss, as a multiple of the first (the authors' value)
LEAST_GROWTH = 1.025  # lowest ratio by which the factor grows when the loss grew (the authors' value)


def run(job: Job) -> Path:
    """Train the target with sparse experts; return the folder of its weights."""
    hparams = job.hparams("blockffn")
    torch.manual_seed(job.seed)
    tokenizer, model = build(job, hparams)
    runner = Runner(job, "blockffn", model, hparams, job.folder("blockffn", job.size))
    batches = Batches(rows_by_task(job, hparams), tokenizer, hparams, job.seed, runner.device)
    heldout = data.load(None, "heldout", hparams["own_rows"] // 4)

    def loss_at(step: int):
        ids, where, labels = batches.make(step)
        loss = losses.next_token(hidden_states_at(model, ids, where), model.lm_head.weight, labels)
        return loss + model.sparsity(hparams, len(ids)), len(labels)

    def measure() -> dict:
        return loss_by_task(model, tokenizer, heldout, hparams) | statistics(
            model, tokenizer, heldout, hparams
        )

    figures = runner.train(loss_at, measure)
    return export(job, hparams, model, tokenizer, figures)


def build(job: Job, hparams: dict) -> tuple[Any, "ExpertsLlama"]:
    """Return (tokenizer, untrained model). The embedding is taken from the model that the recipe names in
    ``from``."""
    source = job.shipped / hparams["from"]
    tokenizer, old = (
        AutoTokenizer.from_pretrained(source, trust_remote_code=False),
        open_network(source, torch.float32),
    )
    model = ExpertsLlama(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hparams["hidden"],
            intermediate_size=hparams["experts"] * hparams["expert_size"],
            num_hidden_layers=hparams["layers"],
            num_attention_heads=hparams["heads"],
            num_key_value_heads=hparams["kv_heads"],
            head_dim=hparams["head_dim"],
            max_position_embeddings=hparams["positions"],
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        ),
        hparams["experts"],
        hparams["expert_size"],
    )
    with torch.no_grad():
        table = old.get_input_embeddings().weight
        width = min(table.shape[1], hparams["hidden"])
        model.model.embed_tokens.weight[:, :width] = table[:, :width]
    return tokenizer, model


class ExpertsLlama(LlamaForCausalLM):
    """A Llama for training whose feed-forward layers are ExpertLayer modules.

    ``chunk_factor`` [5]: weight of the chunk loss now, at the start of this interval and at its end; the
    sum of the chunk loss in this interval, and its mean in the one before; number of steps. A buffer that
    is saved with the weights, so that a resumed run continues with the same losses."""

    chunk_factor: Tensor

    def __init__(self, config: LlamaConfig, experts: int, size: int):
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp = ExpertLayer(config.hidden_size, experts, size, config.rms_norm_eps)
            nn.init.zeros_(layer.mlp.w_out.weight)
        self.register_buffer("chunk_factor", torch.zeros(5, dtype=torch.float64))

    @property
    def expert_layers(self) -> list[ExpertLayer]:
        """Return the feed-forward layers, first to last."""
        return [cast(ExpertLayer, layer.mlp) for layer in self.model.layers]

    def sparsity(self, hparams: dict, rows: int) -> Tensor | float:
        """Return the weighted sum of locality loss and chunk loss of the last forward pass, averaged over
        layers. rows: sequences in that batch."""
        if not hparams["locality"] and not hparams["chunk_loss"]:
            return 0.0
        layers = self.expert_layers
        scores = [
            layer.scores.float().view(rows, -1, layer.experts) for layer in layers
        ]  # under autocast a share of 1 - 1e-6 is 1
        near = torch.stack([locality_loss(one) for one in scores]).mean()
        shared = torch.stack(
            [chunk_loss(one, hparams["chunk"], layer.eps) for one, layer in zip(scores, layers)]
        ).mean()
        return hparams["locality"] * near + self.chunk_weight(hparams, float(shared.detach())) * shared

    def chunk_weight(self, hparams: dict, value: float) -> float:
        """Return the weight of the chunk loss at this step, and record the loss ``value``. After ``hold``
        steps the weight moves, over each interval of ``every`` steps, to itself times the ratio of the mean
        losses of the last two intervals."""
        begin, goal, total, before, step = self.chunk_factor.tolist()
        start, every = hparams["chunk_loss"], hparams["every"]
        begin, goal = (begin, goal) if step else (start, start)
        weight = begin + (goal - begin) * (step % every) / every
        total, step = total + value, step + 1
        if step % every == 0:
            mean, begin = total / every, goal
            ratio = mean / before if before else 1.0
            ratio = max(ratio, LEAST_GROWTH) if ratio > 1 else ratio
            goal = min(begin * ratio, MOST_FACTOR * start) if step >= hparams["hold"] else begin
            total, before = 0.0, mean
        self.chunk_factor.copy_(torch.tensor([begin, goal, total, before, step]))
        return weight


def locality_loss(scores: Tensor) -> Tensor:
    """Return the binary cross-entropy of router outputs [rows, tokens, experts] at one token against those
    at the next, both as probabilities of being active."""
    steep = STEEPNESS * scores
    return F.binary_cross_entropy_with_logits(steep[:, :-1], steep[:, 1:].sigmoid())


def chunk_loss(scores: Tensor, chunk: int, eps: float) -> Tensor:
    """Return the chunk-sparsity loss: the mean over chunks and experts of 1 - prod(1 - p), where p is the
    expert's share of a token's routing weights. scores [rows, tokens, experts]; tokens after the last full
    chunk are left out."""
    active = routed(scores, torch.ones((), device=scores.device), eps)
    shares = active / active.sum(-1, keepdim=True).clamp(min=1e-9)
    whole = shares.shape[1] // chunk * chunk
    idle = torch.log1p(-shares[:, :whole].clamp(max=1 - 1e-6)).unflatten(1, (-1, chunk)).sum(2)
    return (1 - idle.exp()).mean()


def union_shares(active: Tensor) -> dict[int, float]:
    """Return {window: share of experts that are active for at least one of that many consecutive tokens}.
    active [tokens, experts]."""
    return {n: float(active.unfold(0, n, 1).any(-1).double().mean()) for n in WINDOWS if n <= len(active)}


@torch.inference_mode()
def statistics(model: ExpertsLlama, tokenizer, rows: list[data.Row], hparams: dict) -> dict[str, float]:
    """Return the share of inactive experts on held-out texts, averaged over layers: per token (the paper's
    TLS) and over windows of several tokens (CLS_n)."""
    found: dict[int, list[float]] = {}
    for row in [row for row in rows if row.task == "story"][: hparams["heldout_rows"]]:
        ids, _ = data.chat_row(tokenizer, row)
        model(torch.tensor([ids[: hparams["length"]]], device=model.device))
        for layer in model.expert_layers:
            for n, share in union_shares(layer.scores.reshape(-1, hparams["experts"]) > 0).items():
                found.setdefault(n, []).append(1 - share)
    return {
        "TLS" if n == 1 else f"CLS_{n}": round(sum(shares) / len(shares), 4)
        for n, shares in sorted(found.items())
    }


def export(job: Job, hparams: dict, model: ExpertsLlama, tokenizer, figures: dict) -> Path:
    """Write the model's weights (matrices in MXINT8), config, tokenizer and card to ``<work>/models``, and
    with ``--ship`` to ``assets/models``; return the folder."""
    weights = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name not in ("lm_head.weight", "chunk_factor")
    }
    stored = {
        name: t.bfloat16() if t.is_floating_point() else t for name, t in mx.to_file_tensors(weights).items()
    }
    config = json.loads(model.config.to_json_string(use_diff=False))
    keep = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
        "tie_word_embeddings",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "rms_norm_eps",
        "hidden_act",
    )
    config = {
        "model_type": KIND,
        **{name: config[name] for name in keep},
        "num_experts": hparams["experts"],
        "expert_size": hparams["expert_size"],
        "rope_theta": 10000.0,
    }
    for folder in job.output_folders(hparams["name"]):
        folder.mkdir(parents=True, exist_ok=True)
        write_tokenizer(tokenizer, folder)
        write_shards(folder, stored)
        write_json(folder / "config.json", config)
        write_text(folder / "README.md", card(hparams, weights, figures))
    return job.work / "models" / hparams["name"]


def card(hparams: dict, weights: dict, figures: dict) -> str:
    """Return the model card."""
    sparse = "\n".join(
        f"| {name} | {value:.3f} |" for name, value in figures.items() if name.startswith(("TLS", "CLS"))
    )
    loss = "\n".join(
        f"| loss on held-out {name}, nats a token | {figures[name]:.3f} |"
        for name in data.TASKS
        if name in figures
    )
    facts = dict(
        parameters=sum(t.numel() for t in weights.values()) / 1e6,
        steps=figures["steps"],
        minutes=figures["minutes"],
    )
    return CARD.format(**hparams | facts, sparse=sparse, loss=loss)


CARD = (
    FRONT
    + """A toy with sparse experts (BlockFFN, arXiv 2507.08771), made to be watched while it decodes: {layers} layers of
{hidden}, {experts} experts of {expert_size} in each, {parameters:.1f} million parameters.

| figure | value |
|---|---|
| steps | {steps} |
| minutes of training | {minutes} |
{loss}
{sparse}

TLS is the share of experts that are idle at a token, CLS_n that of experts idle at all of n tokens in a row. Both were trained for
(locality loss {locality}, chunk loss {chunk_loss} over {chunk} tokens).

It tells very short stories and answers greetings in the words of this project's own generator; anything else it gets wrong. Its
embedding starts from that of [{from}](../{from}); sources and licences: [LICENSES.md](../LICENSES.md).

    python -m specviz.training blockffn --data DIR
"""
)
