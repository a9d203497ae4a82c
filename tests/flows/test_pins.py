"""`traduko.lock` from the command line: written at first use, then held to."""

import hashlib
import json
import threading

import pytest

from flows.cli import main
from tests.servers import Bodies, serving

pytestmark = pytest.mark.usefixtures("without_engines")

TEXTS = {
    side: "".join(f"{words} {number}.\n" for number in range(30)).encode()
    for side, words in (("en", "This is line"), ("de", "Das ist Zeile"))
}


@pytest.fixture
def server():
    with serving(Bodies, bodies=dict(TEXTS)) as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "recipes"
    folder.mkdir()
    return folder


@pytest.fixture
def recipe(folder, server):
    path = folder / "own.toml"
    path.write_text(
        'name = "own"\nsrc = "en"\ntgt = "de"\n[[download.train]]\nname = "web"\n'
        f'src = "{server.site}/en?token=hunter2"\ntgt = "{server.site}/de"\n'
    )
    return str(path)


@pytest.fixture
def traduko(recipe, tmp_path, capsys):
    """Runs a command on the recipe's download alone; the exit code, the document, what was said."""

    def call(command="run", root="root", *more):
        options = ["--root", str(tmp_path / root), "--json", "--only", "download", *more]
        code = main([command, recipe, *options])
        shown = capsys.readouterr()
        return code, json.loads(shown.out), shown.err

    return call


@pytest.fixture
def pins(folder):
    def read():
        return json.loads((folder / "traduko.lock").read_text())["files"]

    return read


def test_the_first_use_of_an_address_writes_the_lock(traduko, pins, server, folder):
    code, document, said = traduko()
    assert code == 0
    [de, en] = sorted(pins())
    assert de == f"{server.site}/de"
    assert en.startswith(f"{server.site}/en?")
    assert "hunter2" not in (folder / "traduko.lock").read_text() + said + json.dumps(document)
    [stage] = document["stages"]
    for name, place in ((de, "tgt"), (en, "src")):
        found = stage["stats"][place]
        assert pins()[name] == {"bytes": found["bytes"], "sha256": found["sha256"]}
    assert f"{server.site}/de: {len(TEXTS['de']):,} bytes" in said


def test_no_manifest_holds_what_follows_the_question_mark(traduko, tmp_path):
    traduko()
    kept = [path for path in (tmp_path / "root").rglob("*.json") if path.is_file()]
    assert kept
    assert all("hunter2" not in path.read_text() for path in kept)


def test_what_was_fetched_is_gone_when_its_artifacts_are_there(traduko, tmp_path):
    traduko()
    work = tmp_path / "root" / "work" / "fetched"
    assert [path for path in work.iterdir() if path.is_file()] == []


def test_pinning_changes_no_name(traduko, server):
    _, first, _ = traduko()
    code, again, _ = traduko()
    assert code == 0
    assert [stage["cached"] for stage in again["stages"]] == [True]
    assert again["stages"][0]["fingerprint"] == first["stages"][0]["fingerprint"]
    assert len(server.asked) == 2


@pytest.mark.parametrize("changed", [b"Other text.\n" * 30, TEXTS["de"].replace(b"9", b"8")])
def test_on_a_second_machine_a_changed_file_is_refused(traduko, server, folder, changed):
    traduko()
    server.bodies["de"] = changed
    code, document, _ = traduko("run", "other")
    assert (code, document["error"]["kind"]) == (2, "corpus")
    message = document["error"]["message"]
    assert f"pinned in {folder / 'traduko.lock'}, but" in message
    assert f"remove the line of `{server.site}/de` from {folder / 'traduko.lock'}" in message


def test_on_a_second_machine_the_same_files_give_the_same_artifact(traduko):
    (_, one, _), (_, two, _) = traduko(), traduko("run", "other")
    assert [stage["fingerprint"] for stage in one["stages"]] == [
        stage["fingerprint"] for stage in two["stages"]
    ]


def test_a_missing_pin_is_taken_from_the_artifact(traduko, pins, folder, server):
    traduko()
    before = pins()
    (folder / "traduko.lock").unlink()
    assert traduko()[0] == 0
    assert pins() == before
    assert len(server.asked) == 2


def test_an_artifact_of_another_file_than_the_pinned_one_is_built_again(
    traduko, pins, folder, server
):
    _, old, _ = traduko("run", "old")
    server.bodies["de"] = TEXTS["de"].replace(b"9", b"8")
    (folder / "traduko.lock").unlink()
    traduko("run", "new")
    _, planned, _ = traduko("plan", "old")
    assert [(stage["status"], stage["reason"]) for stage in planned["stages"]] == [
        ("run", "traduko.lock pins another file")
    ]
    code, document, said = traduko("run", "old")
    assert code == 0
    assert "(traduko.lock pins another file)" in said
    [stage] = document["stages"]
    assert not stage["cached"]
    assert stage["fingerprint"] == old["stages"][0]["fingerprint"]
    assert stage["stats"]["tgt"]["sha256"] == pins()[f"{server.site}/de"]["sha256"]
    assert traduko("run", "old")[1]["stages"][0]["cached"]


def test_a_known_sha256_needs_no_pin(traduko, recipe, folder, server):
    sides = {
        side: f'{{url="{server.site}/{side}", sha256="{hashlib.sha256(TEXTS[side]).hexdigest()}"}}'
        for side in TEXTS
    }
    source = f'[{{name="web", src={sides["en"]}, tgt={sides["de"]}}}]'
    assert traduko("run", "root", "--set", f"download.train={source}")[0] == 0
    assert not (folder / "traduko.lock").exists()


def test_two_commands_at_once_share_what_is_pinned(traduko, recipe, tmp_path, server, capsys):
    traduko()
    arguments = ["run", recipe, "--root", str(tmp_path / "other"), "--only", "download"]
    threads = [threading.Thread(target=main, args=(arguments,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(list((tmp_path / "other").glob("download/*/attempt-*"))) == 1
    assert "built" in capsys.readouterr().err
    assert len(server.asked) <= 2 + 4


def test_further_checks_change_no_name(traduko, server):
    traduko()
    md5 = hashlib.md5(TEXTS["de"]).hexdigest()
    de = f'{{url="{server.site}/de", md5="{md5}", bytes={len(TEXTS["de"])}}}'
    source = f'[{{name="web", src="{server.site}/en?token=hunter2", tgt={de}}}]'
    code, document, _ = traduko("run", "root", "--set", f"download.train={source}")
    assert code == 0
    assert document["stages"][0]["cached"]


def test_a_lock_that_cannot_be_read_is_refused_at_once(traduko, folder, server):
    (folder / "traduko.lock").write_text("<<<<<<< HEAD")
    for command in ("plan", "run"):
        code, document, _ = traduko(command)
        assert (code, document["error"]["kind"]) == (2, "recipe")
    assert server.asked == []


def test_a_shipped_recipe_has_its_lock_in_the_root(tmp_path):
    from flows.run import make_run

    def lock_of(recipe):
        run = make_run(recipe, {}, root=str(tmp_path / "root"), environment={}, say=print)
        return run.lock.path

    own = tmp_path / "own.toml"
    own.write_text('extends = "quickstart"\nname = "own"\n')
    assert lock_of("quickstart") == tmp_path / "root" / "traduko.lock"
    assert lock_of(str(own)) == tmp_path / "traduko.lock"


def test_several_sources_of_one_address_fetch_it_once(traduko, server):
    sources = ", ".join(
        f'{{name="{name}", src="{server.site}/en", tgt="{server.site}/de"}}' for name in "ab"
    )
    assert traduko("run", "root", "--set", f"download.train=[{sources}]")[0] == 0
    assert sorted(server.asked) == ["/de", "/en"]
