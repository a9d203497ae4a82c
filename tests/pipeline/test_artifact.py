import json
import multiprocessing
import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.artifact import Damaged, Identity, Input, Root, check_writable
from pipeline.errors import TradukoError


def identity(**changes):
    fields = {
        "stage": "clean",
        "version": 1,
        "config": {"clean": {"max_words": 5}},
        "inputs": (Input("download:a", "f" * 64, "c" * 64),),
        "tools": {"unicodedata": "14.0.0"},
        "aside": ("rejected/*",),
    }
    return Identity(**{**fields, **changes})


@pytest.fixture
def said():
    return []


@pytest.fixture
def root(tmp_path, said):
    return Root(tmp_path / "root", said.append)


def write_text(text, rejected="no"):
    def build(out: Path, work: Path):
        (out / "rejected").mkdir()
        (out / "rows.txt").write_text(text)
        (out / "rejected" / "rows.txt").write_text(rejected)
        return {"rows": 1}

    return build


def refuse(out, work):
    raise AssertionError("must not be built again")


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "dedup"},
        {"version": 2},
        {"config": {"clean": {"max_words": 6}}},
        {"inputs": (Input("download:a", "f" * 64, "d" * 64),)},
        {"inputs": ()},
        {"tools": {"unicodedata": "15.0.0"}},
    ],
)
def test_whatever_determines_the_result_changes_the_fingerprint(change):
    assert identity(**change).fingerprint != identity().fingerprint


@pytest.mark.parametrize(
    "change", [{"inputs": (Input("download:a", "0" * 64, "c" * 64),)}, {"aside": ()}]
)
def test_an_inputs_history_does_not_change_the_fingerprint(change):
    assert identity(**change).fingerprint == identity().fingerprint


def test_the_fingerprint_of_a_fixed_identity_never_changes():
    assert (
        identity().fingerprint == "002330b2e6bb2ad27cee697474726966c6f143f5641b1d33ef2fef40f0b86ab9"
    )


def test_a_second_produce_finds_the_first_ones_artifact(root):
    made, was_cached = root.produce(identity(), write_text("a"))
    found, is_cached = root.produce(identity(), refuse)
    assert (was_cached, is_cached) == (False, True)
    assert found == made
    assert found.path("rows.txt").read_text() == "a"
    assert found.stats == {"rows": 1}


def test_files_that_no_stage_reads_are_kept_but_are_no_content(root):
    first, _ = root.produce(identity(), write_text("a", rejected="x"))
    second, _ = root.produce(identity(version=2), write_text("a", rejected="y"))
    third, _ = root.produce(identity(version=3), write_text("b", rejected="x"))
    assert first.manifest.content == second.manifest.content != third.manifest.content
    assert second.path("rejected/rows.txt").read_text() == "y"


def test_a_tables_content_does_not_depend_on_how_it_is_stored(root):
    table = pa.table({"src": ["a", "b", "ü"], "n": [1, 2, 3]})

    def store(**how):
        def build(out, work):
            pq.write_table(table, out / "part-00000.parquet", **how)
            return {}

        return build

    plain, _ = root.produce(identity(version=1), store(compression="none"))
    small, _ = root.produce(identity(version=2), store(compression="zstd", row_group_size=1))
    assert plain.manifest.files[0].sha256 != small.manifest.files[0].sha256
    assert plain.manifest.content == small.manifest.content
    assert small.manifest.files[0].rows == 3


def test_a_failed_attempt_leaves_nothing(root):
    def fail(out, work):
        (out / "half").write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        root.produce(identity(), fail)
    assert root.find(identity()) is None
    assert list(root.place(identity()).iterdir()) == []


def die_while_building(folder, where):
    def build(out, work):
        (out / "rows.txt").write_text("half")
        (work / "checkpoint").write_text("7")
        if where == "building":
            os.kill(os.getpid(), signal.SIGKILL)
        return {}

    if where == "committing":
        Path.replace = lambda self, target: os.kill(os.getpid(), signal.SIGKILL)
    Root(folder, print).produce(identity(), build)


@pytest.mark.parametrize("where", ["building", "committing"])
def test_a_killed_attempt_is_no_artifact_and_the_next_one_goes_on_from_its_work(root, where):
    process = multiprocessing.get_context("fork").Process(
        target=die_while_building, args=(root.folder, where)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert root.find(identity()) is None
    seen = []

    def build(out, work):
        seen.append((work / "checkpoint").read_text())
        (out / "rows.txt").write_text("whole")
        return {}

    artifact, _ = root.produce(identity(), build)
    assert seen == ["7"]
    assert artifact.path("rows.txt").read_text() == "whole"
    names = {path.name for path in root.place(identity()).iterdir()}
    assert names == {"manifest.json", artifact.folder.name}
    assert not (root.folder / "work" / "clean" / identity().fingerprint[:16]).exists()


def test_work_with_a_key_of_its_own_outlives_the_artifact(root):
    def build(out, work):
        (work / "checkpoint").write_text("7")
        return {}

    root.produce(identity(), build, work_key="k")
    assert (root.folder / "work" / "clean" / "k" / "checkpoint").exists()


@pytest.mark.parametrize("damage", ["remove", "truncate", "manifest", "other"])
def test_a_damaged_artifact_is_set_aside_rebuilt_and_said_so(root, said, damage):
    made, _ = root.produce(identity(), write_text("abc"))
    manifest = root.place(identity()) / "manifest.json"
    if damage == "remove":
        made.path("rows.txt").unlink()
    elif damage == "truncate":
        made.path("rows.txt").write_text("ab")
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:100])
    else:
        manifest.write_text(manifest.read_text().replace(identity().fingerprint, "0" * 64))
    with pytest.raises(Damaged):
        root.find(identity())
    again, cached = root.produce(identity(), write_text("abc"))
    assert not cached
    assert again.path("rows.txt").read_text() == "abc"
    assert len(said) == 1
    assert "set aside" in said[0]
    assert len(list((root.folder / "damaged").iterdir())) == 1


def test_a_changed_byte_of_the_same_size_is_found_by_hash(root):
    made, _ = root.produce(identity(), write_text("abc"))
    made.path("rows.txt").write_text("abd")
    assert root.find(identity()) is not None
    with pytest.raises(Damaged, match="sha256"):
        root.find(identity(), deep=True)


def test_force_builds_again_and_keeps_one_attempt(root):
    first, _ = root.produce(identity(), write_text("a"))
    second, cached = root.produce(identity(), write_text("a"), force=True)
    assert not cached
    assert first.folder != second.folder
    assert not first.folder.exists()
    assert first.manifest.files == second.manifest.files


def build_slowly(folder, started, go_on, results):
    def build(out, work):
        started.set()
        go_on.wait(20)
        (out / "rows.txt").write_text(str(os.getpid()))
        return {}

    said = []
    _, cached = Root(folder, said.append).produce(identity(), build)
    results.put((cached, said))


def test_of_two_runs_one_builds_and_the_other_waits_and_reuses(root):
    context = multiprocessing.get_context("fork")
    started, go_on, results = context.Event(), context.Event(), context.Queue()
    first = context.Process(target=build_slowly, args=(root.folder, started, go_on, results))
    first.start()
    assert started.wait(20)
    second = context.Process(target=build_slowly, args=(root.folder, started, go_on, results))
    second.start()
    second.join(0.5)
    assert second.is_alive(), "the second run must wait"
    go_on.set()
    outcomes = [results.get(timeout=20) for _ in range(2)]
    first.join()
    second.join()
    assert sorted(cached for cached, _ in outcomes) == [False, True]
    assert any("waiting" in line for _, said in outcomes for line in said)


def test_a_manifest_says_what_it_is_made_of(root):
    root.produce(identity(), write_text("a"))
    manifest = json.loads((root.place(identity()) / "manifest.json").read_text())
    assert manifest["inputs"] == [["download:a", "f" * 64, "c" * 64]]
    assert manifest["config"] == {"clean": {"max_words": 5}}
    assert manifest["tools"]["unicodedata"] == "14.0.0"
    assert [file["path"] for file in manifest["files"]] == ["rejected/rows.txt", "rows.txt"]


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TradukoError, match=r"root .*root must be a writable folder"):
        check_writable(tmp_path / "file" / "root")
