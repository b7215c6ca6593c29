"""One kind of note: who draws it, what it says, and its fields (notes.py declares each)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

IDS = [11, 12, 13, 14]  # tokens of the examples


@dataclass(frozen=True)
class Note:
    """lens: the file of assets/viewer/lens that draws it; about: for people; needed, maybe: its fields, each with its meaning;
    example: data with every field."""

    lens: str
    about: str
    needed: dict[str, str]
    maybe: dict[str, str]
    example: dict[str, Any]

    def row(self, kind: str) -> str:
        """Its line in docs/TRACE.md."""
        fields = [f"`{name}`: {told}" for name, told in self.needed.items()]
        fields += [f"[`{name}`]: {told}" for name, told in self.maybe.items()]
        return f"| `{kind}` | {self.about} | {'; '.join(fields)} |"


def note(lens: str, about: str, **fields: tuple[str, Any]) -> Note:
    """A kind with these fields: name=(what it means, an example); a name that ends in ``_`` may be left out."""
    return Note(lens, about, {name: told for name, (told, _) in fields.items() if not name.endswith("_")},
                {name[:-1]: told for name, (told, _) in fields.items() if name.endswith("_")},
                {name.removesuffix("_"): example for name, (_, example) in fields.items()})
