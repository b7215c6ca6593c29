"""Generate the target's answers to training prompts, with its top log-probabilities.

A draft model is used on text that the target generates, so it is trained on such text (sequence-level
distillation: Kim and Rush, arXiv 1606.07947; DistillSpec, 2310.08461). Answers are greedy or sampled at one
of the recipe's temperatures. A second set, `read`, holds the target's distributions along answers from the
data: cheaper per token, because nothing is decoded, but not sufficient alone. Top log-probabilities are
stored, because a second forward pass of the target would cost more than the whole training of a draft.
"""

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tqdm import tqdm
from transformers import AttentionInterface, AttentionMaskInterface, AutoTokenizer, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from ..core import DraftTree
from ..models.pretrained import open_network, with_cache
from ..models.recurrent import ARCHITECTURES
from ..targets.int8 import unsupported_reason
from ..targets.recurrent import RecurrentModel
from ..trees import top_with_sum
from . import data, user_prompts
from .files import write_json, write_tensors
from .job import Job, TrainingError, fingerprint
from .packed_answers import PackedGenerator
from .runner import bfloat16_is_faster
from .self_written import PromptWriter

TRAIN = "train"  # the folder of the training answers
PREFILL = 32  # prompts in one pass: more at once only push one another out of the caches
PREFILL_ON_ACCELERATOR = 256


@dataclass
class Answer:
    """A prompt and its answer. ids: the tokens of both; start: index of the answer's first token; top_ids,
    top_logp [answer tokens, top]: the target's top tokens at each answer token, and their log-probabilities
    at temperature 1; states: hidden states of prompt and answer, where they were kept."""

    ids: torch.Tensor  # [length] prompt and answer
    start: int  # index of the answer's first token
    task: str
    temperature: float  # 0: greedy
    top_ids: torch.Tensor  # [answer, top]
    top_logp: torch.Tensor  # [answer, top]
    states: torch.Tensor | None = None  # [length, width]; in a file of its own

    @property
    def greedy(self) -> bool:
        """Whether the answer was generated at temperature 0."""
        return self.temperature == 0


def run(job: Job, hparams: dict[str, Any]) -> Path:
    """Generate the target's answers for training and for measurements; return their folder."""
    heldout = data.load(job.data, "heldout", hparams["own_rows"] // 4)
    train = data.load(job.data, "train", hparams["own_rows"])
    path, root = job.model(job.target), folder(job)
    tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    device = job.torch_device()
    dtype = (
        torch.bfloat16 if bfloat16_is_faster(device) else torch.float32
    )  # the weights are 16-bit numbers in both
    model = open_network(path, dtype).to(device).eval()
    if model.config.model_type not in ARCHITECTURES:
        attend_by_groups(model)
    began, spent = time.monotonic(), spent_seconds(root)
    budget = 60 * (job.minutes or hparams["minutes"])
    packed = None
    if hparams["packed"] and device.type == "cpu" and unsupported_reason(model.config.to_dict()) is None:
        packed = PackedGenerator(path, tokenizer.eos_token_id, hparams["packed"], capture=hparams["states"])
    make = AnswerGenerator(model, tokenizer, hparams, job, packed=packed)
    # Every held-out prompt is answered both ways: the report needs greedy and temperature 1.
    per_task = hparams["heldout_rows"] // len(data.TASKS)
    fixed = [row for task in data.TASKS for row in [r for r in heldout if r.task == task][:per_task]]
    make.shards(root / "heldout", [(row, temperature) for temperature in (0.0, 1.0) for row in fixed], None)
    rng = random.Random(job.seed)
    asked = user_prompts.by_kind(user_prompts.load(job.data), job.seed)
    mixed = mix(asked, data.balanced(train, job.seed), hparams["asked"], rng)
    stream = itertools.islice(mixed, hparams["rows"])
    pairs = [(row, float(rng.choice(hparams["temperatures"]))) for row in stream]
    writer = None
    if hparams["self_written"]:
        limits = hparams | {"new_tokens": hparams["self_written_tokens"]}
        writer = PromptWriter(
            AnswerGenerator(model, tokenizer, limits, job, packed=packed),
            root / "prompts",
            hparams["self_written_temperature"],
        )
    make.shards(root / TRAIN, pairs, began + hparams["own_share"] * budget - spent, writer)
    others = itertools.islice(data.balanced(train, job.seed + 1), hparams["read_rows"])
    make.shards(root / "read", [(row, None) for row in others], began + budget - spent)
    if make.tokens:
        seconds = round(spent + time.monotonic() - began, 1)
        write_json(root / "progress.json", {"seconds": seconds})
        job.log("generate", target=fingerprint(path), new_answer_tokens=make.tokens, seconds=seconds)
    return root


def mix(first: Iterator[Any], second: Iterator[Any], share: float, rng: random.Random) -> Iterator[Any]:
    """Yield rows of two streams, this share of them from the first while it lasts."""
    while True:
        row = next(first, None) if rng.random() < share else None
        yield next(second) if row is None else row


def states_file(shard: Path) -> Path:
    """Return the path of the hidden states that belong to a shard."""
    return shard.with_name(shard.name.replace("shard", "states"))


def spent_seconds(root: Path) -> float:
    """Return the seconds already spent on these answers. The time budget includes earlier, interrupted
    runs."""
    path = root / "progress.json"
    return json.loads(path.read_text(encoding="utf-8"))["seconds"] if path.is_file() else 0.0


def folder(job: Job) -> Path:
    """Return the folder of generated answers. Its name depends on the target's weights."""
    return job.folder("generations", fingerprint(job.model(job.target)))


class AnswerGenerator:
    """Generate answers to (row, temperature) pairs and write them into shard files. Temperature None: use
    the row's own answer, and compute the target's distributions along it. encode: row -> (token ids of
    prompt and answer, index of the answer's first token); None: by the chat template. packed: decodes with
    the engine's int8 weights instead of ``model``."""

    def __init__(
        self,
        model,
        tokenizer,
        hparams: dict,
        job: Job,
        encode: Callable[[Any], tuple[list[int], int]] | None = None,
        packed: PackedGenerator | None = None,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.hparams = hparams
        self.job = job
        self.encode = encode or (lambda row: data.chat_row(tokenizer, row))
        self.tokens = 0
        self.states: RecurrentModel | None = None
        self.packed = packed

    def shards(
        self, place: Path, pairs: list, deadline: float | None, writer: PromptWriter | None = None
    ) -> None:
        """Write the answers to pairs as shard files into a folder. Existing shards are kept; no shard
        starts after ``deadline`` (time.monotonic). writer: writes the recipe's share ``self_written`` of
        the prompts anew."""
        place.mkdir(parents=True, exist_ok=True)
        size = self.hparams["shard_rows"]
        bar = tqdm(
            range(0, len(pairs), size), desc=f"generate {place.name}", unit="shard", disable=self.job.quiet
        )
        for first in bar:
            path = place / f"shard-{first // size:05d}.safetensors"
            if path.is_file():
                continue
            if deadline is not None and first > 0 and time.monotonic() > deadline:
                break
            began, before = time.monotonic(), self.tokens
            torch.manual_seed(self.job.seed * 1_000_003 + first)
            part = pairs[first : first + size]
            if writer is not None:
                part = writer.replace(first // size, part, self.hparams["self_written"])
            made = self.answers(part)
            states = [a.states for a in made if a.states is not None]
            if place.name == TRAIN and len(states) == len(made):
                write_tensors(states_file(path), {"states": torch.cat(states)})
            write_tensors(path, pack(made))  # last: a shard that exists has its states
            bar.set_postfix_str(f"{(self.tokens - before) / (time.monotonic() - began):.0f} tokens/s")

    def answers(self, pairs: list) -> list[Answer]:
        """Return answers to pairs, in another order: batches hold prompts of similar length, which limits
        padding."""
        rows = [(*self.encode(row), row.task, temperature) for row, temperature in pairs]
        rows = sorted(
            (row for row in rows if row[1] <= self.hparams["prompt_tokens"]), key=lambda row: row[1]
        )
        if self.packed is not None and rows and rows[0][3] is not None:
            made = self.decode([(ids[:start], task, temperature) for ids, start, task, temperature in rows])
            made += self.second_turns(pairs, made)
            self.tokens += sum(len(a.top_ids) for a in made)
            return made
        made = []
        for first in range(0, len(rows), self.hparams["batch"]):
            batch = rows[first : first + self.hparams["batch"]]
            if batch[0][3] is None:
                made += self.read(batch)
            else:
                made += self.decode(
                    [(ids[:start], task, temperature) for ids, start, task, temperature in batch]
                )
        self.tokens += sum(len(a.top_ids) for a in made)
        return made

    def second_turns(self, pairs: list, made: list[Answer]) -> list[Answer]:
        """Return answers to the second turns of the rows that have one, after the finished answers to their
        first turns."""
        found = {tuple(a.ids[: a.start].tolist()): a for a in made}
        rows = []
        for row, temperature in pairs:
            first = found.get(tuple(self.encode(row)[0])) if getattr(row, "then", "") else None
            if first is None or int(first.ids[-1]) != self.tokenizer.eos_token_id:
                continue
            answer = self.tokenizer.decode(first.ids[first.start : -1], skip_special_tokens=True)
            ids = data.chat_prompt(self.tokenizer, row.prompt, (answer, row.then))
            if len(ids) <= self.hparams["prompt_tokens"]:
                rows.append((ids, row.task, temperature))
        return self.decode(rows) if rows else []

    @torch.inference_mode()
    def read(self, batch: list) -> list[Answer]:
        """Return existing answers with the target's distributions along them, computed in one forward
        pass."""
        device, kept = self.model.device, self.hparams["new_tokens"]
        rows = [(ids[: start + kept], start, task) for ids, start, task, _ in batch]
        width = max(len(ids) for ids, _, _ in rows)
        padded = torch.tensor([ids + [0] * (width - len(ids)) for ids, _, _ in rows], device=device)
        hidden = self.model.model(padded).last_hidden_state  # causal: what is padded on the right is not seen
        made = []
        for states, (ids, start, task) in zip(hidden, rows):
            logp = self.model.lm_head(states[start - 1 : len(ids) - 1]).float().log_softmax(-1)
            best = logp.topk(min(self.hparams["top"], logp.shape[-1]), dim=-1)
            made.append(
                Answer(
                    torch.tensor(ids), start, task, 1.0, best.indices.int().cpu(), best.values.half().cpu()
                )
            )
        return made

    @torch.inference_mode()
    def decode(self, batch: list) -> list[Answer]:
        """Generate answers to one left-padded batch of (prompt ids, task, temperature) with a KV cache.
        Finished rows are removed once they make up an eighth of the batch."""
        if self.model.config.model_type in ARCHITECTURES:
            return [self.decode_by_states(*one) for one in batch]
        prompts, tasks, temperatures = zip(*batch)
        if self.packed is not None:
            top = self.hparams["top"]
            written = self.packed.generate(
                prompts, temperatures, self.hparams["new_tokens"], lambda z, temps: sample(z, temps, top)
            )
            return [
                Answer(torch.cat([torch.tensor(p), ids]), len(p), task, temperature, *rest)
                for p, task, temperature, (ids, *rest) in zip(prompts, tasks, temperatures, written)
            ]
        device, end = self.model.device, self.tokenizer.eos_token_id
        logits, cache, mask = self.prefill(prompts)
        at, alive = (
            mask.sum(1, keepdim=True),
            torch.arange(len(prompts), device=device),
        )  # at: [rows, 1], where the next token goes
        temps = torch.tensor(temperatures, device=device)
        found = []
        given = with_cache(self.model, cache)
        for _ in range(self.hparams["new_tokens"]):
            token, leaders, logp = sample(logits, temps, self.hparams["top"])
            live = (alive >= 0).nonzero()[:, 0]
            found.append((alive[live], token[live], leaders[live].int(), logp[live].half()))
            alive = alive.masked_fill(token == end, -1)  # -1: over, still taking up a row
            keep = (alive >= 0).nonzero()[:, 0]
            if not len(keep):
                break
            if 8 * len(keep) <= 7 * len(alive):
                cache.batch_select_indices(keep)
                token = token[keep]
                at = at[keep]
                mask = mask[keep]
                alive = alive[keep]
                temps = temps[keep]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
            out = self.model(token[:, None], attention_mask=mask, position_ids=at, **given)
            logits, at = out.logits[:, -1], at + 1
        rows, *columns = (torch.cat(parts).cpu() for parts in zip(*found))
        order = rows.argsort(stable=True)  # by prompt, each answer in the order it was written
        spans = rows.bincount(minlength=len(prompts)).tolist()
        split = zip(prompts, tasks, temperatures, *(column[order].split(spans) for column in columns))
        return [
            Answer(torch.cat([torch.tensor(p), ids]), len(p), t, g, top, logp)
            for p, t, g, ids, top, logp in split
        ]

    def decode_by_states(self, prompt: list[int], task: str, temperature: float) -> Answer:
        """Generate one answer by the engine's forward pass with recurrent states; transformers has no cache
        for these networks."""
        if self.states is None:
            self.states = RecurrentModel(self.job.model(self.job.target), self.model.device)
        target = self.states.open()
        ids = list(prompt)
        found = []
        while len(found) < self.hparams["new_tokens"] and not (
            found and ids[-1] == self.tokenizer.eos_token_id
        ):
            target.sync(ids)
            token, leaders, logp = sample(
                target.score(DraftTree()).logits, torch.tensor([temperature]), self.hparams["top"]
            )
            found.append((leaders[0].int(), logp[0].half()))
            ids.append(int(token))
        top_ids, top_logp = (torch.stack(part).cpu() for part in zip(*found))
        return Answer(torch.tensor(ids), len(prompt), task, temperature, top_ids, top_logp)

    def prefill(self, prompts: Sequence[list[int]]) -> tuple[torch.Tensor, DynamicCache, torch.Tensor]:
        """Return (logits after each prompt [rows, vocab], KV cache, mask of prompt positions [rows,
        width]). A few prompts are processed at a time, each padded to the longest of them."""
        device, end = self.model.device, self.tokenizer.eos_token_id
        width, parts = max(map(len, prompts)), []
        size = PREFILL if device.type == "cpu" else PREFILL_ON_ACCELERATOR
        for first in range(0, len(prompts), size):
            some = prompts[first : first + size]
            wide = max(map(len, some))
            prefilled = torch.tensor(
                [[end] * (wide - len(p)) + p for p in some], device=device
            )  # [some, wide]
            mask = torch.tensor([[0] * (wide - len(p)) + [1] * len(p) for p in some], device=device)
            cache, at = growing_cache(self.model.config), (mask.cumsum(1) - 1).clamp(min=0)
            out = self.model(
                prefilled,
                attention_mask=mask,
                position_ids=at,
                logits_to_keep=1,
                **with_cache(self.model, cache),
            )
            parts.append((out.logits[:, -1], cache, torch.nn.functional.pad(mask, (width - wide, 0))))
        logits, caches, masks = zip(*parts)
        for layer, *others in zip(*(cache.layers for cache in caches)):
            layer.extend(others, width)
        return torch.cat(logits), caches[0], torch.cat(masks)


def attend_by_groups(model: Any) -> None:
    """Let a transformers network attend, when it reads one token a row, without a copy of keys and values
    for every query head: the query heads of a group are passed as rows of its key head."""
    AttentionInterface.register("grouped", grouped_attention)
    AttentionMaskInterface.register("grouped", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model.set_attn_implementation("grouped")


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return (attention output [rows, tokens, heads, size], None), as transformers' attention functions do.
    query [rows, heads, tokens, size]; key, value [rows, key heads, positions, size]."""
    if query.shape[2] > 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    rows, heads, _, size = query.shape
    groups = query.view(rows, key.shape[1], -1, size)  # [rows, key heads, query heads of one, size]
    out = torch.nn.functional.scaled_dot_product_attention(
        groups, key, value, attn_mask=attention_mask, scale=scaling
    )
    return out.reshape(rows, 1, heads, size), None


class GrowingCacheLayer(DynamicLayer):
    """A KV cache layer for transformers whose buffer grows by 64 positions at a time. Copying all keys in
    every step took 40 % of the step's time."""

    keys: torch.Tensor
    values: torch.Tensor
    store: torch.Tensor | None  # keys and values with room, [2, rows, heads, positions, width]

    def update(self, keys, values, *args, **kwargs):
        """Append keys and values [rows, heads, tokens, size]; return all cached ones."""
        used = self.keys.shape[-2] if self.is_initialized else 0
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
            self.store = None
        need = used + keys.shape[-2]
        store = self.store
        if store is None or need > store.shape[-2]:
            rows, heads, _, width = keys.shape
            store = keys.new_empty(2, rows, heads, need + 64, width)
            if used:
                store[0, :, :, :used], store[1, :, :, :used] = self.keys, self.values
            self.store = store
        store[0, :, :, used:need], store[1, :, :, used:need] = keys, values
        self.keys, self.values = store[0, :, :, :need], store[1, :, :, :need]
        return self.keys, self.values

    def extend(self, others: list["GrowingCacheLayer"], width: int) -> None:
        """Append the rows of ``others``, all left-padded to ``width`` positions with zeros. Uninitialised
        memory may hold NaN, and 0 * NaN is NaN."""
        parts = [torch.stack((layer.keys, layer.values)) for layer in (self, *others)]
        pads = [torch.nn.functional.pad(part, (0, 0, width - part.shape[-2], 64)) for part in parts]
        self.store = torch.cat(pads, 1)
        self.keys, self.values = self.store[0, :, :, :width], self.store[1, :, :, :width]

    def batch_select_indices(self, indices):
        """Keep only the rows with these indices."""
        assert self.store is not None
        used, self.store = self.keys.shape[-2], self.store[:, indices]
        self.keys, self.values = self.store[0, :, :, :used], self.store[1, :, :, :used]


def growing_cache(config) -> DynamicCache:
    """Return a transformers cache that consists of GrowingCacheLayer objects."""
    cache = DynamicCache(config=config)
    layers: list[Any] = [GrowingCacheLayer() for _ in cache.layers]
    cache.layers = layers
    return cache


def sample(
    logits: torch.Tensor, temperatures: torch.Tensor, top: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sample a token per row of logits [rows, vocab] at temperatures [rows]; temperature 0 is the argmax.

    Return (tokens [rows], top ids [rows, top], their log-probabilities at temperature 1 [rows, top]).
    Sampling is exact: it inverts the CDF over the top tokens, and over the rest of the vocabulary only if
    the uniform number is larger than their total probability."""
    z, scale = logits.float(), temperatures.clamp(min=1e-4)[:, None]
    values, leaders, sums = top_with_sum(z, min(top, z.shape[-1]))
    total = sums[:, None]
    scaled = total.clone()
    for temperature in set(temperatures.tolist()) - {0.0, 1.0}:
        rows = (temperatures == temperature).nonzero()[:, 0]
        scaled[rows] = top_with_sum(z[rows], 1, temperature)[2][:, None]
    cumulative = (values / scale - scaled).exp().cumsum(-1)
    pick = torch.searchsorted(cumulative, torch.rand_like(cumulative[:, :1]), right=True)[:, 0]
    tokens = leaders.gather(1, pick.clamp(max=leaders.shape[1] - 1)[:, None])[:, 0]
    beyond = ((pick >= leaders.shape[1]) & (temperatures > 0)).nonzero()[:, 0]
    if len(beyond) and leaders.shape[1] < z.shape[-1]:
        rest = (
            ((z[beyond] - total[beyond]) / scale[beyond]).exp().scatter_(1, leaders[beyond], 0.0).cumsum(-1)
        )
        draw = torch.rand_like(rest[:, :1]) * rest[:, -1:]
        tokens[beyond] = torch.searchsorted(rest, draw, right=True)[:, 0].clamp(max=z.shape[-1] - 1)
    return torch.where(temperatures == 0, leaders[:, 0], tokens), leaders, values - total


def pack(answers: list[Answer]) -> dict[str, torch.Tensor]:
    """Return answers as the tensors of a shard file: flat arrays without padding."""
    if not answers:
        raise TrainingError(
            "Not one prompt of this shard fits: raise prompt_tokens in generate.yaml.", "generate.no_prompt"
        )
    return {
        "ids": torch.cat([a.ids for a in answers]).int(),
        "lengths": torch.tensor([len(a.ids) for a in answers], dtype=torch.int32),
        "starts": torch.tensor([a.start for a in answers], dtype=torch.int32),
        "tasks": torch.tensor([data.TASKS.index(a.task) for a in answers], dtype=torch.uint8),
        "temperature": torch.tensor([a.temperature for a in answers], dtype=torch.float32),
        "top_ids": torch.cat([a.top_ids for a in answers]),
        "top_logp": torch.cat([a.top_logp for a in answers]),
    }


def read(place: Path) -> list[Answer]:
    """Return all answers in the shard files of a folder. Raises TrainingError that names an unreadable
    shard."""
    answers = []
    for path in sorted(place.glob("shard-*.safetensors")):
        try:
            flat = load_file(path)
            lengths, starts = flat["lengths"].tolist(), flat["starts"].tolist()
            ids = flat["ids"].long().split(lengths)
            spans = [length - start for length, start in zip(lengths, starts)]
            tops = zip(flat["top_ids"].split(spans), flat["top_logp"].split(spans))
            # shards of earlier versions only hold whether an answer is greedy; the others were sampled at
            # temperature 1
            temperatures = flat["temperature"] if "temperature" in flat else 1.0 - flat["greedy"].float()
        except (SafetensorError, KeyError, RuntimeError, OSError) as error:
            raise TrainingError(
                f"{path} is damaged or cut short: delete it and run `generate` again.", "generate.damaged"
            ) from error
        for one, start, task, temperature, (top_ids, top_logp) in zip(
            ids, starts, flat["tasks"], temperatures.tolist(), tops
        ):
            answers.append(Answer(one, start, data.TASKS[task], round(temperature, 4), top_ids, top_logp))
    if not answers:
        raise TrainingError(f"There are no generations in {place}: run `generate` first.", "generate.missing")
    return answers
