import errno
import json
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch

from model import checkpoint
from model.checkpoint import CheckpointError, average, newest, prune, require, save, steps


def weights(step=1):
    """Make weights that are views of one buffer, as the trainer's are, with a NaN among them."""
    flat = torch.arange(12, dtype=torch.float32) * step / 7
    flat[5] = torch.nan
    return {"embedding.weight": flat[:8].view(4, 2), "norm.bias": flat[8:]}


def optimizer(step=1):
    return {"exp_avg": torch.full((12,), step / 3), "step": torch.tensor(float(step))}


def save_steps(folder, *numbers, meta=None):
    for step in numbers:
        save(folder, step, weights(step), optimizer(step), meta or {"tokenizer_digest": "abc"})


def damage(path, how):
    if how == "truncated":
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 1)
    elif how == "one bit":
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    else:
        path.unlink()


def same(left, right):
    return left.keys() == right.keys() and all(
        torch.equal(left[name].nan_to_num(9), right[name].nan_to_num(9)) for name in left
    )


def test_what_is_saved_is_what_is_loaded(tmp_path):
    path = save(tmp_path / "new", 250, weights(), optimizer(), {"languages": ["en", "de"]})
    assert path == tmp_path / "new" / "step-00000250"
    found = newest(tmp_path / "new")
    assert (found.path, found.step, found.has_optimizer) == (path, 250, True)
    assert found.meta == {"languages": ["en", "de"]}
    assert same(checkpoint.load_weights(path), weights())
    assert same(checkpoint.load_optimizer(path), optimizer())
    assert sorted(child.name for child in tmp_path.joinpath("new").iterdir()) == [path.name]


def test_an_empty_or_missing_folder_has_no_checkpoint(tmp_path):
    assert newest(tmp_path) is newest(tmp_path / "missing") is None
    assert steps(tmp_path) == steps(tmp_path / "missing") == []


def test_the_newest_up_to_a_step_is_found(tmp_path):
    save_steps(tmp_path, 9, 10, 100_000_000)
    assert steps(tmp_path) == [9, 10, 100_000_000]
    assert newest(tmp_path).step == 100_000_000
    assert newest(tmp_path, at_most=10).step == 10
    assert newest(tmp_path, at_most=9).step == 9
    assert newest(tmp_path, at_most=8) is None


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("weights.safetensors", "truncated"),
        ("weights.safetensors", "one bit"),
        ("weights.safetensors", "gone"),
        ("optimizer.safetensors", "truncated"),
        ("optimizer.safetensors", "one bit"),
        ("meta.json", "gone"),
    ],
)
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_is_used(
    tmp_path, caplog, name, how
):
    save_steps(tmp_path, 1, 2)
    damage(tmp_path / "step-00000002" / name, how)
    assert newest(tmp_path).step == 1
    assert "step-00000002" in caplog.text
    assert "set aside as damaged-step-00000002" in caplog.text
    assert name in caplog.text
    assert steps(tmp_path) == [1]
    assert len(list(tmp_path.glob("damaged-step-00000002.*"))) == 1


def test_meta_that_is_no_checkpoint_meta_is_damage(tmp_path):
    save_steps(tmp_path, 1)
    for text in ("", "[]", "{}", '{"step": 1, "meta": {}, "files": {}}'):
        (tmp_path / "step-00000001" / "meta.json").write_text(text)
        with pytest.raises(CheckpointError, match="is damaged: "):
            checkpoint.verify(tmp_path / "step-00000001")


def test_loading_a_damaged_checkpoint_is_an_error(tmp_path):
    save_steps(tmp_path, 1)
    path = tmp_path / "step-00000001"
    damage(path / "weights.safetensors", "one bit")
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is not as it was saved"):
        checkpoint.load_weights(path)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is not as it was saved"):
        average([path])


def test_a_step_that_is_there_and_whole_is_left_alone(tmp_path):
    save_steps(tmp_path, 5)
    before = (tmp_path / "step-00000005" / "meta.json").stat()
    save(tmp_path, 5, weights(99), None, {})
    assert (tmp_path / "step-00000005" / "meta.json").stat() == before


def test_a_step_that_is_damaged_or_lacks_optimizer_state_is_written_anew(tmp_path):
    save_steps(tmp_path, 5)
    path = tmp_path / "step-00000005"
    for name in ("weights.safetensors", "optimizer.safetensors"):
        damage(path / name, "gone")
        save_steps(tmp_path, 5)
        assert checkpoint.verify(path).has_optimizer
        assert [child.name for child in tmp_path.iterdir()] == [path.name]


def test_pruning_keeps_weights_of_some_and_optimizer_state_of_two(tmp_path):
    save_steps(tmp_path, *range(1, 7))
    prune(tmp_path, keep=[3, 4])
    assert steps(tmp_path) == [3, 4, 5, 6]
    whole = [checkpoint.verify(tmp_path / f"step-{step:08d}") for step in (3, 4, 5, 6)]
    assert [found.has_optimizer for found in whole] == [False, False, True, True]
    assert newest(tmp_path, at_most=4).step == 4
    assert newest(tmp_path, at_most=4, with_optimizer=True) is None
    assert newest(tmp_path, with_optimizer=True).step == 6
    with pytest.raises(CheckpointError, match="has no optimizer state"):
        checkpoint.load_optimizer(tmp_path / "step-00000004")
    average([found.path for found in whole])


def test_pruning_keeps_one_to_fall_back_on(tmp_path):
    save_steps(tmp_path, 1, 2, 3)
    prune(tmp_path, keep=[3])
    assert steps(tmp_path) == [2, 3]


def test_pruning_leaves_a_longer_run_alone_and_sweeps_what_kills_left(tmp_path):
    save_steps(tmp_path, 1, 2, 3, 8, 9)
    for step in (2, 9):
        (tmp_path / f".step-{step:08d}.0123").mkdir()
    prune(tmp_path, keep=[], at_most=3)
    assert steps(tmp_path) == [2, 3, 8, 9]
    assert [path.name for path in tmp_path.glob(".*")] == [".step-00000009.0123"]


def test_the_average_of_equals_is_the_same_to_the_bit(tmp_path):
    torch.manual_seed(0)
    tensors = {"a": torch.randn(1000) * 1e-30, "b": torch.randn(10, 10).bfloat16()}
    paths = [save(tmp_path, step, tensors, None, {}) for step in range(1, 8)]
    mean = average(paths)
    assert {name: tensor.dtype for name, tensor in mean.items()} == {
        "a": torch.float32,
        "b": torch.bfloat16,
    }
    assert same(mean, tensors)


def test_the_average_is_taken_in_double_precision(tmp_path):
    values = (1.0, 2.0**-30, -1.0)
    paths = [save(tmp_path, n, {"a": torch.tensor([value])}, None, {}) for n, value in enumerate(values)]  # fmt: skip
    assert average(paths)["a"].item() == pytest.approx(2.0**-30 / 3)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"b": torch.zeros(3)}, r"`weights\.a` is \"torch\.float32 \[3\]\" in .* and null in"),
        ({"a": torch.zeros(4)}, r"`weights\.a` is .*\[3\].* in .*step-00000001 and .*\[4\].* in .*2"),
        ({"a": torch.zeros(3).double()}, r"float32.*float64"),
        ({"a": torch.zeros(3), "c": torch.zeros(1)}, r"`weights\.c` is null in"),
    ],
)  # fmt: skip
def test_only_checkpoints_of_one_model_are_averaged(tmp_path, other, words):
    paths = [save(tmp_path, 1, {"a": torch.zeros(3)}, None, {}), save(tmp_path, 2, other, None, {})]
    with pytest.raises(CheckpointError, match=words):
        average(paths)


def test_an_average_needs_a_checkpoint():
    with pytest.raises(ValueError, match="at least one"):
        average([])


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"tokenizer_digest": "xyz"}, r'`tokenizer_digest` = "abc", but this run has "xyz"'),
        ({"model": {"dim": 8, "layers": [1, 2]}}, r"`model\.dim` = 4, but this run has 8"),
        ({"model": {"dim": 4, "layers": [1, 3]}}, r"`model\.layers\.1` = 2, but this run has 3"),
        ({"model": {"dim": 4, "layers": [1]}}, r"`model\.layers\.1` = 2, but this run has null"),
        ({"languages": "en"}, r'`languages` = null, but this run has "en"'),
    ],
)
def test_a_checkpoint_made_with_something_else_is_refused(tmp_path, expected, words):
    recorded = {"tokenizer_digest": "abc", "model": {"dim": 4, "layers": [1, 2]}}
    save_steps(tmp_path, 1, meta=recorded)
    found = newest(tmp_path)
    require(found, tokenizer_digest="abc", model={"dim": 4, "layers": (1, 2)})
    with pytest.raises(CheckpointError, match=words):
        require(found, **expected)


def run_python(code, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_disk_that_fills_up_is_an_os_error_and_loses_nothing(tmp_path):
    save_steps(tmp_path, 1, 2)
    result = run_python(
        """
        import resource, sys, torch
        from pathlib import Path
        from model.checkpoint import save
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            save(Path(sys.argv[1]), 3, {"a": torch.zeros(9)}, {"b": torch.zeros(100_000)}, {})
        except OSError as error:
            print(error.errno)
        """,
        tmp_path,
    )
    assert result.stdout == f"{errno.EFBIG}\n", result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]
    assert newest(tmp_path).step == 2


def test_a_checkpoint_that_does_not_read_back_is_not_kept(tmp_path, monkeypatch):
    def save_wrongly(tensors, path):
        saved(tensors | {"norm.bias": tensors["norm.bias"] + 1}, path)

    saved = checkpoint.save_file
    monkeypatch.setattr(checkpoint, "save_file", save_wrongly)
    with pytest.raises(CheckpointError, match=r"does not read back as it was written: norm\.bias"):
        save(tmp_path, 1, weights(), None, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["os.mkdir", "os.rename"])
def test_a_save_killed_at_any_moment_leaves_the_one_before_usable(tmp_path, moment):
    save_steps(tmp_path, 1)
    result = run_python(
        """
        import os, signal, sys, torch
        from pathlib import Path
        from model.checkpoint import save
        def kill_at(event, arguments):
            if event == sys.argv[2] and ".step-00000002" in str(arguments[0]):
                os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(kill_at)
        save(Path(sys.argv[1]), 2, {"a": torch.zeros(9)}, {"b": torch.zeros(9)}, {})
        """,
        tmp_path,
        moment,
    )
    assert result.returncode == -9, result.stderr
    assert len(list(tmp_path.glob(".step-00000002.*"))) == (moment == "os.rename")
    assert newest(tmp_path).step == 1
    save_steps(tmp_path, 2)
    prune(tmp_path, keep=[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]


def test_a_replacement_killed_half_way_leaves_no_half_checkpoint(tmp_path):
    save_steps(tmp_path, 1, 2)
    shutil.rmtree(tmp_path / "step-00000002")
    (tmp_path / "step-00000002").mkdir()
    (tmp_path / "step-00000002" / "meta.json").write_text(json.dumps({"step": 2}))
    assert newest(tmp_path).step == 1
