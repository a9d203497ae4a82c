"""Adam over all of a model's parameters in one row.

One row of values, one of gradients and two of moments, with the model's parameters as views: so
there is one thing to sum, to exchange, to clip and to update. Axes: P all parameters and what fills
up their row, A things asked for.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from model.config import TrainConfig

NUM_ASKS = 2


class FlatAdam:
    """The parameters of a model and their optimizer."""

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        """Move the parameters, which must be fp32 and on one device, into the row.

        Zeros fill it up to a multiple of K, so that any number of workers can cut it in chunks.
        The last of them carry what workers ask of each other, see `asks_A`.
        """
        self.named = dict(model.named_parameters())
        self.layout = [f"{name} {list(value.shape)}" for name, value in self.named.items()]
        self._size = sum(value.numel() for value in self.named.values())
        chunk = math.ceil((self._size + NUM_ASKS) / config.micro_batches_per_step)
        device = next(iter(self.named.values())).device
        self.values_P = torch.zeros(chunk * config.micro_batches_per_step, device=device)
        self.gradient_P = torch.zeros_like(self.values_P)
        self.asks_A = self.gradient_P[-NUM_ASKS:]
        """A view of the end of the gradient's row, where no parameter is: summed with it."""
        self._moments = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(self.values_P),
            "exp_avg_sq": torch.zeros_like(self.values_P),
        }
        self._make_views()
        self._adam = _adam(self.values_P, self.gradient_P, self._moments, config)

    def update(self, learning_rate: float) -> None:
        """Make one update of the values from the gradient."""
        self._adam.param_groups[0]["lr"] = learning_rate
        self._adam.step()

    def whole_state(self) -> list[Tensor]:
        """List all there is, to copy it between workers."""
        return [self.values_P, *self._moments.values()]

    def moments(self) -> dict[str, Tensor]:
        """Return Adam's state in its own names, as views: rows in the order of `layout`."""
        return {
            name: moment[: self._size] if moment.dim() else moment
            for name, moment in self._moments.items()
        }

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor]) -> None:
        """Take over weights by name, and the moments unless there are none."""
        for name, parameter in self.named.items():
            parameter.copy_(weights[name])
        own = self.moments()
        for name, moment in moments.items():
            own[name].copy_(moment)

    def _make_views(self) -> None:
        start = 0
        for parameter in self.named.values():
            assert parameter.dtype == torch.float32, "master weights are fp32"
            place = slice(start, start := start + parameter.numel())
            self.values_P[place] = parameter.detach().flatten()
            parameter.data = self.values_P[place].view(parameter.shape)
            parameter.grad = self.gradient_P[place].view(parameter.shape)


def _adam(
    values_P: Tensor, gradient_P: Tensor, moments: dict[str, Tensor], config: TrainConfig
) -> torch.optim.Optimizer:
    """Make Adam on given rows; with weight decay the decoupled kind, on all parameters alike."""
    kind = torch.optim.AdamW if config.weight_decay else torch.optim.Adam
    values_P.grad = gradient_P
    adam = kind(
        [values_P],
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )
    adam.state[values_P] = moments
    return adam
