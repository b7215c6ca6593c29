"""Muon for the matrices, AdamW for the rest, one warm-up/stable/decay schedule for both.

Muon (Jordan et al. 2024) orthogonalises the momentum of every hidden matrix; embeddings, norms
and the head stay with AdamW. The schedule holds its peak until the last part of the budget and
then falls linearly (warm-up/stable/decay: Hu et al., 2404.06395), so a budget may be in minutes
and a longer one can be resumed from the stable part.
"""

import torch
from torch import nn

from .job import TrainingError


class Optimisers:
    """Both optimisers as one; their state travels as flat tensors, so no pickle is ever read."""

    def __init__(self, model: nn.Module, numbers: dict):
        if not hasattr(torch.optim, "Muon"):
            raise TrainingError(f"Training needs torch 2.9 or newer for its Muon optimiser; this is {torch.__version__}.")
        matrices, rest = [], []
        for name, weight in model.named_parameters():
            hidden = weight.ndim == 2 and "embed" not in name and "lm_head" not in name
            (matrices if hidden else rest).append(weight)
        self.muon = torch.optim.Muon(
            matrices, lr=numbers["muon_lr"], momentum=0.95, weight_decay=numbers["weight_decay"], ns_steps=4
        )
        self.adamw = torch.optim.AdamW(
            rest, lr=numbers["adamw_lr"], betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, fused=True
        )
        self.weights = matrices + rest
        self.peaks = [(self.muon, numbers["muon_lr"]), (self.adamw, numbers["adamw_lr"])]
        self.clip = numbers["clip"]

    def step(self, share: float) -> None:
        """One update at `share` of the peak learning rates; the gradients are used up."""
        nn.utils.clip_grad_norm_(self.weights, self.clip)
        for optimiser, peak in self.peaks:
            for group in optimiser.param_groups:
                group["lr"] = peak * share
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, torch.Tensor]:
        flat = {}
        for index, (optimiser, _) in enumerate(self.peaks):
            for weight, values in optimiser.state_dict()["state"].items():
                flat |= {f"{index}.{weight}.{name}": torch.as_tensor(v) for name, v in values.items()}
        return flat

    def load(self, flat: dict[str, torch.Tensor]) -> None:
        for index, (optimiser, _) in enumerate(self.peaks):
            state: dict[int, dict] = {}
            for key, value in flat.items():
                owner, weight, name = key.split(".", 2)
                if int(owner) == index:
                    state.setdefault(int(weight), {})[name] = value
            optimiser.load_state_dict(optimiser.state_dict() | {"state": state})


def rate(done: float, step: int, numbers: dict) -> float:
    """Share of the peak learning rate, `done` of the budget being spent."""
    warm = min(1.0, (step + 1) / numbers["warmup_steps"])
    return warm * min(1.0, max(0.0, 1.0 - done) / numbers["decay"])
