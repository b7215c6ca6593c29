"""PARD-2's projection of the target's hidden states into PARD's draft model (2605.08632).

The input of a token at position t is embedding(token t) + scale * target_proj(states at t - 1); at position 0, and
where the states are unknown, it is the embedding alone, as for the mask tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ....checkpoints.weights import ModelError
from ....models.heads import HeadWeights, TargetInfo, check_fit, config_of, fill


class TargetStates(nn.Module):
    """The projection, an nn.Module. config: hidden_size of the target, draft_hidden_size, target_layer_ids (layers
    whose output is read, 0 first), target_scale."""

    def __init__(self, config: dict[str, Any], name: str = "PARD-2's projection"):
        super().__init__()
        try:
            hidden, draft = int(config["hidden_size"]), int(config["draft_hidden_size"])
            self.read_layers = tuple(int(i) for i in config["target_layer_ids"])
            self.scale = float(config["target_scale"])
        except (KeyError, TypeError, ValueError) as missing:
            raise ModelError(f"config.json of {name} does not say {missing}", "head.config_lacks") from None
        self.config = config
        self.target_proj = nn.Linear(len(self.read_layers) * hidden, draft, bias=False)

    @property
    def hidden_states(self) -> tuple[str, ...]:
        """Names of the target's hidden states that are read; the output of a layer is the input of the next."""
        return tuple(f"layer:{i + 1}" for i in self.read_layers)

    def forward(self, states: Tensor) -> Tensor:
        """Return what is added to embeddings, [..., draft hidden], for states [..., layers * hidden]."""
        return self.scale * self.target_proj(states)


def build(target: TargetInfo, hparams: dict[str, Any]) -> TargetStates:
    """Return an untrained projection for a target. hparams: draft_hidden of PARD's model, target_scale; read_layers
    (else three spread over the target)."""
    last = target.layers - 2
    spread = sorted({max(0, min(last, round(target.layers * share) - 1)) for share in (0.25, 0.5, 1)})
    return TargetStates(
        {
            "hidden_size": target.hidden,
            "vocab_size": target.vocab,
            "draft_hidden_size": hparams["draft_hidden"],
            "target_layer_ids": list(hparams.get("read_layers") or spread),
            "target_scale": hparams["target_scale"],
        },
        f"PARD-2's projection for {target.name}",
    )


def load(folder: Path, target: TargetInfo) -> TargetStates:
    """Load the projection of a checkpoint folder. Raises ModelError."""
    check_fit(folder, target.name, target.hidden, target.vocab)
    weights = HeadWeights(folder, target)
    made = TargetStates({"hidden_size": target.hidden, **config_of(folder)}, folder.name)
    if max(made.read_layers) >= target.layers - 1 or min(made.read_layers) < 0:
        raise ModelError(
            f"{folder.name} reads the output of layer {max(made.read_layers)}; of {target.name} layers 0 to "
            f"{target.layers - 2} can be read",
            "head.read_layers",
        )
    found = {name: weights.get(name, *tensor.shape) for name, tensor in made.state_dict().items()}
    weights.check_none_unread()
    return fill(made, found, target)
