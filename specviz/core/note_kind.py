"""The declaration of one kind of note: the panel that draws it, its meaning and its fields (note_kinds.py
lists the kinds)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

IDS = [11, 12, 13, 14]  # tokens of the examples


@dataclass(frozen=True)
class Note:
    """One kind of annotation ("note") that a method writes into the trace, and how the page draws it.

    lens: the panel, a file of assets/viewer/lens, that draws it; about: one sentence for people; needed,
    maybe: required and optional fields, field -> meaning; example: data with every field.
    """

    lens: str
    about: str
    needed: dict[str, str]
    maybe: dict[str, str]
    example: dict[str, Any]

    def row(self, kind: str) -> str:
        """Return the row of the table in docs/TRACE.md for this kind."""
        fields = [f"`{name}`: {meaning}" for name, meaning in self.needed.items()]
        fields += [f"[`{name}`]: {meaning}" for name, meaning in self.maybe.items()]
        return f"| `{kind}` | {self.about} | {'; '.join(fields)} |"


def note(lens: str, about: str, **fields: tuple[str, Any]) -> Note:
    """Return a Note. lens, about: as in Note; each field is name=(meaning, example), and a name that ends
    in ``_`` declares an optional field without the ``_``."""
    return Note(
        lens,
        about,
        {name: meaning for name, (meaning, _) in fields.items() if not name.endswith("_")},
        {name[:-1]: meaning for name, (meaning, _) in fields.items() if name.endswith("_")},
        {name.removesuffix("_"): example for name, (_, example) in fields.items()},
    )
