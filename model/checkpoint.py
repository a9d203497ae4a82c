"""Checkpoints: folders that are whole and checked, or not there at all.

    FOLDER/step-00000250/weights.safetensors
                         optimizer.safetensors    only in the newest few
                         meta.json                step, what the caller records, size and sha256

A checkpoint is written under another name, flushed to disk, read back and compared, and only then
renamed; so a kill or a full disk at any moment costs at most the one being written. Nothing is
ever unpickled.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"

WEIGHTS, OPTIMIZER, META = "weights.safetensors", "optimizer.safetensors", "meta.json"

_log = logging.getLogger(__name__)


class CheckpointError(Exception):
    """A checkpoint is damaged, or is not the one that is needed."""


@dataclass(frozen=True)
class Checkpoint:
    """One that has been verified."""

    path: Path
    step: int
    meta: Mapping[str, JSON]
    """What the caller of `save` recorded."""

    @property
    def has_optimizer(self) -> bool:
        """Whether training can go on from here."""
        return (self.path / OPTIMIZER).exists()


def save(
    folder: Path,
    step: int,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor] | None,
    meta: Mapping[str, JSON],
) -> Path:
    """Write the checkpoint of a step, unless it is there already and whole.

    Raises:
        OSError: If the disk is full or fails. Checkpoints that were there stay as they are.
        CheckpointError: If what was written does not read back the same.
    """
    path = path_of(folder, step)
    if _holds(path, with_optimizer=optimizer is not None):
        return path
    tensors = {WEIGHTS: weights} | ({} if optimizer is None else {OPTIMIZER: optimizer})
    folder.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(folder, step)
    try:
        temporary.mkdir()
        files = {name: _write_tensors(temporary / name, tensors[name]) for name in tensors}
        write_json(temporary / META, {"step": step, "meta": meta, "files": files})
        _flush(temporary)
        _remove(path)  # a damaged one, or one whose optimizer state was pruned
        temporary.rename(path)
        _flush(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is, or would be."""
    return folder / f"step-{step:08d}"


def steps(folder: Path) -> list[int]:
    """List the steps that have a checkpoint, verified or not, in ascending order."""
    if not folder.exists():
        return []
    matches = (re.fullmatch(r"step-(\d{8,})", path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def newest(
    folder: Path, at_most: int | None = None, *, with_optimizer: bool = False
) -> Checkpoint | None:
    """Find the newest checkpoint that verifies; set damaged ones on the way to it aside.

    Args:
        folder: Where checkpoints are saved; need not exist.
        at_most: The last step to consider.
        with_optimizer: Pass over those that training cannot go on from.
    """
    for step in reversed(steps(folder)):
        if at_most is not None and step > at_most:
            continue
        path = path_of(folder, step)
        try:
            checkpoint = verify(path)
        except CheckpointError as error:
            aside = path.rename(folder / f"damaged-{path.name}.{uuid4().hex}")
            _log.warning("%s It is set aside as %s, and an older one is used.", error, aside.name)
            continue
        if checkpoint.has_optimizer or not with_optimizer:
            return checkpoint
    return None


def verify(path: Path) -> Checkpoint:
    """Check size and sha256 of every file. Only the optimizer's may be missing: `prune` takes it.

    Raises:
        CheckpointError: If a file is missing or not as it was written.
    """
    try:
        meta = json.loads((path / META).read_text(encoding="utf-8"))
        checkpoint = Checkpoint(path, meta["step"], meta["meta"])
        files = dict(meta["files"])
        if not checkpoint.has_optimizer:
            files.pop(OPTIMIZER, None)
        damaged = [name for name in files if _facts(path / name) != files[name]]
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"The checkpoint {path} is damaged: {found}.") from error
    if damaged or WEIGHTS not in files:
        names = ", ".join(damaged) or META
        raise CheckpointError(f"The checkpoint {path} is damaged: {names} is not as it was saved.")
    return checkpoint


def require(checkpoint: Checkpoint, **expected: JSON) -> None:
    """Check that what was recorded with a checkpoint is what this run has.

    Raises:
        CheckpointError: At the first difference; the message says which is which.
    """
    for name, value in json.loads(json.dumps(expected)).items():
        difference = _difference(name, checkpoint.meta.get(name), value)
        if difference:
            where, was, is_now = difference
            raise CheckpointError(
                f"The checkpoint {checkpoint.path} was made with `{where}` = {was}, but this run "
                f"has {is_now}. Train into an empty folder, or go back to what made it."
            )


def load_weights(path: Path) -> dict[str, Tensor]:
    """Load the weights of a checkpoint, by name. Raises CheckpointError if it is damaged."""
    return _load(verify(path).path / WEIGHTS)


def load_optimizer(path: Path) -> dict[str, Tensor]:
    """Load the optimizer state of a checkpoint, by name.

    Raises:
        CheckpointError: If the checkpoint is damaged or has none.
    """
    if not verify(path).has_optimizer:
        raise CheckpointError(f"The checkpoint {path} has no optimizer state: use a newer one.")
    return _load(path / OPTIMIZER)


def prune(
    folder: Path, keep: Collection[int], keep_optimizer: int = 2, at_most: int | None = None
) -> None:
    """Remove all checkpoints but the newest ones and those to keep, of which only weights stay.

    What killed saves left behind goes too.

    Args:
        folder: Where checkpoints are saved.
        keep: Steps whose weights to keep.
        keep_optimizer: How many of the newest can be resumed from. At least 1.
        at_most: Leave alone what is newer than this step: another, longer run's.
    """
    assert keep_optimizer >= 1, "a run must be able to go on from somewhere"
    present = [step for step in steps(folder) if at_most is None or step <= at_most]
    for step in present[:-keep_optimizer]:
        if step not in keep:
            _remove(path_of(folder, step))
        else:
            (path_of(folder, step) / OPTIMIZER).unlink(missing_ok=True)
    for left_over in folder.glob(".step-*"):
        if present and int(left_over.name.split(".")[1].removeprefix("step-")) <= present[-1]:
            shutil.rmtree(left_over, ignore_errors=True)


def write_json(path: Path, value: JSON) -> None:
    """Write a small file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    _flush(temporary)
    temporary.rename(path)
    _flush(path.parent)


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Average the weights of checkpoints; the mean of equals is the same to the bit.

    Sums are taken in fp64, in the given order; the result has the weights' own types.

    Raises:
        CheckpointError: If one is damaged, or their names, shapes or types differ.
        ValueError: If there are none.
    """
    if not paths:
        raise ValueError("An average needs at least one checkpoint.")
    first = load_weights(paths[0])
    sums = {name: tensor.double() for name, tensor in first.items()}
    for path in paths[1:]:
        weights = load_weights(path)
        _require_alike(paths[0], first, path, weights)
        for name, tensor in weights.items():
            sums[name] += tensor
    return {name: (total / len(paths)).to(first[name].dtype) for name, total in sums.items()}


def _require_alike(
    path: Path, left: Mapping[str, Tensor], other: Path, right: Mapping[str, Tensor]
) -> None:
    difference = _difference("weights", _kinds(left), _kinds(right))
    if difference:
        where, here, there = difference
        raise CheckpointError(
            f"Only checkpoints of one model can be averaged, but `{where}` is {here} in {path} "
            f"and {there} in {other}."
        )


def _kinds(tensors: Mapping[str, Tensor]) -> dict[str, JSON]:
    return {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in tensors.items()}


def _holds(path: Path, *, with_optimizer: bool) -> bool:
    try:
        return verify(path).has_optimizer or not with_optimizer
    except CheckpointError:
        return False


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, JSON]:
    """Write one file, flush it, and return its facts as read back."""
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(on_cpu, path)
    except SafetensorError as error:
        code = re.search(r"\(os error (\d+)\)", str(error))
        if code:  # safetensors hides a full disk in a text
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error
        raise
    _flush(path)
    with safe_open(path, framework="pt") as file:
        for name, tensor in on_cpu.items():
            if not torch.equal(_bytes(file.get_tensor(name)), _bytes(tensor)):
                raise CheckpointError(f"{path} does not read back as it was written: {name}.")
    return _facts(path)


def _bytes(tensor: Tensor) -> Tensor:
    """View a tensor as bytes, so that NaN equals itself."""
    return tensor.reshape(-1).view(torch.uint8)


def _facts(path: Path) -> dict[str, JSON]:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": sha256}


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error


def _flush(path: Path) -> None:
    """Make a file, or the names in a folder, outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a checkpoint, if it is there, so that it is never seen half removed."""
    if path.exists():
        going = path.rename(_temporary(path.parent, int(path.name.removeprefix("step-"))))
        shutil.rmtree(going)


def _temporary(folder: Path, step: int) -> Path:
    return folder / f".{path_of(folder, step).name}.{uuid4().hex}"


def _difference(where: str, left: JSON, right: JSON) -> tuple[str, str, str] | None:
    """Find the first place where two JSON values differ, and what each has there."""
    if left == right:
        return None
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        parts = [(key, left.get(key), right.get(key)) for key in [*left, *right]]
    elif isinstance(left, list) and isinstance(right, list):
        parts = [(str(at), *pair) for at, pair in enumerate(zip_longest(left, right))]
    else:
        return where, json.dumps(left), json.dumps(right)
    found = (_difference(f"{where}.{key}", *pair) for key, *pair in parts)
    return next((difference for difference in found if difference), None)
