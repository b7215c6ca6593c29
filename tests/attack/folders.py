"""Model folders that are bad on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..zoo.checkpoints import write

# A file that tells that it was run.
SPY = """
from pathlib import Path
Path(__file__).with_name("RAN").touch()
Path({mark!r}).touch()
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class Config(LlamaConfig): model_type = "{kind}"
class Model(LlamaForCausalLM): config_class = Config
class Words(PreTrainedTokenizerFast): pass
def generate(*args, **options): pass
"""
MAP = {
    "AutoConfig": "spy.Config",
    "AutoModel": "spy.Model",
    "AutoModelForCausalLM": "spy.Model",
    "AutoTokenizer": ["spy.Words", "spy.Words"],
    "AutoProcessor": "spy.Words",
    "AutoModelForSeq2SeqLM": "spy.Model",
}


def change(folder: Path, name: str, **more: Any) -> None:
    """Fields of a JSON file of the folder; None takes one away."""
    path = folder / name
    fields = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({key: value for key, value in (fields | more).items() if value is not None}))


def spied(
    folder: Path, mark: Path, kind: str = "llama", tokenizer_class: str | None = None, **config: Any
) -> Path:
    """A checkpoint with an ``auto_map`` in every file that may hold one, and code beside it that leaves
    ``mark`` when it runs."""
    write(folder, **config)
    code = SPY.format(mark=str(mark), kind=kind)
    (folder / "spy.py").write_text(code)
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(code)
    for name in (
        "config.json",
        "tokenizer_config.json",
        "generation_config.json",
        "processor_config.json",
        "preprocessor_config.json",
    ):
        change(folder, name, auto_map=MAP)
    change(
        folder,
        "config.json",
        model_type=kind,
        custom_pipelines={"text-generation": {"impl": "spy.Model", "pt": ["Model"]}},
    )
    if tokenizer_class is not None:
        change(folder, "tokenizer_config.json", tokenizer_class=tokenizer_class or None)
    return folder
