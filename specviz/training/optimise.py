"""Optimisers of all recipes: Muon for matrices, AdamW for the rest, one warm-up/stable/decay schedule for
both.

Muon (Jordan et al. 2024) orthogonalises the momentum of every hidden matrix; embeddings, norms and output
matrices use AdamW. For wide matrices on a CPU this costs as much as the gradients, so a recipe may
orthogonalise blocks of ``muon_block`` rows (MuonBP, Khaled et al. 2510.16981). The learning rate stays at
its peak until the last part of the budget and then falls linearly (Hu et al., 2404.06395), so a longer
budget can resume from the stable part.
"""

import torch
from torch import nn

from .job import TrainingError


class Optimisers:
    """Muon for matrices and AdamW for all other parameters, used as one optimiser. The state is stored as
    flat tensors, so that checkpoints need no pickle."""

    def __init__(self, model: nn.Module, hparams: dict):
        if not hasattr(torch.optim, "Muon"):
            raise TrainingError(
                f"Training needs torch 2.9 or newer for its Muon optimiser; this is {torch.__version__}.",
                "training.torch",
            )
        matrices, rest = [], []
        for name, weight in model.named_parameters():
            if not weight.requires_grad:
                continue
            table = (
                "embed" in name
                or "lm_head" in name
                or "codebook" in name
                or name.startswith(("emb.", "head."))
            )  # a row a token
            hidden = (
                weight.ndim == 2 and min(weight.shape) > 1 and not table
            )  # of one row, Muon's update would be as long as any other
            (matrices if hidden else rest).append(weight)
        block = {"block": hparams["muon_block"]} if hparams.get("muon_block") else {}
        self.weights, self.peaks = matrices + rest, []
        if matrices:
            muon = (BlockMuon if block else torch.optim.Muon)(
                matrices,
                lr=hparams["muon_lr"],
                momentum=0.95,
                weight_decay=hparams["weight_decay"],
                ns_steps=4,
                **block,
            )
            self.peaks.append((muon, hparams["muon_lr"]))
        if rest:
            adamw = torch.optim.AdamW(
                rest, lr=hparams["adamw_lr"], betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, fused=True
            )
            self.peaks.append((adamw, hparams["adamw_lr"]))
        self.clip = hparams["clip"]

    def step(self, share: float) -> None:
        """Apply one update at ``share`` of the peak learning rates, and clear the gradients."""
        nn.utils.clip_grad_norm_(self.weights, self.clip)
        for optimiser, peak in self.peaks:
            for group in optimiser.param_groups:
                group["lr"] = peak * share
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the state of both optimisers as {name: tensor}, for a checkpoint."""
        flat = {}
        for index, (optimiser, _) in enumerate(self.peaks):
            for weight, values in optimiser.state_dict()["state"].items():
                flat |= {f"{index}.{weight}.{name}": torch.as_tensor(v) for name, v in values.items()}
        return flat

    def load(self, flat: dict[str, torch.Tensor]) -> None:
        """Restore the state that ``tensors`` returned."""
        for index, (optimiser, _) in enumerate(self.peaks):
            state: dict[int, dict] = {}
            for key, value in flat.items():
                owner, weight, name = key.split(".", 2)
                if int(owner) == index:
                    state.setdefault(int(weight), {})[name] = value
            optimiser.load_state_dict(optimiser.state_dict() | {"state": state})


class BlockMuon(torch.optim.Optimizer):
    """Muon in float32 that orthogonalises each matrix in blocks of at most ``block`` rows (of columns, if
    there are fewer). The update has the same size as Muon's."""

    def __init__(self, weights, lr: float, momentum: float, weight_decay: float, ns_steps: int, block: int):
        super().__init__(
            weights, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, ns_steps=ns_steps, block=block)
        )

    @torch.no_grad()
    def step(self) -> None:
        """Apply one update to all parameters with a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight)
                momentum = state["momentum_buffer"].lerp_(weight.grad, 1 - group["momentum"])
                update = weight.grad.lerp(momentum, group["momentum"])  # Nesterov's
                update = orthogonal_blocks(update, group["block"], group["ns_steps"])
                rows, columns = weight.shape
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonal_blocks(matrix: torch.Tensor, block: int, steps: int) -> torch.Tensor:
    """Orthogonalise each block of rows (of columns, if there are fewer) by ``steps`` of Newton-Schulz
    iteration, which brings all singular values near 1."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    size = max(n for n in range(1, min(block, len(x)) + 1) if len(x) % n == 0)
    x = x.reshape(-1, size, x.shape[1])
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    x = x.flatten(0, 1)
    return x.T if tall else x


def learning_rate_share(budget_spent: float, step: int, hparams: dict) -> float:
    """Return the learning rate of a step as a share of its peak: warm-up, constant, then linear decay.
    budget_spent: share of the training budget spent."""
    warm = min(1.0, (step + 1) / hparams["warmup_steps"])
    return warm * min(1.0, max(0.0, 1.0 - budget_spent) / hparams["decay"])
