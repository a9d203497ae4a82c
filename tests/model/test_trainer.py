import math
import multiprocessing
import os
import signal
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from model.checkpoint import CheckpointError, load_weights, newest, steps
from model.config import BOS, EOS, PAD, ModelConfig, TrainConfig
from model.trainer import Data, MicroBatch, Run, Step, Trainer, derive_seed, fit
from model.transformer import Transformer
from model.workers import Workers

VOCABULARY = 40
MODEL = ModelConfig(dim=16, ff_dim=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
                    dropout=0.2, max_positions=16)  # fmt: skip
TRAIN = TrainConfig(max_steps=6, tokens_per_micro_batch=64, micro_batches_per_step=4, warmup_steps=4,
                    checkpoint_every_steps=2, dev_every_steps=3, keep_checkpoints=2)  # fmt: skip


ALONE = Workers()


def make_model(config=MODEL):
    torch.manual_seed(3)
    return Transformer(config, VOCABULARY)


def make_micro_batch(seed, num_rows=3):
    random = torch.Generator().manual_seed(seed)

    def pieces():
        return [
            torch.randint(4, VOCABULARY, (size,), generator=random)
            for size in torch.randint(1, 7, (num_rows,), generator=random)
        ]

    def pad(rows):
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)

    def mark(token):
        return torch.tensor([token])

    src, tgt = pieces(), pieces()
    return MicroBatch(
        pad([torch.cat([row, mark(EOS)]) for row in src]),
        pad([torch.cat([mark(BOS), row]) for row in tgt]),
        pad([torch.cat([row, mark(EOS)]) for row in tgt]),
    )


def make_step(number, workers=ALONE, size=4):
    whole = [make_micro_batch(number * 100 + index) for index in range(size)]
    num_target_tokens = sum(int((batch.tgt_out_BT != PAD).sum()) for batch in whole)
    share = size // workers.size
    first = workers.rank * share
    return Step(number, first, whole[first : first + share], num_target_tokens)


def make_data(workers=ALONE):
    dev = [make_micro_batch(10_000 + index) for index in range(3)]
    return Data(lambda done: (make_step(number, workers) for number in count(done + 1)), dev)


def train(folder, config=TRAIN, *, workers=ALONE, digest="abc", on_event=None, data=None):
    """Train a fresh model from whatever is in the folder; return its weights and the events."""
    events = []
    model = make_model()
    run = Run(config, 11, Path(folder), {"tokenizer_digest": digest}, log_every_steps=2)
    fit(model, data or make_data(workers), run, workers, on_event or events.append)
    return {name: value.detach().clone() for name, value in model.named_parameters()}, events


def work(rank, size, folder, max_steps, digest):
    """Train as one of several processes; leave the weights, or the error, in the folder."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = f"file://{folder}/store-{size}-{max_steps}-{digest}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
    try:
        config = replace(TRAIN, max_steps=max_steps)
        weights, events = train(folder, config, workers=Workers.here(), digest=digest)
        save_file(weights, Path(folder, f"weights-{rank}"))
        Path(folder, f"events-{rank}").write_text(repr(without_times(events)))
    except CheckpointError as error:
        Path(folder, f"error-{rank}").write_text(str(error))
    dist.destroy_process_group()


def without_times(events):
    return [
        (step, kind, {name: value for name, value in metrics.items() if name != "tokens_per_s"})
        for step, kind, metrics in events
    ]


@pytest.fixture(scope="module")
def processes():
    """Start processes as children of one that has torch loaded already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["model.trainer"])
    return context


def run_processes(processes, target, all_arguments):
    children = [processes.Process(target=target, args=arguments) for arguments in all_arguments]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    return [child.exitcode for child in children]


def train_together(processes, size, folder, max_steps=6, digest="abc"):
    arguments = [(rank, size, str(folder), max_steps, digest) for rank in range(size)]
    assert run_processes(processes, work, arguments) == [0] * size


def same(left, right):
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What one worker gets in six steps without a stop."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    result = train(tmp_path_factory.mktemp("uninterrupted"))
    torch.set_num_threads(before)
    return result


@pytest.mark.parametrize("size", [2, 4])
def test_any_number_of_workers_gives_the_same_bits_and_reports(
    tmp_path, processes, uninterrupted, size
):
    train_together(processes, size, tmp_path)
    for rank in range(size):
        assert same(load_file(tmp_path / f"weights-{rank}"), uninterrupted[0])
    assert (tmp_path / "events-0").read_text() == repr(without_times(uninterrupted[1]))
    assert (tmp_path / "events-1").read_text() == "[]"


def test_a_run_resumed_on_other_numbers_of_workers_gives_the_same_bits(
    tmp_path, processes, uninterrupted
):
    train(tmp_path, replace(TRAIN, max_steps=1))
    train_together(processes, 2, tmp_path, max_steps=3)
    train_together(processes, 4, tmp_path, max_steps=5)
    weights, events = train(tmp_path)
    assert events[0][:2] == (5, "resumed")
    assert same(weights, uninterrupted[0])


def test_all_workers_refuse_a_checkpoint_with_another_tokenizer(tmp_path, processes):
    train(tmp_path, replace(TRAIN, max_steps=1))
    train_together(processes, 2, tmp_path, max_steps=3, digest="xyz")
    for rank in range(2):
        assert '`tokenizer_digest` = "abc", but this run has "xyz"' in (tmp_path / f"error-{rank}").read_text()  # fmt: skip


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    train(tmp_path, replace(TRAIN, max_steps=1))
    run = Run(TRAIN, 11, tmp_path, {"tokenizer_digest": "abc"})
    with pytest.raises(CheckpointError, match=r"`parameters\.\d+` = .*32.*, but this run has .*48"):
        fit(make_model(replace(MODEL, ff_dim=48)), make_data(), run, ALONE, [].append)


def test_training_longer_equals_training_long_at_once(tmp_path):
    at_once, _ = train(tmp_path / "at once", replace(TRAIN, max_steps=12))
    train(tmp_path / "raised")
    raised, _ = train(tmp_path / "raised", replace(TRAIN, max_steps=12))
    assert same(raised, at_once)


def test_a_finished_run_gives_its_weights_without_a_step(tmp_path, uninterrupted):
    train(tmp_path)
    data = Data(lambda done: pytest.fail("no step is needed") if done != 6 else ())
    weights, events = train(tmp_path, data=data)
    assert same(weights, uninterrupted[0])
    assert [event[:2] for event in events] == [(6, "resumed")]


def test_a_shorter_run_uses_the_checkpoint_that_a_longer_one_left(tmp_path, uninterrupted):
    train(tmp_path, replace(TRAIN, max_steps=10, keep_checkpoints=9))
    weights, _ = train(tmp_path, replace(TRAIN, keep_checkpoints=9))
    assert same(weights, uninterrupted[0])
    # Step 4 has no optimizer state any more, nor has an earlier one: training starts anew.
    odd_end, events = train(tmp_path, replace(TRAIN, max_steps=5, keep_checkpoints=9))
    assert events[0][:2] == (2, "train")
    assert same(odd_end, train(tmp_path / "other", replace(TRAIN, max_steps=5))[0])


def test_a_run_stopped_between_checkpoints_repeats_the_steps_it_lost(tmp_path, uninterrupted):
    def stop_at_dev(event):
        if event.kind == "dev":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, on_event=stop_at_dev)
    assert steps(tmp_path) == [2]
    weights, events = train(tmp_path)
    assert same(weights, uninterrupted[0])
    expected = [event for event in uninterrupted[1] if event.step > 2]
    assert without_times(events[1:]) == without_times(expected)


def test_a_truncated_checkpoint_is_passed_over(tmp_path, caplog, uninterrupted):
    train(tmp_path, replace(TRAIN, max_steps=4))
    with (tmp_path / "step-00000004" / "weights.safetensors").open("r+b") as file:
        file.truncate(1000)
    weights, events = train(tmp_path)
    assert "step-00000004 is damaged: weights.safetensors" in caplog.text
    assert events[0][:2] == (2, "resumed")
    assert same(weights, uninterrupted[0])


def train_and_be_killed(folder, moment):
    def kill_at(event, arguments):
        if event == moment and ".step-00000004" in str(arguments[0]):
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    sys.addaudithook(kill_at)
    train(folder)


def test_a_run_killed_in_the_middle_of_a_save_goes_on_from_the_one_before(
    tmp_path, processes, uninterrupted
):
    assert run_processes(processes, train_and_be_killed, [(str(tmp_path), "os.rename")]) == [-9]
    assert newest(tmp_path).step == 2
    assert len(list(tmp_path.glob(".step-00000004.*"))) == 1
    weights, events = train(tmp_path)
    assert events[0][:2] == (2, "resumed")
    assert same(weights, uninterrupted[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000004", "step-00000006"]


def test_checkpoints_hold_what_was_trained_and_are_pruned(tmp_path):
    weights, events = train(tmp_path, replace(TRAIN, max_steps=9, keep_checkpoints=3))
    assert steps(tmp_path) == [6, 8, 9]
    assert [event.step for event in events if event.kind == "checkpoint"] == [2, 4, 6, 8, 9]
    assert same(load_weights(tmp_path / "step-00000009"), weights)
    assert not (tmp_path / "step-00000006" / "optimizer.safetensors").exists()


def test_reports_come_when_they_are_due_and_are_finite(uninterrupted):
    events = uninterrupted[1]
    assert [event[:2] for event in events] == [
        (2, "train"), (2, "checkpoint"), (3, "dev"), (4, "train"), (4, "checkpoint"),
        (6, "train"), (6, "dev"), (6, "checkpoint"),
    ]  # fmt: skip
    assert all(math.isfinite(value) for event in events for value in event.metrics.values())
    dev = events[6].metrics
    assert dev["dev_perplexity"] == pytest.approx(math.exp(dev["dev_nll"]))
    assert 0 < events[0].metrics["padding_share"] < 0.6


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


def test_ten_pairs_are_learnt_by_heart(tmp_path):
    config = replace(TRAIN, max_steps=150, micro_batches_per_step=2, label_smoothing=0.0, lr_scale=0.5,
                     warmup_steps=40, checkpoint_every_steps=150, dev_every_steps=150)  # fmt: skip
    model = make_model(replace(MODEL, dim=32, dropout=0.0))
    pairs = [make_micro_batch(seed, num_rows=5) for seed in (1, 2)]
    num_target_tokens = sum(int((batch.tgt_out_BT != PAD).sum()) for batch in pairs)
    data = Data(
        lambda done: (Step(number, 0, pairs, num_target_tokens) for number in count(done + 1)),
        pairs,
    )
    events = []
    fit(model, data, Run(config, 1, tmp_path, {}), ALONE, events.append)
    assert next(event.metrics["dev_loss"] for event in events if event.kind == "dev") < 0.05


def test_a_gradient_that_is_not_finite_is_skipped_and_reported(tmp_path):
    def spoil_step_3(done):
        for number in count(done + 1):
            spoil[0] = number == 3
            yield make_step(number)

    spoil = [False]
    events = []
    model = make_model()
    model.embedding.weight.register_hook(
        lambda gradient: gradient * math.nan if spoil[0] else gradient
    )
    run = Run(TRAIN, 11, tmp_path, {}, log_every_steps=2)
    fit(model, Data(spoil_step_3), run, ALONE, events.append)
    assert [event.step for event in events if event.kind == "skipped"] == [3]
    skipped = {
        event.step: event.metrics["skipped_steps"] for event in events if event.kind == "train"
    }
    assert skipped == {2: 0, 4: 1, 6: 0}
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert all(math.isfinite(value) for event in events for value in event.metrics.values())


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


def test_seeds_differ_for_any_change_of_run_step_or_micro_batch():
    seeds = [derive_seed(run, step, index) for run in range(9) for step in range(99) for index in range(9)]  # fmt: skip
    assert len({seed % 2**32 for seed in seeds}) == len(seeds)
    assert derive_seed(1, 2, 3) == derive_seed(1, 2, 3) != derive_seed(1, 3, 2)
    assert all(0 <= seed < 2**63 for seed in seeds)
