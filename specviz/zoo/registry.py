"""Read models.yaml, and resolve a model's name: an entry, a folder in Hugging Face format, a GGUF file, or
org/name@commit.

Only safetensors, GGUF, tokenizer and JSON files are read or fetched, and a hub model is pinned to a commit,
so that measurements can be repeated and no code of a repository runs.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from .. import ROOT
from ..checkpoints.errors import one_line, shown
from ..checkpoints.split import has_weights, model_name, pieces_of
from ..core.errors import CodedError, code_of
from ..methods import draft_kinds, head_kinds, trained_parts
from .found_weights import found_weights
from .index_package import FetchError, cached_folder, fetch

COMMIT = re.compile(r"[0-9a-f]{40}")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
WANTED = [
    "*.safetensors",
    "*.safetensors.index.json",
    "*.json",
    "*.jinja",
    "*.txt",
    "tokenizer.model",
    "*.spm",
]
UNWANTED = ["onnx/*", "*/*"]
GGUF = ".gguf"
PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]{0,99}==[\w.]{1,40}")
INSTALLED = Path(__file__).resolve().parent.parent / "data"  # assets of an installed package
CLONE = "clone the repository (git clone --depth 1) and set SPECVIZ_MODELS to the path of its models.yaml"
GGUF_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,199}\.gguf")
MADE = "see assets/models/LICENSES.md"  # the licence of what recipes made here
ANY = "any"  # of a store: the targets that it does not name
FORWARDS = (
    "fast",
    "static",
    "int8",
    "tree_scan",
    "scales",
    "vision",
    "experts",
    "hf",
)  # names of zoo/backends.py, which needs torch
QUANTISED = ("bnb-8bit", "bnb-4bit", "ao-int8", "ao-int4")  # kinds of checkpoints/quantised.py
READ = (
    ".json",
    ".jinja",
    ".model",
    ".txt",
    ".safetensors",
    ".bin",
    ".gguf",
)  # endings of files that are read
REACH = 5.0  # seconds for the hub's first answer
UNREACHABLE = ("LocalEntryNotFoundError", "OfflineModeIsEnabled")  # errors of the hub's client
LONGEST = 1000  # characters of a field of models.yaml
SERVER_ENGINES = ("vllm", "sglang", "trtllm", "llamacpp", "mlxvlm", "openai")
SERVER_NAME = re.compile(r"[A-Za-z0-9][\w .-]{0,39}", re.ASCII)


def is_pinned(name: str) -> bool:
    """Return whether a name has the form org/name@commit: a hub model at a commit. Any other name might be
    a folder."""
    hub, _, revision = name.partition("@")
    return bool(HUB_ID.fullmatch(hub) and COMMIT.fullmatch(revision))


class ZooError(CodedError, ValueError):
    """A model cannot be found, loaded or used."""

    def __init__(self, sentence: Any = "", code: str = ""):
        super().__init__(one_line(sentence), code)


@dataclass(frozen=True)
class Entry:
    """One model of models.yaml: a checkpoint folder or a GGUF file (``path``), or a hub id with its
    commit."""

    name: str
    path: Path | None = None
    hub: str = ""
    revision: str = ""
    gguf: str = ""  # of a hub model: the GGUF file that holds it
    package: str = ""  # with a path: NAME==VERSION of the Python package that contains the GGUF file, if the folder does not
    draft: str = ""
    role: str = "target"
    middle: str = (
        ""  # of a target: a target of the same vocabulary between it and its draft, for methods that want one
    )
    target: str = ""  # of a head, a draft of another vocabulary or of a kind: the model it is made for; ``for`` in the file
    kind: str = (
        ""  # of a head: medusa, hydra, ...; of a draft model: how it was trained, if in a paper's own way
    )
    backend: str = ""
    about: str = ""
    nature: str = ""  # of a target: what a reader must know of its answers
    languages: str = ""  # of a target: all that it was trained to read, if that is little
    licence: str = ""
    size: str = ""
    memory: str = ""  # GB of its weights in 16 bits
    gated: str = ""  # "yes": the hub asks for a licence to be accepted
    device_map: str = ""  # "auto": over as many devices as it takes, through transformers
    quantise: str = ""  # weights in fewer bits, through transformers: a key of checkpoints/quantised.py

    def folder(self) -> Path:
        """Return the checkpoint folder of the entry. Missing files are fetched from the hub, split weight
        files are joined, and a GGUF file gets a folder in the cache. Raises ZooError."""
        from ..checkpoints.split import joined_folder  # torch: only to load a model
        from ..checkpoints.weights import ModelError

        folder = self.path if self.path is not None else _fetched(self)
        try:
            if folder.suffix == GGUF:
                from .gguf_folder import folder_of

                return folder_of(folder)
            if not (folder / "config.json").is_file():
                where = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
                if folder.is_relative_to(INSTALLED):
                    raise ZooError(
                        f"{self.name} comes with the repository, not with the installed package: {CLONE}.",
                        "model.not_packaged",
                    )
                raise ZooError(f"{self.name} is not in {where}: there is no config.json.", "model.missing")
            if self.package and not has_weights(folder):
                folder = cached_folder(self) or folder
                if not has_weights(folder):
                    raise ZooError(
                        f"The weights of {self.name} are not installed: specviz models --fetch {self.name} fetches them.",
                        "model.not_installed",
                    )
            _check_files(folder)
            return joined_folder(folder)
        except ModelError as error:
            raise ZooError(
                f"{self.name} cannot be loaded: {error}." if self.name not in str(error) else f"{error}.",
                code_of(error, "model.load"),
            ) from None

    def installed(self) -> bool:
        """Return whether the weights of an entry with a path are on this machine."""
        if self.path is None or not self.path.exists():
            return False
        return not self.package or has_weights(self.path) or cached_folder(self) is not None

    def availability(self) -> str:
        """Return "here" if the weights are on this machine, "fetch" if ``fetch`` gets them, and "repository"
        if only the project's repository has them."""
        if self.hub:
            return "here" if local_files(self) else "fetch"
        if self.installed():
            return "here"
        return "fetch" if self.package and self.path is not None and self.path.is_dir() else "repository"

    def fetch(self) -> Path:
        """Fetch the missing files; return the checkpoint folder. Raises ZooError."""
        try:
            if self.package and not self.installed():
                fetch(self)
        except FetchError as error:
            raise ZooError(str(error), code_of(error)) from None
        return self.folder()

    def config_folder(self) -> Path:
        """Return a folder with the entry's config.json. For a hub model that is not on this machine only the
        configuration is fetched. Raises ZooError."""
        found = None if self.path is not None else local_files(self)
        return (
            self.folder() if self.path is not None or found and self.gguf else found or _configuration(self)
        )


@dataclass(frozen=True)
class Server:
    """A remote engine: its protocol (``engine``), its address, the model to request (empty: the first that
    the server lists), and the environment variable that holds its API key (``key``)."""

    name: str
    engine: str
    url: str
    model: str = ""
    about: str = ""
    key: str = ""

    def secret(self) -> str:
        """Return the API key; empty without one."""
        return os.environ.get(self.key, "") if self.key else ""


@dataclass(frozen=True)
class Register:
    """The content of models.yaml: models by name, the default target, the table of forward passes,
    datastores and servers."""

    entries: dict[str, Entry] = field(default_factory=dict)
    default: str = ""
    backends: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stores: dict[str, dict[str, Path]] = field(
        default_factory=dict
    )  # datastores of text, by name and target ("": any)
    servers: dict[str, Server] = field(default_factory=dict)
    named_default: str = ""  # the default of the file, which may not be installed

    @property
    def _models(self) -> list[str]:
        return [name for name, entry in self.entries.items() if entry.role in ("target", "draft")]

    def stores_of(self, target: str) -> dict[str, Path]:
        """Return {name: folder} of the datastores that fit a target."""
        found = {name: places.get(target, places.get("")) for name, places in self.stores.items()}
        return {name: place for name, place in found.items() if place is not None}

    def made_for(self, name: str, folder: Path) -> list[Entry]:
        """Return the entries of heads and draft models that were trained for a target. name, folder: the
        target's; it need not be in models.yaml."""
        folder = folder.resolve()
        whose = {
            entry.name for entry in self.entries.values() if entry.path and entry.path.resolve() == folder
        } | {name}
        found = [entry for entry in self.entries.values() if entry.target in whose]
        return found if whose & self.entries.keys() else [*found, *entries_found_for(name, folder).values()]

    def find(self, asked: str | None, named_only: bool = False) -> Entry:
        """Return the entry with this name, or a new entry for a folder, a GGUF file or a hub id. asked
        None: the default; named_only: names of models.yaml only. Raises ZooError that lists the names."""
        if asked is None and self.named_default not in ("", self.default):
            _warn_of_default(self.named_default, self.default)
        asked = self.default if asked is None else str(asked).strip()
        # os.path answers False for any text; Path.is_dir raises for one that is too long
        there = (
            not named_only
            and asked
            and (os.path.isdir(asked) or asked.endswith(GGUF) and os.path.isfile(asked))  # noqa: PTH112, PTH113
        )
        place = Path(asked).resolve() if there else None
        for entry in self.entries.values():
            if entry.role == "head" and (
                entry.name == asked or place and entry.path and entry.path.resolve() == place
            ):
                raise ZooError(
                    f"{entry.name} is a {entry.kind} head, a part of {entry.target}: name {entry.target} instead.",
                    "model.is_head",
                )
        if asked in self.entries:
            return self.entries[asked]
        hub, _, revision = asked.partition("@")
        if place:
            return Entry(model_name(place.name), path=place)
        if not named_only and (asked.startswith((".", "/", "~")) or asked.endswith(GGUF)):
            raise ZooError(f"There is no folder and no GGUF file {asked[:200]!r}.", "model.no_file")
        if not named_only and HUB_ID.fullmatch(hub):
            if not COMMIT.fullmatch(revision):
                raise ZooError(
                    f"There is no folder {hub[:80]}. For a model of the hub pin {hub[:80]} to a commit: "
                    f"{hub[:80]}@<40 hexadecimal digits>, as its page on the hub shows them.",
                    "model.unpinned",
                )
            return Entry(hub.rpartition("/")[2], hub=hub, revision=revision)
        near = get_close_matches(asked[:80], self.entries, 1)
        raise ZooError(
            f"There is no model {asked[:80]!r}; "
            + (f"did you mean {near[0]}? There are " if near else "there are ")
            + ", ".join(self._models)
            + (", and a folder, a GGUF file or org/name@commit will do." if not named_only else "."),
            "model.unknown",
        )


def _check_files(folder: Path) -> None:
    """Refuse a folder in which something that is no ordinary file has the name of one that is read: a link to
    a device or a pipe would be read for ever. Raises ZooError."""
    for file in folder.iterdir():
        if file.suffix in READ and not file.is_file():
            raise ZooError(f"{file.name} of {folder.name} is no ordinary file.", "model.file")


def models_file() -> Path:
    """Return the path of models.yaml, or of the file that SPECVIZ_MODELS names."""
    return Path(os.environ.get("SPECVIZ_MODELS") or ROOT / "models.yaml")


def clone_hint() -> str:
    """Return how to get trained weights that an installed package does not contain; empty for another
    models.yaml."""
    return (
        f". Weights for embedded targets come with the repository: {CLONE}"
        if models_file().is_relative_to(INSTALLED)
        else ""
    )


@lru_cache(maxsize=4)
def _composed(path: Path, changed: int, size: int) -> yaml.Node | None:
    """Return the file's YAML nodes, parsed once per modification time, because the page reads the register
    at each event."""
    return yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)


def register(path: str | Path | None = None) -> Register:
    """Return the content of models.yaml, or of the file that SPECVIZ_MODELS names. Raises ZooError that
    names the invalid line."""
    path = Path(path or models_file())
    try:
        facts = path.stat()
        root = _composed(path, facts.st_mtime_ns, facts.st_size)
    except OSError as error:
        raise ZooError(f"{path.name} cannot be read: {error.strerror}.", "models_yaml.read") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it is no text"
        raise ZooError(
            f"{path.name}, line {mark.line + 1 if mark else 1}: {problem}.", "models_yaml.syntax"
        ) from None
    except RecursionError:
        raise ZooError(f"{path.name} is nested too deeply.", "models_yaml.depth") from None
    reader = _Reader(path)
    top = reader.mapping(root, "the file", {"default", "backends", "models", "stores", "servers"})
    entries = {
        name: reader.entry(name, node) for name, node in reader.mapping(top.get("models"), "models").items()
    }
    entries = with_found_weights(entries)
    backends = {
        name: reader.words(node)
        for name, node in reader.mapping(top.get("backends"), "backends", set(FORWARDS)).items()
    }
    named_stores = reader.mapping(top["stores"], "stores") if "stores" in top else {}
    stores = {name: reader.places(name, node) for name, node in named_stores.items()}
    servers = {
        name: reader.server(name, node)
        for name, node in (reader.mapping(top["servers"], "servers") if "servers" in top else {}).items()
    }
    default = reader.word(top.get("default"), "default")
    named = [(other, root) for e in entries.values() for other in (e.draft, e.target, e.middle) if other]
    named += [(target, top["stores"]) for places in stores.values() for target in places if target]
    for name, node in [(default, top["default"]), *named]:
        if name not in entries:
            reader.refuse(node, f"there is no model {shown(name)!r}")
    if entries[default].role != "target":
        reader.refuse(top["default"], f"the default {shown(default)!r} is no target")
    for entry in entries.values():
        reader.check_roles(top["models"], entry, entries)
    return Register(entries, _installed(default, entries), backends, stores, servers, default)


def _installed(default: str, entries: dict[str, Entry]) -> str:
    """Return the default target, or if its weights are not installed (a wheel has only the small models)
    the first target that is."""
    here = [e.name for e in entries.values() if e.role == "target" and e.installed()]
    if entries[default].path is None or entries[default].installed() or not here:
        return default
    return here[0]


@lru_cache
def _warn_of_default(default: str, used: str) -> None:
    """Warn once per process that the default target is not installed."""
    logging.getLogger(__name__).warning(
        "%s is not installed; %s is used. Fetch it: specviz models --fetch %s", default, used, default
    )


def entries_found_for(target: str, folder: Path) -> dict[str, Entry]:
    """Return a new entry, by name, for each head and draft model that recipes trained for a target in a
    checkpoint folder (found_weights.py)."""
    found = {}
    for name, role, kind, place in found_weights(target, folder):
        part = trained_parts().get(kind)
        about = part.about if part else "A draft model with a tokenizer of its own."
        found[name] = Entry(
            name, path=place, role=role, target=target, kind=kind if part else "", about=about, licence=MADE
        )
    return found


def with_found_weights(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Return the entries, and new entries for weights that recipes trained for their targets. A folder that
    models.yaml lists is not added again."""
    named = {entry.path.resolve() for entry in entries.values() if entry.path}
    found: dict[str, Entry] = {}
    for target, folder in [
        (entry, entry.path) for entry in entries.values() if entry.role == "target" and entry.path
    ]:
        new = entries_found_for(target.name, folder)
        found = {
            name: entry for name, entry in new.items() if entry.path and entry.path.resolve() not in named
        } | found
    return entries | {name: entry for name, entry in found.items() if name not in entries}


def _size(value: str) -> bool:
    try:
        return 0 < float(value) < 10_000
    except ValueError:
        return False


def _is_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and "@" not in parts.netloc
        )
    except ValueError:
        return False


def _one_of(*values: str) -> tuple[str, Callable[[str], object]]:
    return f"one of {', '.join(values)}", values.__contains__


NAME = 100  # most characters of a model's name
PLAIN_TEXT = (
    f"a printable text of at most {LONGEST:,} characters",
    lambda value: value.isprintable() and len(value) <= LONGEST,
)
KINDS: dict[
    str, tuple[str, Callable[[str], object]]
] = {  # allowed values of a field; all other fields hold PLAIN_TEXT
    "memory": ("a number of GB above 0", _size),
    "gated": ("yes or left out", "yes".__eq__),
    "device_map": ("auto or left out", "auto".__eq__),
    "quantise": _one_of(*QUANTISED),
    "backend": _one_of(*FORWARDS),
    "key": ("the name of an environment variable", re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII).fullmatch),
}


class _Reader:
    """Turn YAML nodes into plain data; every refusal names the line."""

    def __init__(self, path: Path):
        self.path = path

    def refuse(self, node: Any, what: str) -> None:
        line = node.start_mark.line + 1 if node is not None else 1
        raise ZooError(f"{self.path.name}, line {line}: {what}.", "models_yaml.entry")

    def check(self, node: Any, name: str, fields: dict[str, str]) -> None:
        """Refuse a field whose value has the wrong type (KINDS)."""
        for key, value in fields.items():
            kind, fits = KINDS.get(key, PLAIN_TEXT)
            if not (PLAIN_TEXT[1](value) and fits(value)):
                self.refuse(node, f"{key} of {name} must be {kind}, not {shown(value)!r}")

    def check_roles(self, node: Any, entry: Entry, entries: dict[str, Entry]) -> None:
        """Refuse an entry that names a model with an unsuitable role, or a kind that no method declares."""
        for word, other, roles in (
            ("draft", entry.draft, ("target", "draft")),
            ("middle", entry.middle, ("target",)),
            ("for", entry.target, ("target",)),
        ):
            if other and entries[other].role not in roles:
                self.refuse(
                    node,
                    f"{word} of {entry.name} must name a {' or '.join(roles)}; {other} is a {entries[other].role}",
                )
        kinds = {"head": head_kinds, "draft": draft_kinds}.get(entry.role)
        if entry.kind and kinds and entry.kind not in kinds():
            self.refuse(
                node, f"kind of {entry.name} must be one of {', '.join(kinds())}, not {shown(entry.kind)!r}"
            )

    def mapping(self, node: Any, what: str, known: set[str] | None = None) -> dict[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            self.refuse(node, f"{what} must be a list of names with values")
        out: dict[str, Any] = {}
        for key, value in node.value:
            name = self.word(key, "a name")
            if name in out:
                self.refuse(key, f"{shown(name)} is there twice")
            if not PLAIN_TEXT[1](name) or len(name) > NAME:
                self.refuse(
                    key, f"a name must be {PLAIN_TEXT[0]} of at most {NAME} characters, not {shown(name)!r}"
                )
            if known is not None and name not in known:
                self.refuse(key, f"{shown(name)!r} is not one of {', '.join(sorted(known))}")
            out[name] = value
        return out

    def word(self, node: Any, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or not node.value.strip():
            self.refuse(node, f"{what} must be a text")
        return node.value.strip()

    def words(self, node: Any) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode):
            self.refuse(node, "a row of backends must be a list of model types")
        return tuple(self.word(one, "a model type") for one in node.value)

    def places(self, name: str, node: Any) -> dict[str, Path]:
        """Read the paths of a datastore: one for every target, or one per target, where ``any`` stands for
        all others."""
        by_target = self.mapping(node, name) if isinstance(node, yaml.MappingNode) else {"": node}
        return {
            "" if target == ANY else target: self.place(one, self.word(one, "a path"))
            for target, one in by_target.items()
        }

    def place(self, node: Any, path: str) -> Path:
        """Return a path as it is meant: relative to the file, ``~`` for the home folder. What cannot be a
        path is refused."""
        try:
            place = self.path.resolve().parent / Path(path).expanduser()
            place.exists()
        except (OSError, RuntimeError, ValueError) as error:
            self.refuse(node, f"{shown(path)} is no path: {getattr(error, 'strerror', None) or error}")
        return place

    def server(self, name: str, node: Any) -> Server:
        fields = {
            key: self.word(value, key)
            for key, value in self.mapping(node, name, {"engine", "url", "model", "about", "key"}).items()
        }
        self.check(node, name, fields)
        if fields.get("engine") not in SERVER_ENGINES or "url" not in fields:
            self.refuse(node, f"{name} needs a url and an engine, one of {', '.join(SERVER_ENGINES)}")
        if not _is_url(fields["url"]):  # it may hold a password, so it is not echoed
            self.refuse(node, f"url of {name} must be http(s)://host[:port][/path], without a password")
        if not SERVER_NAME.fullmatch(name):
            self.refuse(
                node, "a server's name is up to 40 letters, digits, spaces, dots, dashes and underscores"
            )
        return Server(name, **fields)

    def entry(self, name: str, node: Any) -> Entry:
        known = {
            "path",
            "hub",
            "revision",
            "gguf",
            "package",
            "draft",
            "middle",
            "role",
            "for",
            "kind",
            "backend",
            "about",
            "nature",
            "languages",
            "licence",
            "size",
            "memory",
            "gated",
            "device_map",
            "quantise",
        }
        fields: dict[str, Any] = {
            key: self.word(value, key) for key, value in self.mapping(node, name, known).items()
        }
        self.check(node, name, fields)
        if ("path" in fields) == ("hub" in fields):
            self.refuse(node, f"{name} needs either a path or a hub id")
        if "hub" in fields and not (
            HUB_ID.fullmatch(fields["hub"]) and COMMIT.fullmatch(fields.get("revision", ""))
        ):
            self.refuse(node, f"{name} needs a hub id (org/name) and a revision of 40 hexadecimal digits")
        if "gguf" in fields and ("hub" not in fields or not GGUF_NAME.fullmatch(fields["gguf"])):
            self.refuse(
                node, f"gguf of {name} must be the name of a file that ends in {GGUF}, of a hub model"
            )
        if "package" in fields and ("path" not in fields or not PACKAGE.fullmatch(fields["package"])):
            self.refuse(node, f"package of {name} must be NAME==VERSION, of a model with a path")
        role = fields.get("role", "target")
        if role not in ("target", "draft", "head", "other_draft"):
            self.refuse(node, f"the role of {name} must be target, draft, head or other_draft")
        marks = {key for key in ("for", "kind") if key in fields}
        if marks not in {
            "head": [{"for", "kind"}],
            "other_draft": [{"for"}],
            "draft": [set(), {"for", "kind"}],
        }.get(role, [set()]):
            self.refuse(
                node,
                f"{name} must say 'for' and 'kind' if it is a head, or a draft trained in a paper's own way, 'for' if it is "
                "an other_draft, and only then",
            )
        if "middle" in fields and role != "target":
            self.refuse(node, f"{name} is no target: only a target may have another one in the middle")
        fields["target"] = fields.pop("for", "")
        if "path" in fields:
            fields["path"] = self.place(node, fields["path"])
        return Entry(name, **fields)


def local_files(entry: Entry) -> Path | None:
    """Return the path of a hub model's files on this machine, a folder or a GGUF file, without network
    access; None if they were not fetched yet."""
    try:
        return _download(entry, local_only=True)
    except Exception:  # the client has dozens of kinds
        return None


def _require_hub() -> None:
    """Raise ZooError if the hub does not answer: its client would ask six times, which takes 25 seconds."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:  # the client refuses at once, with an error of its own
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=REACH)
    except Exception as error:  # of the client's HTTP library, whichever it is
        kind = type(error).__name__
        raise ZooError(f"The hub cannot be reached ({kind}).", "hub.unreachable") from None


def _configuration(entry: Entry) -> Path:
    """Return a folder with the entry's config.json and nothing large, fetched at its commit. Raises
    ZooError."""
    import huggingface_hub as hub

    if entry.gguf:
        raise ZooError(
            f"{entry.name} lies in a GGUF file that was not fetched yet; its configuration is part of that file.",
            "gguf.not_fetched",
        )
    try:
        found = hub.try_to_load_from_cache(entry.hub, "config.json", revision=entry.revision)
        if isinstance(found, str):
            return Path(found).parent
        _require_hub()
        return Path(hub.hf_hub_download(entry.hub, "config.json", revision=entry.revision)).parent
    except ZooError:
        raise
    except Exception as error:
        gated = " (it is gated: log in)" if entry.gated else ""
        raise ZooError(
            f"The config.json of {entry.name} cannot be fetched: {type(error).__name__}{gated}.",
            "model.fetch_config",
        ) from None


def _download(entry: Entry, local_only: bool) -> Path:
    """Return the folder or the GGUF file of a hub model, from the cache, else from the network. Raises an
    error of the hub's client."""
    import huggingface_hub as hub

    if entry.gguf:
        return [
            Path(
                hub.hf_hub_download(
                    entry.hub, piece.name, revision=entry.revision, local_files_only=local_only
                )
            )
            for piece in pieces_of(Path(entry.gguf))
        ][0]
    found = Path(
        hub.snapshot_download(
            entry.hub,
            revision=entry.revision,
            allow_patterns=WANTED,
            ignore_patterns=UNWANTED,
            local_files_only=local_only,
        )
    )
    if local_only and not any(found.glob("*.safetensors")):
        raise hub.errors.LocalEntryNotFoundError("no weights")
    return found


def _fetched(entry: Entry) -> Path:
    """Return the files of a hub model at its commit, from the cache or the network. Raises ZooError."""
    import huggingface_hub as hub

    hub.logging.set_verbosity_error()  # its retries would bury the one sentence below
    try:
        try:
            found = _download(entry, local_only=True)
        except hub.errors.LocalEntryNotFoundError:
            _require_hub()
            found = _download(entry, local_only=False)
    except ZooError as error:
        words = "the hub cannot be reached and it was not fetched before"
        raise ZooError(f"{entry.name} cannot be fetched: {words}.", code_of(error)) from None
    except Exception as error:  # the client has dozens of kinds: offline, not found, gated, no space
        kind = type(error).__name__
        reason = {
            "GatedRepoError": "it is gated: accept its licence on the hub and log in",
            "RepositoryNotFoundError": "the hub has no such model",
            "RevisionNotFoundError": "the hub has no such commit",
            "EntryNotFoundError": "the hub has no such file",
            "RemoteEntryNotFoundError": "the hub has no such file",
            "LocalEntryNotFoundError": "the hub cannot be reached and it was not fetched before",
            "OfflineModeIsEnabled": "the hub is switched off here and it was not fetched before",
        }.get(kind)
        raise ZooError(
            f"{entry.name} cannot be fetched: {reason or f'{kind} from the hub'}.",
            "hub.unreachable" if kind in UNREACHABLE else "model.fetch",
        ) from None
    if not entry.gguf and not any(found.glob("*.safetensors")):
        raise ZooError(
            f"{entry.name} has no safetensors at this commit; other formats are not read.",
            "model.no_safetensors",
        )
    return found
