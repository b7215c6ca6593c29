"""The target's own answers to training prompts, with its leading log-probabilities.

A draft model is judged by how often it agrees with the target on text the target writes, so that
text is what it must see (sequence-level distillation: Kim and Rush, 1606.07947; DistillSpec,
2310.08461). Half of the answers are greedy and half are drawn at temperature 1, the two ways they
are asked for later. The top log-probabilities are kept at generation time, because a second pass
of the target would cost more than all of the draft's training.
"""

import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from . import data
from .files import write_tensors
from .job import TARGET, Job, TrainingError, fingerprint


@dataclass
class Answer:
    """One generation. `top_logp[j]` is the law that answer token j was drawn from."""

    ids: torch.Tensor  # [length] prompt and answer
    start: int  # index of the answer's first token
    task: str
    greedy: bool
    top_ids: torch.Tensor  # [answer, top]
    top_logp: torch.Tensor  # [answer, top]


def run(job: Job) -> Path:
    numbers = job.numbers("generate")
    device = job.torch_device()
    path = job.model(TARGET)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).to(device).eval()
    root = folder(job)
    heldout = data.load(job.data, "heldout", numbers["own_rows"] // 4)
    train = data.load(job.data, "train", numbers["own_rows"])
    began, deadline = time.monotonic(), time.monotonic() + 60 * (job.minutes or numbers["minutes"])
    make = Maker(model, tokenizer, numbers, job)
    # Every held-out prompt is answered both ways: the report needs greedy and temperature 1.
    per_task = numbers["heldout_rows"] // len(data.TASKS)
    fixed = [row for task in data.TASKS for row in [r for r in heldout if r.task == task][:per_task]]
    make.shards(root / "heldout", [(row, greedy) for greedy in (True, False) for row in fixed], None)
    stream = itertools.islice(data.balanced(train, job.seed), numbers["rows"])
    dice = torch.Generator().manual_seed(job.seed)
    pairs = [(row, bool(torch.rand((), generator=dice) < numbers["greedy_share"])) for row in stream]
    make.shards(root / "train", pairs, deadline)
    job.log("generate", target=fingerprint(path), answer_tokens=make.tokens, seconds=round(time.monotonic() - began, 1))
    return root


def folder(job: Job) -> Path:
    """Generations belong to one target: a new target gets a new folder."""
    return job.folder("generations", fingerprint(job.model(TARGET)))


class Maker:
    """Decodes (row, greedy) pairs into shards; a shard that is already there is not made again."""

    def __init__(self, model, tokenizer, numbers: dict, job: Job):
        self.model, self.tokenizer, self.numbers, self.job = model, tokenizer, numbers, job
        self.tokens = 0

    def shards(self, place: Path, pairs: list, deadline: float | None) -> None:
        place.mkdir(parents=True, exist_ok=True)
        size = self.numbers["shard_rows"]
        bar = tqdm(range(0, len(pairs), size), desc=f"generate {place.name}", unit="shard", disable=self.job.quiet)
        for first in bar:
            path = place / f"shard-{first // size:05d}.safetensors"
            if path.is_file():
                continue
            if deadline is not None and time.monotonic() > deadline:
                break
            began, before = time.monotonic(), self.tokens
            torch.manual_seed(self.job.seed * 1_000_003 + first)
            write_tensors(path, pack(self.answers(pairs[first : first + size])))
            bar.set_postfix_str(f"{(self.tokens - before) / (time.monotonic() - began):.0f} tokens/s")

    def answers(self, pairs: list) -> list[Answer]:
        """Rows of like length decode together, so that few wait for the longest of their batch."""
        pairs = sorted(pairs, key=lambda pair: (len(pair[0].response), len(pair[0].prompt)))
        prompts = [data.chat_prompt(self.tokenizer, row.prompt) for row, _ in pairs]
        ready = [(p, row.task, greedy) for p, (row, greedy) in zip(prompts, pairs) if len(p) <= self.numbers["prompt_tokens"]]
        made = []
        for first in range(0, len(ready), self.numbers["batch"]):
            made += self.decode(ready[first : first + self.numbers["batch"]])
        self.tokens += sum(len(a.top_ids) for a in made)
        return made

    @torch.inference_mode()
    def decode(self, batch: list) -> list[Answer]:
        """One left-padded batch with a cache; finished rows leave it once they are the majority."""
        prompts, tasks, greedy = zip(*batch)
        device, end = self.model.device, self.tokenizer.eos_token_id
        width = max(map(len, prompts))
        fed = torch.tensor([[end] * (width - len(p)) + p for p in prompts], device=device)  # [rows, width]
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        at, alive = (mask.cumsum(1) - 1).clamp(min=0), torch.arange(len(prompts), device=device)
        cache, found = DynamicCache(config=self.model.config), [([], [], []) for _ in prompts]
        arg = torch.tensor(greedy, device=device)
        done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        for _ in range(self.numbers["new_tokens"]):
            out = self.model(fed, attention_mask=mask, position_ids=at, past_key_values=cache, logits_to_keep=1)
            logp = out.logits[:, -1].float().log_softmax(-1)  # [alive, vocab]
            token = torch.where(arg, logp.argmax(-1), torch.multinomial(logp.exp(), 1)[:, 0])
            best = logp.topk(min(self.numbers["top"], logp.shape[-1]), dim=-1)
            rows = zip(alive.tolist(), done.tolist(), token.tolist(), best.indices.short().cpu(), best.values.half().cpu())
            for row, over, *kept in rows:
                if not over:
                    for column, value in zip(found[row], kept):
                        column.append(value)
            done = done | (token == end)
            if done.all():
                break
            fed, at = token[:, None], at[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
            if 2 * int(done.sum()) >= len(done):
                keep = (~done).nonzero()[:, 0]
                cache.batch_select_indices(keep)
                fed, at, mask, alive, arg, done = fed[keep], at[keep], mask[keep], alive[keep], arg[keep], done[keep]
        return [
            Answer(torch.tensor(p + f[0]), len(p), t, g, torch.stack(f[1]), torch.stack(f[2]))
            for p, t, g, f in zip(prompts, tasks, greedy, found)
        ]


def pack(answers: list[Answer]) -> dict[str, torch.Tensor]:
    """A shard is flat: no padding on disk."""
    if not answers:
        raise TrainingError("Not one prompt of this shard fits: raise prompt_tokens in generate.yaml.")
    return {
        "ids": torch.cat([a.ids for a in answers]).short(),
        "lengths": torch.tensor([len(a.ids) for a in answers], dtype=torch.int32),
        "starts": torch.tensor([a.start for a in answers], dtype=torch.int32),
        "tasks": torch.tensor([data.TASKS.index(a.task) for a in answers], dtype=torch.uint8),
        "greedy": torch.tensor([a.greedy for a in answers], dtype=torch.uint8),
        "top_ids": torch.cat([a.top_ids for a in answers]),
        "top_logp": torch.cat([a.top_logp for a in answers]),
    }


def read(place: Path) -> list[Answer]:
    """All answers of a split; a shard that cannot be read is named."""
    answers = []
    for path in sorted(place.glob("shard-*.safetensors")):
        try:
            flat = load_file(path)
            lengths, starts = flat["lengths"].tolist(), flat["starts"].tolist()
            ids = flat["ids"].long().split(lengths)
            spans = [length - start for length, start in zip(lengths, starts)]
            tops = zip(flat["top_ids"].split(spans), flat["top_logp"].split(spans))
        except (SafetensorError, KeyError, RuntimeError, OSError) as error:
            raise TrainingError(f"{path} is damaged or cut short: delete it and run `generate` again.") from error
        for one, start, task, greedy, (top_ids, top_logp) in zip(ids, starts, flat["tasks"], flat["greedy"], tops):
            answers.append(Answer(one, start, data.TASKS[task], bool(greedy), top_ids, top_logp))
    if not answers:
        raise TrainingError(f"There are no generations in {place}: run `generate` first.")
    return answers
