import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from model.config import PAD
from model.seeds import derive_seed
from model.trainer import MicroBatch, Step, Trainer
from model.workers import Workers
from tests.model.toy import ALONE, MODEL, TRAIN, make_micro_batch, make_model, make_step


def test_reported_loss_is_per_target_token():
    trainer = make_trainer(replace(MODEL, dropout=0.0), label_smoothing=0.0)
    micro_batch = make_micro_batch(5)
    hidden = trainer.model.eval()(micro_batch.src_BS, micro_batch.tgt_in_BT)
    logits = hidden @ trainer.model.embedding.weight.T
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), micro_batch.tgt_out_BT.flatten(), ignore_index=PAD
    )
    metrics = trainer.measure([micro_batch])
    assert metrics["dev_loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert metrics["dev_nll"] == pytest.approx(expected.item(), rel=1e-5)


def make_trainer(model_config=MODEL, **changes):
    config = replace(TRAIN, **changes)
    return Trainer(make_model(model_config), config, 11, ALONE)


def gradients_one_by_one(step):
    """Each micro-batch's gradient, from a trainer whose step is that micro-batch alone."""
    trainer = make_trainer(micro_batches_per_step=1)
    for index, micro_batch in enumerate(step.micro_batches):
        trainer.optimizer.gradient_P.zero_()
        torch.manual_seed(derive_seed(11, step.number, index))
        trainer.model.train()
        trainer.forward(micro_batch)[0].backward()
        yield trainer.optimizer.gradient_P.clone()


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_gradients_are_summed_in_a_binary_tree(size):
    step = make_step(1, size=size)
    sums = list(gradients_one_by_one(step))
    while len(sums) > 1:
        sums = [left + right for left, right in zip(sums[::2], sums[1::2], strict=True)]
    trainer = make_trainer(micro_batches_per_step=size)
    trainer.take(step)
    gradient = trainer.optimizer.gradient_P[: len(sums[0])]
    assert torch.equal(gradient, sums[0] * (1 / step.num_target_tokens))


def test_the_order_of_a_sum_matters_so_the_tree_does():
    first, *rest = gradients_one_by_one(make_step(1, size=4))
    left_to_right = first.clone()
    for gradient in rest:
        left_to_right += gradient
    in_tree = (first + rest[0]) + (rest[1] + rest[2])
    assert not torch.equal(left_to_right, in_tree)


def test_accumulated_micro_batches_equal_one_large_batch():
    rows = [make_micro_batch(7, num_rows=8)]
    quarters = [MicroBatch(*(ids[start : start + 2] for ids in rows[0])) for start in (0, 2, 4, 6)]
    num_target_tokens = int((rows[0].tgt_out_BT != PAD).sum())
    without_dropout = replace(MODEL, dropout=0.0)
    whole = make_trainer(without_dropout, micro_batches_per_step=1)
    parts = make_trainer(without_dropout, micro_batches_per_step=4)
    norms = [
        trainer.take(Step(1, 0, micro_batches, num_target_tokens)).gradient_norm
        for trainer, micro_batches in ((whole, rows), (parts, quarters))
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    size = len(whole.optimizer.gradient_P)
    difference = whole.optimizer.gradient_P - parts.optimizer.gradient_P[:size]
    assert difference.abs().max() < 1e-6


def test_dropout_differs_between_steps_and_between_micro_batches():
    trainer = make_trainer()
    twins = [make_micro_batch(7)] * 4
    losses = torch.stack([trainer.take(Step(number, 0, twins, 50)).sums[:, 0] for number in (1, 2)])
    assert len(set(losses.flatten().tolist())) == 8


def test_a_skipped_step_leaves_weights_and_moments_as_they_are():
    trainer = make_trainer()
    trainer.take(make_step(1))
    before = [tensor.clone() for tensor in trainer.optimizer.whole_state()]
    trainer.model.embedding.weight.register_hook(lambda gradient: gradient * math.inf)
    assert trainer.take(make_step(2)).skipped
    for left, right in zip(before, trainer.optimizer.whole_state(), strict=True):
        assert torch.equal(left, right)


def test_gradients_are_clipped_to_their_norm():
    free, clipped = make_trainer(), make_trainer(clip_norm=0.01)
    norms = [trainer.take(make_step(1)).gradient_norm for trainer in (free, clipped)]
    assert norms[0] == norms[1] > 0.01
    assert clipped.optimizer.gradient_P.norm().item() == pytest.approx(0.01, rel=1e-5)
    assert free.optimizer.gradient_P.norm().item() == pytest.approx(norms[0], rel=1e-5)


def test_weight_decay_is_decoupled():
    trainer, plain = make_trainer(weight_decay=0.1), make_trainer()
    before = trainer.optimizer.values_P.clone()
    rate = trainer.take(make_step(1)).learning_rate
    plain.take(make_step(1))
    difference = plain.optimizer.values_P - trainer.optimizer.values_P
    assert torch.allclose(difference, before * rate * 0.1, atol=1e-7)


def test_bf16_keeps_weights_in_fp32_and_stays_near():
    exact, coarse = make_trainer(), make_trainer(precision="bf16")
    losses = [trainer.take(make_step(1)).sums[:, 0].sum().item() for trainer in (exact, coarse)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert {parameter.dtype for parameter in coarse.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("size", [3, 8])
def test_a_number_of_workers_that_cannot_share_a_step_is_an_error(size):
    with pytest.raises(ValueError, match=rf"power of two and at most `train\.micro_batches_per_step` \(4\), but is {size}"):  # fmt: skip
        Trainer(make_model(), TRAIN, 1, Workers(0, size))


@pytest.mark.slow
def test_a_compiled_model_trains_the_same_but_for_rounding(monkeypatch):
    # All but the last step of a compilation, which takes a minute on a CPU.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    plain = make_trainer(replace(MODEL, dropout=0.0))
    compiled = make_trainer(replace(MODEL, dropout=0.0), compile=True)
    for number in (1, 2):
        losses = [trainer.take(make_step(number)).sums[:, 0] for trainer in (plain, compiled)]
        assert torch.allclose(*losses, rtol=1e-5)
    assert torch.allclose(plain.optimizer.values_P, compiled.optimizer.values_P, atol=1e-4)
