"""Label-smoothed cross entropy over a large vocabulary, without ever holding all logits.

Axes: N target tokens, C those of one chunk, D width, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from model.config import PAD


def label_smoothed_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, smoothing: float, chunk: int = 512
) -> tuple[Tensor, Tensor]:
    """Sum the loss of predicting `target_N` from softmax(hidden_ND · weight_VDᵀ).

    The target distribution is 1 - smoothing on the token and smoothing / V on every token
    (Szegedy et al., 2016), as in `torch.nn.functional.cross_entropy`. Products are taken in the
    autocast type, the softmax and the sums at least in fp32.

    Args:
        hidden_ND: States before the pre-softmax projection.
        weight_VD: The pre-softmax projection.
        target_N: Token ids. Rows whose target is PAD count nothing.
        smoothing: From 0 up to, not including, 1.
        chunk: Rows whose logits are held at once; the memory is chunk · V numbers.

    Returns:
        The smoothed loss (differentiable) and the negative log-likelihood (not), both in nats and
        summed over tokens.
    """
    wants_gradient = torch.is_grad_enabled() and (
        hidden_ND.requires_grad or weight_VD.requires_grad
    )
    options = Options(smoothing, chunk, wants_gradient)
    loss_sum, nll_sum = ChunkedCrossEntropy.apply(hidden_ND, weight_VD, target_N, options)
    return loss_sum, nll_sum


class Options(NamedTuple):
    """What is not a tensor."""

    smoothing: float
    chunk: int
    wants_gradient: bool


class ChunkedCrossEntropy(torch.autograd.Function):
    """Loss and gradients chunk by chunk in one pass: `backward` only scales the gradients."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  torch has no type for what a Function saves
        hidden_ND: Tensor,
        weight_VD: Tensor,
        target_N: Tensor,
        options: Options,
    ) -> tuple[Tensor, Tensor]:
        """Sum over chunks, and keep both gradients, each as large as its tensor."""
        device = hidden_ND.device.type
        autocast = torch.is_autocast_enabled(device)
        product_type = torch.get_autocast_dtype(device) if autocast else hidden_ND.dtype
        with torch.autocast(device, enabled=False):
            sums = _sum_chunks(
                hidden_ND.to(product_type), weight_VD.to(product_type), target_N, options
            )
        if options.wants_gradient:
            hidden_gradient_ND, weight_gradient_VD = sums.gradients
            ctx.save_for_backward(
                hidden_gradient_ND.to(hidden_ND.dtype), weight_gradient_VD.to(weight_VD.dtype)
            )
        ctx.mark_non_differentiable(sums.nll)
        return sums.loss, sums.nll

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        loss_gradient: Tensor,
        _nll_gradient: Tensor,
    ) -> tuple[Tensor, Tensor, None, None]:
        """Scale in place, to save the time of a copy; autograd then refuses a second call."""
        hidden_gradient_ND, weight_gradient_VD = ctx.saved_tensors
        hidden_gradient_ND.mul_(loss_gradient)
        return hidden_gradient_ND, weight_gradient_VD.mul_(loss_gradient), None, None


class Sums(NamedTuple):
    """Sums over tokens, and the gradients of `loss` (N, D) and (V, D), unset if not wanted."""

    loss: Tensor
    nll: Tensor
    gradients: tuple[Tensor, Tensor]


def _sum_chunks(hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, options: Options) -> Sums:
    sum_type = torch.promote_types(hidden_ND.dtype, torch.float32)
    loss, nll = torch.zeros(2, dtype=sum_type, device=hidden_ND.device).unbind()
    hidden_gradient_ND = torch.empty_like(hidden_ND)
    weight_gradient_VD = torch.zeros_like(weight_VD, dtype=sum_type)
    for start in range(0, len(target_N), options.chunk):
        rows = slice(start, start + options.chunk)
        hidden_CD, target_C = hidden_ND[rows], target_N[rows]
        counts_C = target_C != PAD
        # Nothing here keeps a chunk's logits: the next chunk's take the same memory.
        loss_C, nll_C, gradient_CV = _chunk_loss(
            (hidden_CD @ weight_VD.T).to(sum_type), target_C, options.smoothing
        )
        loss += (loss_C * counts_C).sum()
        nll += (nll_C * counts_C).sum()
        if options.wants_gradient:
            gradient_CV, counts_C1 = gradient_CV.to(weight_VD.dtype), counts_C[:, None]
            torch.mul(gradient_CV @ weight_VD, counts_C1, out=hidden_gradient_ND[rows])
            _add_product(weight_gradient_VD, gradient_CV.T, hidden_CD * counts_C1)
        del gradient_CV
    return Sums(loss, nll, (hidden_gradient_ND, weight_gradient_VD))


def _chunk_loss(
    logits_CV: Tensor, target_C: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return loss and negative log-likelihood per token, and the gradient of their loss."""
    target_C1 = target_C[:, None]
    probs_CV = logits_CV.softmax(dim=1)
    # The largest probability is at least 1 / V, so its logarithm is exact, and one exponential
    # per logit serves both the loss and its gradient.
    log_total_C = logits_CV.amax(dim=1) - probs_CV.amax(dim=1).log()
    nll_C = log_total_C - logits_CV.gather(1, target_C1)[:, 0]
    uniform_C = log_total_C - logits_CV.mean(dim=1)
    gradient_CV = probs_CV.sub_(smoothing / logits_CV.shape[1])
    gradient_CV.scatter_add_(1, target_C1, torch.full_like(nll_C, smoothing - 1)[:, None])
    return (1 - smoothing) * nll_C + smoothing * uniform_C, nll_C, gradient_CV


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:  # products in bf16, their sum over chunks in fp32
        total += left @ right
