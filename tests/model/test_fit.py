import math
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
from model.config import PAD
from model.fit import Data, History, Run, TrainingError, fit
from model.trainer import Asks, Step, Trainer
from model.workers import Workers
from tests.model.toy import (
    ALONE,
    MODEL,
    TRAIN,
    forkserver,
    make_micro_batch,
    make_model,
    make_step,
    run_processes,
    same,
)

CLOCKED = ("tokens_per_s", "flop_utilisation")
"""What depends on the machine's speed."""


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
        weights, events = train(folder, config, workers=Workers.here(size), digest=digest)
        save_file(weights, Path(folder, f"weights-{rank}"))
        Path(folder, f"events-{rank}").write_text(repr(without_times(events)))
    except CheckpointError as error:
        Path(folder, f"error-{rank}").write_text(str(error))
    dist.destroy_process_group()


def without_times(events):
    return [
        (step, kind, {name: value for name, value in metrics.items() if name not in CLOCKED})
        for step, kind, metrics in events
    ]


@pytest.fixture(scope="module")
def processes():
    return forkserver()


def train_together(processes, size, folder, max_steps=6, digest="abc"):
    arguments = [(rank, size, str(folder), max_steps, digest) for rank in range(size)]
    assert run_processes(processes, work, arguments) == [0] * size


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
    long, short = (
        replace(TRAIN, max_steps=steps, checkpoint_every_steps=30) for steps in (200, 100)
    )
    at_once, _ = train(tmp_path / "at once", long)
    train(tmp_path / "raised", short)
    raised, events = train(tmp_path / "raised", long)
    assert events[0][:2] == (100, "resumed")
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


def spoiled(model, is_spoiled):
    """Make gradients not finite in the steps for which a function says so."""
    number = [0]

    def steps_after(done):
        for number[0] in count(done + 1):
            yield make_step(number[0])

    model.embedding.weight.register_hook(
        lambda gradient: gradient * math.nan if is_spoiled(number[0]) else gradient
    )
    return Data(steps_after, make_data().dev)


def train_spoiled(folder, is_spoiled, **changes):
    events, model = [], make_model()
    run = Run(replace(TRAIN, max_steps=12, **changes), 11, folder, {}, log_every_steps=100)
    history = fit(model, spoiled(model, is_spoiled), run, ALONE, events.append)
    return (
        {name: value.detach().clone() for name, value in model.named_parameters()},
        events,
        history,
    )


def test_after_bad_steps_in_a_row_a_run_rolls_back_and_skips_what_led_there(tmp_path):
    tried = []

    def is_spoiled(step):
        tried.append(step)
        return 6 <= step <= 8

    weights, events, history = train_spoiled(tmp_path / "a", is_spoiled, max_bad_steps=3)
    assert sorted(set(tried)) == list(range(1, 13))
    assert history.skipped == (5, 8)
    told = [event[:2] for event in events]
    assert told.index((4, "resumed")) + 1 == told.index((4, "rolled_back"))
    after = told[told.index((4, "rolled_back")) :]
    assert [step for step, kind in after if kind == "skipped"] == [5, 6, 7, 8]
    assert all(value.isfinite().all() for value in weights.values())
    # The steps before the checkpoint and those after the skipped ones are all that counts.
    without = Data(lambda done: (make_step(number) for number in count(done + 1)))
    model = make_model()
    Path(tmp_path, "b").mkdir()
    Path(tmp_path, "b", "skipped.json").write_text("[5, 8]")
    fit(model, without, Run(replace(TRAIN, max_steps=12), 11, tmp_path / "b", {}), ALONE, print)
    assert same(weights, dict(model.named_parameters()))


@pytest.mark.parametrize("moment", ["skipped", "resumed", "rolled_back", "checkpoint"])
def test_a_rollback_survives_a_kill(tmp_path, moment):
    def train_once(folder, die):
        model, events = make_model(), []

        def note(event):
            events.append(event)
            if die and event.step >= 4 and event.kind == moment:
                raise KeyboardInterrupt

        run = Run(replace(TRAIN, max_steps=12, max_bad_steps=3), 11, folder, {})
        data = spoiled(model, lambda step: 6 <= step <= 8)
        return fit(model, data, run, ALONE, note), dict(model.named_parameters())

    history, weights = train_once(tmp_path / "a", die=False)
    with pytest.raises(KeyboardInterrupt):
        train_once(tmp_path / "b", die=True)
    again, same_weights = train_once(tmp_path / "b", die=False)
    assert same(weights, same_weights)
    assert again == history


def test_a_run_that_diverges_again_ends_with_what_to_do(tmp_path):
    with pytest.raises(TrainingError, match=r"3 steps in a row, up to step 11, are not finite, though steps 5 to 8 were skipped\. Lower `train\.lr_scale`"):  # fmt: skip
        train_spoiled(tmp_path, lambda step: step >= 6, max_bad_steps=3)
    assert newest(tmp_path).step == 10
    assert all(value.isfinite().all() for value in load_weights(newest(tmp_path).path).values())


def test_a_run_that_diverges_before_its_first_checkpoint_ends(tmp_path):
    with pytest.raises(TrainingError, match="up to step 3, are not finite, and there is no checkpoint before them"):  # fmt: skip
        train_spoiled(tmp_path, lambda step: step >= 1, max_bad_steps=3)


def test_bad_steps_are_counted_across_a_resume(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_until(tmp_path, (4, "checkpoint"), lambda step: step >= 4, max_bad_steps=3)
    with pytest.raises(TrainingError, match=r"up to step 9, .* though steps 3 to 6 were skipped"):
        train_spoiled(tmp_path, lambda step: step >= 4, max_bad_steps=3)


def train_until(folder, moment, is_spoiled, **changes):
    def note(event):
        if event[:2] == moment:
            raise KeyboardInterrupt

    model = make_model()
    run = Run(replace(TRAIN, max_steps=12, **changes), 11, folder, {})
    fit(model, spoiled(model, is_spoiled), run, ALONE, note)


def train_asking(folder, asks, config=TRAIN, workers=ALONE):
    """Train with a worker that asks for something before the steps that are named."""
    begun, events = count(1), []
    model = make_model()
    run = Run(
        config, 11, Path(folder), {"tokenizer_digest": "abc"},
        asks=lambda: asks.get(next(begun), Asks()), log_every_steps=2,
    )  # fmt: skip
    return fit(model, make_data(workers), run, workers, events.append), events


def test_a_run_that_is_asked_to_stop_saves_and_goes_on_later(tmp_path, uninterrupted):
    history, events = train_asking(tmp_path, {3: Asks(stop=True)})
    assert history.step == 3
    assert [event[:2] for event in events[-2:]] == [(3, "checkpoint"), (3, "stopped")]
    weights, events = train(tmp_path)
    assert events[0][:2] == (3, "resumed")
    assert same(weights, uninterrupted[0])
    assert steps(tmp_path) == [4, 6]


def test_a_run_that_is_asked_to_save_does_and_goes_on(tmp_path):
    history, events = train_asking(tmp_path, {3: Asks(save=True)})
    assert history.step == 6
    assert [event.step for event in events if event.kind == "checkpoint"] == [2, 3, 4, 6]


def ask_as_second(rank, size, folder):
    """Be one of two workers, of whom only the second one asks to stop."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    asks = {3: Asks(stop=True)} if rank == 1 else {}
    history, _ = train_asking(folder, asks, workers=Workers.here(size))
    Path(folder, f"stopped-{rank}").write_text(str(history.step))
    dist.destroy_process_group()


def test_all_workers_stop_if_any_of_them_asks(tmp_path, processes, uninterrupted):
    arguments = [(rank, 2, str(tmp_path)) for rank in range(2)]
    assert run_processes(processes, ask_as_second, arguments) == [0, 0]
    assert [(tmp_path / f"stopped-{rank}").read_text() for rank in range(2)] == ["3", "3"]
    assert same(train(tmp_path)[0], uninterrupted[0])


PATIENT = replace(TRAIN, max_steps=60, dev_every_steps=2, keep_checkpoints=1, patience=4, warmup_steps=8)  # fmt: skip


def overfit(folder, config=PATIENT, on_event=None):
    """Learn one step's pairs by heart, so that the loss on others rises."""
    step, events, model = make_step(1), [], make_model()
    data = Data(lambda done: (step._replace(number=n) for n in count(done + 1)), make_data().dev)
    run = Run(config, 11, folder, {})
    history = fit(model, data, run, ALONE, on_event or events.append)
    return history, events, {name: value.clone() for name, value in model.named_parameters()}


def test_training_ends_early_when_patience_does_and_keeps_the_best(tmp_path):
    history, events, _ = overfit(tmp_path)
    losses = {event.step: event.metrics["dev_loss"] for event in events if event.kind == "dev"}
    best = min(losses, key=losses.get)
    assert history.step == max(losses) == best + 2 * PATIENT.patience < PATIENT.max_steps
    assert [event[:2] for event in events[-2:]] == [
        (history.step, "early_stop"), (history.step, "checkpoint"),
    ]  # fmt: skip
    assert history.best == ((losses[best], best),)
    assert steps(tmp_path) == [best, history.step - 2, history.step]
    assert history.kept_steps(PATIENT) == [best, history.step]


def test_patience_survives_a_resume_and_is_not_spent_twice(tmp_path):
    at_once, _, weights = overfit(tmp_path / "a")

    def die(event):
        if event[:2] == (at_once.step - 2, "checkpoint"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        overfit(tmp_path / "b", on_event=die)
    again, _, same_weights = overfit(tmp_path / "b")
    assert again == at_once
    assert same(weights, same_weights)
    over, events, _ = overfit(tmp_path / "b")
    assert over == at_once
    assert [event.kind for event in events] == ["resumed"]


def test_a_measurement_made_only_since_a_run_ended_there_makes_no_history(tmp_path):
    config = replace(TRAIN, dev_every_steps=4, max_steps=12)
    train(tmp_path / "raised", replace(config, max_steps=6))
    events = train(tmp_path / "raised", config)[1]
    at_once = train(tmp_path / "at once", config)[1]
    assert History.of(newest(tmp_path / "raised")) == History.of(newest(tmp_path / "at once"))
    assert without_times(events)[-3:] == without_times(at_once)[-3:]


def test_what_does_not_fit_the_memory_is_said_before_the_first_step(tmp_path, monkeypatch):
    def fail(trainer, micro_batch):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Trainer, "forward", fail)
    data = replace(make_data(), largest=make_micro_batch(1))
    with pytest.raises(TrainingError, match=r"3 pairs of \d source and \d target tokens do not\. Lower `train\.tokens_per_micro_batch`"):  # fmt: skip
        train(tmp_path, data=data)


def test_trying_the_largest_micro_batch_changes_nothing(tmp_path, uninterrupted):
    data = replace(make_data(), largest=make_micro_batch(1))
    assert same(train(tmp_path, data=data)[0], uninterrupted[0])
