"""Train the parameters of drafters whose extra rows pass through the frozen target (models/in_target.py):
learned embeddings, matrices or vectors.

Some answer positions are anchors. Each anchor is followed by one extra row (a position of the forward pass
without a token of the text) for every draft step; they share a forward pass with the text, and the text
does not attend to them. Step j learns the target's distribution of the token j + 2 positions after the
anchor. Gradients flow through the frozen layers to the parameters of the extra rows. Measurements use every
answer position as an anchor, as for heads that fill a tree (ranks.py)."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor
from transformers import DynamicCache

from ..models import in_target
from ..models.pretrained import with_cache
from ..trees import full_tree
from . import chains, losses, ranks
from .features import Batch, EntryFeatures, Features, body_of, entering_states, only_layers
from .job import Job
from .masked_block import sample_anchors
from .runner import Runner

MEAN_OF = 64  # answers whose tokens' mean embedding prompts begin at


def run(job: Job, recipe: str) -> Path:
    """Train the drafter of a recipe; return the folder of its weights."""
    hparams = job.hparams(recipe)
    info = body_of(job.model(job.target))
    torch.manual_seed(job.seed)
    model = in_target.build(info, hparams)
    features = EntryFeatures(job, hparams, min(model.layers))
    if isinstance(model, in_target.PromptRows):
        model.add_to_embeddings(
            features.embedding[torch.cat([answer.ids for answer in features.own.answers[:MEAN_OF]])]
            .float()
            .mean(0)
        )
    runner = Runner(job, recipe, model, hparams, features.checkpoint_folder(recipe))

    def loss_at(step: int):
        batch = features.batch(step, runner.budget_spent())
        places = sample_anchors(batch, hparams["anchors"], random.Random(f"{job.seed} {step}"))
        found = ranks.loss(
            model, ExtraRowStates(model, features, batch.where[places]).head_states, features, batch, hparams
        )
        if isinstance(model, in_target.StreamRows):
            found = found + hparams["early"] * early_exit_loss(model, features, batch)
        return found, len(batch.labels)

    chain = full_tree((1,) * len(model))
    runner.train(
        loss_at, lambda: ranks.measure(model, AllPositionStates(model, features).head_states, features, chain)
    )
    ranks.calibrate(model.eval(), AllPositionStates(model, features).head_states, features, hparams)
    about = CARD.format(
        **hparams | dict(layers=list(model.layers), what=WHAT[model.kind].format(**{"rank": 0} | hparams))
    )
    return chains.export(job, job.model_name(recipe), model, features, runner, about)


def all_anchors(batch: Batch, steps: int) -> Tensor:
    """Return every position whose extra rows predict an answer token, as flat positions [rows, n]; texts
    with fewer repeat the last one."""
    width, found = batch.ids.shape[1], []
    for row in range(len(batch.ids)):
        where = batch.where[batch.where // width == row]
        first = max(row * width, int(where.min()) - steps) if len(where) else row * width
        found.append(torch.arange(first, int(where.max()) if len(where) else first + 1))
    most = max(map(len, found))
    return torch.stack([torch.cat([one, one[-1:].expand(most - len(one))]) for one in found]).to(
        batch.ids.device
    )


class ExtraRowStates:
    """Run the target over a batch, then over the extra rows after given anchors, which attend to the text's
    keys, both from the lowest layer that extra rows enter. owners [rows, n]: flat positions of the
    anchors."""

    def __init__(self, model: in_target.InTargetRows, features: Features, owners: Tensor):
        self.model = model
        self.features = features
        self.owners = owners
        self._states: Tensor | None = None

    def head_states(self, batch: Batch, index: int) -> tuple[Tensor, Tensor]:
        """Return (kept, states [m, hidden]) of draft step ``index``: indices into ``batch.where`` that it
        predicts, and its final hidden states for them."""
        if self._states is None:
            self._states = self._run(batch)
        width = batch.ids.shape[1]
        known = torch.full((batch.ids.numel() + len(self.model) + 1,), -1, device=batch.ids.device)
        known[batch.where] = torch.arange(len(batch.where), device=batch.ids.device)
        place = self.owners + index + 1
        kept = torch.where(place // width == self.owners // width, known[place], -1)
        return kept[kept >= 0], self._states[:, :, index][kept >= 0]

    def _run(self, batch: Batch) -> Tensor:
        """Return states [rows, owners, steps, hidden] after the last norm, averaged over an owner's chains,
        as their logits are."""
        rows, width = batch.ids.shape
        each = self.owners.shape[1]
        steps = len(self.model)
        chains_each = self.model.chains
        at = self.owners % width
        net, device = self.features.target, batch.ids.device
        first = min(self.model.layers)
        text = (
            entering_states(net, batch.ids, first)
            if batch.layer is None
            else batch.layer.view(rows, width, -1)
        ).to(net.dtype)
        deep = torch.arange(1, steps + 1, device=device).repeat(chains_each)
        sees = extra_row_mask(at, width, chains_each, steps)[:, width:]
        mask = torch.zeros(sees.shape, dtype=net.dtype, device=device).masked_fill_(
            ~sees, torch.finfo(net.dtype).min
        )
        keys, owners = DynamicCache(), {}
        with ExitStack() as stack:
            blocks = list(enumerate(stack.enter_context(only_layers(net, first)), first))
            with (
                torch.no_grad(),
                ExitStack() as reads,
            ):  # no gradient reaches the text, which does not attend to extra rows
                for layer, block in blocks:
                    if layer in self.model.layers:
                        reads.callback(
                            block.register_forward_pre_hook(
                                reads_owners(owners, layer, at), with_kwargs=True
                            ).remove
                        )
                net.model(inputs_embeds=text, use_cache=True, **with_cache(net.model, keys))
            for layer, block in blocks:
                if layer in self.model.layers:
                    stack.callback(
                        block.register_forward_pre_hook(
                            self._enters(layer, at, owners[layer]), with_kwargs=True
                        ).remove
                    )
            out = net.model(
                inputs_embeds=text.new_zeros(rows, each * chains_each * steps, text.shape[-1]),
                attention_mask=mask[:, None],
                position_ids=(at[..., None] + deep).flatten(1),
                use_cache=True,
                **with_cache(net.model, keys),
            ).last_hidden_state
        return out.unflatten(1, (each, chains_each, steps)).float().mean(2)

    def _enters(self, layer: int, at: Tensor, owners: Tensor) -> Callable:
        """Return a hook on a layer's input that replaces the states of its steps' rows. owners [rows, n,
        hidden]: hidden states of the anchors at this layer."""
        model = self.model

        def hook(module, args, kwargs):
            x = args[0] if args else kwargs["hidden_states"]
            states = x.unflatten(1, (at.shape[1], model.chains, len(model))).clone()
            for step in (i for i, where in enumerate(model.layers) if where == layer):
                for chain in range(model.chains):
                    made = model.input_states(
                        step, torch.full((at.numel(),), chain, device=x.device), owners.flatten(0, 1)
                    )
                    states[:, :, chain, step] = made.view(*at.shape, -1).to(x.dtype)
            x = states.flatten(1, 3)
            return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

        return hook


def reads_owners(owners: dict[int, Tensor], layer: int, at: Tensor) -> Callable:
    """Return a hook on a layer's input that stores the hidden states at positions at [rows, n] in
    ``owners``."""

    def hook(module, args, kwargs):
        x = args[0] if args else kwargs["hidden_states"]
        owners[layer] = torch.stack([row[places] for row, places in zip(x, at)]).float()

    return hook


class AllPositionStates:
    """Hidden states of the extra rows after every answer position of a batch, for measurements. All steps
    of a batch are computed in one forward pass."""

    def __init__(self, model: in_target.InTargetRows, features: Features):
        self.model, self.features = model, features
        self._of: Batch | None = None

    def head_states(self, batch: Batch, index: int) -> tuple[Tensor, Tensor]:
        """Return (kept, states [m, hidden]) of draft step ``index``: indices into ``batch.where`` that it
        predicts, and its final hidden states for them."""
        if self._of is not batch:
            self._of, self._reader = (
                batch,
                ExtraRowStates(self.model, self.features, all_anchors(batch, len(self.model))),
            )
        return self._reader.head_states(batch, index)


def extra_row_mask(at: Tensor, width: int, chains_each: int, steps: int) -> Tensor:
    """Return the attention mask, bool [rows, n, n] over text and extra rows. Text tokens attend causally;
    an extra row attends to the text up to its anchor (at [rows, anchors]) and to earlier extra rows of its
    own chain."""
    rows, each = at.shape
    size = each * chains_each * steps
    sees = torch.zeros(rows, width + size, width + size, dtype=torch.bool, device=at.device)
    sees[:, :width, :width] = torch.ones(width, width, dtype=torch.bool, device=at.device).tril()
    text = torch.arange(width, device=at.device) <= at[..., None]
    sees[:, width:, :width] = text.repeat_interleave(chains_each * steps, 1)
    chain = torch.ones(steps, steps, dtype=torch.bool, device=at.device).tril()
    sees[:, width:, width:] = torch.block_diag(*[chain] * (each * chains_each)).bool()
    return sees


def early_exit_loss(model: in_target.StreamRows, features: Features, batch: Batch) -> Tensor:
    """Return the next-token loss of the hidden states that enter the stream layers: the early prediction by
    which Speculative Streaming prunes its tree."""
    states = model.early(batch.captured[batch.where].float())
    normed = features.target.model.norm(states.to(features.head.dtype))
    return losses.distil(normed.float(), features.head, batch.top_ids, batch.top_logp, batch.labels, 0.0)


WHAT = {
    "prompts": "Learned embeddings that ride along with a pass of the target, after a token of the text",
    "transfer": "Matrices that turn a token's state inside the target into made-up states of the tokens after it",
    "streams": "Vectors which, added to a token's state inside the target (changed by a matrix of rank {rank}), make streams that run "
    "ahead of it",
}

CARD = """{what}. Each step of them enters one of the target's layers {layers} (0 is the first) and guesses a token further ahead;
the next pass checks the guesses, so a wrong one costs time and never changes the text. How often each rank of each step is right
is in config.json.

Loss: distillation plus {hard_label_weight} times cross-entropy on the generated tokens, after {anchors} positions per row of text; step
i's loss is multiplied by {loss_decay}^i. The target's weights are frozen."""
