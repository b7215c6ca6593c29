"""The declaration of one kind of note: the panel that draws it, its meaning and its fields (note_kinds.py lists the kinds)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

IDS = [11, 12, 13, 14]  # tokens of the examples


@dataclass(frozen=True)
class Note:
    """A kind of annotation that a method writes into the trace, and how the viewer draws it.

    lens: the file of assets/viewer/lens that draws it; about: one sentence for people; needed, maybe: field -> its meaning;
    example: data with every field."""

    lens: str
    about: str
    needed: dict[str, str]
    maybe: dict[str, str]
    example: dict[str, Any]

    def row(self, kind: str) -> str:
        """Return this kind's row of the table in docs/TRACE.md."""
        fields = [f"`{name}`: {meaning}" for name, meaning in self.needed.items()]
        fields += [f"[`{name}`]: {meaning}" for name, meaning in self.maybe.items()]
        return f"| `{kind}` | {self.about} | {'; '.join(fields)} |"


def note(lens: str, about: str, **fields: tuple[str, Any]) -> Note:
    """Declare a kind; each field is name=(meaning, example), and a name that ends in ``_`` is optional."""
    return Note(lens, about, {name: meaning for name, (meaning, _) in fields.items() if not name.endswith("_")},
                {name[:-1]: meaning for name, (meaning, _) in fields.items() if name.endswith("_")},
                {name.removesuffix("_"): example for name, (_, example) in fields.items()})
