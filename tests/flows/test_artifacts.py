"""What `traduko artifacts` says of a root, on the artifacts of a real run."""

import dataclasses
import fcntl
import json
import shutil

import pyarrow.parquet as pq
import pytest

from flows.cli import main
from flows.progress import Terminal
from flows.run import Workplace, make_run
from pipeline.compute import InProcess
from pipeline.dag import Selection
from pipeline.drawn import draw_rows
from pipeline.errors import InputError, TradukoError
from pipeline.inventory import damage, lineage, remove, take_stock
from pipeline.stages import STAGE_NAMES

STAGES = frozenset({"download", "clean", "dedup"})


def run(folder, *sets):
    made = make_run(
        str(folder / "own.toml"),
        dict(sets),
        root=str(folder / "root"),
        environment={},
        say=lambda line: None,
    )
    first = dataclasses.replace(made, selection=Selection(STAGES))
    with Terminal() as terminal:
        return first.execute(Workplace(InProcess(), terminal))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for name in ("one", "two", "dev"):
        src = [f"line {number} of {name} says this" for number in range(50)]
        tgt = [f"hier sagt Zeile {number} aus {name} jenes" for number in range(50)]
        src[7] = "word " * 200
        (folder / f"{name}.en").write_text("\n".join(src) + "\n")
        (folder / f"{name}.de").write_text("\n".join(tgt) + "\n")
    sources = "".join(
        f'[[download.{kind}]]\nname = "{name}"\nsrc = "{name}.en"\ntgt = "{name}.de"\n'
        for kind, name in (("train", "one"), ("train", "two"), ("dev", "dev"))
    )
    (folder / "own.toml").write_text(
        f'name = "own"\nsrc = "en"\ntgt = "de"\n{sources}[clean]\nrules_off = ["language"]\n'
    )
    run(folder)
    return folder


@pytest.fixture
def own(built, tmp_path):
    shutil.copytree(built, tmp_path / "own")
    return tmp_path / "own"


def test_every_artifact_is_listed_under_the_name_that_a_run_knows_it_by(built):
    entries = take_stock(built / "root").entries
    rows = {entry.names: entry.num_rows for entry in entries}
    assert rows == {
        ("own/download:one",): None,
        ("own/download:two",): None,
        ("own/download:dev",): None,
        ("own/clean:one",): 49,
        ("own/clean:two",): 49,
        ("own/dedup",): 98,
    }
    stages = [entry.artifact.manifest.stage for entry in entries]
    assert stages == sorted(stages, key=STAGE_NAMES.index)


@pytest.mark.parametrize(
    ("name", "found"),
    [("clean", 2), ("clean:two", 1), ("own/clean:one", 1), ("own/download", 3), ("dedup", 1)],
)
def test_a_name_finds_what_it_says(built, name, found):
    assert len(take_stock(built / "root").named(name)) == found


def test_the_beginning_of_a_fingerprint_is_a_name(built):
    inventory = take_stock(built / "root")
    assert [entry.id for entry in inventory.named(inventory.entries[-1].id[:12])] == [
        inventory.entries[-1].id
    ]


@pytest.mark.parametrize("name", ["tokenize", "clean:three", "other/clean", "clean/", "", "x/y/z"])
def test_an_unknown_name_says_what_names_there_are(built, name):
    with pytest.raises(InputError, match=r"No artifact .* must read STAGE, STAGE:SOURCE"):
        take_stock(built / "root").named(name)


def test_a_root_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="must be a folder of artifacts, but is not there"):
        take_stock(tmp_path / "none")


def test_rows_are_drawn_from_those_that_a_rule_rejected(built):
    [entry] = take_stock(built / "root").named("clean:one")
    assert [row["line"] for row in draw_rows(entry.artifact, "length", 20)] == [8]
    with pytest.raises(InputError, match=r"No row was rejected by `ratio`.*length \(1\)"):
        draw_rows(entry.artifact, "ratio", 20)


def test_a_sample_is_the_same_each_time_and_in_the_order_of_the_corpus(built):
    [entry] = take_stock(built / "root").named("dedup")
    rows = draw_rows(entry.artifact, None, 10)
    assert rows == draw_rows(entry.artifact, None, 10)
    everything = pq.read_table(entry.artifact.paths("part-*.parquet")).to_pylist()
    assert [row for row in everything if row in rows] == rows
    assert len(rows) == 10
    assert draw_rows(entry.artifact, None, 1000) == everything


def test_an_artifact_without_rows_of_text_has_none_to_draw(built):
    [entry] = take_stock(built / "root").named("download:one")
    with pytest.raises(InputError, match="holds no rows of text: name an artifact of `clean`"):
        draw_rows(entry.artifact, None, 1)


def test_lineage_goes_back_to_the_files(built):
    inventory = take_stock(built / "root")
    [entry] = inventory.named("dedup")
    lines = [text for _, text in lineage(inventory, entry)]
    assert lines[0].startswith(entry.id)
    for name in ("one.en", "two.de", "dev.en"):
        assert sum(f"/{name}  sha256 " in line for line in lines) == 1


def test_lineage_says_what_is_gone(own):
    inventory = take_stock(own / "root")
    shutil.rmtree(inventory.named("clean:one")[0].artifact.folder.parent)
    inventory = take_stock(own / "root")
    lines = [text for _, text in lineage(inventory, inventory.named("dedup")[0])]
    assert sum("(clean:one) is not here any more" in line for line in lines) == 1


def test_a_changed_byte_is_found(own):
    [entry] = take_stock(own / "root").named("clean:one")
    assert damage(entry.artifact) == ""
    [path] = entry.artifact.paths("part-*.parquet")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert "does not have the sha256" in damage(entry.artifact)


def test_what_the_last_run_needs_is_kept_and_the_rest_removed(own):
    assert take_stock(own / "root").unneeded() == []
    run(own, ("clean.drop", ["line 3"]))
    unneeded = take_stock(own / "root").unneeded()
    stages = [entry.artifact.manifest.stage for entry in unneeded]
    assert stages == ["clean", "clean", "dedup"]
    remove(own / "root", unneeded)
    left = take_stock(own / "root")
    assert len(left.entries) == 6
    assert left.unneeded() == []


def test_what_a_kept_artifact_was_made_from_is_kept(own):
    run(own, ("clean.max_words", 100))  # the same rows: `dedup` is the one made from the others
    inventory = take_stock(own / "root")
    assert [len(inventory.named(stage)) for stage in ("clean", "dedup")] == [2, 1]
    assert len(inventory.entries) == 8
    assert inventory.unneeded() == []


def test_nothing_is_removed_while_a_run_is_at_work(own):
    entries = take_stock(own / "root").entries
    lock = next((own / "root" / "locks").iterdir())
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TradukoError, match=r"A run is at work in .* Nothing was removed"):
            remove(own / "root", entries)
    assert len(take_stock(own / "root").entries) == len(entries)


def test_the_command_prints_one_document(built, capsys):
    root = ["--root", str(built / "root"), "--json"]
    keys = {
        ("list",): "artifacts",
        ("show", "clean:one"): "artifacts",
        ("show", "clean", "--rule", "length", "--sample", "1"): "rows",
        ("verify",): "verified",
        ("lineage", "dedup"): "lineage",
        ("collect",): "unneeded",
    }
    for words, key in keys.items():
        assert main(["artifacts", *words, *root]) == 0
        assert key in json.loads(capsys.readouterr().out)


def test_the_command_shows_rows_without_raw_control_characters(built, capsys):
    assert main(["artifacts", "show", "clean", "--rule", "length", "--root", f"{built}/root"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line for line in lines if line.endswith("  length")) == [
        "one:8  length",
        "two:8  length",
    ]


def test_a_damaged_artifact_ends_the_command_with_1(own, capsys):
    [entry] = take_stock(own / "root").named("dedup")
    entry.artifact.paths("part-*.parquet")[0].unlink()
    assert main(["artifacts", "verify", "--root", str(own / "root")]) == 1
    assert "1 of 6 artifacts are damaged" in capsys.readouterr().err
