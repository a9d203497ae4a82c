"""The chunked loss equals torch's, in value and gradients, whatever the chunks."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from model.config import PAD
from model.loss import label_smoothed_cross_entropy


def example(
    tokens: int = 37, vocab: int = 101, dtype: torch.dtype = torch.float32, spread: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden_ND = torch.randn(tokens, 16, generator=generator, dtype=dtype) * spread
    weight_VD = torch.randn(vocab, 16, generator=generator, dtype=dtype)
    target_N = torch.randint(1, vocab, (tokens,), generator=generator)
    return hidden_ND.requires_grad_(), weight_VD.requires_grad_(), target_N


def gradients_of(loss: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("chunk", [1, 8, 37, 512])
def test_value_and_gradients_equal_torchs(smoothing: float, chunk: int):
    hidden_ND, weight_VD, target_N = example()
    ours, _ = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, smoothing, chunk)
    theirs = cross_entropy(
        hidden_ND @ weight_VD.T, target_N, label_smoothing=smoothing, reduction="sum"
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    pairs = zip(
        gradients_of(ours, hidden_ND, weight_VD),
        gradients_of(theirs, hidden_ND, weight_VD),
        strict=True,
    )
    for our_gradient, their_gradient in pairs:
        torch.testing.assert_close(our_gradient, their_gradient, rtol=1e-5, atol=1e-5)


def test_gradients_scale_with_what_follows_the_loss():
    hidden_ND, weight_VD, target_N = example()
    loss, _ = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1, chunk=8)
    scaled, _ = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1, chunk=8)
    once = gradients_of(loss, hidden_ND, weight_VD)
    thrice = gradients_of(3 * scaled, hidden_ND, weight_VD)
    torch.testing.assert_close(thrice, tuple(3 * part for part in once))


def test_a_second_backward_is_refused():
    hidden_ND, weight_VD, target_N = example()
    loss, _ = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1)
    (2 * loss).backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_likelihood_has_no_smoothing_and_no_gradient():
    hidden_ND, weight_VD, target_N = example()
    _, nll = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.3, chunk=10)
    plain = cross_entropy(hidden_ND @ weight_VD.T, target_N, reduction="sum")
    torch.testing.assert_close(nll, plain.detach(), rtol=1e-5, atol=1e-5)
    assert not nll.requires_grad


def test_padding_counts_nothing():
    hidden_ND, weight_VD, target_N = example()
    target_N[::3] = PAD
    kept_N = target_N != PAD
    padded = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1, chunk=8)
    dense = label_smoothed_cross_entropy(hidden_ND[kept_N], weight_VD, target_N[kept_N], 0.1)
    torch.testing.assert_close(padded, dense)
    ours = gradients_of(padded[0], hidden_ND, weight_VD)
    theirs = gradients_of(dense[0], hidden_ND, weight_VD)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert ours[0][~kept_N].abs().max() == 0


def test_confident_models_stay_finite():
    hidden_ND, weight_VD, target_N = example(spread=1_000.0)
    loss, nll = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1)
    logits_NV = hidden_ND @ weight_VD.T
    torch.testing.assert_close(
        loss, cross_entropy(logits_NV, target_N, label_smoothing=0.1, reduction="sum")
    )
    assert nll.isfinite()
    assert all(part.isfinite().all() for part in gradients_of(loss, hidden_ND, weight_VD))


def test_no_tokens_cost_nothing():
    hidden_ND, weight_VD, target_N = example(tokens=0)
    loss, nll = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1)
    assert (loss.item(), nll.item()) == (0.0, 0.0)
    assert gradients_of(loss, weight_VD)[0].abs().max() == 0


def test_evaluation_makes_no_graph():
    hidden_ND, weight_VD, target_N = example()
    with torch.no_grad():
        loss, _ = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1)
    assert not loss.requires_grad
    expected, _ = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1)
    assert loss.item() == expected.item()


def test_bf16_products_keep_an_fp32_softmax():
    hidden_ND, weight_VD, target_N = example(tokens=200)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, nll = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1, chunk=64)
        logits_NV = (hidden_ND @ weight_VD.T).float()
    expected = cross_entropy(logits_NV, target_N, label_smoothing=0.1, reduction="sum")
    assert loss.dtype == nll.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    pairs = zip(
        gradients_of(loss, hidden_ND, weight_VD),
        gradients_of(expected, hidden_ND, weight_VD),
        strict=True,
    )
    for our_gradient, their_gradient in pairs:
        assert our_gradient.dtype == torch.float32
        torch.testing.assert_close(our_gradient, their_gradient, rtol=0.02, atol=0.05)


def test_the_same_input_gives_the_same_bits():
    hidden_ND, weight_VD, target_N = example(tokens=300)
    runs = []
    for _ in range(2):
        loss, nll = label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1, chunk=64)
        runs.append([loss, nll, *gradients_of(loss, hidden_ND, weight_VD)])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


def test_all_logits_are_never_held(monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                sizes.append(result.numel())
            return result

    hidden_ND, weight_VD, target_N = example(tokens=64, vocab=1_000)
    with Recorder():
        label_smoothed_cross_entropy(hidden_ND, weight_VD, target_N, 0.1, chunk=16)[0].backward()
    assert max(sizes) == 16 * 1_000
