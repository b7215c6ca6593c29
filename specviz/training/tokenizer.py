"""Train a byte-level BPE tokenizer in which every digit is a token of its own.

Only a target that is trained from scratch needs one; a continued target keeps its tokenizer."""

import itertools
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from . import data
from .files import write_tokenizer
from .job import Job

SPECIAL = ("<|pad|>", "<|bos|>", "<|end|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def run(job: Job) -> Path:
    """Train the tokenizer, once per work folder and size; return its folder."""
    place = job.folder("tokenizer", job.size)
    if (place / "tokenizer.json").is_file():
        return place
    hparams, size = job.hparams("tokenizer"), job.hparams("target")["vocabulary"]
    rows = data.load(job.data, "train", hparams["own_rows"])
    words = train_bpe(itertools.islice(data.balanced(rows, job.seed), hparams["rows"]), size, quiet=job.quiet)
    write_tokenizer(words, place)
    job.log("tokenizer", vocabulary=len(words))
    return place


def train_bpe(rows, size: int, digits: bool = True, quiet: bool = True) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer of ``size`` tokens on the rows' prompts and responses. digits: every
    digit is a token of its own."""
    bpe = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
        if digits
        else byte_level
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=not quiet,
    )
    bpe.train_from_iterator((f"{row.prompt}\n{row.response}" for row in rows), trainer)
    words = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<|pad|>",
        bos_token="<|bos|>",
        eos_token="<|end|>",
        extra_special_tokens=["<|user|>", "<|assistant|>"],
    )
    words.chat_template = TEMPLATE
    return words
