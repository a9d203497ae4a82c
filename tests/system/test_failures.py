"""What the real command says when a server does not answer, or the input is wrong."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_dead_prefect_api_is_named_with_what_to_do(traduko, tiny, tmp_path):
    done = traduko(
        "run", tiny, "--root", tmp_path / "root", PREFECT_API_URL="http://127.0.0.1:9/api"
    )
    assert done.returncode == 1
    assert done.stderr == (
        "traduko: Prefect's API at http://127.0.0.1:9/api does not answer. Start it (prefect "
        "server start), or unset PREFECT_API_URL to run without a server.\n"
    )


def test_a_dead_mlflow_server_is_named_with_what_to_do(traduko, tiny, tmp_path):
    done = traduko(
        "run", tiny, "--root", tmp_path / "root", MLFLOW_TRACKING_URI="http://127.0.0.1:9"
    )
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("traduko: ")]
    assert len(lines) == 1
    assert "MLflow at http://127.0.0.1:9 must answer" in lines[0]
    assert "unset MLFLOW_TRACKING_URI" in lines[0]
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "root").glob("download/*"))


def test_wrong_input_found_in_a_stage_is_one_line_under_prefect_too(traduko, tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\n")
    recipe = tmp_path / "own.toml"
    recipe.write_text(
        'name = "own"\nsrc = "en"\ntgt = "de"\n[[download.train]]\nname = "a"\n'
        'src = "a.en"\ntgt = "a.de"\n'
    )
    done = traduko("run", recipe, "--root", tmp_path / "root")
    assert done.returncode == 2
    [line] = [line for line in done.stderr.splitlines() if line.startswith("traduko: ")]
    assert "a.en" in line
    assert "a.de" in line
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "root" / "download").glob("*/*"))


@pytest.mark.ray
@pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.long)])
def test_a_run_told_to_stop_while_training_ends_soon_and_leaves_only_its_checkpoints(
    tiny, tmp_path, name
):
    root, log = tmp_path / "root", tmp_path / "log"
    command = [sys.executable, "-m", "flows.cli", "run", tiny, "--root", str(root)]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--set", "train.max_steps=100000"],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        while process.poll() is None and not list(root.glob("work/train/*/step-*")):
            time.sleep(0.2)
        process.send_signal(signal.Signals[name])
        process.wait(60)
        assert ends_within(process.pid, 30), "processes are left behind"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    told = log.read_text()
    assert process.returncode == 130, told
    assert told.splitlines()[-1] == "traduko: Interrupted. Run the same command to go on."
    assert "Traceback" not in told
    [events] = root.glob("work/train/*/events.jsonl")
    kinds = [json.loads(line)["kind"] for line in events.read_text().splitlines()]
    assert kinds[-2:] == ["checkpoint", "stopped"], "the step it came to is saved"
    assert not list(root.glob("train/*/attempt-*"))


def ends_within(group, limit_s):
    """Whether every process of a group is gone in time."""
    for _ in range(limit_s * 5):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.2)
    return False
