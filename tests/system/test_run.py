"""The whole pipeline from the command line, on real Ray."""

import json
import sys

import pytest

HEAVY = ("torch", "ray", "prefect", "mlflow")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_reports_its_stages_scores_and_model(finished):
    root, document = finished
    assert set(document) == {
        "recipe", "root", "stages", "scores", "model", "report", "mlflow_run_id",
    }  # fmt: skip
    assert document["root"] == str(root)
    stages = [entry["stage"] for entry in document["stages"]]
    assert list(dict.fromkeys(stages)) == [
        "download", "clean", "dedup", "vocab", "tokenize", "train", "average", "evaluate",
    ]  # fmt: skip
    for entry in document["stages"]:
        assert set(entry) == {
            "stage", "source", "fingerprint", "folder", "cached", "took_s", "stats",
        }  # fmt: skip
    bleu = document["scores"]["test"]["bleu"]
    assert bleu["low"] <= bleu["high"]
    assert bleu["signature"].startswith("nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|")
    assert "chrf2" in document["scores"]["test"]


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_leaves_a_page_in_the_root_and_in_mlflow(finished):
    root, document = finished
    page = root / "reports" / "tiny" / "index.html"
    assert document["report"] == str(page)
    assert f">{document['scores']['test']['bleu']['score']:.2f}<" in page.read_text()
    [logged] = root.glob(f"mlflow/*/{document['mlflow_run_id']}/artifacts/report/index.html")
    assert logged.read_text() == page.read_text()


@pytest.mark.ray
@pytest.mark.slow
def test_every_row_is_accounted_for(finished):
    _, document = finished
    stats = {entry["stage"]: entry["stats"] for entry in document["stages"]}
    rows = next(e["stats"]["rows"] for e in document["stages"] if e["source"] == "quickstart")
    for stage in ("clean", "dedup"):
        assert stats[stage]["rows_in"] == rows
        rows = stats[stage]["rows_kept"]
        assert rows + sum(stats[stage]["rejected"].values()) == stats[stage]["rows_in"]
    assert stats["tokenize"]["rows_in"] == rows
    assert stats["tokenize"]["rows_kept"] + stats["tokenize"]["over_long"] == rows


@pytest.mark.ray
@pytest.mark.slow
def test_again_everything_is_cached_and_no_engine_is_loaded(finished, traduko, tiny):
    root, first = finished
    again = loaded_after(traduko, ["run", tiny, "--root", str(root), "--json"])
    document = json.loads(again["out"])
    assert [entry["cached"] for entry in document["stages"]] == [True] * len(first["stages"])
    assert document["scores"] == first["scores"]
    assert again["loaded"] == []


@pytest.mark.parametrize("recipe", ["quickstart", "multi30k"])
def test_planning_loads_no_engine(traduko, tmp_path, recipe):
    planned = loaded_after(traduko, ["plan", recipe, "--root", str(tmp_path), "--json"])
    assert json.loads(planned["out"])["stages"][0]["status"] == "run"
    assert planned["loaded"] == []


def loaded_after(traduko, arguments):
    """Run a command in a fresh process; what it printed, and which heavy modules it loaded."""
    import subprocess

    program = (
        "import contextlib, io, json, sys\n"
        "from flows.cli import main\n"
        "out = io.StringIO()\n"
        "with contextlib.redirect_stdout(out):\n"
        f"    code = main({arguments!r})\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print(json.dumps({'code': code, 'out': out.getvalue(), 'loaded': loaded}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout)
    assert result["code"] == 0, done.stderr
    return result


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_only_and_force_rebuild_one_stage_from_what_is_there(finished, traduko, tiny):
    root, _ = finished
    again = traduko.json("run", tiny, "--root", root, "--only", "average", "--force")
    built = [entry["stage"] for entry in again["stages"] if not entry["cached"]]
    assert built == ["average"]
    after = traduko.json("plan", tiny, "--root", root)
    assert {entry["status"] for entry in after["stages"]} == {"cached"}
