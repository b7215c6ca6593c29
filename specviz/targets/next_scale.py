"""Target that paints a picture scale by scale: one pass gives the distributions of all patches of the next
scale (models/scales.py).

The KV cache holds the rows of scales, one row per patch, and the picture before each scale is kept. After a
sync to a longer text the next pass runs the rows of every scale that is missing, under the attention mask
of scales; so a second model that takes over in the middle reads the scales before it in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..core import DraftTree, Scores, common_prefix_length
from ..core.errors import InvalidUse
from ..models.scales import KV, ScaleModel
from .base import CachedTarget


class NextScaleModel(ScaleModel):
    """Weights of a folder; ``open()`` returns targets that share them."""

    def open(self) -> NextScaleTarget:
        """Return a target with a picture and KV cache of its own."""
        return NextScaleTarget(self)


def load(folder: Path, device: torch.device) -> NextScaleModel:
    """Load the model of a folder. It always runs on the CPU, whatever ``device`` says, because the networks
    are very small."""
    return NextScaleModel(folder)


class NextScaleTarget(CachedTarget):
    """Target with the picture and KV cache of one run. Token ids below ``model.words`` are the prompt's
    words, the others patches, scale after scale.

    guidance: strength of classifier-free guidance at the last scale, 1 for none; the unconditional branch
    runs in the same pass.
    """

    capabilities = frozenset({"scales", "guide"})

    def __init__(self, model: NextScaleModel):
        self.model = model
        self.name = model.name
        self.net = model.net
        self.scales = model.scales
        self.vocab = model.vocab
        self.context = model.context
        self.hidden = model.hidden
        self.layers = model.layers
        self.guidance, self._unguided = 1.0, range(model.vocab)
        self._reset([])
        super().__init__()

    def guide(self, strength: float, unguided: Sequence[int]) -> None:
        """Set classifier-free guidance: logits u + s (c - u) from the conditional branch c and the
        unconditional branch u, with s rising from 1 at the first scale to ``strength`` at the last; 1
        switches the unconditional branch off. unguided: for each word, the word that the unconditional
        branch reads in its place."""
        self.guidance, self._unguided = strength, unguided
        self._reset(self._prompt)

    def _reset(self, prompt: list[int]) -> None:
        self._prompt, self._painted = prompt, list[int]()
        self._pictures: list[Tensor] = []  # before each scale
        self._kv: list[KV | None] = [None] * self.layers
        self._cached = 0  # scales whose rows are cached
        self._last: Tensor | None = None  # logits of the last of them

    def sync(self, tokens: Sequence[int]) -> Scores:
        """Set the text, and keep the cached scales whose input is unchanged. Computes nothing. Raises
        InvalidUse for a word after the first patch, and ContextOverflow."""
        tokens = list(tokens)
        self._check(tokens)
        words = next((i for i, token in enumerate(tokens) if token >= self.model.words), len(tokens))
        prompt, painted = tokens[:words], tokens[words:]
        self._readable(tokens)
        if any(token < self.model.words for token in painted):
            raise InvalidUse(f"{self.name} paints patches after the prompt, never words", "target.token")
        if prompt != self._prompt:
            self._reset(prompt)
        keep = min(self._cached, self.scales.num_complete(common_prefix_length(self._painted, painted)) + 1)
        if keep < self._cached:
            rows = self.scales.ends[keep]
            self._kv = [kv and (kv[0][:, :, :rows], kv[1][:, :, :rows]) for kv in self._kv]
            self._cached, self._last = keep, None
        self._painted = painted
        self.cached_tokens = tokens[:-1]
        self.root = tokens[-1]
        return Scores(torch.empty(0, self.vocab), {}, 0, len(tokens))

    def next_scale(self) -> Tensor:
        """Return the logits [patches, vocab] of the patches of the current scale that are not painted yet,
        from one forward pass; tokens of other scales have -inf. Raises InvalidUse if the picture is
        complete."""
        scales, scale = self.scales, self.scales.num_complete(len(self._painted))
        if scale == len(scales.grids):
            raise InvalidUse("the picture is complete", "target.complete")
        if self._cached <= scale or self._last is None:
            with self.timed():
                self.passes += 1
                self._last = self._run(scale)
        lo, hi = (self.model.words + start for start in scales.starts[scale : scale + 2])
        logits = torch.full((len(self._last), self.vocab), -torch.inf)
        logits[:, lo:hi] = self._last
        return logits[len(self._painted) - scales.ends[scale] :]

    def _run(self, scale: int) -> Tensor:
        """Run the rows of all scales up to ``scale`` that are not cached; return the last one's guided
        logits."""
        net = self.net
        scales = self.scales
        first = self._cached if self._cached <= scale else scale
        if first < self._cached:  # its logits are gone
            self._kv = [
                kv and (kv[0][:, :, : scales.ends[first]], kv[1][:, :, : scales.ends[first]])
                for kv in self._kv
            ]
        self._pictures = self._pictures[:first]
        inputs = torch.cat([net.inputs(self._picture_before(one), one) for one in range(first, scale + 1)], 1)
        lo, hi = scales.ends[first], scales.ends[scale + 1]
        condition = net.condition(self._word_counts())
        x = net.rows(condition, inputs.expand(len(condition), -1, -1), lo)
        mask = scales.mask()[lo:hi, :hi] if scale > first else None
        for i, layer in enumerate(net.layers):
            x, self._kv[i] = layer(x, self._kv[i] if lo else None, mask)
        self._cached = scale + 1
        logits = net.logits(net.norm(x[:, scales.ends[scale] - lo :]), scale)
        strength = 1 + (self.guidance - 1) * scale / max(1, len(scales.grids) - 1)
        return logits[1] + strength * (logits[0] - logits[1]) if len(logits) > 1 else logits[0]

    def _picture_before(self, scale: int) -> Tensor:
        """Return the picture that the scales before this one give, [1, 3, side, side]."""
        while len(self._pictures) <= scale:
            at = len(self._pictures) - 1
            if at < 0:
                self._pictures.append(self.scales.blank_pictures())
            else:
                lo, hi = self.scales.ends[at : at + 2]
                entries = torch.tensor([self._painted[lo:hi]]) - self.model.words
                self._pictures.append(self.net.add_scale(self._pictures[at], entries))
        return self._pictures[scale]

    def _word_counts(self) -> Tensor:
        """Return how often each word occurs, [rows, words]: with the prompt, and where guided without it."""
        rows = [self._prompt] + [[self._unguided[word] for word in self._prompt]] * (self.guidance != 1)
        return torch.stack(
            [
                torch.bincount(torch.tensor(row, dtype=torch.long), minlength=self.model.words).float()
                for row in rows
            ]
        )

    def kv_bytes(self) -> int:
        """Return the size of the KV cache in bytes."""
        return sum(part.nbytes for kv in self._kv if kv is not None for part in kv)

    def score(self, tree: DraftTree, start: int = 0) -> Scores:
        """Return the logits of the next patch, from a new pass; tree must be empty. Raises InvalidUse for a
        tree with nodes: patches of a scale do not depend on each other, so drafts of single tokens are not
        scored."""
        if len(tree):
            raise InvalidUse(
                f"{self.name} paints a whole scale in one pass; drafts of single tokens are not scored",
                "target.scales",
            )
        self._last = None
        return Scores(self.next_scale()[:1], {}, len(self.cached_tokens))

    def close(self) -> None:
        """Drop the picture and the KV cache."""
        self._reset([])
        self.cached_tokens, self.root = [], None

    def _crop(self, length: int) -> None:
        """Drop everything: after a failed pass the rows of some layers may be missing."""
        self._reset(self._prompt)
