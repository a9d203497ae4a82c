"""What a user sees: exit codes, one clear line, nothing half-written."""

import gzip
import json
import os
import re
import subprocess
import sys
import threading

import pytest

from flows import cli
from flows.cli import main
from flows.commands.options import open_run
from flows.run import Run

pytestmark = pytest.mark.usefixtures("without_engines")


@pytest.fixture
def recipe(tmp_path):
    """A recipe of three local corpora; the test breaks one of its files."""
    sides = {"en": "line {} of {} says this", "de": "hier sagt Zeile {} aus {} jenes"}
    for name in ("train", "dev", "test"):
        for side, words in sides.items():
            lines = [words.format(number, name) + "\n" for number in range(30)]
            (tmp_path / f"{name}.{side}").write_text("".join(lines))
    path = tmp_path / "own.toml"
    path.write_text(
        'name = "own"\nsrc = "en"\ntgt = "de"\nroot = "unused"\n'
        + "".join(
            f'[[download.{name}]]\nname = "{name}"\nsrc = "{name}.en"\ntgt = "{name}.de"\n'
            for name in ("train", "dev", "test")
        )
    )
    return path


@pytest.fixture
def refused(tmp_path, recipe, capsys):
    """Runs a recipe that must be refused: the message, after checking that nothing is left."""

    def run(*arguments, command="run", code=2, path=recipe):
        root = tmp_path / "root"
        assert main([command, str(path), "--root", str(root), *arguments]) == code
        err = capsys.readouterr().err
        lines = [line for line in err.splitlines() if line.startswith("traduko: ")]
        assert len(lines) == 1, err
        assert "Traceback" not in err
        assert not list(root.glob("*/*/attempt-*/*.part*")), "nothing half-written"
        for attempt in root.glob("*/*/attempt-*"):
            assert (attempt.parent / "manifest.json").exists(), "nothing half-written"
        return lines[0]

    return run


def test_a_missing_file_is_named(refused, tmp_path):
    (tmp_path / "dev.de").unlink()
    assert f"File {tmp_path}/dev.de does not exist" in refused()
    assert f"File {tmp_path}/dev.de does not exist" in refused(command="plan")


def test_a_folder_in_place_of_a_file_is_named(refused, tmp_path):
    (tmp_path / "dev.de").unlink()
    (tmp_path / "dev.de").mkdir()
    assert f"{tmp_path}/dev.de must be a file, but is a folder" in refused()


def test_a_wrong_sha256_names_file_expected_and_found(refused, tmp_path):
    source = f"{{path='{tmp_path}/train.en', sha256='{'0' * 64}'}}"
    other = f"'{tmp_path}/train.de'"
    message = refused("--set", f"download.train=[{{name='t', src={source}, tgt={other}}}]")
    assert "train.en" in message
    assert "0" * 64 in message


def test_unequal_line_counts_name_both_files_and_both_counts(refused, tmp_path):
    with (tmp_path / "train.de").open("a") as file:
        file.write("one more\n")
    message = refused()
    for words in ("train.en", "train.de", "30", "31"):
        assert words in message


def test_invalid_utf8_names_file_line_and_byte(refused, tmp_path):
    lines = (tmp_path / "train.de").read_bytes().splitlines(keepends=True)
    lines[4] = b"T\xfcr\n"
    (tmp_path / "train.de").write_bytes(b"".join(lines))
    message = refused()
    assert "train.de" in message
    assert "line 5" in message
    assert f"byte {sum(map(len, lines[:4])) + 1}" in message


def test_a_truncated_gzip_is_named(refused, tmp_path):
    packed = gzip.compress((tmp_path / "train.de").read_bytes())
    (tmp_path / "train.de").write_bytes(packed[: len(packed) // 2])
    assert "train.de" in refused()


def test_an_empty_corpus_is_refused(refused, tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("")
    assert "train.en" in refused()


def test_training_text_that_dev_holds_completely_is_refused(refused, tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"dev.{side}").write_text((tmp_path / f"train.{side}").read_text())
    assert "No training pair is left: of 30, `clean` dropped 0 and `dedup` 30" in refused()


def test_a_vocabulary_larger_than_the_text_allows_names_the_largest(refused):
    message = refused("--set", "vocab.size=30000")
    assert "`vocab.size` must be at most" in message


def test_a_corpus_of_one_pair_says_what_to_do(refused, tmp_path):
    (tmp_path / "train.en").write_text("One house.\n")
    (tmp_path / "train.de").write_text("Ein Haus.\n")
    message = refused()
    assert "for these 1 training pairs" in message
    assert "give more text" in message


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("clean.max_wrods=3", "Did you mean `clean.max_words`"),
        ("clean.max_words=many", "`clean.max_words` must be a valid integer"),
        ("nonsense", "An override must read section.field=value"),
    ],
)
def test_a_wrong_override_is_refused_before_anything_is_read(refused, tmp_path, override, words):
    assert words in refused("--set", override)
    assert not (tmp_path / "root").exists()


def test_an_unknown_recipe_names_the_nearest(capsys):
    assert main(["run", "quikstart"]) == 2
    assert "Did you mean `quickstart`" in capsys.readouterr().err


def test_a_wrong_mirror_is_refused(refused):
    assert "A mirror must read PREFIX=FOLDER" in refused("--mirror", "nonsense")


def test_only_without_what_comes_before_is_refused(refused):
    assert "`download:train` is not built" in refused("--only", "clean")


@pytest.mark.parametrize("arguments", [["run"], ["walk"], ["run", "quickstart", "--only", "walk"]])
def test_wrong_options_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    capsys.readouterr()


def test_an_error_is_one_json_document(recipe, tmp_path, capsys):
    (tmp_path / "dev.de").unlink()
    assert main(["run", str(recipe), "--root", str(tmp_path / "root"), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["kind"] == "corpus"
    assert "dev.de does not exist" in document["error"]["message"]


def test_a_root_that_cannot_be_written_fails_with_1(refused, tmp_path):
    (tmp_path / "root").write_text("a file")
    assert "must be a writable folder" in refused(code=1)


def test_an_unreachable_address_fails_with_1(refused, tmp_path, monkeypatch):
    message = refused(
        "--set",
        "download.test=[{name='t', src='http://127.0.0.1:9/a', tgt='http://127.0.0.1:9/b'}]",
        code=1,
    )
    assert re.search("http://127.0.0.1:9/[ab]` could not be fetched in 5 attempts", message)


def test_an_interrupted_run_exits_with_130(recipe, tmp_path, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "execute", interrupt)
    assert main(["run", str(recipe), "--root", str(tmp_path / "root")]) == 130
    assert "Run the same command to go on" in capsys.readouterr().err


def test_a_plan_is_one_line_a_node_or_one_document(recipe, tmp_path, capsys):
    arguments = ["plan", str(recipe), "--root", str(tmp_path / "root")]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["download:train", "will", "run", "never", "built"]
    assert len(lines) == 10
    assert main([*arguments, "--json"]) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert {tuple(sorted(stage)) for stage in stages} == {
        ("fingerprint", "reason", "source", "stage", "status")
    }
    assert stages[-1]["status"] == "depends"
    assert not (tmp_path / "root" / "download").exists()


def test_the_root_comes_from_the_option_then_the_environment_then_the_recipe(
    recipe, tmp_path, monkeypatch
):
    def root_of(*options):
        arguments = cli.parser().parse_args(["plan", str(recipe), *options])
        return open_run(arguments, lambda line: None).root.folder

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRADUKO_ROOT", raising=False)
    assert root_of() == tmp_path / "unused"
    assert root_of("--set", "root=") == tmp_path / "artifacts"
    monkeypatch.setenv("TRADUKO_ROOT", str(tmp_path / "env"))
    assert root_of() == tmp_path / "env"
    assert root_of("--root", "option") == tmp_path / "option"


def test_recipes_are_listed_and_shown(capsys):
    assert main(["recipes"]) == 0
    listed = capsys.readouterr().out
    assert "quickstart" in listed
    assert "multi30k" in listed
    assert main(["recipes", "show", "quickstart"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^train.max_steps = 3000 +# quickstart.toml$", shown, re.MULTILINE)
    assert re.search(r"^clean.max_words = 150 +# default$", shown, re.MULTILINE)
    assert main(["recipes", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["recipes"]) == {
        "iwslt17-de-en", "multi30k", "quickstart",
        "wmt14-en-de-base", "wmt14-en-de-big", "wmt14-en-fr-base", "wmt14-en-fr-big",
    }  # fmt: skip
    assert main(["recipes", "show", "wmt14-en-de-base"]) == 0
    assert "Koehn (2005)" in capsys.readouterr().out


def test_every_command_has_help_with_an_example(capsys):
    for command in ("run", "plan", "recipes"):
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        assert stopped.value.code == 0
        assert "example: traduko" in capsys.readouterr().out


def test_a_mirror_serves_what_begins_with_its_prefix(recipe, tmp_path, capsys):
    arguments = [
        "run", str(recipe), "--root", str(tmp_path / "root"), "--only", "download",
        "--mirror", f"https://nowhere.invalid/=  {tmp_path}".replace("=  ", "="),
        "--set", "download.train=[{name='t', src='https://nowhere.invalid/train.en', "
        "tgt='https://nowhere.invalid/train.de'}]", "--json",
    ]  # fmt: skip
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert [entry["stats"]["rows"] for entry in document["stages"]] == [30, 30, 30]


def test_two_commands_at_once_share_the_work(recipe, tmp_path, capsys):
    arguments = ["run", str(recipe), "--root", str(tmp_path / "root"), "--only", "download"]
    threads = [threading.Thread(target=main, args=(arguments,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(list((tmp_path / "root").glob("download/*/attempt-*"))) == 3
    capsys.readouterr()


@pytest.mark.parametrize("words", [("recipes",), ("recipes", "show", "quickstart")])
def test_a_reader_that_has_enough_ends_a_command_quietly(words):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *words], stdout=writing, stderr=subprocess.PIPE,
        text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
