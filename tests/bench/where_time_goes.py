"""Where the seconds of a run go: imports, Prefect, MLflow, Ray, each stage.

    python tests/bench/where_time_goes.py [RECIPE]

Runs the recipe into an empty root, then times the engines' starts alone, on the same machine.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

STARTS = {
    "imports of the command line": "import flows.cli",
    "Prefect: import, temporary server, empty flow": (
        "from flows.environment import turn_off_reporting; turn_off_reporting()\n"
        "from prefect import flow\n"
        "flow(lambda: None, name='empty')()"
    ),
    "MLflow: import, a new store": (
        "import tempfile; from pathlib import Path\n"
        "from flows.environment import turn_off_reporting; turn_off_reporting()\n"
        "from flows.tracking import Tracker; from pipeline.recipe import read_recipe\n"
        "with Tracker(Path(tempfile.mkdtemp()), read_recipe('quickstart'), print): pass"
    ),
    "Ray: import, a local cluster": (
        "from flows.cluster import Cluster\nwith Cluster(None) as c: c.connect()"
    ),
}


def timed(*arguments):
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - start, done.stdout


def main():
    recipe = sys.argv[1] if len(sys.argv) > 1 else "quickstart"
    print(f"load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as root:
        wall_s, printed = timed("-m", "flows.cli", "run", recipe, "--root", root, "--json")
    document = json.loads(printed)
    by_stage = {}
    for entry in document["stages"]:
        by_stage[entry["stage"]] = by_stage.get(entry["stage"], 0.0) + entry["took_s"]
    rows = [*by_stage.items(), ("between and around the stages", wall_s - sum(by_stage.values()))]
    print(f"| {recipe} | seconds | share |\n|---|---:|---:|")
    for name, took_s in [*rows, ("total", wall_s)]:
        print(f"| {name} | {took_s:.1f} | {took_s / wall_s:.0%} |")
    print("\n| start alone, fresh process | seconds |\n|---|---:|")
    for name, program in STARTS.items():
        took_s, _ = timed("-c", program)
        print(f"| {name} | {took_s:.1f} |")


if __name__ == "__main__":
    main()
