"""Steps of a pipeline run, as a tracker sees them."""

import json
import time
from pathlib import Path

from flows.run import Result
from pipeline.artifact import Root
from pipeline.recipe import read_recipe
from pipeline.stages import Node, Stage

REPO = Path(__file__).resolve().parents[3]
CONFIG = read_recipe(str(REPO / "tests" / "tiny.toml"))


def node(name="vocab", **config):
    """A stage of a name; its fingerprint covers the config."""
    stage = Stage(name, 1, lambda *_: {}, resume_without=("max_steps",) if name == "train" else ())
    return Node(stage, config, config)


def step(tracker, root, node, fill=lambda out, work: {}, force=False):
    """One step of a pipeline run, as `flows.run` takes it."""

    def build(out, work):
        with tracker.building(node, node.identity({}), work):
            return fill(out, work)

    root = Root(root, print)
    key = node.work_key({})
    artifact, cached = root.produce(node.identity({}), build, work_key=key, force=force)
    result = Result(node, artifact, cached, 0.0)
    tracker.finished(result)
    return result


def events(path, *steps, checkpoints=()):
    """Append training events."""
    with path.open("a") as file:
        for step in steps:
            kinds = [("train", {"loss": 10.0 - step, "tokens_per_s": 5.0})]
            kinds += [("checkpoint", {})] if step in checkpoints else []
            for kind, metrics in kinds:
                stamp = f"2026-01-01T00:00:{step:02}.250+00:00"
                file.write(
                    json.dumps({"step": step, "time": stamp, "kind": kind, "metrics": metrics})
                    + "\n"
                )


def cut(path, last_step):
    """What a resumed run does first."""
    kept = [line for line in path.read_text().splitlines() if json.loads(line)["step"] <= last_step]
    new = path.with_suffix(".new")
    new.write_text("".join(line + "\n" for line in kept))
    new.replace(path)


def publish(out, work):
    (out / "events.jsonl").write_bytes((work / "events.jsonl").read_bytes())


def eventually(holds):
    for _ in range(100):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never came about")


class Gone(BaseException):
    """The process is killed."""


def die(tracker):
    """Leave as `kill -9` does: nothing is told, the kernel frees the lock."""
    tracker._mark._file.close()
    tracker._stack.pop_all()


def made(folder):
    folder.mkdir(parents=True)
    return folder
